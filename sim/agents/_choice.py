"""P(watch): what is known of a person and an item, and weights fitted on held-out interactions.

P(watch) = sigmoid(b0 + b1 e + b2 ln(1 + n) + b3 s(u, i) + b4 f + b5 c): e is the rater's
expectation, standardised within the person over 200 fixed items; n the item's training ratings
(count); s(u, i) the similarity of user and item along the paths of the graph (SimUSER, equation 5),
0-1; f the mean share of the person's history that has each of the item's genres, 0-1; c the
nearness of the item to the person's history by who rated both, as of :class:`Neighbours`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import expit

from pipelines.errors import ConfigError
from pipelines.raters import LiveStatistical, Settled
from pipelines.seeding import hash_ids, uniform
from sim.agents._assumed import assumed
from sim.agents._protocol import Bools, Floats, Ints
from sim.agents._world import AgentWorld, History

if TYPE_CHECKING:
    from pipelines.graph import GraphMemory

#: Features in the order of their columns and weights.
FEATURES = ("expectation", "popularity", "similarity", "genres", "neighbours")
#: Items that expectations are standardised over (count).
FIXED = 200
#: Folds over users.
FOLDS = 5
#: Unseen items nearest in training ratings that a matched negative is drawn from (count).
NEAREST = 30
#: Draws of a negative before the positive is left out (count).
_TRIES = 20
#: Weight of the penalty b'b / 2 of the fit: keeps weights finite where a release is tiny.
RIDGE = 1.0
#: Values of s(u, i) that are kept (count, 4 bytes each).
_KEPT = 100_000_000

Singles: TypeAlias = npt.NDArray[np.float32]


class ChoiceFeatures:
    """People, and what is known of each with every item; rows are numbers of its people.

    ``rater`` is the statistical rater, bound to these people and to the items in their order;
    ``ids`` are those in the graph, ``history`` their training interactions, ``tastes`` the share of
    each person's history that has each genre, of shape (people, genres).
    """

    def __init__(
        self,
        world: AgentWorld,
        rater: LiveStatistical,
        *,
        ids: list[str],
        history: History,
        tastes: Floats,
    ) -> None:
        self._world, self.ids, self.history, self.tastes = world, ids, history, tastes
        self.settled: Settled = rater.settle([history.of(n) for n in range(len(ids))])
        counts = world.item_histograms.sum(axis=1)
        self._popular = np.log1p(counts)
        self._sizes = np.maximum(world.genres.sum(axis=1), 1.0)
        chosen = np.argsort(hash_ids(world.catalogue.ids), kind="stable")[:FIXED]
        centre, spread = np.empty(len(ids)), np.empty(len(ids))
        for start in range(0, len(ids), 1_024):
            part = np.arange(start, min(start + 1_024, len(ids)))
            pairs = np.repeat(part, len(chosen)), np.tile(chosen, len(part))
            found = self.settled.rate(*pairs).expected.reshape(len(part), -1)
            centre[part], spread[part] = found.mean(axis=1), found.std(axis=1)
        self._centre, self._spread = centre, np.maximum(spread, 1e-6)
        size = len(world.catalogue)
        self._similar = (
            _Rows(_Similarity(world.memory, ids, world.catalogue.ids), size)
            if world.graph
            else None
        )
        self._near = _Rows(Neighbours(*world.training, size, history), size)

    def features(self, people: Ints, items: Ints, expected: Floats) -> Floats:
        """Values of shape (n, 5), in the order of `FEATURES`; each row from its own pair alone."""
        out = np.empty((len(people), len(FEATURES)))
        out[:, 0] = (expected - self._centre[people]) / self._spread[people]
        out[:, 1] = self._popular[items]
        out[:, 2] = 0.0 if self._similar is None else self._similar.of(people, items)
        genres = self._world.genres
        out[:, 3] = (self.tastes[people] * genres[items]).sum(axis=1) / self._sizes[items]
        out[:, 4] = self._near.of(people, items)
        return out


class _Rows:
    """Values of pairs from rows over all items, computed once per person."""

    def __init__(self, of_person: Callable[[int], Floats], items: int) -> None:
        self._of_person = of_person
        self._rows: dict[int, Singles] = {}
        self._room = max(1, _KEPT // items)

    def of(self, people: Ints, items: Ints) -> Floats:
        out = np.empty(len(people))
        order = np.argsort(people, kind="stable")
        starts = np.flatnonzero(np.diff(people[order], prepend=-1))
        for rows in np.split(order, starts[1:]):
            if len(rows):
                out[rows] = self._of(int(people[rows[0]]))[items[rows]]
        return out

    def _of(self, person: int) -> Singles:
        found = self._rows.get(person)
        if found is None:
            if len(self._rows) >= self._room:
                self._rows.pop(next(iter(self._rows)))
            found = self._of_person(person).astype(np.float32)
            self._rows[person] = found
        return found


class _Similarity:
    """s(u, i) of one person with every item."""

    def __init__(self, memory: GraphMemory, ids: list[str], items: list[str]) -> None:
        self._memory, self._ids, self._items = memory, ids, items

    def __call__(self, person: int) -> Floats:
        users = [self._ids[person]] * len(self._items)
        return np.asarray(self._memory.user_similarity(users, self._items))


class Neighbours:
    """Nearness of items to a person's history, against their nearness to everybody's.

    With cos(i, j) the cosine of two items over the users who rated them, m(u, i) is the mean of
    cos(i, j) over the person's history, shrunk to e(i), the mean over all training interactions; c
    = ln(m(u, i) / e(i)). An item that is popular is near to everything, which c leaves out. It is 0
    of a person without history and of an item without neighbours.

    ``users`` and ``items`` (of ``size``) are the training interactions of everybody, by number, of
    shape (n,), ``history`` those of the people, which is shrunk with ``prior`` interactions at e(i)
    (default the assumed number).
    """

    def __init__(
        self, users: Ints, items: Ints, size: int, history: History, prior: float | None = None
    ) -> None:
        from scipy import sparse

        shape = (int(users.max(initial=-1)) + 1, size)
        pairs = sparse.csr_array((np.ones(len(users)), (users, items)), shape=shape)
        # The order of the sums is that of the numbers, whatever the order of the rows.
        pairs.sort_indices()
        self._matrix, self._history = pairs, history
        counts = np.bincount(items, minlength=size).astype(np.float64)
        self._norm, self._own = np.sqrt(np.maximum(counts, 1.0)), counts > 0
        self._prior = float(
            assumed()["statistical"]["neighbours_prior"] if prior is None else prior
        )
        self._common = self._cosines(counts) / max(counts.sum(), 1.0)

    def _cosines(self, weights: Floats) -> Floats:
        """Weighted sum of the cosines of every item with the others, of shape (items,)."""
        scores = self._matrix.T @ (self._matrix @ (weights / self._norm)) / self._norm
        return np.asarray(np.maximum(scores - np.where(self._own, weights, 0.0), 0.0))

    def __call__(self, person: int) -> Floats:
        """Nearness of every item to one person's history, of shape (items,)."""
        past, _ = self._history.of(person)
        weights = np.bincount(past, minlength=len(self._norm)).astype(np.float64)
        near = self._cosines(weights)
        rated = self._common > 0
        common = np.where(rated, self._common, 1.0)
        mean = (near + self._prior * common) / (len(past) + self._prior)
        return np.where(rated, np.log(mean / common), 0.0)


