"""Bayesian belief over customer types, and the value of asking.

A type is a train persona with its scores y_k of a choice set. A belief is a row of weights w_k
that sum to one. All functions take batches of beliefs; answers are columns, see
:mod:`sim.dialogue._answers`.
"""

from __future__ import annotations

import importlib.util
from collections import OrderedDict
from functools import cached_property
from typing import Any

import numpy as np

from pipelines.errors import ConfigError
from pipelines.seeding import U64, combine, uniform
from sim.dialogue._answers import AnswerModel, answer_columns
from sim.dialogue._book import Book, ChoiceSet, Floats, Ints
from sim.dialogue._feedback import FeedbackModel
from sim.dialogue._protocol import REGRET_LEVELS, Outcomes

#: Types of a belief at most (count).
MAX_TYPES = 350
#: Least probability of an answer, so that one that no type gives leaves a belief defined.
_LEAST = 1e-9
#: Choice sets whose tables are kept (count).
_SETS = 256
#: Beliefs whose products with all scores are in memory at once (count).
_CHUNK = 16
#: Columns of a table of answers are a multiple of this (count), which its products are faster for.
_ALIGNED = 8
#: Rows of a matrix product at least (count).
_ROWS = 8
#: Penalty of the regression that predicts scores in unseen categories.
_RIDGE = 10.0
_TYPES = 111


