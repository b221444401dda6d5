"""The seam of persona matching: candidates for real histories, and how well each fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import polars as pl

from pipelines.llm.engines import Status
from pipelines.matching._history import AGE_BANDS, Floats, History, Ints, Lists, occupation_values

#: Big Five traits, each 1 (low), 2 (medium) or 3 (high) (SimUSER, appendix B).
BIG_FIVE = ("openness", "conscientiousness", "extraversion", "agreeableness", "neuroticism")
LEVELS = {1: "low", 2: "medium", 3: "high"}
#: Columns of a candidate's attributes, with types.
ATTRIBUTES: dict[str, Any] = {
    "age_band": pl.String,
    "occupation": pl.String,
    **dict.fromkeys(BIG_FIVE, pl.Int64),
}
#: Columns of what :meth:`Matcher.candidates` returns.
CANDIDATES: dict[str, Any] = {
    "user": pl.Int64,
    "candidate": pl.Int64,
    **ATTRIBUTES,
    "status": pl.String,
    "answer_key": pl.String,
}


def attribute_values(name: str) -> tuple[str, ...]:
    """The values of an attribute as text.

    >>> attribute_values("age_band")[0], attribute_values("openness")
    ('under 18', ('1', '2', '3'))
    """
    if name == "age_band":
        return AGE_BANDS
    return occupation_values() if name == "occupation" else tuple(map(str, LEVELS))


@dataclass(frozen=True)
class Taste:
    """A user's summary of tastes (SimUSER's s_u)."""

    #: One to three sentences.
    text: str
    #: `statistical`, or the model that wrote it.
    writer: str
    #: `ok`, or why the model's reply was not used; then the statistical summary stands here.
    status: Status = "ok"
    #: Key of the stored reply; None without a model.
    answer_key: str | None = None


@dataclass(frozen=True)
class Trials:
    """Lists that candidates are scored on (SimUSER, equation 2)."""

    #: All of them; a list of another user serves everybody it was drawn for.
    lists: Lists
    #: Numbers of each user's own lists, of shape (users, j).
    own: Ints
    #: Numbers of lists of other users, of shape (users, k); the same for all candidates.
    others: Ints


@dataclass(frozen=True)
class Rated:
    """Ratings of the trials' lists by each candidate's person."""

    #: Expected rating on 1-10, of shape (candidates, j + k): own lists first; NaN where there is
    #: none.
    expected: Floats
    #: `ok`, or why a candidate lacks a rating, by candidate.
    status: Sequence[str]
    #: Keys of the stored answers, by candidate; empty without a model.
    answer_keys: Sequence[Sequence[str]]


@runtime_checkable
class Matcher(Protocol):
    """Proposes personas for real histories and rates how well each fits.

    Methods are called in this order: `fit`, `tastes`, `candidates`, `rate`. Equal histories,
    seeds and settings give equal results. ``pipelines.matching.testing.check_matcher``
    tests an implementation.
    """

    #: Value of the column ``method``.
    name: str
    #: Basis of the attributes, set by `fit`: `fitted` (users whose source states them), `model`,
    #: or `none` (without a basis, nothing is proposed).
    basis: str

    def fit(self, history: History) -> Self:
        """Take in the training histories of all users; returns itself."""

    def tastes(self, users: Ints, lists: Lists) -> list[Taste]:
        """A summary of each user's tastes.

        ``users`` are ascending numbers of shape (n,); ``lists`` have up to ``matching.items``
        interactions of each.
        """

    def candidates(
        self, users: Ints, lists: Lists, tastes: Sequence[Taste], count: int
    ) -> pl.DataFrame:
        """Candidate personas: the columns of `CANDIDATES`.

        `user` is the position in `users`, `candidate` counts from 0; `count` rows per user, in that
        order, or no row at all where `basis` is `none`. Attributes that are not proposed, and all
        of a row whose `status` is not ``ok``, are null.
        """

    def rate(
        self, users: Ints, candidates: pl.DataFrame, trials: Trials, tastes: Sequence[Taste]
    ) -> Rated:
        """Expected ratings of the lists by each candidate, in the candidates' order."""

    def metadata(self) -> dict[str, Any]:
        """Fitted and assumed values, and the model with its number of calls; JSON-ready."""