@dataclass(frozen=True)
class HeldOut:
    """Held-out interactions with a negative of each kind; all of shape (n,)."""

    #: The interaction.
    people: Ints
    items: Ints
    #: An item without an interaction, drawn from all, and from those of about the same number of
    #: training ratings.
    uniform: Ints
    matched: Ints

    @classmethod
    def draw(
        cls, world: AgentWorld, people: Ints, items: Ints, history: History, *, seed: int = 0
    ) -> HeldOut:
        """Draw the negatives; interactions without one of each kind are left out.

        ``people`` and ``items`` are held-out interactions, of shape (n,); neither they nor
        ``history``, the people's training interactions, are negatives. Draws belong to (seed,
        person, item).
        """
        size = len(world.catalogue)
        owner = np.repeat(np.arange(len(history.lengths)), history.lengths)
        pairs = np.unique(np.concatenate([owner * size + history.items, people * size + items]))

        def unknown(candidates: Ints) -> Bools:
            keys = people * size + candidates
            at = np.minimum(np.searchsorted(pairs, keys), len(pairs) - 1)
            return np.asarray(pairs[at] != keys)

        counts = world.item_histograms.sum(axis=1)
        by_count = np.lexsort((np.arange(size), -counts))
        rank = np.empty(size, np.int64)
        rank[by_count] = np.arange(size)
        found = []
        for kind in range(2):
            chosen = np.full(len(people), -1)
            for attempt in range(_TRIES):
                draw = uniform(seed, people, items, kind, attempt)
                if kind == 0:
                    candidates = (draw * size).astype(np.int64)
                else:
                    # The nearest ranks on either side, moved inwards at the ends of the list.
                    first = np.clip(rank[items] - NEAREST // 2, 0, max(size - NEAREST - 1, 0))
                    near = first + (draw * min(NEAREST + 1, size)).astype(np.int64)
                    candidates = by_count[near]
                chosen = np.where((chosen < 0) & unknown(candidates), candidates, chosen)
            found.append(chosen)
        whole = (found[0] >= 0) & (found[1] >= 0)
        return cls(people[whole], items[whole], found[0][whole], found[1][whole])


@dataclass(frozen=True)
class Fit:
    """Fitted weights."""

    #: Intercept and weights of `FEATURES` by fold of the users that they were not fitted on; the
    #: last row is fitted on all users; of shape (folds + 1, 6).
    weights: Floats
    #: Data of the fit, weights with 95 % intervals and out-of-fold figures; JSON-ready.
    metadata: dict[str, Any]

    @staticmethod
    def fold(ids: list[str]) -> Ints:
        """Fold of each user."""
        return np.asarray((hash_ids(ids) % np.uint64(FOLDS)).astype(np.int64))


def fit_choice(choices: ChoiceFeatures, held_out: HeldOut, *, draws: int = 1_000) -> Fit:
    """Fit P(watch) by logistic regression, in five folds over users.

    Intervals are of ``draws`` resamples of users. Raises ConfigError if nothing is held out.
    """
    if not len(held_out.people):
        raise ConfigError(
            "no held-out interaction to fit P(watch) on",
            where="brain statistical",
            hint="the split validation needs at least one",
        )
    n = len(held_out.people)
    people = np.tile(held_out.people, 3)
    items = np.concatenate([held_out.items, held_out.uniform, held_out.matched])
    expected = choices.settled.rate(people, items).expected
    features = np.column_stack([np.ones(3 * n), choices.features(people, items, expected)])
    watched = np.repeat([1.0, 0.0, 0.0], n)
    fold = Fit.fold(choices.ids)[people]
    weights = np.empty((FOLDS + 1, features.shape[1]))
    for number in range(FOLDS + 1):
        rows = fold != number
        # A fold may hold everybody of a tiny release.
        chosen = rows if rows.any() else np.ones(len(rows), np.bool_)
        weights[number], errors = logistic(features[chosen], watched[chosen])
    score = (features * weights[fold]).sum(axis=1)
    named = zip(("intercept", *FEATURES), weights[-1], errors, strict=True)
    intervals = {
        name: [round(float(v), 6) for v in (w, w - 1.96 * e, w + 1.96 * e)] for name, w, e in named
    }
    figures: dict[str, dict[str, list[float]]] = {}
    popular = features[:, 1 + FEATURES.index("popularity")]
    for name, of in (("auc", score), ("auc_of_popularity_alone", popular)):
        figures[name] = {
            kind: _interval_of_auc(of[:n], of[k * n : (k + 1) * n], people[:n], draws)
            for k, kind in ((1, "uniform"), (2, "matched"))
        }
    return Fit(
        weights,
        {
            "split": "validation",
            "positives": n,
            "users": len(np.unique(held_out.people)),
            "folds": FOLDS,
            "ridge": RIDGE,
            "weights": intervals,
            **figures,
        },
    )


def logistic(features: Floats, target: Floats) -> tuple[Floats, Floats]:
    """Weights of a logistic regression with a small ridge, and their standard errors.

    Newton's method; the first column is the intercept, which is not penalised.

    >>> x = np.column_stack([np.ones(4), [0.0, 0.0, 1.0, 1.0]])
    >>> weights, _ = logistic(np.repeat(x, 500, axis=0), np.repeat([0.0, 1.0, 1.0, 1.0], 500))
    >>> round(float(weights[0]), 1)  # half of the first group
    0.0
    """
    penalty = np.full(features.shape[1], RIDGE)
    penalty[0] = 1e-9
    weights = np.zeros(features.shape[1])
    for _ in range(50):
        chance = expit(features @ weights)
        slope = features.T @ (target - chance) - penalty * weights
        bend = (features * (chance * (1 - chance))[:, None]).T @ features + np.diag(penalty)
        step = np.linalg.solve(bend, slope)
        # Newton's steps may overshoot where classes are nearly apart.
        step *= min(1.0, 5.0 / max(float(np.abs(step).max()), 1e-12))
        weights += step
        if float(np.abs(step).max()) < 1e-10:
            break
    return weights, np.sqrt(np.diag(np.linalg.inv(bend)))


def _interval_of_auc(positive: Floats, negative: Floats, people: Ints, draws: int) -> list[float]:
    """Mean over users of the share of pairs ranked rightly, with its 95 % bootstrap interval."""
    from sim.metrics import mean_with_interval, user_weights

    users, place = np.unique(people, return_inverse=True)
    right = np.where(positive == negative, 0.5, positive > negative)
    by_user = np.bincount(place, right) / np.bincount(place)
    figure = mean_with_interval(by_user, user_weights(len(users), draws, 0))
    return [round(v, 6) for v in (figure.value, figure.low, figure.high)]


def genre_shares(world: AgentWorld, history: History) -> Floats:
    """Share of each person's history that has each genre, of shape (people, genres)."""
    owner = np.repeat(np.arange(len(history.lengths)), history.lengths)
    columns = [
        np.bincount(owner, genre[history.items], minlength=len(history.lengths))
        for genre in world.genres.T
    ]
    out = np.stack(columns, axis=1) if columns else np.zeros((len(history.lengths), 0))
    return out / np.maximum(history.lengths, 1)[:, None]


def liked_genres(world: AgentWorld, likes: pl.Series) -> Floats:
    """1 for each genre that a persona states to like, of shape (personas, genres)."""
    names = world.genre_names
    places = {name: n for n, name in enumerate(names)}
    out = np.zeros((len(likes), len(names)))
    for row, liked in enumerate(likes.to_list()):
        out[row, [places[g] for g in liked or () if g in places]] = 1.0
    return out


def tastes_of(world: AgentWorld) -> Floats:
    """Share of each person's history that has each genre; of a persona, 1 for the liked ones.

    Of shape (people, genres).
    """
    if world.matched:
        return genre_shares(world, world.history)
    from sim.environment import PersonaTable

    cast = PersonaTable.read(world.release).frame[world.people["persona"].to_list()]
    return liked_genres(world, cast["likes"])
