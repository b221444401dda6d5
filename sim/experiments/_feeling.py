"""Experiment ``feeling``: ratings of agents beside the sentiment of what they say they felt."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import polars as pl

from pipelines.extras import missing_package
from pipelines.seeding import uniform
from pipelines.study import (
    RESAMPLES,
    Comparison,
    Figure,
    Study,
    draw,
    interval,
    paired_permutation,
    pooled_mean,
    user_weights,
)
from sim.experiments._comments import real_comments
from sim.experiments._context import ExperimentContext
from sim.experiments._data import Floats, judged, pairs_of
from sim.experiments._experiment import experiment, page

_EXCHANGED = ", texts exchanged"
_HINT = "more --agents, or a brain that says what it felt"


@experiment(
    question="Does the sentiment of what agents say about an item rise with their rating of it?",
    paper="SimUSER, Fig. 4",
    conditions=("brain",),
    **page("feeling"),
)
def feeling(
    study: Study,
    context: ExperimentContext,
    *,
    min_people: int = 10,  # with a rating and a text
) -> None:
    """Ask for ratings and feelings of test items, and compare them with VADER's valence."""
    _vader()
    frames: dict[str, tuple[str, bool, pl.DataFrame, str]] = {}
    comments = real_comments(context.release)
    if comments.height:
        people = comments.select("rating", person="author", feeling="text")
        note = "Texts of the reviews of the release."
        frames["people (reviews)"] = "people", True, _with_valence(people), note
    for name, brain, source in context.players():
        given = judged(context, brain, pairs_of(context, brain), key={"history": "zero"})
        study.counts[f"failed, {name}"] = int((given["status"] != "ok").sum())
        if source == "baseline":
            none = dict.fromkeys(study.figures)
            study.add((name,), source, figures=none, n=0, note="Says nothing of what it felt.")
            continue
        texts = _with_valence(given.drop_nulls(["rating", "feeling"]))
        sampled = source == "model"
        frames[name] = source, sampled, texts, brain.note
        # In another order, one that depends on nothing but the number of rows.
        order = np.argsort(uniform(0, np.arange(texts.height), 1))
        other = texts.with_columns(texts.select("feeling", "valence")[order])
        note = "Control: each text with another rating."
        frames[f"{name}{_EXCHANGED}"] = "baseline", sampled, other, note
    for name, (source, sampled, frame, note) in frames.items():
        number = frame["person"].n_unique()
        enough = number >= min_people or source == "people"
        study.add(
            (name,), source, figures=_figures(frame) if enough else dict.fromkeys(study.figures),
            n=number, note=note, sampled=sampled,
            least=None if enough else ("people with a rating and a text", min_people, _HINT),
        )  # fmt: skip
        if enough:
            study.counts[f"texts, {name}"] = frame.height
            study.counts[f"different texts, {name}"] = frame["feeling"].n_unique()
    for name, (_, _, frame, _) in frames.items():
        if f"{name}{_EXCHANGED}" in frames:
            _compare(
                study, (name, frame), (f"{name}{_EXCHANGED}", frames[f"{name}{_EXCHANGED}"][2])
            )
    if not comments.height:
        study.notes.append(
            "People left no words in this release: there is no row of people to compare with."
        )
    stars = pl.col("rating").round(mode="half_to_even").cast(pl.Int64)
    by_rating = {
        name: frame.group_by(stars).agg(pl.col("valence").mean()).sort("rating")
        for name, (_, _, frame, _) in frames.items()
    }
    points = {
        name: {str(star): mean for star, mean in f.iter_rows()} for name, f in by_rating.items()
    }
    study.pictures["valence"] = draw(
        {"": points}, title="Valence of the texts by rating", x="rating (1-5)",
        y="mean valence of the texts (-1 to 1)", lines=True,
    )  # fmt: skip


def _with_valence(frame: pl.DataFrame) -> pl.DataFrame:
    """``person, rating, feeling`` with the ``valence`` of the feeling."""
    texts = frame.select("person", "rating", "feeling")
    return texts.with_columns(valence=valence_of(texts["feeling"]))


def _columns(frame: pl.DataFrame) -> tuple[Floats, Floats, Any]:
    """Rating, valence and person of each text."""
    return tuple(frame[name].to_numpy() for name in ("rating", "valence", "person"))  # type: ignore[return-value]


