"""Conformance of raters.

>>> from pipelines.raters import RandomRater
>>> check_rater(RandomRater)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import polars as pl

from pipelines.raters.protocol import OK, Rater, all_pairs, bind
from pipelines.scales import SCALES
from pipelines.seams import RATERS
from pipelines.statuses import STATUSES

__all__ = ["check_rater", "contract_items", "contract_personas"]


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


def check_rater(chosen: Rater | type[Any] | str) -> None:
    """Check what is required of every :class:`pipelines.raters.Rater`.

    `chosen` is a rater, or the class or name of one, which is opened on a small world of films on
    the scale 1-10. AssertionError names what is wrong.
    """
    personas, items = contract_personas(), contract_items()
    stats = items.select(
        "item_id",
        train_ratings=pl.col("vote_count").fill_null(0),
        train_mean_rating=pl.col("vote_average") / 2,
    )
    offered = {"items": items, "item_stats": stats, "scale": SCALES["1-10"]}
    offered |= {"domain": "movies", "seed": 0}
    opened: Any = chosen
    if isinstance(chosen, str | type):
        opened = RATERS.open(chosen, offered=offered)
    rater: Rater = opened

    # Shape (pairs, answers), not negative, sum 1 where the status is ok, else NaN.
    ratings = rater.rate(personas, items)
    assert ratings.scale == rater.scale, "ratings are on the rater's scale"
    assert ratings.probabilities.shape == (12, len(rater.scale)), "shape is (pairs, answers)"
    assert len(ratings.status) == len(ratings) == 12, "a status per pair"
    assert set(ratings.status) <= set(STATUSES), "statuses are known ones"
    ok = np.array([s == OK for s in ratings.status])
    assert (ratings.probabilities[ok] >= 0).all(), "probabilities are not negative"
    total = ratings.probabilities[ok].sum(axis=1)
    np.testing.assert_allclose(total, 1.0, atol=1e-9, err_msg="probabilities sum to 1")
    assert np.isnan(ratings.probabilities[~ok]).all(), "a pair that is not ok has NaN"
    assert rater.scale.covers(ratings.expected[ok]).all(), "expected ratings are on the scale"

    # No `pairs` means every persona with every item, in that order.
    stated = rater.rate(personas, items, pairs=all_pairs(3, 4))
    np.testing.assert_allclose(ratings.probabilities, stated.probabilities, atol=1e-9)

    # Order and company of a pair change nothing.
    order = np.random.default_rng(3).permutation(12)
    mixed = rater.rate(personas, items, pairs=all_pairs(3, 4)[order])
    np.testing.assert_allclose(mixed.probabilities, ratings.probabilities[order], atol=1e-6)
    for n, (person, item) in enumerate(all_pairs(3, 4)):
        alone = rater.rate(personas[int(person)], items[int(item)])
        np.testing.assert_allclose(alone.probabilities[0], ratings.probabilities[n], atol=1e-6)

    # Past ratings on the scale, of known and unknown items, give distributions.
    histories = pl.DataFrame(
        {
            "persona_id": ["persona:contract:0"] * 2,
            "item_id": ["ml:1", "ml:888888888"],
            "rating": [rater.scale.high, rater.scale.low],
        }
    )
    batch = rater.rate(personas, items, histories)
    ok = np.array([s == OK for s in batch.status])
    np.testing.assert_allclose(batch.probabilities[ok].sum(axis=1), 1.0, atol=1e-9)

    # `bind` gives the same ratings, without a memory and with one.
    bound = bind(rater, personas, items)
    who, what = all_pairs(3, 4).T
    bound_batch = bound.rate(who, what, np.full((12, 0), -1), np.zeros((12, 0)))
    assert list(bound_batch.status) == list(ratings.status), "`bind` gives the same statuses"
    np.testing.assert_allclose(bound_batch.probabilities, ratings.probabilities, atol=1e-6)
    best = rater.scale.high
    history = pl.DataFrame({"persona_id": personas["persona_id"][:1]}).with_columns(
        item_id=pl.lit("ml:1"), rating=pl.lit(best)
    )
    expected = rater.rate(personas, items, history, pairs=np.array([[0, 1]]))
    memory = np.array([[0, -1]]), np.array([[best, 0.0]])
    bound_batch = bound.rate(np.array([0]), np.array([1]), *memory)
    np.testing.assert_allclose(bound_batch.probabilities, expected.probabilities, atol=1e-6)

    # Zero pairs are not an error.
    pairs = np.zeros((0, 2), dtype=np.int64)
    batch = rater.rate(personas, items, pairs=pairs)
    assert len(batch) == len(batch.status) == 0, "no pairs, no ratings"

    # `metadata` goes into manifests and reports.
    facts = rater.metadata()
    assert facts["rater"] == rater.name, "`metadata` names the rater"
    assert isinstance(facts["fitted"], dict), "`metadata` has the object `fitted`"
    assert isinstance(facts["by_hand"], dict), "`metadata` has the object `by_hand`"
    assert orjson.dumps(facts), "`metadata` is plain data"
