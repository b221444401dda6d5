"""Training on a world whose ratings follow from people's known levels."""

import numpy as np
import polars as pl
import pytest
from scipy.stats import norm

from pipelines.config import TuningSettings
from pipelines.prompts import PromptStyle
from pipelines.scales import SCALES
from pipelines.tuning import HeldOut, Recipe, rating_examples, train_rating_model
from tests.pipelines.tuning.worlds import world

pytestmark = pytest.mark.night

USERS, ITEMS = 400, 150
#: Spreads of people's levels, of films' qualities and of the noise, on 1-10.
LEVEL, QUALITY, NOISE = 1.5, 0.8, 1.25
SETTINGS = TuningSettings(steps=550, batch=2, every=110, dropout=0)
RECIPE = Recipe(window=40)
STYLE = PromptStyle("movies", SCALES["1-10"], layout="ledger")
ANSWERS = np.arange(1.0, 11.0)
_rng = np.random.default_rng(5)
levels, qualities = LEVEL * _rng.normal(size=USERS), QUALITY * _rng.normal(size=ITEMS)


def planted(user, item, rng):
    """A film's quality, the person's level and noise, rounded to half stars."""
    rating = 5.5 + qualities[item] + levels[user] + NOISE * rng.normal()
    return float(np.clip(np.rint(rating), 1, 10)) / 2


def number(ids):
    return np.array([int(one.split(":")[1]) for one in ids])


def examples(tables):
    nobody = HeldOut(frozenset(), frozenset())
    rows = rating_examples(
        **tables,
        source=SCALES["0.5-5"],
        style=STYLE,
        held_out=nobody,
        window=RECIPE.window,
        cuts=RECIPE.cuts,
        history=RECIPE.window,
        seed=RECIPE.seed,
    )
    return rows.sort("window", "position")


def best(asked):
    """Mean answers (n,) if qualities and levels are known."""
    means = 5.5 + qualities[number(asked["item_id"])] + levels[number(asked["user_id"])]
    below = norm.cdf((np.arange(1.5, 10) - means[:, None]) / NOISE)
    edges = np.hstack([np.zeros((len(means), 1)), below, np.ones((len(means), 1))])
    return np.diff(edges, axis=1) @ ANSWERS


def test_error_is_near_the_best_possible_and_worse_with_shuffled_histories(tmp_path):
    """1.32 where who knows all levels has 1.22, 1.98 shuffled; the item mean has 1.93.

    Shuffled among the raters of each film: its mean says the same, the histories nothing.
    """
    tables = world(USERS, ITEMS, 44, planted)
    rows = examples(tables)
    model = train_rating_model(rows, STYLE, SETTINGS, tmp_path)

    def judged(rows):
        rows = rows.filter(pl.col("split") != "train")
        asked = rows.filter(split="validation")
        return model.ask(rows) @ ANSWERS, asked

    def rmse(guess):
        return float(np.sqrt(((guess - truth) ** 2).mean()))

    answers, asked = judged(rows)
    truth = asked["rating"].to_numpy()
    rated = tables["interactions"].join(tables["splits"], on=["user_id", "item_id"])
    train = rated.filter(split="train")
    means = train.group_by("item_id").agg(mean=2 * pl.col("rating").mean())
    floor = asked.select("item_id").join(means, on="item_id", maintain_order="left")["mean"]
    mixed = train.with_columns(pl.col("rating").shuffle(seed=1).over("item_id"))
    rest = rated.filter(pl.col("split") != "train")
    other = {**tables, "interactions": pl.concat([mixed, rest]).drop("split")}
    error, lost = rmse(answers), rmse(judged(examples(other))[0])
    assert error < 1.1 * rmse(best(asked))
    assert lost > 1.2 * error
    assert lost > 0.95 * rmse(floor.to_numpy())
