"""A reading of a file in a process of its own; prints seconds, rows and peak memory as JSON.

    python _stage.py understudy|duckdb <format> <folder> <scratch> <memory limit in MiB>

Only the work is timed, not the start of Python. DuckDB's is its own scan and write: the same
columns of the same types, to Parquet with the same compression, on as many threads.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from _all import FORMATS
from _formats import Format


class _Clock:
    """Seconds on the wall, and of work by all threads of this process."""

    def __init__(self) -> None:
        self._start = time.perf_counter(), time.process_time()

    def stop(self) -> tuple[float, float]:
        return time.perf_counter() - self._start[0], time.process_time() - self._start[1]


def understudy(form: Format, folder: Path, scratch: Path, limit: int) -> tuple[float, float, int]:
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
    contract = CONTRACTS[form.table]
    contract.validate(contract.polars_schema().to_frame())
    runtime = {"home": scratch / "home", "memory_limit_mb": limit}
    settings = Settings.model_validate({"world": {"folder": folder}, "runtime": runtime})
    files = {form.source: tuple(open_source(form.source, settings).files(folder))}
    world, store = World("benchmark", folder, "given", files, frozenset()), Store(scratch / "home")
    clock = _Clock()
    tables = ingest(form.source, world, store, settings)
    return *clock.stop(), tables[form.table].rows


def duckdb(form: Format, folder: Path, scratch: Path, limit: int) -> tuple[float, float, int]:
    """DuckDB's own reader and writer."""
    import duckdb as engine

    scratch.mkdir(parents=True)
    out = scratch / "out.parquet"
    with engine.connect(config={"memory_limit": f"{limit}MiB"}) as connection:
        query = form.scan.format(file=folder / form.file)
        clock = _Clock()
        connection.execute(f"copy ({query}) to '{out}' (format parquet, compression zstd)")
        seconds, cpu = clock.stop()
        (rows,) = connection.execute(f"select count(*) from '{out}'").fetchone() or (0,)
    return seconds, cpu, int(rows)


def main() -> None:
    """Run what the arguments say."""
    tool, name, folder, scratch, limit = sys.argv[1:]
    run = {"understudy": understudy, "duckdb": duckdb}[tool]
    seconds, cpu, rows = run(FORMATS[name], Path(folder), Path(scratch), int(limit))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "cpu": cpu, "rows": rows, "peak_mb": peak}))


if __name__ == "__main__":
    main()
