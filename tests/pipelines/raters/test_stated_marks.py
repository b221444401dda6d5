"""Ratings of personas of the manners `polar` and `uniform`, by fields and by text."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from pipelines.raters import bind, fit_rater
from pipelines.raters.statistical.rater import KEPT


def person(description: str, likes: tuple[str, ...] = (), n: int = 0) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "persona_id": [f"persona:t:{n}"],
            "likes": [list(likes)],
            "dislikes": [[]],
            "description": [description],
        },
        schema_overrides={"likes": pl.List(pl.String), "dislikes": pl.List(pl.String)},
    )


@pytest.fixture(scope="module")
def rater(small_world):
    return fit_rater("statistical", scale="1-10", **small_world.tables)


def mass(batch, low: float, high: float) -> np.ndarray:
    answers = batch.scale.answers
    return batch.probabilities[:, (answers >= low) & (answers <= high)].sum(axis=1)


def test_who_gives_everything_the_best_marks_nearly_always_does(rater, small_world) -> None:
    scores = rater.rate(person("She gives every film the best marks."), small_world.items)
    plain = rater.rate(person("She works in a town by the sea."), small_world.items)
    best = mass(scores, 9, 10)
    assert best.mean() == pytest.approx(KEPT, abs=0.07)
    assert (best > mass(plain, 9, 10)).all()


def test_who_gives_everything_the_worst_marks_nearly_always_does(rater, small_world) -> None:
    scores = rater.rate(person("He gives all of them the lowest marks."), small_world.items)
    assert mass(scores, 1, 2).mean() == pytest.approx(KEPT, abs=0.07)


def test_the_word_is_about_what_it_names(rater, small_world) -> None:
    text = "Comedies get her best marks. All other films get low marks."
    items = small_world.items
    comedy = items["genres"].list.contains("Comedy").to_numpy()
    scores = rater.rate(person(text), items)
    assert mass(scores, 9, 10)[comedy].mean() == pytest.approx(KEPT, abs=0.1)
    assert mass(scores, 1, 4)[~comedy].mean() == pytest.approx(KEPT, abs=0.1)


def test_fields_give_the_ratings_of_the_text(rater, small_world) -> None:
    items = small_world.items
    text = "Comedies get her best marks. All other films get low marks."
    fields = person("She lives by the sea.", ("Comedy",)).with_columns(manner=pl.lit("polar"))
    np.testing.assert_array_equal(
        rater.rate(fields, items).probabilities, rater.rate(person(text), items).probabilities
    )


@pytest.mark.parametrize(("value", "sign"), [("generous", 1), ("harsh", -1)])
def test_leniency_draws_from_its_quarter_of_people(rater, small_world, value, sign) -> None:
    plain = pl.concat([person("She lives by the sea.", n=n) for n in range(60)])
    stated = plain.with_columns(leniency=pl.lit(value))
    before, after = (
        rater.rate(who, small_world.items).expected.reshape(60, -1).mean(axis=1)
        for who in (plain, stated)
    )
    assert (sign * (after - before) >= -1e-9).mean() > 0.7
    assert sign * (after.mean() - before.mean()) > 0.2


def test_manner_draws_the_width_from_its_quarter_of_people(rater, small_world) -> None:
    plain = pl.concat([person("She lives by the sea.", n=n) for n in range(60)])
    entropy = {
        value: rater.rate(
            plain.with_columns(manner=pl.lit(value)), small_world.items
        ).entropy.mean()
        for value in ("narrow", "average", "wide")
    }
    assert entropy["narrow"] < entropy["average"] < entropy["wide"]


def test_liking_every_genre_or_none_works(rater, small_world) -> None:
    genres = tuple(small_world.items["genres"].explode().unique().drop_nulls())
    for likes in (genres, ()):
        rated = rater.rate(person("She lives by the sea.", likes), small_world.items)
        assert np.isfinite(rated.expected).all()


def test_ratings_that_belie_the_word_move_it(rater, small_world) -> None:
    who, items = person("He gives all of them the lowest marks."), small_world.items
    before = rater.rate(who, items).expected.mean()
    past = pl.DataFrame(
        {
            "persona_id": ["persona:t:0"] * 20,
            "item_id": items["item_id"][:20],
            "rating": [10.0] * 20,
        }
    )
    assert rater.rate(who, items, past).expected.mean() > before + 1


def test_the_effect_is_reported(rater, small_world) -> None:
    drivers = rater.effects(person("She gives every film the best marks."), small_world.items)
    assert (drivers["word"] > 0.5).all()


def test_the_live_rater_takes_the_same_word(rater, small_world, monkeypatch) -> None:
    items = small_world.items
    texts = ("Comedies get her best marks. All other films get low marks.", "Lives by the sea.")
    who = pl.concat([person(text, n=n) for n, text in enumerate(texts)])
    everything = np.arange(items.height)
    empty = np.empty((items.height, 0))
    expected = rater.rate(who, items).probabilities.reshape(2, items.height, -1)
    for limit in (10**9, 0):  # from a table, and computed when asked
        monkeypatch.setattr("pipelines.raters.statistical.rater._TABLE", limit)
        live = bind(rater, who, items)
        for number in (0, 1):
            scores = live.rate(
                np.full(items.height, number), everything, empty.astype(np.int64), empty
            )
            np.testing.assert_allclose(scores.probabilities, expected[number], atol=1e-6)
