"""The report of a suite: one table in Markdown, CSV and HTML, comparisons, plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.packaged import packaged_yaml
from sim.ablations._cases import TESTS
from sim.ablations._compare import Difference, compare, mean_effect
from sim.ablations._figures import FLAGGED, TestScore
from sim.ablations._grid import UNSEEN
from sim.ablations._run import Configuration, SuiteResult, finite
from sim.metrics import false_discovery

if TYPE_CHECKING:
    import polars as pl

_OPTIONS = ("scale", "shots", "system", "retrieval", "perturbation", "wording")
_NAMES = {
    "movies": {"genres": "genres", "collections": "film series"},
    "books": {"genres": "categories", "collections": "book series"},
}
#: Raters that need no language model; reports keep them apart from those that do.
_WITHOUT_MODEL = frozenset({"statistical", "random", "mean"})


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
    import polars as pl

    rows = []
    for c in result.configurations:
        row: dict[str, Any] = {
            "source": "measured",
            "rater": c.rater,
            "language_model": c.kind not in _WITHOUT_MODEL,
            **c.options.metadata(),
            "flagged": any(s.flagged for s in c.scores.values()),
        }
        for test, s in c.scores.items():
            row[test] = finite(s.score)
            for name in ("low", "high", "seeds_low", "seeds_high", "expected"):
                row[f"{test}_{name}"] = finite(getattr(s, name))
            row[f"{test}_cases"], row[f"{test}_unreadable"] = s.cases, s.unreadable
        rows.append(row)
    rows += [
        {
            **{k: v for k, v in row.items() if k != "source"},
            "source": f"SUBER, {row['source']}",
            "shots": str(row["shots"]),
            "language_model": True,
        }
        for row in published(result.suite.domain)
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def comparisons(result: SuiteResult, *, seed: int = 0) -> pl.DataFrame:
    """Paired tests: each configuration with its rater's baseline, baselines with the statistical.

    Columns: ``rater``, the options, ``against``, ``test``, ``difference``, ``low``, ``high`` (95
    %), ``p`` (paired permutation test over users), ``p_adjusted`` (Benjamini-Hochberg over the
    report) and ``users``.
    """
    first = result.raters[0]
    rows: list[dict[str, Any]] = []
    for c in result.configurations:
        base = result.baseline(c.rater)
        other = base if c is not base else result.baseline(first)
        if other is c:
            continue
        against = "its baseline" if c is not base else f"{first}'s baseline"
        found = compare(
            c.cases, other.cases, (c.human, other.human), result.suite.aggregate, seed=seed
        )
        rows += [
            {"rater": c.rater, **c.options.metadata(), "against": against, **_columns(d)}
            for d in found
        ]
    return _corrected(rows)


def _columns(d: Difference) -> dict[str, Any]:
    """A difference as columns of a table of differences."""
    names = ("low", "high", "p", "users")
    return {"test": d.test, "difference": d.value, **{name: getattr(d, name) for name in names}}


def _corrected(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """A table of differences, p corrected over all of its rows (Benjamini-Hochberg)."""
    import polars as pl

    adjusted = false_discovery([row["p"] for row in rows])
    for row, p in zip(rows, adjusted, strict=True):
        row["p"], row["p_adjusted"] = finite(row["p"]), finite(p)
    return pl.DataFrame(rows, infer_schema_length=None)


def option_effects(result: SuiteResult, *, seed: int = 0) -> pl.DataFrame:
    """Effect of each option's value, averaged over all configurations that differ in it alone.

    Only of grids in which an option varies with others (`full`). Probabilities of success, so that
    the luck of the drawn ratings is out.

    Columns: ``rater, option, value, reference`` (the baseline's value), ``pairs`` (of
    configurations), ``test``, ``difference``, ``low``, ``high`` (95 %, users), ``p`` (paired
    permutation test over users), ``p_adjusted`` (Benjamini-Hochberg over the table) and ``users``;
    no row for the grid `small`.
    """
    rows: list[dict[str, Any]] = []
    for rater in result.raters:
        base = result.baseline(rater).options
        cases = {c.options: c.cases for c in result.configurations if c.rater == rater}
        for option in _OPTIONS[:-1]:
            reference = getattr(base, option)
            for value in dict.fromkeys(getattr(o, option) for o in cases):
                pairs = [
                    (found, cases[other])
                    for options, found in cases.items()
                    if value != reference
                    and getattr(options, option) == value
                    and (other := replace(options, **{option: reference})) in cases
                ]
                if len(pairs) < 2:
                    continue
                rows += [
                    {
                        "rater": rater,
                        "option": option,
                        "value": value,
                        "reference": reference,
                        "pairs": len(pairs),
                        **_columns(d),
                    }
                    for d in mean_effect(pairs, seed=seed)
                    # Hand-made personas have no history that retrieval could choose from.
                    if option != "retrieval" or d.test == "collections"
                ]
    return _corrected(rows)


def markdown(result: SuiteResult, *, differences: pl.DataFrame | None = None) -> str:
    """The report as Markdown."""
    suite = result.suite.domain
    names = _NAMES[suite]
    head = ["rater", *_OPTIONS, *(names.get(t, t) for t in TESTS), "aggregate"]
    lines = [f"# Ablation suite: {suite}", ""]
    lines += [*_introduction(result), "", _row(head), _row(["---"] * len(head))]
    for c in result.configurations:
        shown = [_cell(c.scores[t]) for t in (*TESTS, "aggregate")]
        shown[-1] += _share(result, c)
        name = c.rater if c.kind not in _WITHOUT_MODEL else f"{c.rater} (no language model)"
        lines.append(_row([name, *_options(c), *shown]))
    lines += ["", "## Own words and words of others", "", *_wordings(result)]
    lines += ["", "## Published rows, for context", "", *_context(), ""]
    lines += [_row(["source", *head]), _row(["---"] * (len(head) + 1))]
    for row in published(suite):
        shown = [f"{row[t]:.2f}" if t in row else "" for t in (*TESTS, "aggregate")]
        options = [str(row.get(o, "own")) for o in _OPTIONS]
        lines.append(_row([row["source"], row["rater"], *options, *shown]))
    if differences is not None and differences.height:
        lines += ["", "## Paired comparisons", "", *_paired(differences)]
    effects = option_effects(result)
    if effects.height:
        lines += ["", "## Options over the whole grid", "", *_effects(effects)]
    lines += ["", "## Raters", "", *_facts(result)]
    return "\n".join(lines) + "\n"


def _introduction(result: SuiteResult) -> list[str]:
    counts, suite = result.counts, result.suite
    found = counts["series"].get("series", 0)
    ways = [f"{rows} by {way}" for way, rows in counts["series"].items() if way != "series"]
    missing = [
        name.removeprefix("genres ").removesuffix(" high")
        for name, rows in counts["item_sets"].items()
        if name.startswith("genres ") and name.endswith(" high") and rows < 80
    ]
    lines = [
        f"Release `{result.release}`, seeds {', '.join(map(str, result.seeds))}. Scores are shares "
        "of drawn ratings that are a success; in brackets the 95 % interval over users "
        "(bootstrap), then ± that over seeds (Student's t). The aggregate is the mean of "
        f"{', '.join(suite.aggregate)}.",
        "",
        "Cases: "
        + "; ".join(f"{test} {result.configurations[0].scores[test].cases:,}" for test in TESTS)
        + f" over all seeds; {found} of {result.wanted_series} series"
        + (f" ({', '.join(ways)})." if ways else "."),
    ]
    if result.sample is not None:
        lines += [
            "",
            f"A sample: at most {result.sample:,} cases of each test and seed, spread evenly over "
            "users and over what is a success, the same for every row.",
        ]
    empty = _without_cases(result, result.configurations[0])
    if empty:
        lines += [
            "",
            f"The data has no cases for {', '.join(empty)}: the aggregate is of the other tests "
            "only.",
        ]
    if missing:
        lines += ["", f"Fewer liked items than requested: {', '.join(missing)}."]
    collapsed = [
        f"{rater}: {asked} asked, {sum(c.rater == rater for c in result.configurations)} different"
        for rater, asked in result.asked.items()
        if asked != sum(c.rater == rater for c in result.configurations)
    ]
    if collapsed:
        lines += [
            "",
            f"Configurations that a rater can't tell apart are one row (`{UNSEEN}`): "
            f"{'; '.join(collapsed)}.",
        ]
    flagged = [c for c in result.configurations if any(s.flagged for s in c.scores.values())]
    unreadable = sum(c.scores["aggregate"].unreadable for c in result.configurations)
    lines += [
        "",
        f"Replies without a readable rating, left out of all scores: {unreadable:,}. "
        + (
            f"{len(flagged)} rows marked (!) have more than {FLAGGED:.0%} of them in a test."
            if flagged
            else f"No row has more than {FLAGGED:.0%} of them in a test."
        ),
    ]
    return lines


def _without_cases(result: SuiteResult, c: Configuration) -> list[str]:
    """Tests that the aggregate should have and does not."""
    return [t for t in result.suite.aggregate if not np.isfinite(c.scores[t].score)]


def _share(result: SuiteResult, c: Configuration) -> str:
    wanted, missing = len(result.suite.aggregate), len(_without_cases(result, c))
    return f" ({wanted - missing} of {wanted} tests)" if missing else ""


#: Wordings as rows of a table: what each is called.
_WORDED = {
    "own": "own words, fields",
    "own-text": "own words, text only",
    "open": "words of others (open half), fields",
    "open-text": "words of others (open half), text only",
    "sealed": "words of others (sealed half), fields",
    "sealed-text": "words of others (sealed half), text only",
}


def _wordings(result: SuiteResult) -> list[str]:
    """Scores of each rater's baseline by wording of the hand-made personas."""
    shown = ("genres", "raters", "aggregate")
    lines = [
        "Hand-made personas described by our templates or by a bank of paraphrases (numbers, "
        "stars, thumbs, letter grades, everyday phrases), with liked and disliked genres, "
        "leniency and manner as fields or without them. A rater that sees no difference has one "
        "row.",
        "",
        _row(["rater", "personas", *shown]),
        _row(["---"] * (2 + len(shown))),
    ]
    for rater in result.raters:
        base = result.baseline(rater)
        for c in result.configurations:
            unworded = replace(c.options, wording=base.options.wording)
            if c.rater == rater and unworded == base.options:
                name = _WORDED.get(c.options.wording, "any")
                lines.append(_row([rater, name, *(_cell(c.scores[test]) for test in shown)]))
    return lines


