"""Experiment ``feeling``: ratings of agents beside the sentiment of what they say they felt."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.extras import missing_package
from pipelines.seeding import uniform
from pipelines.study import (
    RESAMPLES,
    Claim,
    Comparison,
    Figure,
    Study,
    draw,
    interval,
    paired_permutation,
    pooled,
    user_weights,
)
from sim.experiments._comments import real_comments
from sim.experiments._context import ExperimentContext
from sim.experiments._experiment import experiment
from sim.experiments._held_out import judged, pairs_of

Floats = npt.NDArray[np.float64]
_EXCHANGED = ", texts exchanged"


@experiment(
    question="Does the sentiment of what agents say about an item rise with their rating of it?",
    paper="SimUSER, Fig. 4",
    conditions=("brain",),
    figures={
        "rho": "Spearman's correlation of rating and VADER's compound valence of the text, -1 to 1",
        "liked": "mean valence of texts with a rating of 4 or 5, -1 to 1",
        "disliked": "mean valence of texts with a rating of 1 or 2, -1 to 1",
    },
    claim=Claim(
        "What agents say they felt agrees with their ratings.",
        figure="rho",
        row={},
        control=0.0,
        above="Supported: words and ratings agree. The statistical brain chooses its words by the "
        "rating, so that only a model's row is evidence.",
        below="Contradicted: words and ratings are opposed.",
        equal="Not found: words and ratings do not go together.",
    ),
)
def feeling(
    study: Study,
    context: ExperimentContext,
    *,
    min_people: int = 10,  # with a rating and a text
) -> None:
    """Ask for ratings and feelings of test items, and compare them with VADER's valence."""
    _vader()
    frames: dict[str, tuple[str, pl.DataFrame, str]] = {}
    comments = real_comments(context.release)
    if comments.height:
        owners = comments["author"].unique().sort()
        numbers = {author: n for n, author in enumerate(owners)}
        people = comments.select(
            pl.col("author").replace_strict(numbers, return_dtype=pl.Int64).alias("person"),
            "rating",
            feeling="text",
        )
        frames["people (reviews)"] = "people", people, "Texts of the reviews of the release."
    asked = {name for name, _, source in context.players() if source == "model"}
    for name, brain, source in context.players():
        pairs = pairs_of(context, brain, context.world_of(brain))
        given = judged(context, brain, pairs, key={"history": "zero"})
        study.counts[f"failed, {name}"] = int((given["status"] != "ok").sum())
        texts = given.drop_nulls(["rating", "feeling"]).select("person", "rating", "feeling")
        if source == "baseline":
            none = dict.fromkeys(study.figures)
            study.add((name,), source, figures=none, n=0, note="Says nothing of what it felt.")
            continue
        frames[name] = source, texts, brain.note
        note = "Control: each text with another rating."
        frames[f"{name}{_EXCHANGED}"] = "baseline", _exchanged(texts), note
    for name, (source, frame, note) in frames.items():
        number = frame["person"].n_unique()
        if number < min_people and source != "people":
            what = f"{number:,} people with a rating and a text, at least {min_people:,} are needed"
            if name.removesuffix(_EXCHANGED) not in asked:
                hint = "more --agents, or a brain that says what it felt"
                study.require("people with a rating and a text", number, min_people, hint, of=name)
            study.add((name,), source, figures=dict.fromkeys(study.figures), n=number, note=what)
            continue
        study.add((name,), source, figures=_figures(frame), n=number, note=note)
        study.counts[f"texts, {name}"] = frame.height
        study.counts[f"different texts, {name}"] = frame["feeling"].n_unique()
    for name in frames:
        if f"{name}{_EXCHANGED}" in frames:
            _compare(study, frames, name, f"{name}{_EXCHANGED}")
    study.notes += [
        "Valence is VADER's compound score (Hutto and Gilbert 2014), of a lexicon of 7,500 words "
        "with rules for negation and degree; SimUSER uses PyABSA. Correlations are over ratings, "
        "intervals over people.",
        "The statistical brain chooses among phrases by the rating: its correlation shows how they "
        "read to VADER, and no feeling.",
    ]
    if not comments.height:
        study.notes.append(
            "People left no words in this release: there is no row of people to compare with."
        )
    points = {name: _by_rating(frame) for name, (_, frame, _) in frames.items()}
    study.pictures["valence"] = draw(
        {"": points}, title="Valence of the texts by rating", x="rating (1-5)",
        y="mean valence of the texts (-1 to 1)", lines=True,
    )  # fmt: skip


def _figures(frame: pl.DataFrame) -> dict[str, Figure | float | None]:
    valence, rating = valence_of(frame["feeling"]), frame["rating"].to_numpy()
    owner = frame["person"].to_numpy()
    out: dict[str, Figure | float | None] = {"rho": rank_correlation(rating, valence, owner)}
    for name, rows in (("liked", rating >= 4), ("disliked", rating <= 2)):
        sums = [valence[rows], np.ones(int(rows.sum()))]
        out[name] = pooled(owner[rows], sums, _mean) if rows.any() else None
    return out


def _by_rating(frame: pl.DataFrame) -> dict[str, float]:
    """Mean valence by rating in whole stars."""
    valence, rating = valence_of(frame["feeling"]), np.round(frame["rating"].to_numpy())
    stars = [star for star in range(1, 6) if (rating == star).any()]
    return {str(star): float(valence[rating == star].mean()) for star in stars}


def _compare(
    study: Study, frames: dict[str, tuple[str, pl.DataFrame, str]], left: str, right: str
) -> None:
    """Difference of two correlations over the same people, unless one has none."""
    sides = []
    for name in (left, right):
        frame = frames[name][1]
        rating, valence = frame["rating"].to_numpy(), valence_of(frame["feeling"])
        if np.ptp(rating) == 0 or np.ptp(valence) == 0:
            return
        sides.append((rating, valence, frame["person"].to_numpy()))
    (a, drawn), (b, others) = (_correlations(*side) for side in sides)
    shares = _shares(*sides[0]), _shares(*sides[1])
    p = paired_permutation(shares[0], shares[1], study.seed)
    difference = interval(a - b, drawn - others)
    study.comparisons.append(Comparison(left, right, "rho", difference, p, len(shares[0])))


def valence_of(texts: pl.Series) -> Floats:
    """VADER's compound valence of each text, -1 to 1.

    >>> good, bad = valence_of(pl.Series(["What a wonderful story.", "A horrible mess."]))
    >>> bool(good > 0.5), bool(bad < -0.5)
    (True, True)
    """
    score = _vader()
    found = {text: float(score(text)["compound"]) for text in texts.unique().to_list()}
    return np.array([found[text] for text in texts.to_list()], np.float64)


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

    >>> found = rank_correlation(
    ...     np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.1, 0.3, 0.2, 0.4]), np.arange(4)
    ... )
    >>> round(found.value, 6)  # 1 - 6 * 2 / (4 * 15)
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


def _exchanged(frame: pl.DataFrame) -> pl.DataFrame:
    """Texts in another order, one that depends on nothing but the number of rows."""
    order = np.argsort(uniform(0, np.arange(frame.height), 1))
    return frame.with_columns(feeling=frame["feeling"].gather(order))


def _mean(sums: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(sums[0] / sums[1])