class SetBelief:
    """Tables of one choice set over K types: scores and answer probabilities.

    ``y`` are the scores of the types, of shape (K, products), ``p`` the probabilities of their
    answers, of shape (K, columns); those of a facet sum to one. ``first`` is the first column of
    each facet and the number of columns at the end.
    """

    def __init__(self, y: Floats, p: Floats, first: Ints) -> None:
        self.y = np.ascontiguousarray(y, np.float32)
        self.p = np.ascontiguousarray(p, np.float32)
        self.first = first

    @classmethod
    def of(cls, shelf: ChoiceSet, y: Floats, model: AnswerModel) -> SetBelief:
        """Tables for these scores under an answer model."""
        return cls(y, model.probabilities(shelf, y), answer_columns(shelf))

    @property
    def facets(self) -> int:
        """Facets of the set (count)."""
        return len(self.first) - 1

    @cached_property
    def log_p(self) -> Floats:
        """Log likelihood of each column, of shape (columns, K)."""
        return np.ascontiguousarray(np.log(np.maximum(self.p, _LEAST)).T)

    @cached_property
    def best(self) -> Ints:
        """Best product of each type, of shape (K,); the first of equal ones."""
        return np.asarray(self.y.argmax(axis=1), np.int64)

    @cached_property
    def events(self) -> Floats:
        """Regret and the six events of `CONFIDENCES` by type, of shape (K, products, 7)."""
        regret = self.y.max(axis=1, keepdims=True) - self.y
        # Rank with ties at the best place: one more than the number of better products.
        ordered = np.sort(self.y, axis=1)[:, ::-1]
        fifth = ordered[:, min(4, ordered.shape[1] - 1)][:, None]
        tests = [regret <= 0, self.y >= fifth, *(regret <= level for level in REGRET_LEVELS)]
        events = np.stack([regret, *(t.astype(np.float32) for t in tests)], axis=2)
        return np.ascontiguousarray(events)  # `stack` leaves an order that `reshape` copies

    def posterior(self, log_prior: Floats, counts: Floats) -> Floats:
        """Weights after answers; ``counts``, of shape (n, columns), is 1 at theirs."""
        log_w = log_prior + _matmul(counts, self.log_p)
        w = np.exp(log_w - log_w.max(axis=1, keepdims=True))
        return np.asarray(w / w.sum(axis=1, keepdims=True), np.float32)

    def scores(self, w: Floats) -> Floats:
        """Expected score of each product, of shape (n, products)."""
        return _matmul(w, self.y)

    def value(self, w: Floats) -> Floats:
        """V(w) = max_a Σ_k w_k y_ka, of shape (n,)."""
        return np.asarray(self.scores(w).max(axis=1), np.float32)

    def expected(self, w: Floats, products: Ints) -> Floats:
        """Expected regret and six confidences of selling a product, of shape (n, 7)."""
        k, n, width = self.events.shape
        expected = _matmul(w, self.events.reshape(k, n * width)).reshape(len(w), n, width)
        return np.asarray(expected[np.arange(len(w)), products], np.float32)

    def answered(self, w: Floats) -> tuple[Floats, Floats]:
        """V(w), of shape (n,), and Σ_v P(v) V(w^v) of each facet, of shape (n, facets).

        Weights need not sum to one: both are homogeneous in them. The last answer of a facet is
        what the others leave of the scores, because its answers' probabilities sum to one.
        """
        table, order, sizes = self._others
        value = np.zeros((len(w), self.facets), np.float32)
        now = np.empty(len(w), np.float32)
        for start in range(0, len(w), _CHUNK):
            part = slice(start, start + _CHUNK)
            products = _products(w[part], self.y, table)
            largest, at = _largest(products), 1
            last = np.repeat(products[:, :, :1], self.facets, axis=2)
            for size in sizes:
                value[part, :size] += largest[:, at : at + size]
                last[:, :, :size] -= products[:, :, at : at + size]
                at += size
            value[part] += _largest(last)
            now[part] = largest[:, 0]
        after = np.empty_like(value)
        after[:, order] = value
        return now, after

    @cached_property
    def _others(self) -> tuple[Floats, Ints, list[int]]:
        """Probabilities of all answers but the last of each facet.

        A table of shape (K, columns): a column of ones, the first answer of each facet that has
        two, the second of each that has three, and so on, then zeros; the facets, those with most
        answers first; and how many of them have an answer in each of these groups.
        """
        widths = np.diff(self.first) - 1
        order = np.argsort(-widths, kind="stable")
        sizes = [int((widths > n).sum()) for n in range(int(widths.max(initial=0)))]
        first = self.first[:-1][order]
        columns = [column for n, size in enumerate(sizes) for column in first[:size] + n]
        table = np.zeros((len(self.p), -(-(1 + len(columns)) // _ALIGNED) * _ALIGNED), np.float32)
        table[:, 0] = 1.0
        table[:, 1 : 1 + len(columns)] = self.p[:, columns]
        return table, order, sizes

    def evi(self, w: Floats) -> Floats:
        """EVI(f) = Σ_v P(v) V(w^v) - V(w) of each facet, never negative; shape (n, facets)."""
        now, after = self.answered(w)
        return np.asarray(np.maximum(after - now[:, None], 0), np.float32)

    def gain(self, w: Floats, *, cost: float, depth: int, free: Any) -> Floats:
        """Expected gain of asking each facet now, less the cost, of shape (n, facets).

        ``w`` are beliefs, of shape (n, K), ``cost`` that of a question (points); ``free`` marks
        facets that may still be asked, of shape (n, facets). With ``depth`` 1 the product is sold
        after the question, with 2 the best next question may be asked before, at its cost.
        """
        if depth == 1:
            return np.asarray(self.evi(w) - cost, np.float32)
        gains = np.empty((len(w), self.facets), np.float32)
        value = self.value(w)
        facet = np.repeat(np.arange(self.facets), np.diff(self.first))
        for row, weights in enumerate(w):
            children = weights * self.p.T
            chance = children.sum(axis=1)
            now, after = self.answered(children)
            after = np.where(free[row], after, -np.inf)
            after[np.arange(len(facet)), facet] = -np.inf  # the answer would be the same again
            then = np.maximum(now, after.max(axis=1) - cost * chance)
            gains[row] = self._by_facet(then[None])[0] - cost - value[row]
        return gains

    def information_gain(self, w: Floats) -> Floats:
        """H(A*) - Σ_v P(v) H(A* | v) in nats, A* the best product; of shape (n, facets)."""
        winners, which = np.unique(self.best, return_inverse=True)
        won = (which[:, None] == np.arange(len(winners))).astype(np.float32)
        prior = _neg_entropy(_matmul(w, won)).sum(axis=1)
        parts = [
            _neg_entropy(_products(w[start : start + _CHUNK], won, self.p)).sum(axis=1)
            for start in range(0, max(len(w), 1), _CHUNK)
        ]
        joint = np.concatenate(parts) - _neg_entropy(_matmul(w, self.p))
        gain = self._by_facet(joint) - prior[:, None]
        return np.asarray(np.maximum(gain, 0), np.float32)

    def _by_facet(self, columns: Floats) -> Floats:
        """Sums of columns over each facet's answers."""
        if not self.facets:
            return np.zeros((len(columns), 0), np.float32)
        return np.asarray(np.add.reduceat(columns, self.first[:-1], axis=1), np.float32)


class Types:
    """Customer types of a disclosed book: at most `MAX_TYPES` train personas, drawn by hash.

    In unseen categories a type's scores are predicted by a ridge regression on facet values and
    text vectors, fitted on its scores in the seen ones. A missing score of a seen category is the
    mean of the other types'. Raises ConfigError if no train persona has scores in a seen category.
    """

    def __init__(self, book: Book, model: AnswerModel, *, seed: int = 0, most: int = MAX_TYPES):
        seen = [s for s in book.sets if s.seen]
        scored = np.zeros(len(book.persona_ids), np.bool_)
        for shelf in seen:
            scored |= ~np.isnan(shelf.y).all(axis=1)
        scored &= book.splits == 0
        if not scored.any():
            raise ConfigError(
                "no train persona has scores in a seen category",
                where=book.reference or "book",
                hint="a belief over types needs them; score more personas",
            )
        rows = np.flatnonzero(scored)
        keys = uniform(seed, _TYPES, book.persona_hashes[rows])
        self.rows: Ints = np.sort(rows[np.argsort(keys, kind="stable")[:most]])
        self.model = model
        self.book = book
        self._tables: OrderedDict[int, SetBelief] = OrderedDict()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> SetBelief:
        """Tables of a choice set, by its number in the book."""
        table = self._tables.get(number)
        if table is None:
            shelf = self.book.sets[number]
            table = self._tables[number] = SetBelief.of(shelf, self.scores(number), self.model)
            if len(self._tables) > _SETS:
                self._tables.popitem(last=False)
        self._tables.move_to_end(number)
        return table

    def scores(self, number: int) -> Floats:
        """Scores of the types in a choice set, of shape (types, products), without gaps."""
        shelf = self.book.sets[number]
        if not shelf.seen:
            weights, mean, features = self._regression
            predicted = np.clip(features(shelf) @ weights + mean, 0, 100).T
            return np.asarray(predicted, np.float32)
        y = shelf.y[self.rows]
        missing = np.isnan(y)
        if not missing.any():
            return np.asarray(y, np.float32)
        counted = np.maximum((~missing).sum(axis=0), 1)
        centre = np.where(missing, 0, y).sum(axis=0) / counted
        centre[missing.all(axis=0)] = np.nanmean(y) if not missing.all() else 50.0
        return np.where(missing, centre, y).astype(np.float32)

    @cached_property
    def _regression(self) -> tuple[Any, Any, Any]:
        """Weights (features, types), means (types,), and the function that gives features."""
        features = Features(self.book)
        numbers = [n for n, s in enumerate(self.book.sets) if s.seen]
        x = np.concatenate([features(self.book.sets[n]) for n in numbers])
        y = np.concatenate([self.scores(n).T for n in numbers]).astype(np.float64)
        mean = y.mean(axis=0)
        gram = x.T @ x + _RIDGE * np.eye(x.shape[1])
        return np.linalg.solve(gram, x.T @ (y - mean)), mean, features


class Features:
    """Features of products that categories share: facet values, by kind and text, and vectors.

    At most ``most`` facet values (count) of the book's seen choice sets, those of most sets first.
    """

    def __init__(self, book: Book, most: int = 512) -> None:
        count: dict[tuple[str, str], int] = {}
        for shelf in book.sets:
            for name in set(shelf.value_names):
                count[name] = count.get(name, 0) + shelf.seen
        ranked = sorted(count, key=lambda name: (-count[name], name))[:most]
        self.column = {name: n for n, name in enumerate(ranked)}
        self.dimensions = max((s.vectors.shape[1] for s in book.sets), default=0)

    def __len__(self) -> int:
        return len(self.column) + self.dimensions

    def columns(self, shelf: ChoiceSet) -> Ints:
        """Feature of each column of ``shelf.members``, -1 for none."""
        return np.array([self.column.get(name, -1) for name in shelf.value_names], np.int64)

    def __call__(self, shelf: ChoiceSet) -> Any:
        """Features centred within the set, float64 of shape (products, features)."""
        features = np.zeros((len(shelf), len(self)))
        columns = self.columns(shelf)
        features[:, columns[columns >= 0]] = shelf.members[:, columns >= 0]
        features[:, len(self.column) : len(self.column) + shelf.vectors.shape[1]] = shelf.vectors
        return features - features.mean(axis=0)


class Priors:
    """Beliefs of lifetimes over ``types`` (count) at the start of an episode.

    A returning customer keeps its weights w, or w^carry (0-1; 0 forgets them). Another customer's
    prior is the mean of a Dirichlet with α_k = 1 plus the weights at the end of each past episode.
    """

    def __init__(self, types: int, carry: float = 1.0) -> None:
        self._carry = carry
        self._slots: dict[int, int] = {}
        self._free: list[int] = []
        self._label = np.zeros(0, np.int64)
        self._log_w = np.zeros((0, types), np.float32)
        self._alpha = np.zeros((0, types), np.float32)

    def read(self, lifetimes: Ints, customers: Ints) -> tuple[Floats, U64]:
        """Log weights of shape (n, types), and a key per row; equal keys have equal weights."""
        types = self._log_w.shape[1]
        log_w = np.full((len(lifetimes), types), -np.log(types), np.float32)
        slots = np.array([self._slots.get(n, -1) for n in lifetimes.tolist()], np.int64)
        stored = np.flatnonzero(slots >= 0)
        at = slots[stored]
        same = self._label[at] == customers[stored]
        # `SetBelief.posterior` normalises.
        log_w[stored[same]] = self._carry * self._log_w[at[same]]
        alpha = self._alpha[at[~same]]
        log_w[stored[~same]] = np.log(alpha / alpha.sum(axis=1, keepdims=True))
        return log_w, combine(np.where(slots >= 0, lifetimes + 1, 0))

    def write(self, lifetimes: Ints, customers: Ints, w: Floats) -> None:
        """Store the weights at the end of an episode."""
        for n in lifetimes.tolist():
            if n not in self._slots:
                self._slots[n] = self._free.pop() if self._free else len(self._slots)
        size = len(self._slots) + len(self._free)
        if size > len(self._label):
            more = max(size, 2 * len(self._label)) - len(self._label)
            types = self._log_w.shape[1]
            self._label = np.concatenate([self._label, np.zeros(more, np.int64)])
            self._log_w = np.concatenate([self._log_w, np.zeros((more, types), np.float32)])
            self._alpha = np.concatenate([self._alpha, np.ones((more, types), np.float32)])
        at = np.array([self._slots[n] for n in lifetimes.tolist()], np.int64)
        self._label[at] = customers
        self._log_w[at] = np.log(np.maximum(w, 1e-30))
        self._alpha[at] += w

    def wipe(self, lifetimes: Ints) -> None:
        """Forget lifetimes."""
        for n in lifetimes.tolist():
            slot = self._slots.pop(n, None)
            if slot is not None:
                self._alpha[slot] = 1.0
                self._free.append(slot)


def learned(
    w: Floats, table: SetBelief, outcomes: Outcomes, rows: Ints, model: FeedbackModel
) -> Floats:
    """Weights after the feedback on the products sold in some rows, of shape (rows, K)."""
    log_w = np.log(np.maximum(w, 1e-30)) + model.log_likelihood(table.y, outcomes, rows)
    weights = np.exp(log_w - log_w.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), np.float32)


def _neg_entropy(p: Floats) -> Floats:
    """P log p elementwise, 0 at 0."""
    return np.asarray(p * np.log(np.maximum(p, 1e-30)), np.float32)


def _products(w: Floats, left: Floats, right: Floats) -> Floats:
    """Σ_k w_k l_ka r_kc of each belief, of shape (n, a, c).

    Weights are multiplied into the smaller table rather than a table of all l_ka r_kc: that one, of
    9 MB per choice set of the paper's size, would be read from memory for every batch.
    """
    weighted = w[:, None, :] * np.ascontiguousarray(left.T)
    products = _matmul(weighted.reshape(-1, len(left)), right)
    return products.reshape(len(w), left.shape[1], right.shape[1])


def _largest(products: Floats) -> Floats:
    """Maximum over the middle axis; PyTorch's takes a fraction of NumPy's time."""
    if importlib.util.find_spec("torch") is None:
        return np.asarray(products.max(axis=1), np.float32)
    import torch

    return np.asarray(torch.from_numpy(products).amax(dim=1).numpy(), np.float32)


def _matmul(left: Floats, right: Floats) -> Floats:
    """Matrix product of PyTorch: a row's result is the same to the bit in any batch.

    NumPy's depends on the number of rows; it is used where PyTorch is not installed, and beliefs
    then agree between batches to about six digits. PyTorch's does below four rows, where rows are
    added.
    """
    if importlib.util.find_spec("torch") is None:
        return np.asarray(left @ right, np.float32)
    import torch

    rows = len(left)
    if rows < _ROWS:
        left = np.concatenate([left, np.zeros((_ROWS - rows, left.shape[1]), np.float32)])
    product = torch.from_numpy(np.ascontiguousarray(left)) @ torch.from_numpy(right)
    return np.asarray(product.numpy()[:rows], np.float32)
