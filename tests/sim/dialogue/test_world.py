"""Worlds of releases: tables made by hand, as arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from support.small_release import conform

from pipelines.errors import ReleaseError
from pipelines.products import persona_splits
from pipelines.store import CheckRecord, Store
from sim import open_release
from sim.dialogue import DialogueWorld

LAMPS, TENTS = "category:Home > Light > Lamps", "category:Sport > Camping > Tents"
ITEMS = [f"asin:{n:010d}" for n in range(5)]
PEOPLE = [f"persona:products:{n:07d}" for n in range(4)]
#: Scores of the first three personas; the fourth has none. Lamps are products 2, 0, 1.
SCORES = np.array([[10.0, 20, 30, 40, 50], [90, 80, 70, 60, 50], [0, 25, 50, 75, 100]])


def frames(scale: str = "0-100") -> dict[str, pl.DataFrame]:
    """Three lamps, of which one's score by the second persona failed, and two tents."""
    scores = [
        {"persona_id": person, "item_id": item, "rater": "ensemble", "scale": scale,
         "expected": None if (p, n) == (1, 2) else float(SCORES[p, n]),
         "status": "refused" if (p, n) == (1, 2) else "ok"}
        for p, person in enumerate(PEOPLE[:3]) for n, item in enumerate(ITEMS)
    ]  # fmt: skip
    shown = [(LAMPS, 2, "train"), (LAMPS, 0, "train"), (LAMPS, 1, "train")]
    shown += [(TENTS, 3, "test"), (TENTS, 4, "test")]
    facets = [("material", "wood", 0), ("material", "metal", 1), ("price", "low", 2),
              ("price", "high", 0), ("price", "middle", 1), ("word:dimmer", "yes", 0),
              ("word:dimmer", "no", 1), ("word:dimmer", "no", 2)]  # fmt: skip
    return {
        "choice_set_items": pl.DataFrame(
            [
                {"category_id": c, "item_id": ITEMS[n], "position": at, "split": split}
                for (c, n, split), at in zip(shown, (0, 1, 2, 0, 1), strict=True)
            ]
        ),
        "categories": pl.DataFrame(
            {
                "category_id": [LAMPS, TENTS],
                "name": ["Lamps", "Tents"],
                "path": ["Home > Light > Lamps", "Sport > Camping > Tents"],
                "depth": [3, 3],
                "products": [3, 2],
                "leaf_products": [3, 2],
            }
        ),
        "products": pl.DataFrame(
            {
                "item_id": ITEMS,
                "title": [f"Thing {n}" for n in range(5)],
                "brand": ["Acme", None, "Acme", "Bolt", "Bolt"],
                "description": ["Bright.", None, "Dim.", "For two.", "For four."],
                "features": [["Oak", "Dimmer"], [], [], [], []],
                "price": [30.0, 20.0, 10.0, None, 99.0],
                "average_rating": [4.5, None, 3.0, 5.0, 1.0],
                "category": ["Home"] * 5,
                "path": [["Home"]] * 5,
                "path_from": ["categories"] * 5,
                "category_id": [LAMPS] * 3 + [TENTS] * 2,
                "heuristic": ["equal"] * 5,
                "bridged": [0] * 5,
                "similarity": [1.0] * 5,
            }
        ),
        "facets": pl.DataFrame(
            [
                {"category_id": LAMPS, "facet_id": facet, "kind": "vocabulary",
                 "question": f"Which {facet}?", "value": value, "item_id": ITEMS[n]}
                for facet, value, n in sorted(facets, key=lambda row: (row[0], row[2]))
            ]
        ),
        "item_embeddings": pl.DataFrame(
            {
                "item_id": ITEMS,
                "model": ["by hand"] * 5,
                "text_sha256": ["0" * 64] * 5,
                "vector": np.eye(5, dtype=np.float32).tolist(),
            }
        ),
        "personas": pl.DataFrame(
            {
                "persona_id": PEOPLE,
                "cohort": ["products"] * 4,
                "domain": ["products"] * 4,
                "origin": ["sampled"] * 4,
                "writer": ["statistical"] * 4,
                "age": [30, None, 50, 60],
                "gender": ["female", None, "male", "male"],
                "job": ["nurse", "student", None, "cook"],
                "likes": [["material:wood"]] * 4,
                "description": [f"A shopper of number {n} with few other traits." for n in "0123"],
            }
        ),
        "preference_scores": pl.DataFrame(scores, infer_schema_length=None),
    }  # fmt: skip


