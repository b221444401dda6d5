"""Values under their names of earlier versions: settings and stored scores."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from pipelines.config import load_settings
from pipelines.raters import ReplayRater


@pytest.mark.parametrize(
    ("section", "key"), [("scoring", "rater"), ("personas", "writer"), ("training", "rater")]
)
def test_old_name_is_read_with_a_warning(section: str, key: str, tmp_path: Path) -> None:
    file = tmp_path / "old.yaml"
    file.write_text(f"{section}:\n  {key}: embedded\n")
    with pytest.warns(FutureWarning, match=rf"{key}: 'embedded' is now called 'statistical'"):
        settings = load_settings(file, environ={})
    assert getattr(getattr(settings, section), key) == "statistical"


def test_old_name_in_an_ensemble_is_read() -> None:
    members = [{"rater": "embedded"}, {"rater": "mean"}]
    with pytest.warns(FutureWarning, match="statistical"):
        settings = load_settings(
            overrides={"scoring": {"rater": "ensemble", "ensemble": members}}, environ={}
        )
    assert [m.rater for m in settings.scoring.ensemble] == ["statistical", "mean"]


def test_current_name_does_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    load_settings(overrides={"scoring": {"rater": "statistical"}}, environ={})
    assert not recwarn.list


def test_stored_scores_with_the_old_name_are_replayed() -> None:
    scores = pl.DataFrame(
        {
            "persona_id": ["p"],
            "item_id": ["i"],
            "rater": ["embedded"],
            "scale": ["1-5"],
            "probabilities": [[0.0, 0.0, 0.0, 0.0, 1.0]],
            "status": ["ok"],
            "prompt_version": pl.Series([None], dtype=pl.String),
        }
    )
    assert ReplayRater(scores, rater="statistical").name == "replay:statistical"