def _figures(frame: pl.DataFrame) -> dict[str, Figure | float | None]:
    rating, valence, owner = _columns(frame)
    out: dict[str, Figure | float | None] = {"rho": rank_correlation(rating, valence, owner)}
    for name, rows in (("liked", rating >= 4), ("disliked", rating <= 2)):
        out[name] = pooled_mean(owner[rows], valence[rows]) if rows.any() else None
    return out


def _compare(study: Study, left: tuple[str, pl.DataFrame], right: tuple[str, pl.DataFrame]) -> None:
    """Difference of two correlations over the same people, unless one has none."""
    sides = [_columns(frame) for _, frame in (left, right)]
    if not all(np.ptp(column) for side in sides for column in side[:2]):
        return
    (a, drawn), (b, others) = (_correlations(*side) for side in sides)
    shares = _shares(*sides[0]), _shares(*sides[1])
    p = paired_permutation(*shares, seed=study.seed)
    difference = interval(a - b, drawn - others)
    study.comparisons.append(Comparison(left[0], right[0], "rho", difference, p, len(shares[0])))


def valence_of(texts: pl.Series) -> pl.Series:
    """VADER's compound valence of each text, -1 to 1.

    >>> good, bad = valence_of(pl.Series(["What a wonderful story.", "A horrible mess."]))
    >>> bool(good > 0.5), bool(bad < -0.5)
    (True, True)
    """
    scores = {text: float(_vader()(text)["compound"]) for text in texts.unique()}
    return texts.replace_strict(scores, return_dtype=pl.Float64)


@cache
def _vader() -> Any:
    try:
        from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer
    except ModuleNotFoundError as error:
        raise missing_package(error, where="experiment feeling") from None
    return SentimentIntensityAnalyzer().polarity_scores


def rank_correlation(left: Floats, right: Floats, owner: Any) -> Figure | None:
    """Spearman's correlation with a bootstrap interval over the owners of rows.

    Ties share their mean rank, in every draw anew. None where one side does not vary.

    >>> rho = rank_correlation(
    ...     np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.1, 0.3, 0.2, 0.4]), np.arange(4)
    ... )
    >>> round(rho.value, 6)  # 1 - 6 * 2 / (4 * 15)
    0.8
    """
    if np.ptp(left) == 0 or np.ptp(right) == 0:
        return None
    return interval(*_correlations(left, right, owner))


def _correlations(left: Floats, right: Floats, owner: Any) -> tuple[float, Floats]:
    """The correlation, and that of every draw of owners."""
    pairs, cell = np.unique(np.column_stack([left, right]), axis=0, return_inverse=True)
    people, person = np.unique(np.asarray(owner), return_inverse=True)
    levels = [np.unique(side, return_inverse=True)[1] for side in pairs.T]
    counts = np.zeros((len(people), len(pairs)))
    np.add.at(counts, (person, np.ravel(cell)), 1.0)
    # In parts: (draws, cells) of many people with texts of their own is large.
    drawn = [
        _spearman(part @ counts, levels)
        for part in np.array_split(user_weights(len(people), RESAMPLES, 0), 20)
    ]
    return float(_spearman(counts.sum(axis=0)[None, :], levels)[0]), np.concatenate(drawn)


def _shares(left: Floats, right: Floats, owner: Any) -> Floats:
    """Share of each owner in Spearman's correlation: they sum to it."""
    from scipy.stats import rankdata

    ranks = [rankdata(side) - (len(side) + 1) / 2 for side in (left, right)]
    product = ranks[0] * ranks[1] / np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum())
    _, person = np.unique(np.asarray(owner), return_inverse=True)
    return np.asarray(np.bincount(person, product), np.float64)


def _spearman(weights: Floats, levels: list[Any]) -> Floats:
    """Correlation of mean ranks where cell c occurs weights[d, c] times, of shape (draws,)."""
    total = weights.sum(axis=1, keepdims=True)
    ranks = []
    for level in levels:
        order = np.argsort(level, kind="stable")
        starts = np.flatnonzero(np.diff(level[order], prepend=-1))
        number = np.add.reduceat(weights[:, order], starts, axis=1)
        # Rank of a level, centred: rows below it and half of its own, less half of all.
        middle = np.cumsum(number, axis=1) - number / 2 - total / 2
        ranks.append(middle[:, level])
    with np.errstate(invalid="ignore", divide="ignore"):
        both = (weights * ranks[0] * ranks[1]).sum(axis=1)
        spread = [(weights * rank**2).sum(axis=1) for rank in ranks]
        return np.asarray(both / np.sqrt(spread[0] * spread[1]))
