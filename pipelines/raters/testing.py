"""Conformance tests for raters: inherit, and return yours from ``make``.

>>> from pipelines.raters import RandomRater, SCALES
>>> class TestMine(RaterContract):
...     def make(self):
...         return RandomRater(SCALES["1-5"])
>>> TestMine().test_probabilities_are_a_distribution_per_pair()
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import orjson
import polars as pl

from pipelines.raters.protocol import OK, Rater, all_pairs, bind
from pipelines.statuses import STATUSES

__all__ = ["RaterContract", "contract_items", "contract_personas"]


def contract_personas() -> pl.DataFrame:
    """Three personas: one with tastes, one without dislikes, one without a vector."""
    return pl.DataFrame(
        {
            "persona_id": [f"persona:contract:{n}" for n in range(3)],
            "likes": [["Comedy", "Drama"], ["Horror"], ["A genre of its own"]],
            "dislikes": [["Horror"], [], []],
            "description": ["She loves comedies.", "He loves horror films.", "Who knows?"],
        },
        schema_overrides={"dislikes": pl.List(pl.String)},
    )


def contract_items() -> pl.DataFrame:
    """Four items: two ordinary, one without genres, one that no table knows."""
    return pl.DataFrame(
        {
            "item_id": ["ml:1", "ml:2", "ml:3", "ml:999999999"],
            "title": ["One", "Two", "Three", "Unknown"],
            "genres": [["Comedy"], ["Drama", "Horror"], [], ["Horror"]],
            "vote_average": [7.0, None, 5.5, None],
            "vote_count": [100, None, 3, None],
        },
        schema_overrides={"genres": pl.List(pl.String)},
    )


class RaterContract(ABC):
    """Conformance tests of :class:`pipelines.raters.Rater`."""

    @abstractmethod
    def make(self) -> Rater:
        """The rater under test."""

    def test_probabilities_are_a_distribution_per_pair(self) -> None:
        """Shape (pairs, answers), not negative, sum 1 where the status is ok, else NaN."""
        rater = self.make()
        batch = rater.rate(contract_personas(), contract_items())
        assert batch.scale == rater.scale
        assert batch.probabilities.shape == (12, len(rater.scale))
        assert len(batch.status) == len(batch) == 12
        assert set(batch.status) <= set(STATUSES)
        ok = np.array([s == OK for s in batch.status])
        assert (batch.probabilities[ok] >= 0).all()
        np.testing.assert_allclose(batch.probabilities[ok].sum(axis=1), 1.0, atol=1e-9)
        assert np.isnan(batch.probabilities[~ok]).all()
        assert rater.scale.covers(batch.expected[ok]).all()

    def test_all_pairs_come_persona_by_persona(self) -> None:
        """No `pairs` means every persona with every item, in that order."""
        rater = self.make()
        implied = rater.rate(contract_personas(), contract_items())
        stated = rater.rate(contract_personas(), contract_items(), pairs=all_pairs(3, 4))
        np.testing.assert_allclose(implied.probabilities, stated.probabilities, atol=1e-9)

    def test_a_pair_does_not_depend_on_its_neighbours(self) -> None:
        """Order and company of a pair change nothing."""
        rater, personas, items = self.make(), contract_personas(), contract_items()
        whole = rater.rate(personas, items)
        order = np.random.default_rng(3).permutation(12)
        mixed = rater.rate(personas, items, pairs=all_pairs(3, 4)[order])
        np.testing.assert_allclose(mixed.probabilities, whole.probabilities[order], atol=1e-6)
        for n, (person, item) in enumerate(all_pairs(3, 4)):
            alone = rater.rate(personas[int(person)], items[int(item)])
            np.testing.assert_allclose(alone.probabilities[0], whole.probabilities[n], atol=1e-6)

    def test_a_history_is_taken_or_ignored_but_never_fatal(self) -> None:
        """Past ratings on the scale, of known and unknown items, give distributions."""
        rater = self.make()
        histories = pl.DataFrame(
            {
                "persona_id": ["persona:contract:0"] * 2,
                "item_id": ["ml:1", "ml:888888888"],
                "rating": [rater.scale.high, rater.scale.low],
            }
        )
        batch = rater.rate(contract_personas(), contract_items(), histories)
        ok = np.array([s == OK for s in batch.status])
        np.testing.assert_allclose(batch.probabilities[ok].sum(axis=1), 1.0, atol=1e-9)

    def test_bound_to_row_numbers_it_rates_as_from_tables(self) -> None:
        """`bind` gives the same ratings, without a memory and with one."""
        rater, personas, items = self.make(), contract_personas(), contract_items()
        bound = bind(rater, personas, items)
        who, what = all_pairs(3, 4).T
        whole = rater.rate(personas, items)
        found = bound.rate(who, what, np.full((12, 0), -1), np.zeros((12, 0)))
        assert list(found.status) == list(whole.status)
        np.testing.assert_allclose(found.probabilities, whole.probabilities, atol=1e-6)
        best = rater.scale.high
        history = pl.DataFrame({"persona_id": personas["persona_id"][:1]}).with_columns(
            item_id=pl.lit("ml:1"), rating=pl.lit(best)
        )
        expected = rater.rate(personas, items, history, pairs=np.array([[0, 1]]))
        memory = np.array([[0, -1]]), np.array([[best, 0.0]])
        found = bound.rate(np.array([0]), np.array([1]), *memory)
        np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=1e-6)

    def test_no_pair_gives_no_rating(self) -> None:
        """Zero pairs are not an error."""
        pairs = np.zeros((0, 2), dtype=np.int64)
        batch = self.make().rate(contract_personas(), contract_items(), pairs=pairs)
        assert len(batch) == len(batch.status) == 0

    def test_facts_name_the_rater_and_are_plain_data(self) -> None:
        """`metadata` goes into manifests and reports."""
        rater = self.make()
        facts = rater.metadata()
        assert facts["rater"] == rater.name
        assert isinstance(facts["fitted"], dict)
        assert isinstance(facts["by_hand"], dict)
        assert orjson.dumps(facts)
