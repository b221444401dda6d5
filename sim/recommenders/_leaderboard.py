"""Recommenders judged twice: by people's held-out items and by personas matched to people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.errors import ReleaseError
from pipelines.progress import advance
from pipelines.study import RESAMPLES, Figure, interval, user_weights
from sim.environment import World, persona_users
from sim.metrics import average_reward
from sim.recommenders._audience import Audience
from sim.recommenders._baselines import OracleRecommender
from sim.recommenders._offline import bounds, evaluate_offline
from sim.recommenders._protocol import Floats, Recommender
from sim.recommenders._registry import BASELINES

if TYPE_CHECKING:
    from sim._release import Release

#: Recommender at 0 of the scale of simulated rewards; the oracle is at 1.
RANDOM = "random"


@dataclass(frozen=True)
class LeaderboardRow:
    """Figures of one recommender, with 95 % intervals over people or personas."""

    name: str
    #: NDCG on people's held-out items; None for the oracle, and for `content`, which reads what
    #: personas like.
    ndcg: Figure | None
    #: Mean rating of ten recommendations (points of the rater's scale).
    reward: Figure
    #: The same between the random recommender (0) and the oracle (1).
    score: Figure
    #: A sentence on the recommender.
    note: str
    #: Whether it is a baseline or the oracle.
    baseline: bool

    def as_json(self) -> dict[str, Any]:
        """The row as plain values."""
        figures = {"ndcg": self.ndcg, "reward": self.reward, "score": self.score}
        return {
            "recommender": self.name,
            "note": self.note,
            "baseline": self.baseline,
            **{name: bounds(figure) for name, figure in figures.items()},
        }


@dataclass(frozen=True)
class Leaderboard:
    """Recommenders by simulated reward, best first, and how far people rank them alike."""

    release: str
    #: Name of the rater, whether it is a language model, and a sentence on it.
    rater: str
    language_model: bool
    note: str
    #: Length of the lists of the NDCG (items); people and personas (count).
    k: int
    people: int
    personas: int
    rows: tuple[LeaderboardRow, ...]
    #: Kendall's tau-b between NDCG and simulated reward over the recommenders that have both, but
    #: the random one: 1 is the same order, 0 what chance gives.
    agreement: Figure
    #: Recommenders that it is of (count), and the tau that chance stays below in 95 % of orders.
    ranked: int
    chance: float

    def as_json(self) -> dict[str, Any]:
        """The board as plain values."""
        return vars(self) | {
            "rows": [row.as_json() for row in self.rows],
            "agreement": bounds(self.agreement),
        }


def leaderboard(
    release: Release,
    recommenders: Mapping[str, Callable[[], Recommender]],
    *,
    users: int | None = 500,
    k: int = 20,
    seed: int = 0,
) -> Leaderboard:
    """Judge recommenders by people's held-out items and by the personas matched to people.

    Each is fitted on people's training items. People: NDCG@k of the test split, training and
    validation items masked. Personas: ten recommendations one after the other, each rated by the
    statistical rater before the next, with the training items of the person known to both.

    Parameters
    ----------
    release
        With people's interactions, splits, and personas matched to people.
    recommenders
        Functions that open a recommender, unfitted, by the name that the board shows.
    users
        Maximum number of people, and of personas (count); None: all.
    k
        Length of the lists of the NDCG (items).
    seed
        Of the samples, the ratings and the bootstrap.

    Raises
    ------
    ReleaseError
        If no persona is matched to a person, a table is missing, or the oracle earns no more than
        the random recommender.
    """
    openers = {RANDOM: recommenders[RANDOM]} | dict(recommenders)
    judged = {name: open_one() for name, open_one in openers.items() if name != "content"}
    against = "popular" if "popular" in judged else RANDOM
    offline = evaluate_offline(judged, release, k=k, against=against, users=users, seed=seed)
    world = World.open(release)
    matched = np.array([user is not None for user in persona_users(release)])
    if not matched.any():
        raise ReleaseError("no persona is matched to a person", where=release.ref)
    matched = np.flatnonzero(matched)
    if users is not None and users < len(matched):
        matched = np.random.default_rng(seed).choice(matched, users, replace=False)
    audience = Audience(world, users=matched)
    played, notes = {}, {}
    for step, (name, open_one) in enumerate(openers.items()):
        advance(f"personas and {name}", step, len(openers) + 1)
        fitted = open_one().fit(release)
        played[name], notes[name] = audience.play(fitted, seed=seed).ratings, fitted.note
    oracle = OracleRecommender(world.rater).fit(release)
    played[oracle.name], notes[oracle.name] = audience.play(oracle, seed=seed).ratings, oracle.note
    rewards = {name: average_reward(ratings) for name, ratings in played.items()}
    rated = ~np.isnan(np.stack(list(rewards.values()))).any(axis=0)
    rewards = {name: values[rated] for name, values in rewards.items()}
    weights = user_weights(int(rated.sum()), RESAMPLES, seed)
    means = {name: float(values.mean()) for name, values in rewards.items()}
    draws = {name: weights @ values / len(values) for name, values in rewards.items()}
    if means[oracle.name] <= means[RANDOM]:
        raise ReleaseError("the oracle earns no more than random lists", where=release.ref)
    ndcg = {row.name: row.ndcg for row in offline.rows}
    rows = [
        LeaderboardRow(
            name,
            ndcg.get(name),
            interval(means[name], draws[name]),
            interval(float(_scaled(means, name, oracle.name)), _scaled(draws, name, oracle.name)),
            notes[name],
            name in (*BASELINES, oracle.name),
        )
        for name in rewards
    ]
    both = [name for name in ndcg if name != RANDOM]
    values = np.stack([offline.ndcg_by_person[name] for name in both])
    people = user_weights(values.shape[1], RESAMPLES, seed + 1) @ values.T
    simulated = np.stack([draws[name] for name in both], axis=1)
    agreement = interval(
        _tau(values.mean(axis=1), np.array([means[name] for name in both])),
        [_tau(a, b) for a, b in zip(people, simulated, strict=True)],
    )
    return Leaderboard(
        release.ref,
        world.rater.name,
        world.rater.language_model,
        world.rater.note,
        k,
        offline.users,
        int(rated.sum()),
        tuple(sorted(rows, key=lambda row: -row.reward.value)),
        agreement,
        len(both),
        _chance(len(both), seed),
    )


def _scaled(rewards: Mapping[str, Any], name: str, oracle: str) -> Any:
    return (rewards[name] - rewards[RANDOM]) / (rewards[oracle] - rewards[RANDOM])


def _tau(left: Floats, right: Floats) -> float:
    """Kendall's tau-b; NaN where all of one side are equal, or there are fewer than two."""
    from scipy.stats import kendalltau

    return float(kendalltau(left, right).statistic) if len(left) > 1 else float("nan")


def _chance(count: int, seed: int) -> float:
    """The 97.5 % quantile of tau between random orders: chance is within ± it in 95 %."""
    rng, order = np.random.default_rng(seed), np.arange(float(count))
    if count < 2:
        return 1.0
    return float(np.quantile([_tau(order, rng.permutation(order)) for _ in range(2_000)], 0.975))