def _context() -> list[str]:
    return [
        "From the tables of SUBER (Corecco et al., ECAI 2024). Its personas, items and series are "
        "others, its similarity test never had a history, it counted unreadable replies as the "
        "lowest rating, and its intervals are of three subsamples of one run: the rows are no "
        "competitors of the ones above."
    ]


def _paired(differences: pl.DataFrame) -> list[str]:
    import polars as pl

    lines = [
        "Difference of the scores on the same cases under the same draws, with 95 % intervals "
        "(users drawn with both sides); p of a paired permutation test over users, after "
        "Benjamini and Hochberg's correction.",
        "",
        _row(["rater", "changed to", "against", *(t for t in (*TESTS, "aggregate"))]),
        _row(["---"] * (3 + len(TESTS) + 1)),
    ]
    key = ["rater", *_OPTIONS, "against"]
    for group, rows in differences.group_by(key, maintain_order=True):
        cells = {}
        for d in rows.iter_rows(named=True):
            text = f"{d['difference']:+.3f} [{d['low']:+.3f}, {d['high']:+.3f}]"
            if d["p_adjusted"] is not None:
                text += f" p={d['p_adjusted']:.3g}"
            cells[d["test"]] = text
        options = [str(v) for v in group[1:-1] if v != UNSEEN]
        shown = [cells.get(t, "") for t in (*TESTS, "aggregate")]
        lines.append(_row([str(group[0]), ", ".join(options), str(group[-1]), *shown]))
    assert isinstance(differences, pl.DataFrame)
    return lines


