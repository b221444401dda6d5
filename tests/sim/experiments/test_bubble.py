"""Genres of recommendations, worked by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from sim.experiments import ExperimentContext
from sim.experiments._bubble import (
    genre_figures,
    parts_of_rounds,
    played_rounds,
    slopes,
)


def test_items_of_a_round_are_of_its_part(context: ExperimentContext) -> None:
    world = context.world()
    frame = played_rounds(world, context.brain("random"), "watched", 30, "ease", 2, 0)
    first, second = (frame.filter(round=n) for n in (1, 2))
    assert first["added"].sum() == 0
    assert second["added"].sum() > 0
    assert first["persona_id"].to_list() == second["persona_id"].to_list()
    expected = second["p_top1"] - first["p_top1"]
    assert first["p_top1_slope"].to_list() == pytest.approx(expected.to_list())


GENRES = [[1, 0, 0], [1, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0]]


def test_items_count_one_divided_by_their_genres() -> None:
    share, number = genre_figures([[0, 1, 2, 3]], GENRES)
    assert (share.tolist(), number.tolist()) == ([0.625], [3.0])


def test_items_without_genre_and_padding_are_left_out() -> None:
    share, number = genre_figures([[0, 4, 3, -1], [4, -1, -1, -1]], GENRES)
    assert share[0] == 0.5
    assert number[0] == 2.0
    assert np.isnan([share[1], number[1]]).all()


def test_slope_is_that_of_least_squares() -> None:
    values = np.random.default_rng(0).normal(size=(3, 4))
    expected = [np.polyfit(np.arange(4), row, 1)[0] for row in values]
    assert slopes(values).tolist() == pytest.approx(expected)


def test_each_part_is_in_every_round_equally_often() -> None:
    ids = [f"{n}" for n in range(4_000)]
    world = SimpleNamespace(catalogue=SimpleNamespace(ids=ids), people={"persona_id": ids})
    items, start = parts_of_rounds(world, 4)  # type: ignore[arg-type]
    for found in (items, start):
        assert np.bincount(found) / 4_000 == pytest.approx(np.full(4, 0.25), abs=0.03)
