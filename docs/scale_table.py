"""Prints the table of docs/scale.md: what 100 million personas take, by figures of one machine.

Every measured figure is read from the README that reports it. Linear growth is assumed where
nothing else is said.
"""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: The run that is asked for (counts).
PERSONAS, ITEMS, RATINGS = 100e6, 1e6, 15e9
#: Of the table of similar items: raters of an item that count (`RATERS_PER_ITEM`),
#: and items of a part (`pipelines.stages.s60_graph`).
RATERS, ITEMS_OF_A_PART = 5_000, 4_096
#: Rated pairs: of each persona, of the statistical rater's run; of a run of a model.
EACH, SAMPLE = 200, 100e6
#: Pairs of a part, and cores and GPUs that a stage is spread over (counts).
PART, CORES, GPUS = 838e3, 64, 64
#: No GPU was at hand: weights of the model, tokens computed per pair once its prompt's beginning is
#: shared, peak of one GPU (FLOP/s, 16 bits) and the part of it that is reached.
WEIGHTS, TOKENS, PEAK, REACHED = 8e9, 50, 790e12, 0.5
#: Cores of the machine of the measurements, where they used all, and components of a text vector.
MACHINE, VECTOR = 2, 384


@cache
def _text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def cell(page: str, row: str, column: str) -> float:
    """Number in a README's table: of the row that begins with a word, in the column of that name.

    Raises
    ------
    LookupError
        If there is no such table, or more than one such row: the README was rewritten.
    """
    found = []
    names: list[str] = []
    for line in _text(page).splitlines():
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            names = []
        elif not names:
            names = cells
        elif f"{cells[0]} ".startswith(f"{row} ") and column in names:
            found.append(cells[names.index(column)])
    if len(found) != 1:
        raise LookupError(f"{page}: {len(found)} rows '{row}' with a column '{column}'")
    return _number(found[0])


def quoted(page: str, pattern: str) -> float:
    """Number in a README's text: the only match's group."""
    found = re.findall(pattern, _text(page))
    if len(found) != 1:
        raise LookupError(f"{page}: {len(found)} times {pattern}")
    return _number(found[0])


def _power(count: float) -> str:
    """A count as a power of ten.

    >>> _power(2e10), _power(1e8)
    ('2 × 10^10', '10^8')
    """
    digits, _, exponent = f"{count:.0e}".partition("e+")
    return f"{f'{digits} × ' if digits != '1' else ''}10^{int(exponent)}"


def _number(text: str) -> float:
    match = re.search(r"\d[\d,]*(\.\d+)?", text)
    if match is None:
        raise LookupError(f"no number in '{text}'")
    return float(match[0].replace(",", ""))


def table() -> str:
    """The table as Markdown."""
    rows = [_tables(), _statistical(), _model(), _texts(), _vectors(), _similar(), _parts()]
    head = ["| | measured | at scale |", "|---|---|---|"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)])


def _tables() -> tuple[str, str, str]:
    page = "benchmarks/pipeline/README.md"
    ratings = quoted(page, r"size of ml-25m \(.* users, ([\d,]+) ratings\)")
    seconds = quoted(page, r"without it the sum is (\d+) s")
    peak = quoted(page, r"\| dbt build \(models and tests\) \| – \| [\d.]+ \| ([\d,]+) \|")
    rows = quoted(page, r"snapshot of ([\d,]+) interactions takes [\d.]+ KiB")
    row = quoted(page, r"snapshot of [\d,]+ interactions takes ([\d.]+) KiB") * 1024 / rows
    core_hours = seconds * MACHINE * RATINGS / ratings / 3600
    return (
        "ingest, dbt, marts",
        f"{ratings / 1e6:.0f} M ratings: {seconds:.0f} s on {MACHINE} cores, "
        f"{peak / 1024:.1f} GiB; {row:.1f} B a rating",
        f"{core_hours:.0f} core-hours; on {CORES} cores {core_hours / CORES:.1f} h if linear, plan "
        f"for three times that; {row * RATINGS / 1e9:.0f} GB",
    )