def _effects(effects: pl.DataFrame) -> list[str]:
    tests = [t for t in TESTS if t != "similarity"]
    lines = [
        "Probability of a success with an option's value less that with the baseline's, averaged "
        "over every configuration of the other options, with 95 % intervals over users; p as "
        "above, corrected over this table.",
        "",
        _row(["rater", "option", "value", "instead of", "pairs", *tests]),
        _row(["---"] * (5 + len(tests))),
    ]
    key = ["rater", "option", "value", "reference", "pairs"]
    for group, rows in effects.group_by(key, maintain_order=True):
        cells = {
            d["test"]: f"{d['difference']:+.3f} [{d['low']:+.3f}, {d['high']:+.3f}] "
            f"p={d['p_adjusted']:.3g}"
            for d in rows.iter_rows(named=True)
        }
        lines.append(_row([*group, *(cells.get(t, "") for t in tests)]))
    return lines


def _facts(result: SuiteResult) -> list[str]:
    lines = []
    for name in result.raters:
        metadata = result.baseline(name).metadata
        fitted = metadata.get("fitted") or {}
        by_hand = metadata.get("by_hand") or {}
        shown = {k: v for k, v in fitted.items() if not isinstance(v, list | dict)}
        text = ", ".join(f"{k} {v}" for k, v in shown.items()) or "nothing"
        hand = ", ".join(f"{k} {v}" for k, v in by_hand.items()) or "nothing"
        lines.append(f"- **{name}**: fitted: {text}; set by hand: {hand}.")
    return lines


