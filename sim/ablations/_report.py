"""The study of a suite: configurations beside people and SUBER's rows, with paired comparisons."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipelines import study
from pipelines.packaged import packaged_yaml
from pipelines.scales import scale_named
from pipelines.study import Comparison, Row, Study, draw, false_discovery
from sim.ablations._grid import TESTS, UNSEEN
from sim.ablations._run import (
    FLAGGED,
    SCORE,
    Configuration,
    SuiteResult,
    compare,
    finite,
    mean_effect,
)

_OPTIONS = ("scale", "shots", "system", "retrieval", "perturbation", "wording")
#: Scores of a configuration, in the order of columns.
_SCORES = (*TESTS, "aggregate")
#: Sources of rows of raters that need no language model.
_SOURCES = {"statistical": "statistical", "random": "baseline", "mean": "baseline"}
_SERIES = {"movies": "film series", "books": "book series"}


def published(suite: str) -> list[dict[str, Any]]:
    """SUBER's published rows: options, scores by test and the table that they are from."""
    return [dict(row) for row in packaged_yaml("sim.ablations", "suber.yaml")[suite]]


def table(result: SuiteResult) -> pl.DataFrame:
    """The table of a suite, wide: a row per configuration, the published rows last.

    Columns: ``source`` (`measured`, or SUBER's table), ``rater``, ``language_model``, the options;
    per test and for the aggregate ``<test>``, ``<test>_low``, ``<test>_high`` (95 %, users),
    ``<test>_seeds_low``, ``<test>_seeds_high`` (95 %, seeds), ``<test>_expected``,
    ``<test>_cases``, ``<test>_unreadable``; and ``flagged``. Published rows have the scores only.
    """
    rows = []
    for c in result.configurations:
        row: dict[str, Any] = {
            "source": "measured",
            "rater": c.rater,
            "language_model": c.kind not in _SOURCES,
            **c.options.metadata(),
            "flagged": any(s.flagged for s in c.scores.values()),
        }
        for test, s in c.scores.items():
            row[test] = finite(s.value)
            row |= {f"{test}_{name}": finite(getattr(s, of)) for name, of in SCORE.items()}
            row |= {f"{test}_cases": s.cases, f"{test}_unreadable": s.unreadable}
        rows.append(row)
    rows += [
        row | {"source": f"SUBER, {row['source']}", "shots": str(row["shots"])}
        | {"language_model": True}
        for row in published(result.suite.domain)
    ]  # fmt: skip
    return pl.DataFrame(rows, infer_schema_length=None)


def suite_study(result: SuiteResult) -> Study:
    """The study of a suite, a row per configuration, without pictures. Figures are `TestScore`.

    The tables that replace those of any study: ``csv`` is :func:`table`; ``paired`` has ``rater``,
    the options, ``against``, ``test``, ``difference``, ``low``, ``high`` (95 %), ``p`` (paired
    permutation test over users), ``p_adjusted`` (Benjamini-Hochberg over the report) and
    ``users``.
    """
    suite = result.suite
    report = Study(
        f"Ablation suite: {suite.domain}",
        "What is each part of a simulated user's set-up worth?",
        figures={
            "genres": "success with items of liked and of disliked genres",
            "raters": "success with people who rate everything high, or everything low",
            "collections": f"success with {_SERIES[suite.domain]} that were rated high or low",
            "similarity": "1 - total variation between the ratings and people's",
            "aggregate": f"mean of {', '.join(suite.aggregate)}",
        },
        conditions=("rater", *_OPTIONS),
        settings={"seeds": list(result.seeds)},
        legend="Scores are shares of drawn ratings that are a success; in brackets the 95 % "
        "interval over users (bootstrap), then ± that over seeds (Student's t). Raters of the "
        "sources `statistical` and `baseline` use no language model.",
        published=[_published(row) for row in published(suite.domain)],
        notes=[*_notes(result), *map(_fitted, result.baselines.values())],
    )
    for c in result.configurations:
        options = ("" if o == UNSEEN else o for o in c.options.metadata().values())
        scores = {t: s if s.rated else None for t, s in c.scores.items()}
        source = _SOURCES.get(c.kind, "model")
        report.add([c.rater, *options], source, figures=scores, note=_note(result, c))
    report.tables = {"csv": table(result), "paired": _compared(result, report)}
    return report


