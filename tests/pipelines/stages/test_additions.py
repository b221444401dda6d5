"""The walks of CONTRIBUTING: a published table and a rater, each added in a temporary package."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest
from support import small_release

from orchestration.definitions import build_defs
from orchestration.naming import asset_key
from pipelines import stages
from pipelines.config import Settings
from pipelines.contracts import CONTRACTS, PUBLISHED
from pipelines.errors import ConfigError
from pipelines.seams import RATERS
from pipelines.stages import PipelineContext, build, stage_of
from pipelines.store import Store

TABLE = '''
"""Title lengths: a contract and a stage."""

import pandera.polars as pa
import polars as pl

from pipelines.contracts import CONTRACTS, PUBLISHED, Contract
from pipelines.stages import STAGES, Stage, tables


class TitleLengths(pa.DataFrameModel):
    """Length of each film's title."""

    item_id: pl.String = pa.Field(unique=True, description="Item.")
    length: pl.Int64 = pa.Field(ge=1, description="Length.", metadata={"unit": "characters"})


def title_lengths(inputs, settings, report):
    """Count the characters of every title."""
    items = inputs["items"].read(["item_id", "title"])
    report.stats["longest"] = items["title"].str.len_chars().max()
    return items.select("item_id", length=pl.col("title").str.len_chars().cast(pl.Int64))


CONTRACT = Contract("title_lengths", TitleLengths, ("item_id",), ("item_id",))
CONTRACTS["movies.title_lengths"] = PUBLISHED["movies.title_lengths"] = CONTRACT
STAGES.append(
    Stage(
        datasets=("movies.title_lengths",),
        inputs=tables("movies", "items"),
        code_version="1",
        make=title_lengths,
    )
)
'''
RATER = '''
"""A rater that gives every persona the item's training mean, rounded up."""

import numpy as np

from pipelines.raters import RatingBatch, all_pairs


class RoundedUp:
    name = "rounded-up"
    code_version = "1"

    def __init__(self, item_stats, scale):
        self.scale = scale
        self.means = dict(item_stats.select("item_id", "train_mean_rating").iter_rows())

    def rate(self, personas, items, histories=None, *, pairs=None):
        pairs = all_pairs(personas.height, items.height) if pairs is None else pairs
        answers = self.scale.answers
        means = np.array([self.means.get(i) or 2.5 for i in items["item_id"]]) / 5
        nearest = np.minimum(np.ceil(means * (len(answers) - 1)).astype(int), len(answers) - 1)
        certain = np.eye(len(answers))[nearest[pairs[:, 1]]]
        return RatingBatch(self.scale, certain, ["ok"] * len(pairs))

    def metadata(self):
        return {"rater": self.name, "fitted": {"means": "training"}, "by_hand": {}}
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package outside the project that can be imported; what it registers is undone."""
    folder = tmp_path / "site" / "additions"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(folder.parent))
    known = list(stages.STAGES)
    yield folder
    stages.STAGES[:] = known
    for registry in (CONTRACTS, PUBLISHED):
        registry.pop("movies.title_lengths", None)
    for name in [n for n in sys.modules if n.split(".")[0] == "additions"]:
        del sys.modules[name]


@pytest.fixture
def context(tmp_path: Path) -> PipelineContext:
    home = tmp_path / "home"
    small_release.build(home)
    return PipelineContext({"runtime": {"home": str(home)}, "scoring": {"scale": "1-5"}})


def test_table_is_one_stage_and_one_contract(package: Path, context: PipelineContext) -> None:
    (package / "lengths.py").write_text(TABLE)
    importlib.import_module("additions.lengths")
    built = build(stage_of("movies.title_lengths"), context)
    snapshot = built.snapshots["movies.title_lengths"]
    assert snapshot.rows == 24
    assert snapshot.manifest.stats == {"longest": len("The [bold]Bracket[/bold] & Söhne")}
    assert build(stage_of("movies.title_lengths"), context).reused

    # Dagster has it as an asset of the group, with a check, and the release waits for it.
    defs = build_defs(context.store.home, executor=dg.in_process_executor)
    key = asset_key("movies.title_lengths")
    graph = defs.resolve_asset_graph()
    assert graph.get(key).parent_keys == {asset_key("movies.items")}
    assert key in graph.get(dg.AssetKey(["releases", "movies"])).parent_keys
    job = defs.resolve_job_def("movies")
    result = job.execute_in_process(asset_selection=[key], raise_on_error=False)
    assert result.success
    (event,) = result.asset_materializations_for_node("movies_title_lengths")
    assert event.metadata["version"].value == snapshot.version


@pytest.mark.pipeline
def test_rater_is_one_class(package: Path, context: PipelineContext) -> None:
    (package / "rounded.py").write_text(RATER)
    name = "additions.rounded:RoundedUp"
    own = PipelineContext({**context.overrides, "scoring": {"rater": name, "scale": "1-5"}})
    scores = build(stage_of("movies.preference_scores"), own, cohort="default")
    frame = scores.snapshots["movies.preference_scores"].read()
    assert frame["rater"].unique().to_list() == ["rounded-up"]
    assert build(stage_of("movies.preference_scores"), own, cohort="default").reused

    # An edit of the file is other code, whether or not it states another version.
    (package / "rounded.py").write_text(RATER.replace("np.ceil", "np.floor"))
    importlib.reload(sys.modules["additions.rounded"])
    edited = build(stage_of("movies.preference_scores"), own, cohort="default")
    assert not edited.reused
    assert not edited.snapshots["movies.preference_scores"].read().equals(frame)
    assert frame["status"].unique().to_list() == ["ok"]
    means = own.store.current("movies.item_stats").read(["item_id", "train_mean_rating"])
    for item, expected in frame.select("item_id", "expected").unique().iter_rows():
        mean = means.filter(pl.col("item_id") == item)["train_mean_rating"].item()
        assert expected == min(-(-(mean / 5 * 4) // 1) + 1, 5)
    assert build(stage_of("movies.preference_scores"), own, cohort="default").reused

    report = build(stage_of("movies.rater_report"), own).snapshots["movies.rater_report"]
    assert "rounded-up" in report.read()["predictor"].to_list()


@pytest.mark.parametrize("place", ["my_rater", "my_rater.py", "{folder}/my_rater.py"])
def test_rater_of_the_current_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "my_rater.py").write_text(RATER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_rater", raising=False)
    name = f"{place.format(folder=tmp_path)}:RoundedUp"
    assert Settings(scoring={"rater": name}).scoring.rater == name
    assert RATERS[name].name == "rounded-up"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:Rater", "can't be imported"),
        ("pipelines.raters:open_rater", r"open_rater is not a class \(function\)"),
        ("pipelines.raters:ReplayRater", "missing a required argument: 'scores'"),
    ],
)
def test_class_that_is_no_rater_is_named(context: PipelineContext, name: str, message: str) -> None:
    own = PipelineContext({**context.overrides, "scoring": {"rater": name, "scale": "1-5"}})
    with pytest.raises(ConfigError, match=message):
        build(stage_of("movies.preference_scores"), own, cohort="default")
    assert Store(context.store.home).current("movies.preference_scores").rows


def test_unknown_rater_lists_known_names(tmp_path: Path) -> None:
    wrong: dict[str, Any] = {"scoring": {"rater": "mena"}}
    with pytest.raises(ConfigError, match=r"one of statistical, .* or module:Class"):
        _ = PipelineContext(wrong).settings