def opened(home: Path, tables: dict[str, pl.DataFrame], **settings: Any) -> DialogueWorld:
    store = Store(home)
    found = {}
    required = {}
    for name, frame in tables.items():
        dataset = f"products.{name}"
        snapshot = store.commit(dataset, conform(dataset, frame), code_version="test")
        store.record_checks(dataset, snapshot.version, [CheckRecord("whole", True)])
        found[name], required[dataset] = snapshot, ["whole"]
    store.publish(
        "products", found, world="sample", required=required, card="# Products", settings=settings
    )
    return DialogueWorld.open(open_release("products@latest", home=home))


def test_sets_hold_their_products_in_the_order_in_which_they_are_shown(tmp_path: Path) -> None:
    world = opened(tmp_path, frames())
    lamps, tents = world.sets
    assert (lamps.category_id, lamps.name, lamps.path) == (LAMPS, "Lamps", "Home > Light > Lamps")
    assert lamps.item_ids == (ITEMS[2], ITEMS[0], ITEMS[1])
    assert lamps.titles == ("Thing 2", "Thing 0", "Thing 1")
    assert lamps.texts[1] == "Thing 0. Acme. Oak. Dimmer. Bright."
    assert lamps.price.tolist() == [10, 30, 20]
    np.testing.assert_array_equal(lamps.rating, np.float32([3.0, 4.5, np.nan]))
    np.testing.assert_array_equal(tents.price, np.float32([np.nan, 99]))
    np.testing.assert_array_equal(lamps.vectors, np.eye(5, dtype=np.float32)[[2, 0, 1]])
    assert (lamps.seen, tents.seen) == (True, False)
    assert tents.facets == ()


def test_scores_are_rows_of_the_personas_that_have_any(tmp_path: Path) -> None:
    world = opened(tmp_path, frames())
    assert world.persona_ids == tuple(PEOPLE[:3])
    lamps, tents = world.sets
    np.testing.assert_array_equal(
        lamps.y, np.float32([[30, 10, 20], [np.nan, 90, 80], [50, 0, 25]])
    )
    np.testing.assert_array_equal(tents.y, SCORES[:, 3:].astype(np.float32))
    assert [("train", "validation", "test")[s] for s in world.splits] == persona_splits(
        PEOPLE[:3]
    ).to_list()
    assert world.metadata == {"sets_without_scores": 0, "personas_without_scores": 1}


def test_values_of_prices_and_words_have_their_own_order(tmp_path: Path) -> None:
    material, price, dimmer = opened(tmp_path, frames()).sets[0].facets
    assert (material.facet_id, material.kind, material.question) == (
        "material",
        "material",
        "Which material?",
    )
    assert (material.values, material.of.tolist()) == (("metal", "wood"), [-1, 1, 0])
    assert (price.values, price.of.tolist()) == (("low", "middle", "high"), [0, 2, 1])
    assert (dimmer.values, dimmer.of.tolist()) == (("no", "yes"), [0, 1, 0])


def test_attributes_are_those_that_are_stated(tmp_path: Path) -> None:
    world = opened(tmp_path, frames())
    assert world.attributes == (
        {"age": "30", "gender": "female", "job": "nurse"},
        {"job": "student"},
        {"age": "50", "gender": "male"},
    )


def test_members_of_the_ensemble_and_their_models_are_named(tmp_path: Path) -> None:
    scoring = {"ensemble": [{"rater": "facets"}, {"rater": "listwise", "engine": {"model": "m7"}},
                            {"rater": "llm", "engine": None}]}  # fmt: skip
    world = opened(tmp_path, frames(), product_scoring=scoring, engine={"model": "m1"})
    assert world.raters == ("ensemble", "facets", "listwise", "llm", "m1", "m7")


def test_a_single_models_scores_name_the_model(tmp_path: Path) -> None:
    tables = frames()
    scores = tables["preference_scores"].with_columns(rater=pl.lit("llm"))
    world = opened(tmp_path, tables | {"preference_scores": scores}, engine={"model": "m10"})
    assert world.raters == ("llm", "m10")


def test_sets_without_a_score_are_left_out_and_counted(tmp_path: Path) -> None:
    tables = frames()
    lamps = pl.col("item_id").is_in(ITEMS[:3])
    tables["preference_scores"] = tables["preference_scores"].filter(lamps)
    world = opened(tmp_path, tables)
    assert [s.category_id for s in world.sets] == [LAMPS]
    assert world.metadata["sets_without_scores"] == 1


def test_scores_on_another_scale_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"scores are on 1-10.*products@.*product_scoring"):
        opened(tmp_path, frames("1-10"))


@pytest.mark.parametrize("absent", ["choice_set_items", "facets", "preference_scores"])
def test_a_release_without_scores_or_facets_is_refused(tmp_path: Path, absent: str) -> None:
    tables = frames()
    del tables[absent]
    with pytest.raises(ReleaseError, match=f"lacks the table {absent}"):
        opened(tmp_path, tables)
