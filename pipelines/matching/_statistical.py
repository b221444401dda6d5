"""The statistical matcher: naive Bayes over items, fitted on users whose source states them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl
from scipy import sparse
from scipy.special import expit, log_softmax

from pipelines.config import MatchingSettings
from pipelines.matching._history import (
    ASSUMED_FILE,
    SEED,
    STATED,
    Floats,
    History,
    Ints,
    Lists,
    assumed,
)
from pipelines.matching._protocol import CANDIDATES, Rated, Taste, Trials, attribute_values
from pipelines.matching._tastes import taste_profiles, taste_text
from pipelines.seeding import combine, uniform

# A purpose per draw, so that adding one changes no other.
_FOLD, _DRAW, _SAMPLE = 21, 22, 23


def likeness(log_ratio: Any) -> Any:
    """R = 1 + 9 sigmoid(l): a log-likelihood ratio as a rating on 1-10.

    P(i|a) = 0.02 and P(i) = 0.01, one attribute and one liked item: sigmoid(ln 2) = 2/3.

    >>> round(float(likeness(np.log(0.02 / 0.01))), 9)
    7.0
    """
    rules = assumed()["statistical"]
    return rules["rating_low"] + rules["rating_span"] * expit(log_ratio)


@dataclass(frozen=True)
class _Attribute:
    """Tables of an attribute by fold; fold `folds` for users of none."""

    name: str
    kappas: list[float]
    ratios: list[Floats]
    priors: list[Floats]
    users: int


class StatisticalMatcher:
    """Proposes age and occupation from the items that people of each kind have rated.

    P(i|a) = (n_ia + kappa P(i)) / (n_a + kappa) counts the training interactions of users whose
    source states the attribute, without those of the fold that the user at hand is in. Candidates
    are drawn from the posterior of a user's listed items, every interaction counting alike;
    attributes are independent given the items. A list's rating is :func:`likeness` of the sum over
    attributes of the mean of ln P(i|a)/P(i) over its liked items (plus) and disliked ones (minus).

    Kappa is chosen per fold and attribute from ``data/assumed.yaml``: the one that gives the
    attributes of the users of another fold the highest posterior probability.

    Attributes that the source never states are not proposed, nor are the Big Five.
    """

    name = "statistical"

    def __init__(self, settings: MatchingSettings | None = None) -> None:
        self._settings = settings or MatchingSettings()
        self.basis = "none"
        self._attributes: list[_Attribute] = []

    def fit(self, history: History) -> Self:
        """See :class:`pipelines.matching.Matcher`."""
        self._history = history
        folds = int(assumed()["statistical"]["folds"])
        stated = np.any([history.stated[name] >= 0 for name in STATED], axis=0)
        self._fold = np.full(len(history.users), folds)
        users = np.flatnonzero(stated)
        order = users[np.argsort(combine(SEED, _FOLD, history.keys[users]))]
        self._fold[order] = np.arange(len(order)) % folds
        fitted = (self._fitted(name, folds) for name in STATED)
        self._attributes = [attribute for attribute in fitted if attribute is not None]
        self.basis = "fitted" if self._attributes else "none"
        return self

    def _fitted(self, name: str, folds: int) -> _Attribute | None:
        history, values = self._history, self._history.stated[name]
        stated = np.flatnonzero(values >= 0)
        # With fewer users than folds no user is left to choose kappa on.
        if len(stated) < 2 * folds:
            return None
        counts = [self._counts(values, self._fold == fold, name) for fold in range(folds)]
        total = np.sum(counts, axis=0)
        users = np.array(
            [
                np.bincount(values[stated][self._fold[stated] == f], minlength=len(total))
                for f in range(folds)
            ]
        )
        lists = history.draw(stated, np.full(len(stated), self._settings.items), _SAMPLE)
        sums = _indicator(lists, history.item, history.items.height)
        kappas, ratios, priors = [], [], []
        for fold in range(folds + 1):
            inner = (fold + 1) % folds
            training = total - counts[fold] if fold < folds else total
            kind = users.sum(axis=0) - (users[fold] if fold < folds else 0)
            judged = self._fold[stated] == inner
            likelihoods = [
                self._judged(k, training - counts[inner], kind - users[inner], sums[judged],
                             values[stated[judged]])
                for k in assumed()["statistical"]["kappas"]
            ]  # fmt: skip
            kappa = float(assumed()["statistical"]["kappas"][int(np.argmax(likelihoods))])
            kappas.append(kappa)
            ratios.append(_log_ratios(training, kappa))
            priors.append(_log_prior(kind))
        return _Attribute(name, kappas, ratios, priors, len(stated))

    def _counts(self, values: Ints, users: Any, name: str) -> Floats:
        """Interactions by value and item of some users, of shape (values, items)."""
        history = self._history
        value = np.where(users, values, -1)[np.repeat(np.arange(len(values)), history.counts)]
        mask = value >= 0
        shape = (len(attribute_values(name)), history.items.height)
        cells = (value[mask], history.item[mask])
        matrix = sparse.coo_matrix((np.ones(mask.sum()), cells), shape=shape)
        return np.asarray(matrix.toarray())

    def _judged(
        self, kappa: float, counts: Floats, users: Floats, lists: Any, truth: Ints
    ) -> float:
        """Mean log posterior of the true values of held-out users."""
        scores = lists @ _log_ratios(counts, kappa).T + _log_prior(users)
        return float(np.mean(log_softmax(scores, axis=1)[np.arange(len(truth)), truth]))

    def tastes(self, users: Ints, lists: Lists) -> list[Taste]:
        """Genres, people and decades above expectation; the lists are not needed."""
        del lists
        profiles = taste_profiles(self._history, users)
        return [Taste(taste_text(p, self._history.domain), self.name) for p in profiles]

    def posterior(self, users: Ints, lists: Lists) -> dict[str, Floats]:
        """Probabilities of the values of each fitted attribute, of shape (users, values)."""
        history = self._history
        sums = _indicator(lists, history.item, history.items.height)
        out = {}
        for attribute in self._attributes:
            logits = np.empty((len(users), len(attribute.priors[0])))
            for fold in np.unique(self._fold[users]):
                mask = self._fold[users] == fold
                logits[mask] = sums[mask] @ attribute.ratios[fold].T + attribute.priors[fold]
            out[attribute.name] = np.exp(log_softmax(logits, axis=1))
        return out

    def candidates(
        self, users: Ints, lists: Lists, tastes: Sequence[Taste], count: int
    ) -> pl.DataFrame:
        """Draws from the posterior; see :class:`pipelines.matching.Matcher`."""
        del tastes
        if not self._attributes:
            return pl.DataFrame(schema=CANDIDATES)
        keys, number = self._history.keys[users], np.arange(count)
        columns: dict[str, Any] = dict.fromkeys(CANDIDATES)
        for name, shares in self.posterior(users, lists).items():
            draw = uniform(SEED, _DRAW, STATED.index(name), keys[:, None], number)
            edges = np.cumsum(shares, axis=1)[:, None, :-1]
            value = (draw[:, :, None] >= edges).sum(axis=2)
            columns[name] = np.array(attribute_values(name), dtype=object)[value].ravel()
        size = len(users) * count
        columns["user"] = np.repeat(np.arange(len(users)), count)
        columns["candidate"] = np.tile(number, len(users))
        columns["status"] = ["ok"] * size
        return pl.DataFrame(
            {k: [None] * size if v is None else v for k, v in columns.items()}, schema=CANDIDATES
        )

    def rate(
        self, users: Ints, candidates: pl.DataFrame, trials: Trials, tastes: Sequence[Taste]
    ) -> Rated:
        """Ratings from mean log-likelihood ratios; see :class:`pipelines.matching.Matcher`."""
        del tastes
        history = self._history
        signs = _indicator(trials.lists, history.item, history.items.height, history.opinion)
        list_numbers = np.concatenate([trials.own, trials.others], axis=1)
        who = candidates["user"].to_numpy()
        total = np.zeros((candidates.height, list_numbers.shape[1]))
        for attribute in self._attributes:
            options = {value: n for n, value in enumerate(attribute_values(attribute.name))}
            value = candidates[attribute.name].replace_strict(options, return_dtype=pl.Int64)
            for fold in np.unique(self._fold[users]):
                mask = self._fold[users][who] == fold
                means = signs @ attribute.ratios[fold].T
                total[mask] += means[list_numbers[who[mask]], value.to_numpy()[mask][:, None]]
        expected = np.where(list_numbers[who] >= 0, likeness(total), np.nan)
        return Rated(expected, ["ok"] * len(who), [()] * len(who))

    def metadata(self) -> dict[str, Any]:
        """Fitted values of kappa by attribute and fold, and what is assumed."""
        return {
            "method": self.name,
            "language_model": False,
            "basis": self.basis,
            "fitted": {a.name: {"users": a.users, "kappa": a.kappas} for a in self._attributes},
            "assumed": assumed(),
            "assumed_in": ASSUMED_FILE,
        }


def _log_ratios(counts: Floats, kappa: float) -> Floats:
    """Ln P(i|a)/P(i), of shape (values, items); 0 for items without such a rating."""
    share = counts.sum(axis=0) / max(counts.sum(), 1.0)
    seen = share > 0
    out = np.zeros(counts.shape)
    inside = (counts[:, seen] + kappa * share[seen]) / (counts.sum(axis=1, keepdims=True) + kappa)
    out[:, seen] = np.log(inside / share[seen])
    return out


def _log_prior(users: Floats) -> Floats:
    pseudo = float(assumed()["statistical"]["prior_users"])
    return np.asarray(np.log((users + pseudo) / (users + pseudo).sum()))


def _indicator(lists: Lists, item: Ints, items: int, opinion: Ints | None = None) -> Any:
    """Lists as sparse rows of items: ones, or opinions divided by their number in the list."""
    owner = np.repeat(np.arange(len(lists)), np.diff(lists.start))
    values = np.ones(len(lists.rows)) if opinion is None else opinion[lists.rows].astype(float)
    if opinion is not None:
        weight = np.bincount(owner, np.abs(values), len(lists))
        values = values / np.maximum(weight, 1.0)[owner]
    shape = (len(lists), items)
    return sparse.csr_matrix((values, (owner, item[lists.rows])), shape=shape)
