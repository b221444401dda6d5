"""Plans and scores of a cohort in parts of personas: any cut gives the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal
from support import small_release
from support.tiny_models import tiny_checkpoint

from pipelines import cohorts
from pipelines.errors import ContractError
from pipelines.llm.answers import AnswerStore
from pipelines.stages import Built, PipelineContext, build, s70_scores, stage_of
from pipelines.store import Store

PLAN, SCORES = "movies.score_plan", "movies.preference_scores"
#: So that 6 personas with 24 items each are two parts.
PAIRS = 72


def cut_into(pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan and score so many pairs together."""
    monkeypatch.setattr(cohorts, "PAIRS", pairs)
    monkeypatch.setattr(s70_scores, "_PROBABILITIES", 5 * pairs)


def scored(home: Path, **scoring: Any) -> tuple[Built, Built]:
    if not home.exists():
        small_release.build(home)
    overrides = {"runtime": {"home": str(home)}, "scoring": {"scale": "1-5", "seed": 7, **scoring}}
    context = PipelineContext(overrides)
    plan, scores = (build(stage_of(name), context, cohort="default") for name in (PLAN, SCORES))
    return plan, scores


@pytest.mark.pipeline
@pytest.mark.parametrize(
    "scoring",
    [
        {"rater": "statistical"},
        {"rater": "mean", "max_pairs": 60},
        {"rater": "ensemble", "ensemble": [{"rater": "statistical"}, {"rater": "mean"}]},
    ],
    ids=["statistical", "stratified", "ensemble"],
)
def test_parts_decide_no_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scoring: dict[str, Any]
) -> None:
    plan, scores = scored(tmp_path / "whole", **scoring)
    cut_into(PAIRS // 2 if "max_pairs" in scoring else PAIRS, monkeypatch)
    plan_too, scores_too = scored(tmp_path / "blocks", **scoring)
    assert plan_too.snapshots[PLAN].version == plan.snapshots[PLAN].version
    rows, rows_too = (b.snapshots[SCORES].read() for b in (scores, scores_too))
    # A matrix product of other shape, in single precision, may end in other digits.
    assert_frame_equal(rows_too, rows, rel_tol=1e-7, abs_tol=1e-7)
    if scoring["rater"] == "mean":
        assert rows_too.equals(rows)
    whole, parts = (b.snapshots[SCORES].manifest.stats for b in (scores, scores_too))
    timed = {"seconds", "cpu_seconds", "pairs_per_second"}
    facts, too = ({k: v for k, v in s["scoring"]["default"].items() if k not in timed}
                  for s in (whole, parts))  # fmt: skip
    for name in ("disagreement", "spread"):
        assert too.pop(name, 0) == pytest.approx(facts.pop(name, 0))
    assert too == facts
    assert scores_too.report.shown["scored_now"] == scores.report.shown["scored_now"] > 0


def test_somebody_planned_who_is_no_persona_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_into(PAIRS, monkeypatch)
    scored(tmp_path / "home", rater="mean")
    store = Store(tmp_path / "home")
    people = store.current("movies.personas").read().sort("persona_id")
    store.commit("movies.personas", people.head(5), code_version="2")
    context = PipelineContext(
        {"runtime": {"home": str(tmp_path / "home")}, "scoring": {"scale": "1-5", "rater": "mean"}}
    )
    with pytest.raises(ContractError, match="1 unknown persona"):
        build(stage_of(SCORES), context, cohort="default")


@pytest.mark.pipeline
def test_answers_are_found_by_parts_that_are_cut_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_checkpoint(tmp_path / "model", shape={"max_position_embeddings": 4096})
    home = tmp_path / "home"
    small_release.build(home)

    def scores(pairs: int, seed: int) -> Built:
        cut_into(pairs, monkeypatch)
        context = PipelineContext(
            {
                "runtime": {"home": str(home)},
                "engine": {"kind": "transformers", "model": str(model)},
                "scoring": {"scale": "1-5", "rater": "llm", "seed": seed},
            }
        )
        build(stage_of(PLAN), context, cohort="default")
        return build(stage_of(SCORES), context, cohort="default")

    first = scores(PAIRS, seed=1)
    rows = first.snapshots[SCORES].read()
    assert set(rows["status"]) == {"ok"}
    assert (home / "answers" / f"{SCORES}:default.sqlite").exists()
    with AnswerStore(home) as store:
        asked = store.stats().answers
    assert asked == rows.height
    # Another seed draws other ratings from the same answers.
    again = scores(PAIRS // 3, seed=2)
    assert again.report.shown["scored_now"] == rows.height
    assert again.snapshots[SCORES].read()["probabilities"].equals(rows["probabilities"])
    with AnswerStore(home) as store:
        assert store.stats().answers == asked
