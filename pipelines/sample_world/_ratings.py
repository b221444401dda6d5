"""Ratings: users, items, values and times, generated block by block of users.

A block's random stream depends on the seed and the block's number only, so that memory stays
bounded and any order of the blocks gives the same result. For user u and film i with genres G(i)::

    affinity(u, i) = mean of taste(u, g) over g in G(i)
    P(u rates i)   ~ popularity(i) * exp(beta * affinity(u, i))      without replacement
    latent(u, i)   = base + bias(u) + quality(i) + gamma * affinity(u, i) + spread(u) * noise

The latent value is stretched downwards (people who dislike a film say so) and rounded to whole
stars, or to half stars as far as the user likes those and MovieLens had them. The constants are set
on ml-latest-small; a world of its size and the real file have means of 3.51 and 3.50, both a mode
of 4, 26 and 30 % half stars, a total variation distance of 0.06, standard deviations of user means
of 0.43 and 0.48, and correlations of 0.29 and 0.33 between a user's liking for a genre in two
halves of their ratings.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.errors import ConfigError
from pipelines.sample_world._films import GENRES, Film, keyword_numbers
from pipelines.sample_world._text import lexicon, stream_seed

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

#: Users per block, and pairs of user and film looked at at once: part of what the seed means.
BLOCK, _PAIRS = 1024, 1 << 18
#: Ratings of every user of a large world at least; rounds before all of the catalogue is weighed.
MIN_ACTIVITY, _ROUNDS = 20, 4
#: Strength of taste in choosing and (stars) in rating; mean latent rating (stars).
_BETA, _GAMMA, _MEAN = 1.4, 0.88, 3.60
_DAY = 86_400
#: 1998-01-01 and 2024-12-29, seconds since 1970 (UTC): no sitting starts before or after. MovieLens
#: introduced half stars on 2003-02-18.
_FIRST_SECOND, _LAST_SECOND = 883_612_800, 1_735_603_200 - 2 * _DAY
HALF_STARS_SINCE = 1_045_526_400


def _rng(seed: int, *stream: int | str) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(stream_seed(seed, *stream)))


def film_weights(seed: int, films: Sequence[Film], density: float) -> tuple[Floats, Floats32]:
    """Sampling weight (sums to 1) and quality (stars above the mean film) of every film.

    Good and recent films are better known; sequels are a little worse and less seen each time.
    """
    rng, n = _rng(seed, "popularity"), len(films)
    z, fame = rng.standard_normal(n), rng.standard_normal(n)
    in_series = [(i, f.collection["id"], f.part - 1) for i, f in enumerate(films) if f.collection]
    first = {series: i for i, series, later in in_series if not later}
    for i, series, later in in_series:
        j = first[series]
        fame[j] = max(fame[j], 0.3)  # an unseen film gets no sequel
        if later:
            fame[i] = fame[j] - 0.25 * later + 0.3 * fame[i]
            z[i] = z[j] - 0.3 * later + 0.5 * z[i]
    years = np.array([film.year for film in films], dtype=np.float64)
    recency = (years - years.mean()) / max(years.std(), 1.0)
    rank = np.empty(n, dtype=np.int64)
    rank[np.argsort(-(fame + 0.6 * z + 0.25 * recency), kind="stable")] = np.arange(n)
    weight = (rank + 1 + min(300.0, n / 32)) ** -(1.85 * (1 + 2 * density))
    return weight / weight.sum(), (0.43 * z).astype(np.float32)


def user_activity(seed: int, users: int, ratings: int, films: int) -> Ints:
    """Ratings of every user; they sum to ``ratings`` exactly, none exceeds ``films``."""
    if not users <= ratings <= users * films:
        raise ConfigError(
            f"{users} users can't have {ratings} ratings of {films} films",
            where="world.sample",
            hint=f"ratings must be between {users} and {users * films}",
        )
    low = min(MIN_ACTIVITY, ratings // users)
    # No user sees all films, unless the world is too full for anything else.
    high = films if ratings / users > 0.6 * films else max(int(0.8 * films), low + 1)
    excess = np.exp(1.43 * _rng(seed, "activity").standard_normal(users))
    total = ratings - low * users
    # Scaling and capping in turns: what the capped lose, the others get.
    share, free = np.zeros(users), np.ones(users, dtype=bool)
    for _ in range(64):
        share[free] = excess[free] * ((total - share[~free].sum()) / excess[free].sum())
        over = free & (share >= high - low)
        share[over] = high - low
        free &= ~over
        if not over.any() or not free.any():
            break
    counts = low + np.floor(share).astype(np.int64)
    # The remainder goes to the largest fractions first, then to users with room.
    missing = ratings - int(counts.sum())
    order = np.argsort(-(share - np.floor(share)), kind="stable")
    while missing > 0:
        able = order[counts[order] < high][:missing]
        counts[able] += 1
        missing -= len(able)
    return counts


class TagModel:
    """The tags of a world: keywords of a film, capitalised by some users, and opinions."""

    def __init__(self, model: RatingModel) -> None:
        self._model, films = model, model.films
        numbers, opinions = keyword_numbers(), list(lexicon()["tags"])
        texts = [*numbers, *(k.capitalize() for k in numbers), *opinions]
        order = sorted(range(len(texts)), key=lambda i: (texts[i].lower(), texts[i]))
        self._texts = [texts[i] for i in order]
        self._place = np.argsort(order)
        self._n_keywords, self._n_opinions = len(numbers), len(opinions)
        self._count = np.array([len(f.keywords) for f in films], dtype=np.int64)
        self._table = np.zeros((len(films), max(1, int(self._count.max()))), dtype=np.int64)
        for i, film in enumerate(films):
            self._table[i, : len(film.keywords)] = [numbers[k] for k in film.keywords]

    def block(self, block: int, ratings: RatingBlock) -> pl.DataFrame:
        """Tags on the ratings of one block of users, as rows of tags.csv."""
        rng = _rng(self._model.seed, "tags", block)
        user = ratings.user - ratings.user[0]
        people = int(user[-1]) + 1
        # As in ml-latest-small, 9.5 % of the users tag, on average a fifth of what they rate.
        zeal = np.where(rng.random(people) < 0.095, rng.beta(0.6, 0.6 / 0.2, people), 0.0)
        capitals = rng.random(people) < 0.2
        row = np.flatnonzero(rng.random(len(user)) < zeal[user])
        row = np.repeat(row, 1 + rng.poisson(0.9, len(row)))
        film = ratings.film[row]
        which = self._table[film, (rng.random(len(row)) * self._count[film]).astype(np.int64)]
        which = which + np.where(capitals[user[row]], self._n_keywords, 0)
        is_opinion = (rng.random(len(row)) < 0.2) | (self._count[film] == 0)
        opinion = 2 * self._n_keywords + rng.integers(0, self._n_opinions, len(row))
        text = self._place[np.where(is_opinion, opinion, which)]
        # A user gives a film the same tag once.
        _, first = np.unique(row * len(self._texts) + text, return_index=True)
        row, text = row[first], text[first]
        return pl.DataFrame({
            "userId": ratings.user[row],
            "movieId": self._model.movie_id[ratings.film[row]],
            "tag": pl.Series(self._texts).gather(text),
            "timestamp": ratings.timestamp[row] + rng.integers(5, 120, len(row)),
        })  # fmt: skip


def _year_of(second: Ints) -> Ints:
    years: Ints = second.astype("datetime64[s]").astype("datetime64[Y]").astype(np.int64)
    return years + 1970


class Sessions(NamedTuple):
    """Sittings of some users: their seconds, where each user's begin (and the end), last years."""

    start: Ints
    offset: Ints
    last_year: Ints

    @classmethod
    def draw(cls, rng: np.random.Generator, activity: Ints, years: Ints) -> Sessions:
        """Draw sittings for users with so many ratings of films of these years."""
        n = len(activity)
        # Ratings per sitting: ml-latest-small has about 21. The median gap is 15 days.
        count = np.minimum(1 + rng.poisson(rng.exponential(1.0, n) * activity / 21), activity)
        offset = np.concatenate([[0], np.cumsum(count)])
        owner, last = np.repeat(np.arange(n), count), offset[1:] - 1
        gap = _DAY * np.exp(rng.normal(np.log(15.0), 1.6, len(owner)))
        gap[offset[:-1]] = 0
        passed = np.cumsum(gap)
        passed -= passed[offset[:-1]][owner]
        begin = _FIRST_SECOND + rng.random(n) * (_LAST_SECOND - _FIRST_SECOND)
        # Sittings that would go on after the end are compressed into what is left.
        span, left = passed[last], _LAST_SECOND - begin
        shrink = np.where(span > left, left / np.maximum(span, 1), 1.0)
        start = (begin[owner] + passed * shrink[owner]).astype(np.int64)
        # With a tenth to spare, so that popularity still matters to who fills the list.
        needed = np.minimum((activity * 11) // 10 + 1, len(years))
        late = np.maximum(np.sort(years)[needed - 1] + 1 - _year_of(start[last]), 0)
        start = np.minimum(start + (late * 366 * _DAY)[owner], _LAST_SECOND)
        return cls(start, offset, _year_of(start[last]))

    def assign(self, rng: np.random.Generator, local: Ints, years: Ints) -> Ints:
        """Draw a time for every rating: in one of its user's sittings, after the release."""
        n, count = len(local), np.diff(self.offset)
        session = self.offset[local] + (rng.random(n) * count[local]).astype(np.int64)
        too_early = _year_of(self.start)[session] <= years
        session[too_early] = self.offset[local + 1][too_early] - 1
        order = np.lexsort((rng.random(n), session))
        passed = np.cumsum(np.exp(rng.normal(np.log(11.0), 1.3, n)).clip(1, 3_600))
        session = session[order]
        passed -= passed[np.searchsorted(session, session, side="left")]
        out = np.empty(n, dtype=np.int64)
        # Sittings last a day at most.
        out[order] = self.start[session] + np.minimum(passed, _DAY).astype(np.int64)
        return out


class RatingBlock(NamedTuple):
    """The ratings of consecutive users, by user and then film (position in the catalogue)."""

    user: Ints
    film: Ints
    half_stars: NDArray[np.int8]
    timestamp: Ints


class _Users(NamedTuple):
    """Properties of the users of one block: arrays with one row per user."""

    activity: Ints
    taste: Floats32
    bias: Floats32
    spread: Floats32
    half_share: Floats32


class RatingModel:
    """The ratings of a world."""

    def __init__(self, seed: int, films: Sequence[Film], users: int, ratings: int) -> None:
        self.seed, self.films, self.users = seed, films, users
        self.blocks = -(-users // BLOCK)
        self.activity = user_activity(seed, users, ratings, len(films))
        self.weight, self.quality = film_weights(seed, films, ratings / (users * len(films)))
        self._cumulative = np.cumsum(self.weight)
        self.movie_id = np.array([f.movie_id for f in films], dtype=np.int64)
        self.years = np.array([f.year for f in films], dtype=np.int64)
        self.genre = np.zeros((len(films), len(GENRES)), dtype=np.float32)
        for i, film in enumerate(films):
            self.genre[i, [GENRES.index(g) for g in film.genres]] = 1 / len(film.genres)
        self._sure_user, self._sure_film = self._sure_pairs(ratings)

    def _sure_pairs(self, ratings: int) -> tuple[Ints, Ints]:
        """A user (from 0) for nearly every film that might get no rating: MovieLens lists none."""
        rng = _rng(self.seed, "tail")
        film = np.flatnonzero(ratings * self.weight < 4)
        film = film[rng.random(len(film)) < 0.97]
        share = np.cumsum(self.activity) / self.activity.sum()
        user = np.minimum(np.searchsorted(share, rng.random(len(film))), self.users - 1)
        order = np.argsort(user, kind="stable")
        user, film = user[order], film[order]
        position = np.arange(len(user)) - np.searchsorted(user, user, side="left")
        fits = position < self.activity[user] // 2
        return user[fits], film[fits]

    @cached_property
    def _base(self) -> float:
        """Stars to add to every latent rating so that the mean of the first block is ``_MEAN``."""
        users, _, local, film = self._draw(0)
        return _MEAN - float(self._taste_part(users, local, film).mean())

    def people(self, block: int) -> _Users:
        """Draw the users of a block."""
        rng = _rng(self.seed, "users", block)
        activity = self.activity[block * BLOCK : (block + 1) * BLOCK]
        shape = (len(activity), len(GENRES))
        taste = 0.3 * rng.standard_normal(shape, dtype=np.float32)
        # Users have one to three favourite genres and one or two that they avoid.
        place = np.argsort(np.argsort(rng.random(shape), axis=1), axis=1)
        liked, avoided = rng.integers(1, 4, len(activity)), rng.integers(1, 3, len(activity))
        taste[place < liked[:, None]] += 1.1
        taste[place >= len(GENRES) - avoided[:, None]] -= 1.0
        # Users with many ratings also rate films that they would not have chosen.
        bias = 0.40 * rng.standard_normal(len(activity)) - 0.08 * np.log(activity / 70)
        spread = np.exp(rng.normal(np.log(0.71), 0.36, len(activity)))
        half_share = rng.beta(1.5, 0.8, len(activity))
        traits = (values.astype(np.float32) for values in (bias, spread, half_share))
        return _Users(activity, taste, *traits)

    def block(self, block: int) -> RatingBlock:
        """Draw the ratings of one block of users."""
        users, sessions, local, film = self._draw(block)
        timestamp = sessions.assign(_rng(self.seed, "times", block), local, self.years[film])
        rng, n = _rng(self.seed, "ratings", block), len(local)
        latent = self._base + self._taste_part(users, local, film)
        latent += users.spread[local] * rng.standard_normal(n, dtype=np.float32)
        latent = np.where(latent < 3.5, 3.5 - 1.15 * (3.5 - latent), latent)
        half = rng.random(n, dtype=np.float32) < users.half_share[local]
        half &= timestamp >= HALF_STARS_SINCE
        whole_stars = 2 * np.clip(np.rint(latent), 1, 5)
        half_stars = np.where(half, np.clip(np.rint(2 * latent), 1, 10), whole_stars)
        return RatingBlock(block * BLOCK + 1 + local, film, half_stars.astype(np.int8), timestamp)

    def _draw(self, block: int) -> tuple[_Users, Sessions, Ints, Ints]:
        """Users of a block and their sittings; user (from 0) and film of every rating."""
        users = self.people(block)
        sessions = Sessions.draw(_rng(self.seed, "sessions", block), users.activity, self.years)
        local = np.repeat(np.arange(len(users.activity)), users.activity)
        return users, sessions, local, self._choose(block, users, sessions.last_year)

    def _affinity(self, taste: Floats32, local: Ints, film: Ints) -> Floats32:
        """Mean taste of users for the genres of films, pair by pair."""
        out = np.empty(len(local), dtype=np.float32)
        for start in range(0, len(local), _PAIRS):
            some = slice(start, start + _PAIRS)
            out[some] = np.einsum("ij,ij->i", taste[local[some]], self.genre[film[some]])
        return out

    def _choose(self, block: int, users: _Users, last_year: Ints) -> Ints:
        """Different films for every user, by popularity and taste; by user and film.

        Drawing with replacement and skipping repetitions, which is quick while users see a small
        part of the catalogue, and waiting times over all of it give the same distribution.
        """
        rng = _rng(self.seed, "choice", block)
        n_films, n_users = len(self.weight), len(users.activity)
        first = block * BLOCK
        mine = slice(*np.searchsorted(self._sure_user, [first, first + BLOCK]))
        user, film = self._sure_user[mine] - first, self._sure_film[mine]
        out = self.years[film] < last_year[user]
        # Pairs are numbers: user * films + film.
        have = user[out] * n_films + film[out]
        need = users.activity - np.bincount(have // n_films, minlength=n_users)
        by_year = np.argsort(self.years, kind="stable")
        mass = np.concatenate([[0.0], np.cumsum(self.weight[by_year])])
        released = np.searchsorted(self.years[by_year], last_year, side="left")
        sparse = users.activity * 6 < released
        for _ in range(_ROUNDS):
            open_ = np.flatnonzero(sparse & (need > 0))
            if len(open_) == 0:
                break
            # Of what a user comes across, this part is out already and appeals.
            hit = 0.25 * mass[released[open_]]
            draws = np.minimum(1.3 * need[open_] / hit + 8, 4 * n_films).astype(np.int64)
            batches = [have]
            cuts = np.flatnonzero(np.diff(np.cumsum(draws) // _PAIRS)) + 1
            for some in np.split(np.arange(len(open_)), cuts):
                local = np.repeat(open_[some], draws[some])
                point = rng.random(len(local)) * self._cumulative[-1]
                film = np.minimum(np.searchsorted(self._cumulative, point), n_films - 1)
                appeal = _appeal(self._affinity(users.taste, local, film))
                ok = rng.random(len(local), dtype=np.float32) < appeal
                ok &= self.years[film] < last_year[local]
                batches.append(local[ok] * n_films + film[ok])
            have = _first_of_each(np.concatenate(batches), n_films, users.activity)
            need = users.activity - np.bincount(have // n_films, minlength=n_users)
        owner = have // n_films
        keys = [have[need[owner] <= 0]]
        starts = np.searchsorted(owner, np.arange(n_users + 1))
        for i in np.flatnonzero(need > 0).tolist():
            # First arrivals after exponential waiting times are a sample without replacement.
            rate = _appeal(self.genre @ users.taste[i]) * self.weight.astype(np.float32)
            arrival = rng.standard_exponential(n_films, dtype=np.float32) / rate
            arrival[self.years >= last_year[i]] = np.inf
            arrival[have[starts[i] : starts[i + 1]] % n_films] = -1.0
            n = int(users.activity[i])
            keys.append(i * n_films + np.argpartition(arrival, n - 1)[:n])
        return np.sort(np.concatenate(keys)) % n_films

    def _taste_part(self, users: _Users, local: Ints, film: Ints) -> Floats32:
        """Latent ratings (stars) without noise, up to a constant."""
        affinity = self._affinity(users.taste, local, film)
        part: Floats32 = users.bias[local] + self.quality[film] + _GAMMA * affinity
        return part


def _appeal(affinity: Floats32) -> Floats32:
    """Probability (0-1) that a film is watched by a person who meets it."""
    appeal: Floats32 = np.exp(_BETA * (affinity - np.float32(1.0)))
    return appeal.clip(0.04, 1.0)


def _first_of_each(keys: Ints, n_films: int, activity: Ints) -> Ints:
    """First occurrences of keys (user * films + film) by user, at most ``activity`` of each."""
    keys = keys[np.sort(np.unique(keys, return_index=True)[1])]
    keys = keys[np.argsort(keys // n_films, kind="stable")]
    owner = keys // n_films
    position = np.arange(len(keys)) - np.searchsorted(owner, np.arange(len(activity)))[owner]
    return keys[position < activity[owner]]
