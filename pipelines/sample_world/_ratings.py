"""Who rates what, how, and when: generated block by block of users.

A block's random stream depends on the seed and the block's number only, so that memory stays
bounded and the blocks could be generated in any order with the same result.

For user u and film i with genres G(i)::

    affinity(u, i) = mean of taste(u, g) over g in G(i)
    P(u rates i)   ~ popularity(i) * exp(beta * affinity(u, i))      without replacement
    latent(u, i)   = base + bias(u) + quality(i) + gamma * affinity(u, i) + spread(u) * noise

The latent value is stretched downwards (people who dislike a film say so) and rounded to
whole stars, or to half stars as far as the user likes those; before February 2003 MovieLens
had no half stars, so no rating before that has one. The constants are set on ml-latest-small.
Of a world of its size against the real file: mean 3.51 and 3.50, mode 4 in both, 26 and 30 %
half stars, total variation distance of the histograms 0.06, standard deviation of user means
0.43 and 0.48, correlation of a user's liking for a genre between two halves of their ratings
0.29 and 0.33.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from pipelines.sample_world._dice import stream_seed
from pipelines.sample_world._films import Film
from pipelines.sample_world._genres import GENRES
from pipelines.sample_world._popularity import user_activity, weights_and_quality
from pipelines.sample_world._sessions import Sessions

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BLOCK", "RatingBlock", "RatingModel"]

#: Users per block; part of what the seed means, so changing it changes every world.
BLOCK = 1024
#: Strength of taste in choosing and (stars) in rating.
_BETA = 1.4
_GAMMA = 0.88
#: Mean latent rating (stars). In large catalogues people find more that they like, so the
#: first block of users tells what must be added to get there.
_MEAN = 3.60
_BIAS_SD = 0.40
#: Pairs of user and film that are looked at at once; bounds memory, and is part of what the
#: seed means.
_PAIRS = 1 << 18
#: Rounds of drawing before the rest of a user's list comes from the whole catalogue.
_ROUNDS = 4
#: Half stars came to MovieLens on 2003-02-18 (UTC seconds).
HALF_STARS_SINCE = 1_045_526_400


@dataclass(frozen=True, slots=True)
class RatingBlock:
    """The ratings of consecutive users, by user and then film.

    Attributes
    ----------
    user
        User ids, int64.
    film
        Positions in the catalogue, int64.
    half_stars
        Ratings in half stars, 1-10, int8.
    timestamp
        Seconds since 1970 (UTC), int64.
    """

    user: NDArray[np.int64]
    film: NDArray[np.int64]
    half_stars: NDArray[np.int8]
    timestamp: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Users:
    """What the users of one block are like: arrays with one row per user."""

    first: int
    activity: NDArray[np.int64]
    taste: NDArray[np.float32]
    bias: NDArray[np.float32]
    spread: NDArray[np.float32]
    half_share: NDArray[np.float32]


class RatingModel:
    """The ratings of a world.

    Parameters
    ----------
    seed
        The generator's seed.
    films
        The catalogue, by MovieLens id.
    users, ratings
        Size (counts); every rating is valid.

    Raises
    ------
    ConfigError
        If so many ratings don't fit, see :func:`user_activity`.
    """

    def __init__(self, seed: int, films: Sequence[Film], users: int, ratings: int) -> None:
        self.seed = seed
        self.users = users
        self.activity = user_activity(seed, users, ratings, len(films))
        self.weight, self.quality = weights_and_quality(seed, films, ratings / (users * len(films)))
        self.years = np.array([f.year for f in films], dtype=np.int64)
        genre = np.zeros((len(films), len(GENRES)), dtype=np.float32)
        for i, film in enumerate(films):
            for g in film.genres:
                genre[i, GENRES.index(g)] = 1 / len(film.genres)
        self.genre = genre
        self._sure_user, self._sure_film = self._sure_pairs(ratings)

    def _sure_pairs(self, ratings: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """One sure user (from 0, ascending) for nearly every film that might get no rating.

        MovieLens lists a film once somebody has rated or tagged it, so its tail is films with
        one rating, not with none.
        """
        rng = np.random.Generator(np.random.PCG64(stream_seed(self.seed, "tail")))
        film = np.flatnonzero(ratings * self.weight < 4)
        film = film[rng.random(len(film)) < 0.97]
        share = np.cumsum(self.activity) / self.activity.sum()
        user = np.minimum(np.searchsorted(share, rng.random(len(film))), self.users - 1)
        order = np.argsort(user, kind="stable")
        user, film = user[order], film[order]
        position = np.arange(len(user)) - np.searchsorted(user, user, side="left")
        fits = position < self.activity[user] // 2
        return user[fits], film[fits]

    @property
    def blocks(self) -> int:
        """Number of blocks of users."""
        return -(-self.users // BLOCK)

    @cached_property
    def _cumulative(self) -> NDArray[np.float64]:
        return np.cumsum(self.weight)

    @cached_property
    def _weight32(self) -> NDArray[np.float32]:
        return self.weight.astype(np.float32)

    @cached_property
    def _base(self) -> float:
        """Stars to add to every latent rating so that their mean is ``_MEAN``."""
        users = self.people(0)
        film = self._choose_for(0, users, self._sessions(0, users))
        local = np.repeat(np.arange(len(users.activity)), users.activity)
        return _MEAN - float(self._taste_part(users, local, film).mean())

    def rng(self, block: int, stream: str) -> np.random.Generator:
        """A random stream of one block."""
        return np.random.Generator(np.random.PCG64(stream_seed(self.seed, stream, block)))

    def people(self, block: int) -> _Users:
        """What the users of a block are like."""
        rng = self.rng(block, "users")
        first = block * BLOCK
        n = min(BLOCK, self.users - first)
        taste = 0.3 * rng.standard_normal((n, len(GENRES)), dtype=np.float32)
        # Everyone has one to three favourite genres and one or two that they avoid.
        order = np.argsort(rng.random((n, len(GENRES))), axis=1)
        liked, avoided = rng.integers(1, 4, n), rng.integers(1, 3, n)
        place = np.argsort(order, axis=1)
        taste[place < liked[:, None]] += 1.1
        taste[place >= len(GENRES) - avoided[:, None]] -= 1.0
        activity = self.activity[first : first + n]
        # Who rates a lot has come down to the films they did not choose.
        bias = _BIAS_SD * rng.standard_normal(n) - 0.08 * np.log(activity / 70)
        return _Users(
            first,
            activity,
            taste,
            bias.astype(np.float32),
            np.exp(rng.normal(np.log(0.71), 0.36, n)).astype(np.float32),
            rng.beta(1.5, 0.8, n).astype(np.float32),
        )

    def block(self, block: int) -> RatingBlock:
        """The ratings of one block of users."""
        users = self.people(block)
        sessions = self._sessions(block, users)
        film = self._choose_for(block, users, sessions)
        local = np.repeat(np.arange(len(users.activity)), users.activity)
        timestamp = sessions.assign(self.rng(block, "times"), local, self.years[film])
        half_stars = self._rate(self.rng(block, "ratings"), users, local, film, timestamp)
        return RatingBlock(users.first + 1 + local, film, half_stars, timestamp)

    def _sessions(self, block: int, users: _Users) -> Sessions:
        return Sessions.draw(self.rng(block, "sessions"), users.activity, self.years)

    def _choose_for(self, block: int, users: _Users, sessions: Sessions) -> NDArray[np.int64]:
        """Films (positions) of a block's ratings, by user and film."""
        mine = slice(*np.searchsorted(self._sure_user, [users.first, users.first + BLOCK]))
        user, film = self._sure_user[mine] - users.first, self._sure_film[mine]
        out = self.years[film] < sessions.last_year[user]
        sure = user[out] * len(self.weight) + film[out]
        return self._choose(self.rng(block, "choice"), users, sessions.last_year, sure)

    def affinity(
        self, taste: NDArray[np.float32], local: NDArray[np.int64], film: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Mean taste of users for the genres of films, pair by pair."""
        out = np.empty(len(local), dtype=np.float32)
        for start in range(0, len(local), _PAIRS):
            some = slice(start, start + _PAIRS)
            out[some] = np.einsum("ij,ij->i", taste[local[some]], self.genre[film[some]])
        return out

    def _choose(
        self,
        rng: np.random.Generator,
        users: _Users,
        last_year: NDArray[np.int64],
        sure: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Different films for every user, by popularity and taste; sorted within the user.

        ``sure`` are pairs (user * films + film) that are chosen in any case.

        Drawing with replacement and skipping repetitions is the same as drawing without
        replacement; it is quick while users see a small part of the catalogue. For the rest
        waiting times over the whole catalogue give the same distribution.
        """
        n_films, n_users = len(self.weight), len(users.activity)
        # Of what a user comes across, this part is out already and appeals.
        by_year = np.argsort(self.years, kind="stable")
        mass = np.concatenate([[0.0], np.cumsum(self.weight[by_year])])
        out = np.searchsorted(self.years[by_year], last_year, side="left")
        hit = 0.25 * mass[out]
        have = sure
        need = users.activity - np.bincount(sure // n_films, minlength=n_users)
        sparse = users.activity * 6 < out
        for _ in range(_ROUNDS):
            open_ = np.flatnonzero(sparse & (need > 0))
            if len(open_) == 0:
                break
            draws = np.minimum(1.3 * need[open_] / hit[open_] + 8, 4 * n_films).astype(np.int64)
            found = [have]
            for some in np.split(
                np.arange(len(open_)), np.flatnonzero(np.diff(np.cumsum(draws) // _PAIRS)) + 1
            ):
                local = np.repeat(open_[some], draws[some])
                point = rng.random(len(local)) * self._cumulative[-1]
                film = np.minimum(np.searchsorted(self._cumulative, point), n_films - 1)
                appeal = self._appeal(self.affinity(users.taste, local, film))
                ok = (rng.random(len(local), dtype=np.float32) < appeal) & (
                    self.years[film] < last_year[local]
                )
                found.append(local[ok] * n_films + film[ok])
            have = _first_of_each(np.concatenate(found), n_films, users.activity)
            need = users.activity - np.bincount(have // n_films, minlength=n_users)
        owner = have // n_films
        keys = [have[need[owner] <= 0]]
        starts = np.searchsorted(owner, np.arange(n_users + 1))
        for user in np.flatnonzero(need > 0).tolist():
            mine = have[starts[user] : starts[user + 1]] % n_films
            film = self._complete(rng, users, user, self.years >= last_year[user], mine)
            keys.append(user * n_films + film)
        return np.sort(np.concatenate(keys)) % n_films

    @staticmethod
    def _appeal(affinity: NDArray[np.float32]) -> NDArray[np.float32]:
        """Probability (0-1) that a film somebody comes across is watched."""
        appeal: NDArray[np.float32] = np.exp(_BETA * (affinity - np.float32(1.0)))
        return appeal.clip(0.04, 1.0)

    def _complete(
        self,
        rng: np.random.Generator,
        users: _Users,
        user: int,
        not_out: NDArray[np.bool_],
        have: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """One user's films: those they have, and the first to arrive of all the others.

        If film i arrives after an exponential waiting time of rate popularity(i) * appeal(i),
        the first k arrivals are a sample without replacement by that rate.
        """
        n = int(users.activity[user])
        rate = self._appeal(self.genre @ users.taste[user]) * self._weight32
        arrival = rng.standard_exponential(len(rate), dtype=np.float32) / rate
        arrival[not_out] = np.inf
        arrival[have] = -1.0
        return np.argpartition(arrival, n - 1)[:n]

    def _taste_part(
        self, users: _Users, local: NDArray[np.int64], film: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Latent ratings (stars) without noise, up to a constant."""
        affinity = self.affinity(users.taste, local, film)
        part: NDArray[np.float32] = users.bias[local] + self.quality[film] + _GAMMA * affinity
        return part

    def _rate(
        self,
        rng: np.random.Generator,
        users: _Users,
        local: NDArray[np.int64],
        film: NDArray[np.int64],
        timestamp: NDArray[np.int64],
    ) -> NDArray[np.int8]:
        latent = self._base + self._taste_part(users, local, film)
        latent += users.spread[local] * rng.standard_normal(len(local), dtype=np.float32)
        latent = np.where(latent < 3.5, 3.5 - 1.15 * (3.5 - latent), latent)
        half = rng.random(len(local), dtype=np.float32) < users.half_share[local]
        half &= timestamp >= HALF_STARS_SINCE
        whole_stars = 2 * np.clip(np.rint(latent), 1, 5)
        half_stars = np.clip(np.rint(2 * latent), 1, 10)
        out: NDArray[np.int8] = np.where(half, half_stars, whole_stars).astype(np.int8)
        return out


def _first_of_each(
    keys: NDArray[np.int64], n_films: int, activity: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The first occurrences of keys (user * films + film), at most ``activity`` of each user.

    They come out by user and, within a user, in the order they went in.
    """
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    first = np.ones(len(keys), dtype=bool)
    first[1:] = ordered[1:] != ordered[:-1]
    keys = keys[np.sort(order[first])]
    keys = keys[np.argsort(keys // n_films, kind="stable")]
    owner = keys // n_films
    position = np.arange(len(keys)) - np.searchsorted(owner, np.arange(len(activity)))[owner]
    return keys[position < activity[owner]]
