"""Scores of products: planned and made set by set, resumed, and absent where there are no sets."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from support.small_release import conform

from pipelines.progress import listening
from pipelines.raters import choice_set_figures
from pipelines.stages import PipelineContext, build, stage_of
from pipelines.store import Store

PLAN, SCORES = "products.score_plan", "products.preference_scores"
PEOPLE, SETS, SIZE, VALUES = 12, 6, 5, ("wood", "metal")
#: Answers of a set of five products.
REPLY = '{"1":10,"2":35,"3":60,"4":85,"5":100}'


def replies(request: Any) -> str:
    """Rule of the scripted engine."""
    assert "<shelf>" in request.messages[-1].content
    return REPLY


def context(home: Path, **scoring: Any) -> PipelineContext:
    return PipelineContext({"runtime": {"home": str(home)}, "product_scoring": scoring})


def vectors(key: str, ids: list[str], seed: int) -> pl.DataFrame:
    drawn = np.random.default_rng(seed).normal(size=(len(ids), 8)).astype(np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return pl.DataFrame(
        {key: ids, "model": "t", "text_sha256": "0" * 64, "vector": drawn.tolist()},
        schema_overrides={"vector": pl.List(pl.Float32)},
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A store with the inputs of the scores: six sets of five products, twelve personas."""
    store = Store(tmp_path)
    ids = [f"asin:{n:010d}" for n in range(SETS * SIZE)]
    people = [f"persona:products:{n:07d}" for n in range(PEOPLE)]
    members = pl.DataFrame({"item_id": ids}).select(
        pl.format("category:c{}", pl.int_range(pl.len()) // SIZE).alias("category_id"),
        "item_id",
        position=pl.int_range(pl.len()) % SIZE,
        split=pl.lit("train"),
    )
    facets = members.select(
        "category_id",
        facet_id=pl.lit("material"),
        kind=pl.lit("vocabulary"),
        question=pl.lit("Which?"),
        value=pl.Series([VALUES[n % 2] for n in range(len(ids))]),
        item_id="item_id",
    )
    given = pl.DataFrame({"user_id": ["amazon-user:A"], "item_id": ids[:1]})
    tables = {
        "choice_set_items": members,
        "facets": facets,
        "items": pl.DataFrame(
            {"item_id": ids, "title": ids, "category": "Home", "edition": "2023"}
        ),
        "item_embeddings": vectors("item_id", ids, 1),
        "persona_embeddings": vectors("persona_id", people, 2),
        "personas": pl.DataFrame(
            {
                "persona_id": people,
                "cohort": "products",
                "domain": "products",
                "origin": "sampled",
                "writer": "statistical",
                "age": range(20, 20 + PEOPLE),
                "likes": [[f"material:{VALUES[n % 2]}"] for n in range(PEOPLE)],
                "dislikes": [[f"material:{VALUES[1 - n % 2]}"] for n in range(PEOPLE)],
                "description": "Looks at what things are made of before buying them.",
            }
        ),
        "item_stats": pl.DataFrame(
            {
                "item_id": ids,
                "ratings": 0,
                "train_ratings": 0,
                "popularity_rank": range(1, len(ids) + 1),
            }
        ),
        "interactions": given.with_columns(
            rating=pl.lit(4.0),
            scale=pl.lit("1-5"),
            rated_at=pl.lit(datetime(2023, 1, 1, tzinfo=UTC)),
        ),
        "splits": given.with_columns(split=pl.lit("train")),
    }
    for name, frame in tables.items():
        store.commit(f"products.{name}", conform(f"products.{name}", frame), code_version="t")
    return tmp_path


def scored(given: PipelineContext) -> Any:
    for dataset in (PLAN, SCORES):
        built = build(stage_of(dataset), given, cohort="products")
    return built


def test_every_persona_scores_every_set_by_facets_and_text(home: Path) -> None:
    built = scored(context(home))
    table = built.snapshots[SCORES].read()
    assert table.height == PEOPLE * SETS * SIZE
    assert table["rater"].unique().to_list() == ["ensemble"]
    assert table["scale"].unique().to_list() == ["0-100"]
    sets = Store(home).current("products.choice_set_items").scan()
    # Half of the personas want what the other half does not.
    assert choice_set_figures(table.lazy(), sets)["worth"].min() > 5
    stats = built.snapshots[SCORES].manifest.stats
    assert stats["consistency"]["products"]["sets"] == 5
    assert "within a choice set" in built.report.texts["consistency"]
    assert "quality" not in stats, "scores of choice sets are not compared with ratings of people"


def test_another_run_scores_nothing_and_a_taste_that_changes_scores_its_persona(
    home: Path,
) -> None:
    scored(context(home))
    assert scored(context(home)).reused
    store = Store(home)
    people = store.current("products.personas").read()
    changed = people.with_columns(
        likes=pl.when(pl.int_range(pl.len()) == 0).then(pl.col("dislikes")).otherwise("likes"),
        dislikes=pl.when(pl.int_range(pl.len()) == 0).then(pl.col("likes")).otherwise("dislikes"),
    )
    store.commit("products.personas", changed, code_version="t")
    before = store.current(SCORES).read()
    after = scored(context(home)).snapshots[SCORES].read()
    moved = (before["expected"] - after["expected"]).abs() > 1e-9
    assert set(before.filter(moved)["persona_id"]) == {people["persona_id"][0]}


def test_a_model_is_asked_once_per_persona_and_planned_set(home: Path) -> None:
    module = f"{__name__}:replies"
    given = PipelineContext(
        {
            "runtime": {"home": str(home)},
            "engine": {"kind": "scripted", "model": module},
            "product_scoring": {
                "rater": "listwise",
                "ensemble": [],
                "max_pairs": PEOPLE * SIZE * 2,
            },
        }
    )
    pairs: list[int] = []

    def note(step: str, done: int, _: int | None) -> None:
        if step == "scoring pairs":
            pairs.append(done)

    with listening(note):
        built = scored(given)
    table = built.snapshots[SCORES].read()
    assert table.height == PEOPLE * SIZE * 2
    assert pairs == sorted(pairs)
    assert pairs[-1] == table.height
    assert 0 < pairs[0] < table.height, "answers are heard before the first part is done"
    assert table["status"].unique().to_list() == ["ok"]
    assert sorted(table["expected"].round(0).unique()) == [10, 35, 60, 85, 98]
    facts = built.snapshots[SCORES].manifest.stats["scoring"]["products"]
    assert facts["calls"] == PEOPLE * 2


def test_without_choice_sets_there_are_no_scores(home: Path) -> None:
    scored(context(home))
    store = Store(home)
    store.withdraw("products.choice_set_items")
    for dataset in (PLAN, SCORES):
        built = build(stage_of(dataset), context(home), cohort="products")
        assert built.absent
        assert built.reason is not None
        assert built.reason.startswith("there is no products.")
        assert not store.has(dataset)
