"""Every rater does what the protocol says."""

from functools import cache

import numpy as np
import polars as pl
import pytest

from pipelines.errors import ConfigError, ContractError
from pipelines.raters import (
    FITTED_RATERS,
    SCALES,
    MeanRater,
    RandomRater,
    Rater,
    RatingBatch,
    fit_rater,
)
from pipelines.raters.testing import check_rater


@pytest.fixture(scope="module")
def fitted(small_world):
    """A rater by name and scale, fitted once."""
    return cache(
        lambda name, scale, text: fit_rater(
            name, scale=scale, **small_world.tables, **(small_world.vectors if text else {})
        )
    )


@pytest.mark.parametrize(
    ("name", "scale", "text"),
    [("statistical", "1-10", True), ("statistical", "1-5", False), ("mean", "0-9", False)],
)
def test_fitted_rater_conforms(fitted, name, scale, text):
    check_rater(fitted(name, scale, text))


class Skewed(RandomRater):
    """Its first answer is more probable, and no other less."""

    def rate(self, *tables, **options):
        batch = super().rate(*tables, **options)
        return RatingBatch(batch.scale, batch.probabilities + np.eye(10)[0], batch.status)


def test_class_or_name_is_opened_and_a_fault_is_named():
    check_rater("random")
    check_rater(MeanRater)
    with pytest.raises(AssertionError, match="probabilities sum to 1"):
        check_rater(Skewed)


def test_every_name_makes_a_rater_that_says_its_name(small_world):
    for name in FITTED_RATERS:
        rater = fit_rater(name, scale="1-10", **small_world.tables)
        assert isinstance(rater, Rater)
        assert rater.name == name
    with pytest.raises(ConfigError, match="statistical, random, mean"):
        fit_rater("llm", scale="1-10", **small_world.tables)
    with pytest.raises(ConfigError, match="unknown rating scale"):
        fit_rater("random", scale="1-7", **small_world.tables)


def test_the_mean_rater_expects_exactly_the_mean_and_knows_two_answers():
    """Stars 3.0 and 4.0 with 1 and 3 ratings: mean 3.75; on 1-10 twice as much."""
    stats = pl.DataFrame(
        {
            "item_id": ["ml:1", "ml:2", "ml:3"],
            "train_ratings": [1, 3, 0],
            "train_mean_rating": [3.0, 4.2, None],
        }
    )
    rater = MeanRater(stats, SCALES["1-10"])
    items = pl.DataFrame({"item_id": ["ml:2", "ml:3", "ml:1", "ml:404"]})
    batch = rater.rate(pl.DataFrame({"persona_id": ["persona:a:0"]}), items)
    overall = 2 * (3.0 + 3 * 4.2) / 4
    np.testing.assert_allclose(batch.expected, [8.4, overall, 6.0, overall])
    np.testing.assert_allclose(batch.probabilities[0, 7:9], [0.6, 0.4])
    assert (batch.probabilities > 0).sum(axis=1).max() == 2


def test_means_at_the_ends_of_the_scale_stay_on_it():
    stats = pl.DataFrame(
        {"item_id": ["ml:1", "ml:2"], "train_ratings": [1, 1], "train_mean_rating": [0.5, 5.0]}
    )
    batch = MeanRater(stats, SCALES["1-5"]).rate(pl.DataFrame({"persona_id": ["p"]}), stats)
    assert batch.expected.tolist() == [1.0, 5.0]


def test_a_batch_says_expected_mode_entropy_and_draws_by_hand():
    """On 1-5: expected 1*.1+2*.2+3*.4+4*.2+5*.1 = 3, mode 3; a sure 5 has entropy 0."""
    batch = RatingBatch(
        SCALES["1-5"],
        np.array([[0.1, 0.2, 0.4, 0.2, 0.1], [0, 0, 0, 0, 1.0], [np.nan] * 5]),
        ["ok", "ok", "refused"],
    )
    np.testing.assert_allclose(batch.expected[:2], [3.0, 5.0])
    assert batch.mode[:2].tolist() == [3.0, 5.0]
    assert batch.entropy[0] == pytest.approx(1.4708, abs=1e-4)
    assert batch.entropy[1] == 0
    draws = [batch.sample(np.full(3, q))[0] for q in (0.0, 0.0999, 0.1001, 0.31, 0.89, 0.9999999)]
    assert draws == [1, 1, 2, 3, 4, 5]
    assert batch.sample(np.zeros(3))[1] == 5, "an answer of probability 0 is never drawn"
    assert np.isnan(batch.expected[2])
    assert np.isnan(batch.mode[2])
    assert np.isnan(batch.sample(np.zeros(3))[2])


def test_interactions_on_several_scales_are_refused(small_world):
    mixed = small_world.interactions.with_columns(
        scale=pl.when(pl.int_range(pl.len()) == 0).then(pl.lit("1-5")).otherwise("scale")
    )
    with pytest.raises(ContractError, match="one known scale"):
        fit_rater("mean", scale="1-10", **{**small_world.tables, "interactions": mixed})