def option_study(result: SuiteResult) -> Study | None:
    """Effect of each option's value, averaged over all configurations that differ in it alone.

    Only of grids in which an option varies with others (`full`), else None. Probabilities of
    success, so that the luck of the drawn ratings is out. ``n`` counts users.
    """
    report = Study(
        f"Options over the whole grid: {result.suite.domain}",
        "What is an option worth, averaged over every configuration of the other options?",
        figures={t: "probability of a success" for t in TESTS if t != "similarity"},
    )
    for rater, baseline in result.baselines.items():
        cases = {c.options: c.cases for c in result.configurations if c.rater == rater}
        for option in _OPTIONS[:-1]:
            reference = getattr(baseline.options, option)
            for value in dict.fromkeys(getattr(o, option) for o in cases):
                pairs = [
                    (rows, cases[other])
                    for options, rows in cases.items()
                    if value != reference
                    and getattr(options, option) == value
                    and (other := replace(options, **{option: reference})) in cases
                ]
                if len(pairs) < 2:
                    continue
                titles = f"{rater}: {option} {value}", f"{reference} ({len(pairs)} pairs)"
                report.comparisons += [
                    c
                    for c in mean_effect(pairs, titles)
                    # Hand-made personas have no history that retrieval could choose from.
                    if option != "retrieval" or c.figure == "collections"
                ]
    return report if report.comparisons else None


def _compared(result: SuiteResult, report: Study) -> pl.DataFrame:
    """Add paired tests: configurations with their rater's baseline, baselines with the first."""
    first = next(iter(result.baselines))
    places = {id(c): row.title for c, row in zip(result.configurations, report.rows, strict=True)}
    rows: list[dict[str, Any]] = []
    for c in result.configurations:
        base = c is result.baselines[c.rater]
        other = result.baselines[first if base else c.rater]
        if other is c:
            continue
        titles, humans = (places[id(c)], places[id(other)]), (c.human, other.human)
        tests = compare(c.cases, other.cases, humans, result.suite.aggregate, titles)
        report.comparisons += tests
        against = f"{first}'s baseline" if base else "its baseline"
        shared = {"rater": c.rater, **c.options.metadata(), "against": against}
        rows += [shared | _columns(test) for test in tests]
    for row, q in zip(rows, false_discovery([c.p for c in report.comparisons]), strict=True):
        row["p_adjusted"] = finite(q)
    return pl.DataFrame(rows, infer_schema_length=None)


def _columns(c: Comparison) -> dict[str, Any]:
    d = c.difference
    ends = {"test": c.figure, "difference": d.value, "low": d.low, "high": d.high}
    return ends | {"p": finite(c.p), "users": c.n}


def _published(row: dict[str, Any]) -> Row:
    labels = {name: str(row.get(name, "own")) for name in ("rater", *_OPTIONS)}
    scores = {t: row[t] for t in _SCORES if t in row}
    return Row(labels, "paper", scores, note=row["source"])


def _note(result: SuiteResult, c: Configuration) -> str:
    """What is missing from a configuration's scores."""
    lacking, tests = _without_cases(result, c), len(result.suite.aggregate)
    parts = [f"aggregate of {tests - len(lacking)} of {tests} tests"] if lacking else []
    parts += [
        f"{test}: {s.unreadable:,} of {s.cases:,} replies unreadable"
        for test, s in c.scores.items()
        if s.flagged and test != "aggregate"
    ]
    return "; ".join(parts)


def _without_cases(result: SuiteResult, c: Configuration) -> list[str]:
    """Tests that the aggregate should have and does not."""
    return [t for t in result.suite.aggregate if not c.scores[t].rated]


