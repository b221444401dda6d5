"""Agents' ratings of test items beside those of their people."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from pipelines.study import pooled
from sim.experiments import ExperimentContext
from sim.experiments._data import held_out_pairs, rated_rows
from sim.experiments._rating import biases, error_figures, rating
from sim.experiments.testing import fresh
from sim.metrics import Figure
from tests.sim.experiments.scripted import Studies, asking_a_model


def test_neither_visit_nor_graph_moves_the_statistical_brain(studies: Studies) -> None:
    """Its row is the placebo of both: zero to the last bit."""
    compared = [
        c
        for c in studies("rating").comparisons
        if c.left.startswith("statistical") and c.right.startswith("statistical")
    ]
    changed = {(c.left, c.right): [] for c in compared}
    for c in compared:
        changed[c.left, c.right].append((c.difference, c.p))
    for (left, right), found in changed.items():
        if ("no persona" in left) == ("no persona" in right):
            assert found == [(Figure(0.0, 0.0, 0.0), 1.0)] * 2, (left, right)
    assert any("Equal ratings" in note for note in studies("rating").notes)


def test_errors_are_those_of_hand() -> None:
    # Errors 1, -1, 2, 0: mean square 6/4, mean absolute 1.
    frame = pl.DataFrame(
        {"person": [0, 0, 1, 1], "truth": [3.0, 4.0, 1.0, 5.0], "rating": [4.0, 3.0, 3.0, 5.0]}
    )
    found = error_figures(frame, "rating")
    assert found["rmse"].value == pytest.approx(1.5**0.5)
    assert found["mae"].value == 1.0
    # People drawn with replacement: (2, 0), (1, 1), (0, 2) give 1, 1 and 1.
    assert (found["mae"].low, found["mae"].high) == (1.0, 1.0)
    assert (found["rmse"].low, found["rmse"].high) == pytest.approx((1.0, 2.0**0.5))


def test_pooled_sums_weigh_people_by_their_rows() -> None:
    found = pooled(
        [0, 1, 1, 1], [np.array([4.0, 0.0, 0.0, 0.0]), np.ones(4)], lambda s: s[0] / s[1]
    )
    assert found.value == 1.0
    assert (found.low, found.high) == (0.0, 4.0)


def test_a_bias_is_shrunk_towards_zero() -> None:
    items, stars = np.array([0, 0, 1, 1]), np.array([5.0, 5.0, 3.0, 3.0])
    none, _ = biases(items, stars, items[:1], items[:1], stars[:1], shape=(3, 1),
                     shrinkage=(0.0 + 1e-12, 1.0))  # fmt: skip
    assert none == pytest.approx([1.0, -1.0, 0.0])
    strong, _ = biases(items, stars, items[:1], items[:1], stars[:1], shape=(3, 1),
                       shrinkage=(1e12, 1.0))  # fmt: skip
    assert strong == pytest.approx([0.0, 0.0, 0.0], abs=1e-9)


def test_the_constant_predicts_the_training_mean(context: ExperimentContext) -> None:
    world = context.world()
    truth = held_out_pairs(world)["truth"].to_numpy()
    mean = rated_rows(world, "train")["truth"].mean()
    (row,) = [r for r in rating.run(context).rows if r.title == "constant"]
    assert row.figures["rmse"].value == pytest.approx(np.sqrt(np.mean((truth - mean) ** 2)))


def test_a_sample_of_pairs_is_of_the_first_people(context: ExperimentContext) -> None:
    world = context.world()
    whole, some = held_out_pairs(world), held_out_pairs(world, people=5, most=1)
    assert some.join(whole, on=["person", "item", "truth"], how="semi").height == some.height
    assert some["person"].to_list() == sorted(set(some["person"])) == list(range(5))


@pytest.mark.pipeline
def test_a_model_takes_every_condition_on_its_sample(context: ExperimentContext) -> None:
    asked: list[str] = []
    modelled = asking_a_model(fresh(context), asked, rating=4)
    found = rating.configure(min_people=2).run(modelled)
    rows = [row for row in found.rows if row.source == "model"]
    assert len(rows) == 6
    assert {row.n for row in rows} == {3}
    truth = held_out_pairs(context.world(), people=3)["truth"].to_numpy()
    assert rows[0].figures["mae"].value == pytest.approx(np.abs(truth - 4).mean())
    # Without the persona no prompt states a taste.
    without = [text for text in asked if "Likes: " not in text]
    assert without
    assert len(without) < len(asked)
