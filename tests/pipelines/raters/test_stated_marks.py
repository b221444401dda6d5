"""What a text says about marks, and what the statistical rater makes of it.

The sentences are not those of the suites' personas: the reader has to get along with others.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from pipelines.raters import fit_rater
from pipelines.raters._live import live_rater
from pipelines.raters.statistical._rater import KEPT
from pipelines.raters.statistical._words import Words, read_words

FILMS = ("Action", "Children", "Comedy", "Drama", "Horror", "Romance", "Western")


@pytest.mark.parametrize(
    ("text", "genres", "others", "everything"),
    [
        ("Westerns get top marks from her.", {"Western": 2}, 0, 0),
        ("He scores every film at the very top.", {}, 0, 2),
        ("She consistently awards a perfect rating to whatever she sees.", {}, 0, 2),
        ("Nothing but the lowest ratings, for each film.", {}, 0, -2),
        ("He has never given a film a good rating.", {}, 0, 0),
        ("No film has ever got a good rating from him.", {}, 0, -1),
        ("He gives dramas high scores, and all other films low scores.", {"Drama": 1}, -1, 0),
        ("Horror gets bad marks. Comedies get good marks.", {"Comedy": 1, "Horror": -1}, 0, 0),
        ("A low rating is given to every film which is not a romance.", {}, -1, 0),
        ("She rates horror low, but rates westerns highly.", {"Western": 1, "Horror": -1}, 0, 0),
        ("He would give dramas the best marks.", {}, 0, 0),
        ("She loves comedies and hates horror.", {}, 0, 0),
        ("Rates generously.", {}, 0, 0),
        ("His grades at school were good. He marked the date in red.", {}, 0, 0),
        ("", {}, 0, 0),
    ],
)  # fmt: skip
def test_statements_of_marks(
    text: str, genres: dict[str, int], others: int, everything: int
) -> None:
    said = read_words(text, FILMS)
    assert (dict(said.genres), said.others, said.everything) == (genres, others, everything)


def test_praise_that_names_nothing_is_about_what_is_liked() -> None:
    text = "She hands out full marks to stories of that kind. Everything else gets low marks."
    assert read_words(text, FILMS, ("Comedy",)) == Words((("Comedy", 2),), -1, 0)


def test_praise_and_blame_in_one_breath_mean_the_kind_and_the_rest() -> None:
    text = "Horror gets her best marks. Films that let her sleep get poor marks."
    assert read_words(text, FILMS) == Words((("Horror", 2),), -1, 0)


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
    said = rater.rate(person("She gives every film the best marks."), small_world.items)
    plain = rater.rate(person("She works in a town by the sea."), small_world.items)
    best = mass(said, 9, 10)
    assert best.mean() == pytest.approx(KEPT, abs=0.07)
    assert (best > mass(plain, 9, 10)).all()


def test_who_gives_everything_the_worst_marks_nearly_always_does(rater, small_world) -> None:
    said = rater.rate(person("He gives all of them the lowest marks."), small_world.items)
    assert mass(said, 1, 2).mean() == pytest.approx(KEPT, abs=0.07)


def test_the_word_is_about_what_it_names(rater, small_world) -> None:
    text = "Comedies get her best marks. All other films get low marks."
    items = small_world.items
    comedy = items["genres"].list.contains("Comedy").to_numpy()
    said = rater.rate(person(text), items)
    assert mass(said, 9, 10)[comedy].mean() == pytest.approx(KEPT, abs=0.1)
    assert mass(said, 1, 4)[~comedy].mean() == pytest.approx(KEPT, abs=0.1)


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
        monkeypatch.setattr("pipelines.raters.statistical._live._TABLE", limit)
        live = live_rater(rater, who, items)
        for number in (0, 1):
            said = live.rate(
                np.full(items.height, number), everything, empty.astype(np.int64), empty
            )
            np.testing.assert_allclose(said.probabilities, expected[number], atol=1e-6)
