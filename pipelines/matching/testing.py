"""Conformance check of matchers, and the small world that it matches users of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import polars as pl

from pipelines.config import MatchingSettings
from pipelines.contracts import CONTRACTS
from pipelines.matching._history import SEED, History
from pipelines.matching._match import draw_trials, match_users
from pipelines.matching._protocol import ATTRIBUTES, CANDIDATES, Matcher

__all__ = ["SETTINGS", "check_matcher", "counted_traits", "small_world"]

_AGES = ("18-24", "25-34", "56+")
_JOBS = ("student", "writer", "retired")


def small_world(
    users: int = 30, items: int = 24, *, stated: bool = True, domain: str = "movies"
) -> dict[str, pl.DataFrame]:
    """Tables of a small domain in which three kinds of people like different items.

    Every user rates about a third of the items, one of them held out. Returns ``interactions,
    splits, items, human_users`` as arguments of :meth:`History.read`, and ``training_traits``.
    """
    kinds = len(_AGES)
    rows = [
        (f"ml-user:{u}", f"ml:{i}", float(5 if i % kinds == u % kinds else 1 + (u + i) % 3))
        for u in range(users)
        for i in range(items)
        if i % kinds == u % kinds or (i * 7 + u) % 5 == 0
    ]
    interactions = pl.DataFrame(rows, ["user_id", "item_id", "rating"], orient="row").with_columns(
        scale=pl.lit("1-5")
    )
    last = pl.int_range(pl.len()).over("user_id") == pl.len().over("user_id") - 1
    splits = interactions.select(
        "user_id", "item_id", split=pl.when(last).then(pl.lit("test")).otherwise(pl.lit("train"))
    )
    genres = ("Comedy", "Drama", "War")
    catalogue = pl.DataFrame(
        {
            "item_id": [f"ml:{i}" for i in range(items)],
            "title": [f"Film {i}" for i in range(items)],
            "year": [1980 + i for i in range(items)],
            "genres": [[genres[i % kinds]] for i in range(items)],
            "directors": [[f"Director {i % kinds}"] for i in range(items)],
        }
    ).with_columns(authors="directors", developer=pl.col("directors").list.first())
    people = pl.DataFrame(
        {
            "user_id": [f"ml-user:{u}" for u in range(users)],
            "age_band": [_AGES[u % kinds] if stated else None for u in range(users)],
            "occupation": [_JOBS[u % kinds] if stated else None for u in range(users)],
        },
        schema=dict.fromkeys(("user_id", "age_band", "occupation"), pl.String),
    )
    train = interactions.join(splits.filter(pl.col("split") == "train"), on=["user_id", "item_id"])
    return {
        "interactions": interactions,
        "splits": splits,
        "items": catalogue,
        "human_users": people,
        "training_traits": counted_traits(train, domain),
    }


def counted_traits(train: pl.DataFrame, domain: str) -> pl.DataFrame:
    """Rows of `training_traits` with the right counts and means; tiers are all the same."""
    schema = CONTRACTS[f"{domain}.training_traits"].polars_schema()
    tiers: dict[str, Any] = {n: pl.lit("medium") for n in schema if n.endswith("_tier")}
    return train.group_by("user_id").agg(
        activity=pl.len().cast(pl.Int64),
        conformity=pl.col("rating").var().fill_null(0.0),
        diversity=pl.lit(3, pl.Int64),
        diversity_80=pl.lit(2, pl.Int64),
        mean_rating=pl.col("rating").mean(),
    ).with_columns(pickiness=pl.lit("extremely_picky"), **tiers).select(list(schema))  # fmt: skip


#: Settings of the check; small lists keep a model's prompts short.
SETTINGS = MatchingSettings(users=6, candidates=2, items=6, subsets=2, subset_size=4, others=3)


def check_matcher(
    make: Callable[[MatchingSettings], Matcher], settings: MatchingSettings = SETTINGS
) -> None:
    """Assert the behaviour required of every :class:`pipelines.matching.Matcher`.

    ``make`` returns the matcher before `fit`. It matches users of :func:`small_world` twice, by as
    many users and candidates as the settings say (count; fewer for a slow model). Raises
    AssertionError or ContractError.
    """
    tables: dict[str, Any] = small_world()
    traits = tables.pop("training_traits")
    history = History.read("movies", **tables)
    matched, again = (match_users(history, traits, make(settings), settings) for _ in range(2))
    CONTRACTS["movies.matched_personas"].validate(matched.personas)
    CONTRACTS["movies.persona_candidates"].validate(matched.candidates)
    assert matched.personas.height == settings.users
    chosen = matched.candidates.filter("chosen").group_by("user_id").len()
    assert set(chosen["len"]) <= {1}, "a user has several chosen candidates"
    assert matched.personas.equals(again.personas), "equal seeds give other personas"
    assert matched.candidates.equals(again.candidates), "equal seeds give other candidates"
    assert orjson.dumps(matched.metadata)

    matcher = make(settings).fit(history)
    assert matcher.basis in ("fitted", "model", "none")
    assert set(matched.personas["method"]) == {matcher.name}
    users = history.sample(settings.users, SEED)
    lists = history.draw(users, np.full(len(users), settings.items), 1)
    tastes = matcher.tastes(users, lists)
    assert len(tastes) == len(users)
    assert all(taste.text and taste.writer for taste in tastes), "a summary is empty"
    candidates = matcher.candidates(users, lists, tastes, settings.candidates)
    assert dict(candidates.schema) == dict(pl.Schema(CANDIDATES))
    if matcher.basis != "none":
        numbers = [*range(settings.candidates)] * len(users)
        assert candidates["candidate"].to_list() == numbers
    failed = candidates.filter(pl.col("status") != "ok")
    for name in ATTRIBUTES:
        assert failed[name].null_count() == failed.height, f"{name} of a failed candidate"
    trials = draw_trials(
        history,
        users,
        subsets=settings.subsets,
        size=settings.subset_size,
        others=settings.others,
        seed=1,
    )
    rated = matcher.rate(users, candidates, trials, tastes)
    assert rated.expected.shape == (candidates.height, settings.subsets + settings.others)
    given = rated.expected[~np.isnan(rated.expected)]
    assert ((given >= 1) & (given <= 10)).all(), "a rating is not on 1-10"
    assert len(rated.status) == len(rated.answer_keys) == candidates.height
