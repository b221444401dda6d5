"""Rows per second and peak memory of every loader, beside DuckDB's own read and write.

    python benchmarks/ingest/run.py --rows 5000000
    python benchmarks/ingest/run.py --formats amazon-2023 --rows 1000000 --repeat 3

For each format a file is grown to the asked number of rows; then the loader and a plain DuckDB
`copy (select … from read_json(…)) to … (format parquet, compression zstd)` of the same file take
turns, each in a process of its own. Medians are shown, and how many times as long the loader takes,
on the wall and in CPU time (which other work on the machine disturbs less).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import harness
from _amazon import AMAZON, Format
from _films_games import FILMS_AND_GAMES

#: By name, in the order in which they are measured.
FORMATS: Mapping[str, Format] = {**FILMS_AND_GAMES, **AMAZON}
COLUMNS = {
    "format": "{format}", "rows": "{rows:,}", "MB": "{mb:,.0f}",
    "loader, rows/s": "{loader:,.0f}", "DuckDB, rows/s": "{duckdb:,.0f}",
    "loader takes": "{wall:.2f}×", "of CPU": "{ratio:.2f}×",
    "loader, peak MiB": "{peak_mib:,.0f}", "DuckDB, peak MiB": "{duckdb_peak_mib:,.0f}",
}  # fmt: skip


def main() -> None:
    """Measure and print a Markdown table."""
    parser = harness.parser(__doc__)
    parser.add_argument("--formats", nargs="+", choices=list(FORMATS), default=list(FORMATS))
    parser.add_argument("--rows", type=int, default=5_000_000, help="reviews in each file")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--scratch", help="where files go (~8 GB at 5 million rows)")
    parser.add_argument("--memory-limit-mb", type=int, default=1024, help="DuckDB's, for both")
    args = parser.parse_args()
    harness.report(args, [beside_duckdb(name, args) for name in args.formats], COLUMNS)


def beside_duckdb(name: str, args: argparse.Namespace) -> harness.Figures:
    """Figures of the loader and of DuckDB on the same file, in turns."""
    scratch = Path(tempfile.mkdtemp(prefix="understudy-ingest-", dir=args.scratch))
    try:
        data = scratch / "data"
        rows = FORMATS[name].write(data, args.rows)
        runs: dict[str, list[harness.Figures]] = {"understudy": [], "duckdb": []}
        for n in range(args.repeat):
            for tool in (understudy, duckdb):
                work = scratch / f"{tool.__name__}-{n}"
                found = harness.measure(tool, name, data, work, args.memory_limit_mb)
                shutil.rmtree(work, ignore_errors=True)
                if found["rows"] != rows:
                    raise SystemExit(f"{tool.__name__} read {found['rows']} of {rows} rows")
                runs[tool.__name__].append(found)
        loader, plain = (harness.medians(done) for done in runs.values())
        harness.add_ratios([loader], "cpu_s", plain)
        return loader | {
            "format": name,
            "mb": (data / FORMATS[name].file).stat().st_size / 1e6,
            "loader": rows / loader["wall_s"],
            "duckdb": rows / plain["wall_s"],
            "wall": loader["wall_s"] / plain["wall_s"],
            "duckdb_peak_mib": plain["peak_mib"],
        }
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def understudy(name: str, folder: str, scratch: str, limit: int) -> harness.Figures:
    """The loader, from the file to committed snapshots: with checks, hashes and synced files."""
    import duckdb  # noqa: F401
    import filelock  # noqa: F401
    import psutil  # noqa: F401
    import pyarrow.dataset  # noqa: F401

    from pipelines.config import Settings
    from pipelines.contracts import CONTRACTS
    from pipelines.sources import World, ingest, open_source
    from pipelines.store import Store

    # The loader imports these as it needs them: a quarter of a second, as for the first use of a
    # contract. DuckDB's own reading below is timed without its import, too.
    form, home = FORMATS[name], Path(scratch) / "home"
    contract = CONTRACTS[form.table]
    contract.validate(contract.polars_schema().to_frame())
    runtime = {"home": home, "memory_limit_mb": limit}
    settings = Settings.model_validate({"world": {"folder": folder}, "runtime": runtime})
    files = {form.source: tuple(open_source(form.source, settings).files(Path(folder)))}
    world, store = World("benchmark", Path(folder), "given", files, frozenset()), Store(home)
    with harness.Clock() as clock:
        tables = ingest(form.source, world, store, settings)
    return {**clock.figures(), "rows": tables[form.table].rows}


def duckdb(name: str, folder: str, scratch: str, limit: int) -> harness.Figures:
    """DuckDB's own scan and write: the same columns and compression, on as many threads."""
    import duckdb as engine

    form, out = FORMATS[name], Path(scratch) / "out.parquet"
    out.parent.mkdir(parents=True)
    with engine.connect(config={"memory_limit": f"{limit}MiB"}) as connection:
        query = form.scan.format(file=Path(folder) / form.file)
        with harness.Clock() as clock:
            connection.execute(f"copy ({query}) to '{out}' (format parquet, compression zstd)")
        (rows,) = connection.execute(f"select count(*) from '{out}'").fetchone() or (0,)
    return {**clock.figures(), "rows": int(rows)}


if __name__ == "__main__":
    harness.start(main)