def _notes(result: SuiteResult) -> list[str]:
    counts, first = result.counts, result.configurations[0]
    ways = [f"{rows} by {way}" for way, rows in counts["series"].items() if way != "series"]
    cases = "; ".join(f"{test} {first.scores[test].cases:,}" for test in TESTS)
    notes = [
        f"Cases: {cases} over all seeds; {counts['series'].get('series', 0)} of "
        f"{result.wanted_series} series" + (f" ({', '.join(ways)})." if ways else ".")
    ]
    if result.sample is not None:
        notes.append(
            f"A sample: at most {result.sample:,} cases of each test and seed, spread evenly over "
            "users and over what is a success, the same for every row."
        )
    if empty := _without_cases(result, first):
        notes.append(
            f"The data has no cases for {', '.join(empty)}: the aggregate is of the other tests "
            "only."
        )
    missing = [
        name.removeprefix("genres ").removesuffix(" high")
        for name, rows in counts["item_sets"].items()
        if name.startswith("genres ") and name.endswith(" high") and rows < 80
    ]
    if missing:
        notes.append(f"Fewer liked items than requested: {', '.join(missing)}.")
    different = {name: sum(c.rater == name for c in result.configurations) for name in result.asked}
    collapsed = [
        f"{rater}: {count} asked, {different[rater]} different"
        for rater, count in result.asked.items()
        if count != different[rater]
    ]
    if collapsed:
        notes.append(
            "Configurations that a rater can't tell apart are one row, without the options that "
            f"it can't see: {'; '.join(collapsed)}."
        )
    unreadable = sum(c.scores["aggregate"].unreadable for c in result.configurations)
    return [
        *notes,
        f"Replies without a readable rating, left out of all scores: {unreadable:,}. A row with "
        f"more than {FLAGGED:.0%} of them in a test has a note.",
        "Wording `own`: personas in our own words with liked and disliked genres, leniency and "
        "manner as fields; `open`, `sealed`: words of others from a bank of paraphrases (numbers, "
        "stars, thumbs, letter grades, everyday phrases); `-text`: without fields.",
        "Configurations are compared with their rater's baseline, baselines with the first "
        "rater's, on the same cases under the same draws (users drawn with both sides).",
        "Rows of SUBER (Corecco et al., ECAI 2024): its personas, items and series are others, its "
        "similarity test never had a history, it counted unreadable replies as the lowest rating, "
        "and its intervals are of three subsamples of one run. They are no competitors.",
    ]


def _fitted(c: Configuration) -> str:
    parts = {
        "fitted": {
            k: v
            for k, v in (c.metadata.get("fitted") or {}).items()
            if not isinstance(v, list | dict)
        },
        "set by hand": c.metadata.get("by_hand") or {},
    }
    text = "; ".join(
        f"{name}: {', '.join(f'{k} {v}' for k, v in values.items()) or 'nothing'}"
        for name, values in parts.items()
    )
    return f"**{c.rater}**: {text}."


def suite_pictures(result: SuiteResult) -> dict[str, bytes]:
    """``scores`` by rater and component and, with people to compare with, ``ratings`` of both."""
    panels: dict[str, dict[str, Configuration]] = {"rater": result.baselines}
    for rater, base in result.baselines.items():
        for option in _OPTIONS:
            value = getattr(base.options, option)
            varied = {
                getattr(c.options, option): c
                for c in result.configurations
                if c.rater == rater and replace(c.options, **{option: value}) == base.options
            }
            if len(varied) > 1 and base.kind not in ("random", "mean"):
                panels[f"{rater}: {option}"] = varied
    name = result.suite.domain
    out = {
        "scores": draw(
            {
                title: {t: {v: c.scores[t] for v, c in shown.items()} for t in _SCORES}
                for title, shown in panels.items()
            },
            title=f"Ablation suite {name}: score by component (95 % intervals over users)",
            x="",
            y="score",
        )
    }
    ratings = {
        f"{rater}: similarity {c.scores['similarity'].value:.3f}": shares
        for rater, c in result.baselines.items()
        if (shares := _ratings(c))
    }
    if ratings:
        title = f"Ratings beside people's ({name})"
        out["ratings"] = draw(ratings, title=title, x="rating", y="share of ratings")
    return out


def _ratings(c: Configuration) -> dict[str, dict[str, float]]:
    """Shares of answers in the similarity test, beside people's; empty without any."""
    rated = c.cases.filter((pl.col("test") == "similarity") & (pl.col("status") == "ok"))
    if c.human is None or not rated.height:
        return {}
    count = np.bincount(rated["answer"].to_numpy(), minlength=len(c.human))
    scale = scale_named(c.options.scale)
    texts = scale.texts if len(scale) == len(c.human) else range(1, len(c.human) + 1)
    names = list(map(str, texts))
    sides = {"rater": count / count.sum(), "people": c.human}
    return {who: dict(zip(names, map(float, share), strict=True)) for who, share in sides.items()}


def write_report(result: SuiteResult, folder: Path) -> dict[str, Path]:
    """Write a suite's report and return its files by kind.

    ``<suite>.md``, ``.csv``, ``.html`` and ``.json``, ``<suite>-paired.csv``, and the pictures
    ``<suite>-scores.png`` and ``<suite>-ratings.png``; ``<suite>-options.md`` of a full grid.
    """
    name = result.suite.domain
    studies = {name: suite_study(result)}
    studies[name].pictures |= suite_pictures(result)
    if (options := option_study(result)) is not None:
        studies[f"{name}-options"] = options
    title = f"Ablation suite: {name}"
    files = study.write_report(studies, folder, release=result.release, title=title, stem=name)
    return {kind.removeprefix(f"{name} "): file for kind, file in files.items()}
