"""Personality-2018 (Nguyen et al. 2018): Big Five of MovieLens users, to judge matched ones by.

The published files are ``personality-data.csv`` (one row per answered questionnaire) and
``ratings.csv``; values are separated by a comma and a blank.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipelines.config import GraphSettings, MatchingSettings
from pipelines.errors import ContractError, SourceError
from pipelines.matching._history import SEED, History
from pipelines.matching._match import scored_candidates
from pipelines.matching._protocol import BIG_FIVE, Matcher
from pipelines.matching._report import plain
from pipelines.study import mean_figure

_RATINGS = "ratings.csv"
#: Columns of the file by trait; neuroticism is the opposite of emotional stability.
_COLUMNS = {name: name for name in BIG_FIVE if name != "neuroticism"} | {
    "neuroticism": "emotional_stability"
}
_LOW, _HIGH = 1.0, 7.0


def read_personality(path: Path) -> pl.DataFrame:
    """Read ``personality-data.csv``: ``user_id`` and the traits from 0 to 1, a row per answer.

    Raises SourceError if it can't be read, lacks a column, holds no row, or a trait is no number
    from 1 to 7; naming file, line and column.
    """
    frame = _read(path, ("userid", *_COLUMNS.values()))
    values = {
        trait: _numbers(frame, column, path, _LOW, _HIGH) for trait, column in _COLUMNS.items()
    }
    scaled = {trait: (value - _LOW) / (_HIGH - _LOW) for trait, value in values.items()}
    scaled["neuroticism"] = 1.0 - scaled["neuroticism"]
    return pl.DataFrame({"user_id": frame["userid"], **{t: scaled[t] for t in BIG_FIVE}})


def personality_report(
    path: Path,
    items: pl.DataFrame,
    matcher: Matcher,
    settings: MatchingSettings,
    *,
    graph: GraphSettings | None = None,
) -> dict[str, Any]:
    """Judge a matcher's Big Five against answered questionnaires.

    ``path`` is ``personality-data.csv``; the ratings are read from ``ratings.csv`` beside it, those
    of films that are not in ``items`` are left out. A matcher that proposes no personality is not
    asked, and needs no ratings. ``matching.users`` people are drawn by hash.

    Returns
    -------
    ``people``, ``repeated`` (rows that repeat an id and are left out; counts) and two ``rows``: the
    matcher, and the constant median of all people, both of the same people. A row has
    ``predictor``, ``users`` (count) and ``errors``: the mean absolute error on 0-1 (SimUSER, figure
    11) by trait, and ``mean`` over the traits; None where the predictor proposes nothing.

    Raises
    ------
    SourceError
        If a file is missing or broken.
    ContractError
        If no person of the file has rated a known film.
    """
    answered = read_personality(path)
    people = answered.unique("user_id", keep="first", maintain_order=True).sort("user_id")
    counts = {"people": people.height, "repeated": answered.height - people.height}
    if matcher.name == "statistical":
        # It never proposes a personality: only the constant can be judged.
        median = _row("median", people, _medians(people, people.height))
        nothing = {"predictor": matcher.name, "users": people.height, "errors": None}
        return {**counts, "rows": [nothing, median]}
    history = _history(path, items, people, graph)
    chosen = history.sample(settings.users, SEED)
    scored = scored_candidates(history, matcher, settings, chosen)
    matched = scored.best >= 0
    proposed = (
        scored.candidates[scored.best[matched]]
        .select(
            pl.Series("user_id", [history.users[n] for n in chosen[matched]], dtype=pl.String),
            *(pl.col(name).cast(pl.Float64) for name in BIG_FIVE),
        )
        .drop_nulls()
    )
    truth = proposed.select("user_id").join(people, on="user_id", maintain_order="left")
    if truth.is_empty():
        return {**counts, "rows": [{"predictor": matcher.name, "users": 0, "errors": None}]}
    scaled = proposed.with_columns((pl.col(name) - 1) / 2 for name in BIG_FIVE)
    median = _row("median", truth, _medians(people, truth.height))
    return {**counts, "rows": [_row(matcher.name, truth, scaled), median]}


def _row(predictor: str, truth: pl.DataFrame, proposed: pl.DataFrame) -> dict[str, Any]:
    errors = np.abs(truth.select(BIG_FIVE).to_numpy() - proposed.select(BIG_FIVE).to_numpy())
    figures = {name: plain(mean_figure(errors[:, n])) for n, name in enumerate(BIG_FIVE)}
    figures["mean"] = plain(mean_figure(errors.mean(axis=1)))
    return {"predictor": predictor, "users": len(errors), "errors": figures}


def _medians(traits: pl.DataFrame, people: int) -> pl.DataFrame:
    return pl.concat([traits.select(pl.col(BIG_FIVE).median())] * people)


def _history(
    path: Path, items: pl.DataFrame, people: pl.DataFrame, graph: GraphSettings | None
) -> History:
    """Ratings of the people of the questionnaires, of known films."""
    place = path.with_name(_RATINGS)
    frame = _read(place, ("useri", "movie_id", "rating"))
    rating = _numbers(frame, "rating", place, 0.5, 5.0)
    rows = pl.DataFrame(
        {
            "user_id": frame["useri"],
            "item_id": pl.Series([f"ml:{n}" for n in frame["movie_id"]], dtype=pl.String),
            "rating": rating,
            "scale": ["0.5-5"] * frame.height,
        }
    ).unique(["user_id", "item_id"], keep="first", maintain_order=True)
    rows = rows.join(people.select("user_id"), on="user_id", how="semi")
    rows = rows.join(items.select("item_id"), on="item_id", how="semi")
    if rows.is_empty():
        raise ContractError(
            "no respondent has rated a film of the release",
            where=str(place),
            hint="use a release of MovieLens films",
        )
    nobody = pl.DataFrame(
        schema={"user_id": pl.String, "age_band": pl.String, "occupation": pl.String}
    )
    return History.build("movies", rows, items=items, human_users=nobody, graph=graph)


def _read(path: Path, columns: Sequence[str]) -> pl.DataFrame:
    """The columns as texts, without the blanks around them."""
    try:
        frame = pl.read_csv(path, infer_schema=False, truncate_ragged_lines=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise SourceError(
            f"the file can't be read ({type(error).__name__})",
            where=str(path),
            hint=str(error).splitlines()[0],
        ) from error
    frame = frame.rename({name: name.strip() for name in frame.columns})
    missing = [name for name in columns if name not in frame.columns]
    if missing or frame.is_empty():
        raise SourceError(
            f"no column {', '.join(missing)}" if missing else "the file has no row",
            where=str(path),
            hint=f"expected Personality-2018 with {', '.join(columns)}",
        )
    return frame.select(pl.col(name).str.strip_chars() for name in columns)


def _numbers(frame: pl.DataFrame, column: str, path: Path, low: float, high: float) -> pl.Series:
    values = frame[column].cast(pl.Float64, strict=False)
    wrong = (~values.is_between(low, high)).fill_null(value=True).arg_true()
    if len(wrong):
        line = int(wrong[0]) + 2
        raise SourceError(
            f"{column} is {frame[column][int(wrong[0])]!r}",
            where=f"{path}, line {line}",
            hint=f"expected a number from {low:g} to {high:g}",
        )
    return values
