"""Experiment ``feeling``: ratings of agents beside the sentiment of what they say they felt."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from pipelines.extras import missing_package
from pipelines.seeding import uniform
from sim.experiments._comments import real_comments
from sim.experiments._context import ExperimentContext
from sim.experiments._figures import finish_picture
from sim.experiments._held_out import Floats, interval, judged, pairs_of, pooled
from sim.experiments._protocol import Comparison, Result, Row, TooFew
from sim.metrics import RESAMPLES, Figure, paired_permutation, user_weights

#: Meanings of the figures by name.
_FIGURES = {
    "rho": "Spearman's correlation of rating and VADER's compound valence of the text, -1 to 1",
    "liked": "mean valence of texts with a rating of 4 or 5, -1 to 1",
    "disliked": "mean valence of texts with a rating of 1 or 2, -1 to 1",
}


@dataclass(frozen=True)
class FeelingSettings:
    """Settings of ``feeling``."""

    #: People with a rating and a text that figures need (count).
    min_people: int = 10


class Feeling:
    """Rank correlation of ratings with the sentiment of agents' texts."""

    name = "feeling"
    question = "Does the sentiment of what agents say about an item rise with their rating of it?"
    anchor = "SimUSER, Fig. 4"
    figures = _FIGURES

    def __init__(self, settings: FeelingSettings | None = None) -> None:
        self.settings = settings or FeelingSettings()

    def run(self, context: ExperimentContext) -> Result:
        """Ask for ratings and feelings of test items, and compare them with VADER's valence."""
        _vader()
        frames: dict[str, tuple[str, pl.DataFrame, str]] = {}
        rows: list[Row] = []
        counts: dict[str, int] = {}
        asked = [n for n in context.brains if context.source(context.brain(n)) == "model"]
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
        for name in context.brains:
            mind = context.brain(name)
            source = context.source(mind)
            pairs = pairs_of(context, mind, context.world_of(mind))
            given = judged(context, mind, pairs, key={"history": "zero"})
            counts[f"failed, {name}"] = int((given["status"] != "ok").sum())
            texts = given.drop_nulls(["rating", "feeling"]).select("person", "rating", "feeling")
            if source == "baseline":
                labels = {"brain": name}
                note = "Says nothing of what it felt."
                rows.append(Row(labels, source, dict.fromkeys(_FIGURES), 0, note))
                continue
            frames[name] = source, texts, mind.note
            other = f"{name}, texts exchanged"
            frames[other] = "baseline", _exchanged(texts), "Control: each text with another rating."
        for name, (source, frame, note) in frames.items():
            number = frame["person"].n_unique()
            if number < self.settings.min_people and source != "people":
                few = TooFew(
                    "people with a rating and a text",
                    found=number,
                    needed=self.settings.min_people,
                    where=f"experiment {self.name}, {name}",
                    hint="more --agents, or a brain that says what it felt",
                )
                if name.partition(",")[0] not in asked:
                    raise few
                rows.append(Row({"brain": name}, source, dict.fromkeys(_FIGURES), number, few.what))
                continue
            different = frame["feeling"].n_unique()
            figures = self._figures_of(frame)
            counts[f"texts, {name}"] = frame.height
            counts[f"different texts, {name}"] = different
            rows.append(Row({"brain": name}, source, figures, number, note))
        notes = [
            "Valence is VADER's compound score (Hutto and Gilbert 2014), of a lexicon of 7,500 "
            "words with rules for negation and degree; SimUSER uses PyABSA. Correlations are over "
            "ratings, intervals over people.",
            "The statistical brain chooses among phrases by the rating: its correlation shows how "
            "they read to VADER, and no feeling.",
        ]
        if not comments.height:
            notes.append(
                "People left no words in this release: there is no row of people to compare with."
            )
        comparisons = [
            found
            for name in frames
            if f"{name}, texts exchanged" in frames
            for found in [_compared(frames, name, f"{name}, texts exchanged", context.seed)]
            if found is not None
        ]
        return Result(rows, comparisons, notes, {"valence": _picture(frames)}, counts)

    def _figures_of(self, frame: pl.DataFrame) -> dict[str, Figure | float | None]:
        valence, rating = valence_of(frame["feeling"]), frame["rating"].to_numpy()
        owner = frame["person"].to_numpy()
        out: dict[str, Figure | float | None] = {"rho": rank_correlation(rating, valence, owner)}
        for name, rows in (("liked", rating >= 4), ("disliked", rating <= 2)):
            found = None
            if rows.any():
                sums = [valence[rows], np.ones(int(rows.sum()))]
                found = pooled(owner[rows], sums, _mean)
            out[name] = found
        return out


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


def _compared(
    frames: dict[str, tuple[str, pl.DataFrame, str]], left: str, right: str, seed: int
) -> Comparison | None:
    """Difference of two correlations over the same people; None where one has none."""
    sides = []
    for name in (left, right):
        frame = frames[name][1]
        rating, valence = frame["rating"].to_numpy(), valence_of(frame["feeling"])
        if np.ptp(rating) == 0 or np.ptp(valence) == 0:
            return None
        sides.append((rating, valence, frame["person"].to_numpy()))
    (a, drawn), (b, others) = (_correlations(*side) for side in sides)
    mine, theirs = (_shares(*side) for side in sides)
    p = paired_permutation(mine, theirs, seed)
    return Comparison(left, right, "rho", interval(a - b, drawn - others), p, len(mine))


def _exchanged(frame: pl.DataFrame) -> pl.DataFrame:
    """Texts in another order, one that depends on nothing but the number of rows."""
    order = np.argsort(uniform(0, np.arange(frame.height), 1))
    return frame.with_columns(feeling=frame["feeling"].gather(order))


def _mean(sums: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(sums[0] / sums[1])


def _picture(frames: dict[str, tuple[str, pl.DataFrame, str]]) -> bytes:
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(7, 4))
    axes = picture.subplots()
    for name, (_, frame, _) in frames.items():
        means, stars = [], []
        valence, rating = valence_of(frame["feeling"]), np.round(frame["rating"].to_numpy())
        for star in range(1, 6):
            if (rating == star).any():
                stars.append(star)
                means.append(float(valence[rating == star].mean()))
        axes.plot(stars, means, marker="o", label=name)
    axes.set_xlabel("rating (1-5)")
    axes.set_ylabel("mean valence of the texts (-1 to 1)")
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return finish_picture(picture, axes, "Valence of the texts by rating")