def _options(c: Configuration) -> list[str]:
    return [str(getattr(c.options, name)) for name in _OPTIONS]


def _cell(s: TestScore) -> str:
    if not np.isfinite(s.score):
        return "no cases" if not s.cases else "nothing readable (!)"
    text = f"{s.score:.3f} [{s.low:.3f}, {s.high:.3f}]"
    if np.isfinite(s.seeds_high):
        text += f" ±{(s.seeds_high - s.seeds_low) / 2:.3f}"
    return text + (" (!)" if s.flagged else "")


def _row(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |"


def write_report(result: SuiteResult, folder: Path) -> dict[str, Path]:
    """Write a suite's report and return its files by kind.

    ``<suite>.md``, ``.csv`` and ``.html`` (with the plots inside), ``<suite>-paired.csv``, and the
    plots ``<suite>-scores.png`` and ``<suite>-ratings.png``.
    """
    from pipelines.errors import StoreError
    from pipelines.markdown import html_page
    from sim.ablations._plots import plots_of

    name = result.suite.domain
    differences = comparisons(result)
    text = markdown(result, differences=differences)
    plots = plots_of(result)
    out = {
        "markdown": folder / f"{name}.md",
        "csv": folder / f"{name}.csv",
        "html": folder / f"{name}.html",
        "paired": folder / f"{name}-paired.csv",
        **{kind: folder / f"{name}-{kind}.png" for kind in plots},
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        out["markdown"].write_text(text, encoding="utf-8")
        table(result).write_csv(out["csv"])
        differences.write_csv(out["paired"])
        out["html"].write_text(html_page(f"Ablation suite: {name}", text, plots), encoding="utf-8")
        for kind, png in plots.items():
            out[kind].write_bytes(png)
    except OSError as error:
        raise StoreError(
            f"the report can't be written ({error.strerror})", where=str(folder)
        ) from error
    return out
