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

from pipelines.errors import ConfigError
from pipelines.sample_world._films import GENRES, Film, keyword_numbers
from pipelines.sample_world._text import lexicon, stream_seed

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BLOCK", "RatingBlock", "RatingModel"]


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
    """Ratings of every user; they sum to ``ratings`` exactly, none exceeds ``films``."""
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


#: Share of users who tag at all (ml-latest-small: 58 of 610), and how much of what they rate.
_TAGGERS = 0.095
_TAGGED = 0.2
#: Share of tags that are an opinion and not a keyword.
_OPINIONS = 0.2


@dataclass(frozen=True, slots=True)
class TagBlock:
    """Tags of consecutive users, by user, film and text.

    ``text`` is a position in :attr:`TagModel.texts`; ``film`` one in the catalogue.
    """

    user: NDArray[np.int64]
    film: NDArray[np.int64]
    text: NDArray[np.int64]
    timestamp: NDArray[np.int64]


class TagModel:
    """The tags of a world."""

    def __init__(self, films: Sequence[Film], model: RatingModel) -> None:
        self._model = model
        keywords = list(keyword_numbers())
        opinions = list(lexicon()["tags"])
        # Some people capitalise.
        texts = keywords + [k.capitalize() for k in keywords] + opinions
        order = sorted(range(len(texts)), key=lambda i: (texts[i].lower(), texts[i]))
        self.texts = [texts[i] for i in order]
        self._place = np.empty(len(texts), dtype=np.int64)
        self._place[order] = np.arange(len(texts))
        self._n_keywords, self._n_opinions = len(keywords), len(opinions)
        self._count = np.array([len(f.keywords) for f in films], dtype=np.int64)
        self._table = np.zeros((len(films), max(1, int(self._count.max()))), dtype=np.int64)
        for i, film in enumerate(films):
            self._table[i, : len(film.keywords)] = film.keywords

    def block(self, block: int, ratings: RatingBlock) -> TagBlock:
        """Tags on the ratings of one block of users."""
        rng = self._model.rng(block, "tags")
        user = ratings.user - ratings.user[0]
        people = int(user[-1]) + 1
        # A tagger's zeal differs: most tag a little, a few tag nearly everything.
        zeal = np.where(rng.random(people) < _TAGGERS, rng.beta(0.6, 0.6 / _TAGGED, people), 0.0)
        capitals = rng.random(people) < 0.2
        row = np.flatnonzero(rng.random(len(user)) < zeal[user])
        count = 1 + rng.poisson(0.9, len(row))
        row = np.repeat(row, count)
        film = ratings.film[row]
        which = self._table[film, (rng.random(len(row)) * self._count[film]).astype(np.int64)]
        which = which + np.where(capitals[user[row]], self._n_keywords, 0)
        opinion = (rng.random(len(row)) < _OPINIONS) | (self._count[film] == 0)
        said = 2 * self._n_keywords + rng.integers(0, self._n_opinions, len(row))
        text = self._place[np.where(opinion, said, which)]
        # The same tag twice on a film says nothing more.
        key = row * len(self.texts) + text
        key, first = np.unique(key, return_index=True)
        row, text = row[first], text[first]
        time = ratings.timestamp[row] + rng.integers(5, 120, len(row))
        return TagBlock(ratings.user[row], ratings.film[row], text, time)


_DAY = 86_400
#: 1998-01-01 and 2024-12-31, seconds since 1970 (UTC): nobody rates before or after.
FIRST_SECOND = 883_612_800
LAST_SECOND = 1_735_603_200
#: Ratings per sitting (ml-latest-small has about 21).
_PER_SESSION = 21
_MEDIAN_GAP_DAYS = 15.0


def _year_of(second: NDArray[np.int64]) -> NDArray[np.int64]:
    years: NDArray[np.int64] = (
        second.astype("datetime64[s]").astype("datetime64[Y]").astype(np.int64)
    )
    return years + 1970


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sittings of some users."""

    start: NDArray[np.int64]
    offset: NDArray[np.int64]
    last_year: NDArray[np.int64]

    @classmethod
    def draw(
        cls, rng: np.random.Generator, activity: NDArray[np.int64], years: NDArray[np.int64]
    ) -> Sessions:
        """Sittings for users who rate so many films."""
        n = len(activity)
        count = 1 + rng.poisson(rng.exponential(1.0, n) * activity / _PER_SESSION)
        count = np.minimum(count, activity)
        offset = np.concatenate([[0], np.cumsum(count)])
        owner = np.repeat(np.arange(n), count)
        gap = _DAY * np.exp(rng.normal(np.log(_MEDIAN_GAP_DAYS), 1.6, len(owner)))
        gap[offset[:-1]] = 0
        passed = np.cumsum(gap)
        passed -= passed[offset[:-1]][owner]
        begin = FIRST_SECOND + rng.random(n) * (LAST_SECOND - 2 * _DAY - FIRST_SECOND)
        span = passed[offset[1:] - 1]
        # A life that would go on after the end is compressed into what is left.
        left = LAST_SECOND - 2 * _DAY - begin
        shrink = np.where(span > left, left / np.maximum(span, 1), 1.0)
        start = (begin[owner] + passed * shrink[owner]).astype(np.int64)
        # With a tenth to spare, so that popularity still matters to who fills the list.
        ordered = np.sort(years)
        needed = np.minimum((activity * 11) // 10 + 1, len(ordered))
        earliest = ordered[needed - 1] + 1
        late = np.maximum(earliest - _year_of(start[offset[1:] - 1]), 0)
        start = start + (late * 366 * _DAY)[owner]
        start = np.minimum(start, LAST_SECOND - 2 * _DAY)
        return cls(start, offset, _year_of(start[offset[1:] - 1]))

    def assign(
        self,
        rng: np.random.Generator,
        local: NDArray[np.int64],
        years: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """A time for every rating: in one of its user's sittings, after the film's release."""
        count = np.diff(self.offset)
        session = self.offset[local] + (rng.random(len(local)) * count[local]).astype(np.int64)
        too_early = _year_of(self.start)[session] <= years
        session[too_early] = self.offset[local + 1][too_early] - 1
        order = np.lexsort((rng.random(len(local)), session))
        pause = np.exp(rng.normal(np.log(11.0), 1.3, len(local))).clip(1, 3_600)
        passed = np.cumsum(pause)
        sorted_session = session[order]
        begins = np.searchsorted(sorted_session, sorted_session, side="left")
        passed -= passed[begins]
        # Sittings last a day at most.
        time = self.start[sorted_session] + np.minimum(passed, _DAY).astype(np.int64)
        out = np.empty(len(local), dtype=np.int64)
        out[order] = time
        return out


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
    """The ratings of consecutive users, by user and then film."""

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
    """The ratings of a world."""

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
