"""Books and the customers and choice sets of lifetimes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipelines.errors import ConfigError, ReleaseError
from sim.dialogue import CELLS, SETTINGS, SPLITS, Book, Lifetimes
from sim.dialogue._lifetimes import product_order
from sim.dialogue.testing import sample_book


@pytest.fixture(scope="module")
def book() -> Book:
    return sample_book(personas=80, sets=30)


def test_sample_book_rewards_knowing_the_customer(book: Book) -> None:
    worth = [s.y.max(axis=1).mean() - s.y.mean(axis=0).max() for s in book.sets]
    assert np.median(worth) > 5
    assert book.playable.mean() > 0.8
    assert 10 < np.mean([s.y.std(axis=1).mean() for s in book.sets]) < 30


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_lifetimes_belong_to_their_cell_without_repetition(
    book: Book, setting: str, cell: str
) -> None:
    found = Lifetimes.draw(book, range(6), setting=setting, cell=cell, episodes=5)  # type: ignore[arg-type]
    customer, category = cell.split("/")
    split = SPLITS.index("train" if customer == "seen" else "test")
    assert (book.splits[found.personas] == split).all()
    assert all(book.sets[s].seen == (category == "seen") for s in found.sets.ravel())
    assert book.playable[found.personas, found.sets].all()
    people = [len(set(row)) for row in found.personas.tolist()]
    shelves = [len(set(row)) for row in found.sets.tolist()]
    assert people == [1 if setting == "customer" else 5] * 6
    assert shelves == [1 if setting == "category" else 5] * 6


def test_a_lifetime_depends_on_its_seed_alone(book: Book) -> None:
    whole = Lifetimes.draw(book, [3, 4, 5])
    alone = Lifetimes.draw(book, [5])
    assert (whole.sets[2] == alone.sets[0]).all()
    assert (whole.personas[2] == alone.personas[0]).all()
    assert len({tuple(row) for row in whole.sets.tolist()}) == 3


def test_pairs_below_sixty_are_skipped_and_counted(book: Book) -> None:
    low = [replace(s, y=np.minimum(s.y, 59.0)) if n % 2 else s for n, s in enumerate(book.sets)]
    found = Lifetimes.draw(replace(book, sets=tuple(low)), range(20), episodes=10)
    assert (found.sets % 2 == 0).all()
    assert found.skipped.mean() > 3


def test_pairs_without_a_score_are_not_played(book: Book) -> None:
    lacking = [replace(s, y=s.y.copy()) for s in book.sets]
    lacking[0].y[:, 3] = np.nan
    found = Lifetimes.draw(replace(book, sets=tuple(lacking)), range(20), episodes=10)
    assert (found.sets != 0).all()


def test_too_few_choice_sets_are_counted_in_the_error(book: Book) -> None:
    with pytest.raises(ConfigError, match="need 25 choice sets, the cell unseen/seen has 24"):
        Lifetimes.draw(book, [0], episodes=25)


def test_orders_are_permutations_that_differ_between_episodes(book: Book) -> None:
    sets, seeds = np.zeros(4, np.int64), np.arange(4)
    first, second = (product_order(book, seeds, e, sets) for e in (0, 1))
    assert (np.sort(first, axis=1) == np.arange(first.shape[1])).all()
    assert (first != second).any(axis=1).all()
    assert (product_order(book, seeds[2:], 0, sets[2:]) == first[2:]).all()


def test_disclosed_book_has_no_scores_of_others(book: Book) -> None:
    shown = book.disclosed()
    assert (shown.splits == 0).all()
    assert len(shown.persona_ids) == (book.splits == 0).sum()
    for ours, theirs in zip(shown.sets, book.sets, strict=True):
        assert np.isnan(ours.y).all() == (not theirs.seen)


def test_scores_on_another_scale_are_refused(book: Book) -> None:
    wrong = replace(book.sets[0], y=book.sets[0].y * 10)
    with pytest.raises(ReleaseError, match="not on 0-100: book, category C000"):
        replace(book, sets=(wrong, *book.sets[1:]))
