"""Returned sheets: mean grade per rater with intervals, and how far the judges agree."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from pipelines.errors import ConfigError, SourceError
from pipelines.judge._export import COLUMNS, GRADES

_RESAMPLES = 2_000


@dataclass(frozen=True)
class Judgement:
    """Judges' grades by rater, with their agreement."""

    #: Rows ``rater, mean, low, high, deviation, grades``, best first; the interval is of 95 %.
    raters: list[dict[str, Any]]
    #: Krippendorff's alpha for interval data: 1 is full agreement, 0 is chance; None if no reply
    #: was graded by two judges.
    alpha: float | None
    #: Sheets returned, cases graded, and entries left without a grade (counts).
    judges: int
    cases: int
    ungraded: int


def score_sheets(key: Path, sheets: Sequence[Path], *, seed: int = 0) -> Judgement:
    """Aggregate returned sheets.

    ``key`` is the ``key.json`` of the export, ``sheets`` are the CSV files that judges sent back
    (columns ``sheet, entry, grade``; a grade may be empty). The interval of a mean comes from a
    bootstrap that draws judges and cases with replacement, both at once (Owen 2007, "The pigeonhole
    bootstrap"): grades of one judge are alike, and so are grades of one case.

    Raises
    ------
    ConfigError
        If there is no sheet, or no grade in any.
    SourceError
        If a file can't be read, an entry is not of this questionnaire or comes twice, or a
        grade is none of 1 to 5: file, line and value are named.
    """
    entries = _key(key)
    if not sheets:
        raise ConfigError("there is no returned sheet", where=str(key.parent))
    grades: dict[tuple[str, str], dict[int, int]] = {}
    seen: set[str] = set()
    ungraded = 0
    for path in sheets:
        for line, name, grade in _rows(path):
            if name not in entries:
                raise SourceError(
                    "no such entry in this questionnaire", where=f"{path}:{line}: {name}"
                )
            if name in seen:
                raise SourceError("an entry is graded twice", where=f"{path}:{line}: {name}")
            seen.add(name)
            if grade is None:
                ungraded += 1
                continue
            entry = entries[name]
            place = (entry["case"], entry["rater"])
            grades.setdefault(place, {})[entry["sheet"]] = grade
    if not grades:
        raise ConfigError("no sheet has a grade", where=", ".join(map(str, sheets)))
    cases = sorted({case for case, _ in grades})
    judges = sorted({judge for given in grades.values() for judge in given})
    raters = sorted({rater for _, rater in grades})
    cube = np.full((len(raters), len(judges), len(cases)), np.nan)
    for (case, rater), given in grades.items():
        for judge, grade in given.items():
            cube[raters.index(rater), judges.index(judge), cases.index(case)] = grade
    rows = _means(raters, cube, seed)
    return Judgement(rows, _alpha(cube), len(judges), len(cases), ungraded)


def _means(raters: list[str], cube: npt.NDArray[np.float64], seed: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    _, judges, cases = cube.shape
    there, filled = ~np.isnan(cube), np.nan_to_num(cube)
    means = np.full((_RESAMPLES, len(raters)), np.nan)
    for draw in range(_RESAMPLES):
        weight = np.outer(
            rng.multinomial(judges, np.full(judges, 1 / judges)),
            rng.multinomial(cases, np.full(cases, 1 / cases)),
        )
        total = (there * weight).sum(axis=(1, 2))
        with np.errstate(invalid="ignore", divide="ignore"):
            means[draw] = (filled * weight).sum(axis=(1, 2)) / total
    rows = []
    for n, rater in enumerate(raters):
        given = cube[n][there[n]]
        low, high = np.nanquantile(means[:, n], [0.025, 0.975])
        rows.append(
            {
                "rater": rater,
                "mean": float(given.mean()),
                "low": float(low),
                "high": float(high),
                "deviation": float(given.std(ddof=1)) if len(given) > 1 else 0.0,
                "grades": len(given),
            }
        )
    return sorted(rows, key=lambda row: (-row["mean"], row["rater"]))


def _alpha(cube: npt.NDArray[np.float64]) -> float | None:
    """Agreement over all replies that two judges graded at least."""
    import krippendorff

    judges = cube.shape[1]
    table = cube.transpose(1, 0, 2).reshape(judges, -1)
    paired = table[:, (~np.isnan(table)).sum(axis=0) >= 2]
    if paired.shape[1] == 0:
        return None
    if np.nanmin(paired) == np.nanmax(paired):
        return 1.0
    return float(krippendorff.alpha(paired, level_of_measurement="interval"))


def _key(path: Path) -> dict[str, dict[str, Any]]:
    try:
        content = orjson.loads(path.read_bytes())
        entries: dict[str, dict[str, Any]] = content["entries"]
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        raise SourceError(
            "not the key of a questionnaire",
            where=str(path),
            hint="give the key.json that `understudy judge export` wrote",
        ) from None
    return entries


def _rows(path: Path) -> list[tuple[int, str, int | None]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines)
            if not reader.fieldnames or set(COLUMNS) - set(reader.fieldnames):
                raise SourceError(
                    "the sheet's columns are not those of the export",
                    where=str(path),
                    hint=f"expected {', '.join(COLUMNS)}",
                )
            return [
                (reader.line_num, row["entry"], _grade(path, reader.line_num, row))
                for row in reader
            ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SourceError(
            f"the sheet can't be read ({type(error).__name__})", where=str(path)
        ) from None


def _grade(path: Path, line: int, row: dict[str, Any]) -> int | None:
    text = (row["grade"] or "").strip()
    if not text:
        return None
    if text not in {str(g) for g in GRADES}:
        raise SourceError(
            "a grade is not 1 to 5", where=f"{path}:{line}: {text[:40]}", hint="or empty"
        )
    return int(text)