def _statistical() -> tuple[str, str, str]:
    rate, row = _pairs_per_second(), quoted("benchmarks/scoring/README.md", r"(\d+) bytes per pair")
    pairs, every = PERSONAS * EACH, PERSONAS * ITEMS
    return (
        "statistical scores",
        f"{rate:,.0f} pairs per CPU second; {row:.0f} B a pair",
        f"{EACH} items each, {_power(pairs)} pairs: {pairs / rate / 3600:.1f} core-hours, "
        f"{pairs * row / 1e12:.1f} TB; all {_power(every)}: "
        f"{every / rate / 3600 / 24 / 365:.1f} core-years and {every * row / 1e15:.1f} PB",
    )


def _pairs_per_second() -> float:
    return cell("benchmarks/raters/README.md", "2,922,600", "pairs per CPU second")


def _model() -> tuple[str, str, str]:
    rate = PEAK * REACHED / (2 * WEIGHTS) / TOKENS
    pairs = PERSONAS * EACH
    hours = pairs / rate / 3600
    return (
        "model scores",
        f"none on a GPU. Estimate: {WEIGHTS / 1e9:.0f} B weights, {TOKENS} tokens a pair, "
        f"{REACHED:.0%} of {PEAK / 1e12:.0f} TFLOP/s: {rate:.0f} pairs/s",
        f"{_power(SAMPLE)} pairs: {SAMPLE / rate / 3600:.0f} GPU-hours; {_power(pairs)}: "
        f"{hours:,.0f}, on {GPUS} GPUs {hours / GPUS / 24:.0f} days: hence a sample, surrogates",
    )


def _texts() -> tuple[str, str, str]:
    page, column = "benchmarks/personas/README.md", "per processor minute"
    rate = min(cell(page, domain, column) for domain in ("movies", "books", "games"))
    return (
        "persona texts",
        f"{rate:,.0f} per CPU minute",
        f"{PERSONAS / rate / 60:.1f} core-hours",
    )


def _vectors() -> tuple[str, str, str]:
    row = r"\| embeddings \| ([\d,]+) \| ([\d.]+) \|"
    found = re.findall(row, _text("benchmarks/pipeline/README.md"))
    texts, seconds = max((_number(rows), _number(spent)) for rows, spent in found)
    rate = texts / seconds
    return (
        "persona vectors",
        f"{rate:.0f} texts/s on {MACHINE} cores",
        f"{PERSONAS / rate / 3600 / 24:.0f} days of such a machine: a stage for GPUs; "
        f"{PERSONAS * VECTOR * 2 / 1e9:.0f} GB in 16 bits",
    )


def _similar() -> tuple[str, str, str]:
    page, seconds, peak = "benchmarks/earlier/graph.md", "similar items s", "peak memory (MiB)"
    few, many = (f"generated-{size}" for size in (1, 16))
    ratings = cell(page, many, "ratings")
    growth = ratings / cell(page, few, "ratings")
    power = math.log(cell(page, many, seconds) / cell(page, few, seconds), growth)
    less, more = (f"generated-{size} / 5,000" for size in (16, 64))
    mib = cell(page, more, peak) - cell(page, less, peak)
    each = mib * 2**20 / (cell(page, more, "counted") - cell(page, less, "counted"))
    counted = min(RATINGS, ITEMS * RATERS)
    parts = math.ceil(ITEMS / ITEMS_OF_A_PART)
    hours = cell(page, many, seconds) * (counted / ratings) ** power / 3600
    return (
        "similar items",
        f"{ratings / 1e6:.1f} M ratings: {cell(page, many, seconds):.1f} s; seconds grow as "
        f"ratings^{power:.2f}; {each:.0f} B of memory per rating counted",
        f"of each item at most {RATERS:,} raters count (by hash): at most {counted / 1e9:.0f} "
        f"billion ratings; {hours:.0f} h of such a machine in {parts} parts, "
        f"{counted * each / 1e9:,.0f} GB on each node",
    )


def _parts() -> tuple[str, str, str]:
    extra = cell("benchmarks/earlier/scale.md", "0", "ray, ms per piece") / 1000
    part = PART / _pairs_per_second()
    return (
        "parts",
        f"{extra * 1000:.0f} ms each beside the work",
        f"{PERSONAS * EACH / PART:,.0f} of {PART:,.0f} pairs: {extra / part:.1%} of the "
        f"{part:.1f} s of the statistical rater, nothing beside a model's",
    )


if __name__ == "__main__":
    print(table())
