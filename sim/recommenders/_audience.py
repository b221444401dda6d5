"""Evaluation of recommenders on simulated users, between a random recommender and the oracle."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sim.metrics import Figure, Played, evaluate, headroom_share, liked_and_disliked
from sim.recommenders._baselines import CommonListRecommender, OracleRecommender, genre_tables
from sim.recommenders._registry import open_recommender

if TYPE_CHECKING:
    from sim.environment import World
    from sim.recommenders._protocol import Floats, Ints, Recommender

#: Items recommended to each persona (count): the k of the metrics.
LIST = 10
#: Seeds of evaluations are kept apart from those of training.
_SEEDS = 1_000_003


class Audience:
    """The personas that recommenders are evaluated on, each with an empty memory.

    Every persona is shown ten items one after the other; each is rated by the environment's rater,
    which gets the ones before it, and the recommender gets the rating. No episode ends before the
    tenth. All recommenders of a seed get the same random numbers. The training items of matched
    personas are masked.

    ``users`` are the numbers of the personas, such as ``world.cast.nearest(persona_id, 50)``, or
    how many are drawn with `seed` at most (count; None: all). The attribute holds their numbers,
    ascending. ``environment`` are further arguments of the environment, such as the retriever.
    """

    def __init__(
        self, world: World, *, users: int | Ints | None = None, seed: int = 0, **environment: Any
    ) -> None:
        self.world, self._more = world, environment
        everybody = np.arange(len(world.cast))
        if isinstance(users, int) and users < len(everybody):
            rng = np.random.default_rng(seed)
            everybody = np.sort(rng.choice(everybody, users, replace=False))
        self.users = np.unique(users) if isinstance(users, np.ndarray) else everybody
        self._genres, self._likes, self._dislikes = genre_tables(world.release)

    def play(self, recommender: Recommender, *, seed: int = 0) -> Played:
        """Ten recommendations to everybody by a recommender fitted on the same release."""
        env, n = self.env, len(self.users)
        env.reset(
            seed=[seed * _SEEDS + int(u) for u in self.users], options={"personas": self.users}
        )
        items = np.full((n, LIST), -1, np.int64)
        ratings = np.full((n, LIST), np.nan)
        playing, training = np.ones(n, bool), self.world.known[self.users]
        for step in range(LIST):
            seen, rated = _with_known(training, items[:, :step], ratings[:, :step])
            chosen = recommender.recommend(self.users, 1, seen=seen, ratings=rated)[:, 0]
            # A user with nothing left to see, or without a rating, is only kept in step.
            playing &= chosen >= 0
            if not playing.any():
                break
            _, _, _, _, infos = env.step(np.where(playing, chosen, 0))
            items[playing, step] = chosen[playing]
            rating = np.where(infos["_rating"], infos["rating"], np.nan).astype(np.float64)
            ratings[playing, step] = rating[playing]
            playing &= ~np.isnan(rating)
        liked, disliked = liked_and_disliked(
            items, self._genres, self._likes[self.users], self._dislikes[self.users]
        )
        return Played(items, ratings, env.scale, liked, disliked)

    def references(self) -> list[Recommender]:
        """Best common list and oracle; empty where expected ratings cost calls of a model."""
        if self.world.rater.language_model and not self.world.rater.name.startswith("replay"):
            return []
        unfitted = CommonListRecommender(self.world.rater), OracleRecommender(self.world.rater)
        return [reference.fit(self.world.release) for reference in unfitted]

    def rank(self, *names: str, seed: int = 0) -> pl.DataFrame:
        """Rank recommenders by the mean rating of ten recommendations, from random to the oracle.

        Parameters
        ----------
        names
            Of `open_recommender`; each is fitted on the release.
        seed
            Seed of the ratings, the same for each recommender.

        Returns
        -------
        DataFrame
            Best first: ``recommender``; ``rating``, on the rater's scale; ``score``, 0 for random
            and 1 for the oracle, with its 95 % interval over personas, ``low`` and ``high``
            (bootstrap). Scores are null where expected ratings cost calls of a model.
        """
        release = self.world.release
        opened = [open_recommender(n).fit(release) for n in dict.fromkeys(["random", *names])]
        oracle = [fitted for fitted in self.references() if fitted.name == OracleRecommender.name]
        played = {fitted.name: [self.play(fitted, seed=seed)] for fitted in [*opened, *oracle]}
        rows = []
        for name, lists in played.items():
            score: Figure | None = None
            if oracle:
                score = headroom_share(lists, played["random"], played[oracle[0].name])
            rating = evaluate(lists, resamples=2)["average_reward"].value
            interval = {n: None if score is None else getattr(score, n) for n in ("low", "high")}
            row = {"rating": rating, "score": None if score is None else score.value, **interval}
            rows.append({"recommender": name, **row})
        best_first = pl.DataFrame(rows).sort("rating", descending=True, maintain_order=True)
        return best_first.with_columns(pl.exclude("recommender").cast(pl.Float64).round(3))

    @cached_property
    def env(self) -> Any:
        """The environment, one row per user."""
        from sim.environment import RecommendationVectorEnv

        return RecommendationVectorEnv(
            len(self.users),
            world=self.world,
            observation="compact",
            # A step more than is taken, so that no episode ends by its length.
            length_limit=LIST + 1,
            history_length=LIST + 1,
            leave_probability=0.0,
            on_unrated="truncate",
            **self._more,
        )


def _with_known(training: Ints, items: Ints, ratings: Floats) -> tuple[Ints, Floats]:
    """Known items without a rating before the shown ones, padded with -1 at the end.

    >>> _with_known(np.array([[4, -1]]), np.array([[2, -1]]), np.array([[5.0, np.nan]]))
    (array([[ 4,  2, -1, -1]]), array([[nan,  5., nan, nan]]))
    """
    seen = np.concatenate([training, items], axis=1)
    rated = np.concatenate([np.full(training.shape, np.nan), ratings], axis=1)
    order = np.argsort(seen < 0, axis=1, kind="stable")
    return np.take_along_axis(seen, order, axis=1), np.take_along_axis(rated, order, axis=1)
