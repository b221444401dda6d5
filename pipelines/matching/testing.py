"""Conformance tests for matchers: inherit, and return yours from ``make``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import polars as pl

from pipelines.config import MatchingSettings
from pipelines.contracts import CONTRACTS
from pipelines.matching._history import SEED, History
from pipelines.matching._match import Matched, draw_trials, match_users
from pipelines.matching._protocol import ATTRIBUTES, CANDIDATES, Matcher

__all__ = ["MatcherContract", "counted_traits", "small_world"]

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


class MatcherContract(ABC):
    """Behaviour required of every :class:`pipelines.matching.Matcher`."""

    #: Users and candidates that the tests match (count); fewer for a slow model.
    users = 6
    #: Settings of every test; small lists keep a model's prompts short.
    settings = MatchingSettings(users=6, candidates=2, items=6, subsets=2, subset_size=4, others=3)

    @abstractmethod
    def make(self, settings: MatchingSettings) -> Matcher:
        """The matcher under test, before `fit`."""

    def history(self) -> History:
        """The histories that it is given."""
        tables: dict[str, Any] = small_world()
        tables.pop("training_traits")
        return History.read("movies", **tables)

    def matched(self, **changes: Any) -> Matched:
        """Personas of the small world."""
        settings = self.settings.model_copy(update=changes)
        traits = small_world()["training_traits"]
        return match_users(self.history(), traits, self.make(settings), settings)

    def test_tables_meet_their_contracts(self) -> None:
        """Each user has one persona, and one chosen candidate if any has a score."""
        matched = self.matched()
        CONTRACTS["movies.matched_personas"].validate(matched.personas)
        CONTRACTS["movies.persona_candidates"].validate(matched.candidates)
        assert matched.personas.height == self.settings.users
        chosen = matched.candidates.filter("chosen").group_by("user_id").len()
        assert set(chosen["len"]) <= {1}

    def test_it_says_what_it_is(self) -> None:
        """A name, a basis and facts that can be stored."""
        import orjson

        matcher = self.make(self.settings).fit(self.history())
        assert matcher.name
        assert matcher.basis in ("fitted", "model", "none")
        matched = self.matched()
        assert orjson.dumps(matched.metadata)
        assert set(matched.personas["method"]) == {matcher.name}

    def test_equal_seeds_give_equal_personas(self) -> None:
        """Two runs give the same rows."""
        first, second = self.matched(), self.matched()
        assert first.personas.equals(second.personas)
        assert first.candidates.equals(second.candidates)

    def test_candidates_have_their_columns_in_order(self) -> None:
        """`candidates` rows per user, or none where nothing is known; attributes of an ok row."""
        history, settings = self.history(), self.settings
        users = history.sample(self.users, SEED)
        lists = history.draw(users, np.full(len(users), settings.items), 1)
        matcher = self.make(settings).fit(history)
        tastes = matcher.tastes(users, lists)
        candidates = matcher.candidates(users, lists, tastes, 2)
        assert dict(candidates.schema) == dict(pl.Schema(CANDIDATES))
        if matcher.basis != "none":
            assert candidates["candidate"].to_list() == [0, 1] * len(users)
        failed = candidates.filter(pl.col("status") != "ok")
        for name in ATTRIBUTES:
            assert failed[name].null_count() == failed.height, name

    def test_ratings_are_on_one_to_ten(self) -> None:
        """Every rating that is given lies on the scale; its shape is candidates x lists."""
        history, settings = self.history(), self.settings
        users = history.sample(2, SEED)
        lists = history.draw(users, np.full(len(users), settings.items), 1)
        matcher = self.make(settings).fit(history)
        tastes = matcher.tastes(users, lists)
        candidates = matcher.candidates(users, lists, tastes, 2)
        trials = draw_trials(history, users, subsets=2, size=4, others=3, seed=1)
        rated = matcher.rate(users, candidates, trials, tastes)
        assert rated.expected.shape == (candidates.height, 5)
        given = rated.expected[~np.isnan(rated.expected)]
        assert ((given >= 1) & (given <= 10)).all()
        assert len(rated.status) == len(rated.answer_keys) == candidates.height

    def test_summaries_are_texts(self) -> None:
        """Each user has a summary, by the model or without one, never empty."""
        history = self.history()
        users = history.sample(2, 1)
        lists = history.draw(users, np.full(len(users), 6), 1)
        tastes = self.make(self.settings).fit(history).tastes(users, lists)
        assert len(tastes) == 2
        assert all(t.text and t.writer for t in tastes)
