"""How often films are rated and how active users are: two long tails.

Item popularity is a Zipf-Mandelbrot law, weight = (rank + q) ** -s, with s and q set on
ml-latest-small. A world of its size (9,742 films, 610 users, 100,836 ratings) has a Gini
coefficient of ratings per film of 0.69 (real: 0.72) and log-log slopes of -0.20, -0.62 and
-0.96 over the ranks 1-100, 10-1000 and 100-3000 (real: -0.27, -0.56, -0.96). The default
world is dense, a third of all pairs are rated and its best-known films by everybody, so its
coefficient is 0.34 whatever the law; s grows with the density to keep a tail visible.

User activity is 20 plus a log-normal, as MovieLens keeps only users with 20 ratings or more;
its sigma gives ml-latest-small's Gini coefficient of ratings per user (0.60).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pipelines.errors import ConfigError
from pipelines.sample_world._dice import stream_seed
from pipelines.sample_world._films import Film

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MIN_ACTIVITY", "gini", "user_activity", "weights_and_quality"]

#: Ratings every user has at least, if the world is large enough.
MIN_ACTIVITY = 20
_EXPONENT = 1.85
_ACTIVITY_SIGMA = 1.43
#: Spread of film quality (stars) and how much of a film's fame comes from it.
_QUALITY_SD = 0.43
_FAME_FROM_QUALITY = 0.6


def gini(counts: NDArray[np.integer]) -> float:
    """Gini coefficient of counts: 0 if all are equal, near 1 if one has everything.

    >>> round(gini(np.array([1, 1, 1, 1])), 3), round(gini(np.array([0, 0, 0, 4])), 3)
    (0.0, 0.75)
    """
    x = np.sort(counts.astype(np.float64))
    n = len(x)
    ranks = np.arange(1, n + 1)
    return float(2 * (ranks * x).sum() / (n * x.sum()) - (n + 1) / n)


def weights_and_quality(
    seed: int, films: Sequence[Film], density: float
) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Sampling weight (sums to 1) and quality (stars above the mean film) of every film.

    A film is better known if it is good, recent, or the sequel of a well-known film, though
    every sequel is a little worse and less seen than the one before.
    """
    rng = np.random.Generator(np.random.PCG64(stream_seed(seed, "popularity")))
    n = len(films)
    z = rng.standard_normal(n)
    fame = rng.standard_normal(n)
    first: dict[int, int] = {}
    for i, film in enumerate(films):
        if film.collection is not None and film.part == 1:
            first[film.collection.id] = i
    for i, film in enumerate(films):
        if film.collection is not None:
            j = first[film.collection.id]
            fame[j] = max(fame[j], 0.3)  # nobody films the sequel of a film nobody saw
            if i != j:
                fame[i] = fame[j] - 0.25 * (film.part - 1) + 0.3 * fame[i]
                z[i] = z[j] - 0.3 * (film.part - 1) + 0.5 * z[i]
    years = np.array([film.year for film in films], dtype=np.float64)
    recency = (years - years.mean()) / max(years.std(), 1.0)
    score = fame + _FAME_FROM_QUALITY * z + 0.25 * recency
    rank = np.empty(n, dtype=np.int64)
    rank[np.argsort(-score, kind="stable")] = np.arange(n)
    q = min(300.0, n / 32)
    weight = (rank + 1 + q) ** -(_EXPONENT * (1 + 2 * density))
    return weight / weight.sum(), (_QUALITY_SD * z).astype(np.float32)


def user_activity(seed: int, users: int, ratings: int, films: int) -> NDArray[np.int64]:
    """Ratings of every user; they sum to ``ratings`` exactly, none exceeds ``films``.

    Raises
    ------
    ConfigError
        If there are more ratings than pairs of a user and a film, or fewer than users.
    """
    if not users <= ratings <= users * films:
        raise ConfigError(
            f"{users} users can't have {ratings} ratings of {films} films",
            where="world.sample",
            hint=f"ratings must be between {users} and {users * films}",
        )
    low = min(MIN_ACTIVITY, ratings // users)
    mean = ratings / users
    # Nobody sees everything, unless the world is too full for anything else.
    high = films if mean > 0.6 * films else max(int(0.8 * films), low + 1)
    rng = np.random.Generator(np.random.PCG64(stream_seed(seed, "activity")))
    excess = np.exp(_ACTIVITY_SIGMA * rng.standard_normal(users))
    total = ratings - low * users
    # Scaling and capping in turns: what the capped lose, the others get.
    room = float(high - low)
    share = np.zeros(users)
    free = np.ones(users, dtype=bool)
    for _ in range(64):
        left = total - share[~free].sum()
        share[free] = excess[free] * (left / excess[free].sum())
        over = free & (share >= room)
        if not over.any():
            break
        share[over] = room
        free &= ~over
        if not free.any():
            break
    counts = low + np.floor(share).astype(np.int64)
    # The remainder goes to the largest fractions first, then to whoever has room.
    missing = ratings - int(counts.sum())
    order = np.argsort(-(share - np.floor(share)), kind="stable")
    while missing > 0:
        able = order[counts[order] < high][:missing]
        counts[able] += 1
        missing -= len(able)
    return counts
