"""Worlds and the customers and choice sets of lifetimes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipelines.errors import ConfigError, ReleaseError
from pipelines.seeding import uniform
from sim.dialogue import CELLS, SETTINGS, SPLITS, DialogueWorld, Lifetimes
from sim.dialogue._lifetimes import ORDERS, product_order
from sim.dialogue.testing import sample_world


@pytest.fixture(scope="module")
def world() -> DialogueWorld:
    return sample_world(personas=80, sets=30)


def test_sample_book_rewards_knowing_the_customer(world: DialogueWorld) -> None:
    worth = [s.y.max(axis=1).mean() - s.y.mean(axis=0).max() for s in world.sets]
    assert np.median(worth) > 5
    assert (world.best >= 60).mean() > 0.8
    assert 10 < np.mean([s.y.std(axis=1).mean() for s in world.sets]) < 30


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_lifetimes_belong_to_their_cell_without_repetition(
    world: DialogueWorld, setting: str, cell: str
) -> None:
    found = Lifetimes.draw(world, range(6), setting=setting, cell=cell, episodes=5)  # type: ignore[arg-type]
    customer, category = cell.split("/")
    split = SPLITS.index("train" if customer == "seen" else "test")
    assert (world.splits[found.personas] == split).all()
    assert all(world.sets[s].seen == (category == "seen") for s in found.sets.ravel())
    assert (world.best[found.personas, found.sets] >= 60).all()
    people = [len(set(row)) for row in found.personas.tolist()]
    shelves = [len(set(row)) for row in found.sets.tolist()]
    assert people == [1 if setting == "customer" else 5] * 6
    assert shelves == [1 if setting == "category" else 5] * 6


def test_a_lifetime_depends_on_its_seed_alone(world: DialogueWorld) -> None:
    whole = Lifetimes.draw(world, [3, 4, 5])
    alone = Lifetimes.draw(world, [5])
    assert (whole.sets[2] == alone.sets[0]).all()
    assert (whole.personas[2] == alone.personas[0]).all()
    assert len({tuple(row) for row in whole.sets.tolist()}) == 3


@pytest.mark.parametrize("setting", SETTINGS)
def test_lifetimes_are_those_of_drawing_one_after_the_other(
    world: DialogueWorld, setting: str
) -> None:
    # Half of all pairs can't be played, so that every rule of skipping is met.
    drawn = np.random.default_rng(4).random((len(world.sets), len(world.persona_ids), 1)) < 0.5
    sets = tuple(
        replace(s, y=np.where(low, np.minimum(s.y, 59), np.maximum(s.y, 60)).astype(np.float32))
        for s, low in zip(world.sets, drawn, strict=True)
    )
    half = replace(world, sets=sets)
    found = Lifetimes.draw(half, range(5, 45), setting=setting, episodes=7)  # type: ignore[arg-type]
    people = np.flatnonzero(half.splits == SPLITS.index("test"))
    shelves = np.flatnonzero([s.seen for s in half.sets])
    for row, seed in enumerate(range(5, 45)):
        who = people[np.argsort(uniform(seed, 101, half.persona_hashes[people]))].tolist()
        where = shelves[np.argsort(uniform(seed, 102, half.set_hashes[shelves]))].tolist()
        pairs, skipped = one_lifetime(half.best >= 60, who, where, setting, 7)
        assert list(zip(found.personas[row], found.sets[row], strict=True)) == pairs
        assert found.skipped[row] == skipped


def one_lifetime(
    playable: Any, people: list[int], shelves: list[int], setting: str, episodes: int
) -> tuple[list[tuple[int, int]], int]:
    """Pairs and how many were skipped, of one lifetime: the plain words of the rule."""
    pairs: list[tuple[int, int]] = []
    skipped = 0
    if setting == "both":
        free = list(people)
        for shelf in shelves:
            for person in list(free):
                if playable[person, shelf]:
                    pairs.append((person, shelf))
                    free.remove(person)
                    break
                skipped += 1
            if len(pairs) == episodes:
                break
        return pairs, skipped
    for fixed in people if setting == "customer" else shelves:
        pairs, lost = [], 0
        for other in shelves if setting == "customer" else people:
            person, shelf = (fixed, other) if setting == "customer" else (other, fixed)
            if playable[person, shelf]:
                pairs.append((person, shelf))
            else:
                lost += 1
            if len(pairs) == episodes:
                return pairs, skipped + lost
        skipped += lost
    raise AssertionError("no lifetime")


def test_pairs_below_sixty_are_skipped_and_counted(world: DialogueWorld) -> None:
    low = [replace(s, y=np.minimum(s.y, 59.0)) if n % 2 else s for n, s in enumerate(world.sets)]
    found = Lifetimes.draw(replace(world, sets=tuple(low)), range(20), episodes=10)
    assert (found.sets % 2 == 0).all()
    assert found.skipped.mean() > 3


def test_the_least_best_score_is_a_setting(world: DialogueWorld) -> None:
    usual, strict = (Lifetimes.draw(world, range(20), min_best=m) for m in (60.0, 70.0))
    assert (world.best[strict.personas, strict.sets] >= 70).all()
    assert (world.best[usual.personas, usual.sets] < 70).any()
    assert strict.skipped.sum() > usual.skipped.sum()
    with pytest.raises(ConfigError, match="no 10 episodes with a best score of 101 or more"):
        Lifetimes.draw(world, range(2), min_best=101)


def test_pairs_without_a_score_are_not_played(world: DialogueWorld) -> None:
    lacking = [replace(s, y=s.y.copy()) for s in world.sets]
    lacking[0].y[:, 3] = np.nan
    found = Lifetimes.draw(replace(world, sets=tuple(lacking)), range(20), episodes=10)
    assert (found.sets != 0).all()


def test_too_few_choice_sets_are_counted_in_the_error(world: DialogueWorld) -> None:
    with pytest.raises(ConfigError, match="need 25 choice sets, the cell unseen/seen has 24"):
        Lifetimes.draw(world, [0], episodes=25)


def test_orders_are_permutations_that_differ_between_episodes(world: DialogueWorld) -> None:
    for seed in range(4):
        first, second = (product_order(world, seed, e, 0, orders=None) for e in (0, 1))
        assert sorted(first) == list(range(len(world.sets[0])))
        assert (first != second).any()


def test_each_choice_set_has_a_few_orders_that_lifetimes_draw_alike_often(
    world: DialogueWorld,
) -> None:
    found = Counter(tuple(product_order(world, seed, 0, 0).tolist()) for seed in range(400))
    assert all(sorted(order) == list(range(len(world.sets[0]))) for order in found)
    assert len(found) == ORDERS
    assert min(found.values()) > 60
    assert tuple(product_order(world, 9, 1, 0).tolist()) in found


def test_disclosed_book_has_no_scores_of_others(world: DialogueWorld) -> None:
    shown = world.disclosed()
    assert (shown.splits == 0).all()
    assert len(shown.persona_ids) == (world.splits == 0).sum()
    for ours, theirs in zip(shown.sets, world.sets, strict=True):
        assert np.isnan(ours.y).all() == (not theirs.seen)


def test_scores_on_another_scale_are_refused(world: DialogueWorld) -> None:
    wrong = replace(world.sets[0], y=world.sets[0].y * 10)
    with pytest.raises(ReleaseError, match="not on 0-100: world, category C000"):
        replace(world, sets=(wrong, *world.sets[1:]))


def test_a_set_with_one_product_is_refused_by_name(world: DialogueWorld) -> None:
    first = world.sets[0]
    single = replace(first, item_ids=first.item_ids[:1], y=first.y[:, :1])
    with pytest.raises(
        ReleaseError, match="needs two products or more, found one: world, category C000"
    ):
        replace(world, sets=(single, *world.sets[1:]))


def test_a_book_without_a_scored_persona_is_refused(world: DialogueWorld) -> None:
    with pytest.raises(ReleaseError, match="no choice set or no persona has scores: products@1"):
        replace(world, sets=(), reference="products@1")


def test_a_book_without_a_train_persona_can_not_be_disclosed(world: DialogueWorld) -> None:
    with pytest.raises(ReleaseError, match="none of 80 personas with scores is of the split train"):
        replace(world, splits=np.full_like(world.splits, 2)).disclosed()
