"""The warehouse's folder below a home: paths, records, lock, links to raw tables, DuckDB, dbt."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from filelock import FileLock, Timeout

from pipelines.errors import IntegrityError, LockedError, StoreError
from pipelines.paths import home_path
from pipelines.store.files import storage_errors, whole_file

if TYPE_CHECKING:
    import duckdb

    from pipelines.config import Settings
    from pipelines.store import Store


class WarehouseLayout:
    """The paths below ``<home>/warehouse``; everything there can be built again.

    >>> WarehouseLayout(Path("h")).database.as_posix()
    'h/warehouse/warehouse.duckdb'
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        #: The warehouse's folder.
        self.folder = home / "warehouse"
        #: The DuckDB file; one process at a time writes it.
        self.database = self.folder / "warehouse.duckdb"
        #: Folder with one link per raw table, to the folder of one of its versions.
        self.sources = self.folder / "sources"
        #: Record of what the links point at.
        self.linked = self.folder / "sources.json"
        #: Record of what dbt built and tested, by domain.
        self.builds = self.folder / "builds.json"
        #: Lock for linking, building and recording.
        self.lock = self.folder / "lock"
        #: Spill of DuckDB.
        self.spill = self.folder / "tmp"
        #: Artefacts and log of dbt.
        self.target = self.folder / "dbt" / "target"
        self.logs = self.folder / "dbt" / "logs"


def write_record(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON record whole or not at all.

    Raises :class:`StoreError`: the disk is full or can't be written.
    """
    data = orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
    with storage_errors(path), whole_file(path) as stream:
        stream.write(data + b"\n")


def read_record(path: Path) -> dict[str, Any] | None:
    """A JSON record, or None if there is none.

    Raises :class:`IntegrityError`: it is not a JSON object.
    """
    try:
        content = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, orjson.JSONDecodeError) as error:
        raise IntegrityError(
            f"a record of the warehouse can't be read ({error})",
            where=str(path),
            hint="remove the file and run dbt again; nothing published depends on it",
        ) from None
    if not isinstance(content, dict):
        raise IntegrityError("a record of the warehouse is damaged", where=str(path))
    return content


@contextmanager
def warehouse_lock(
    home: Path | str, *, timeout: float = 60.0, on_wait: Callable[[str], None] = lambda _: None
) -> Iterator[None]:
    """Hold the warehouse from linking its sources to recording the run.

    The operating system releases the lock when its holder dies, however it dies. Another holder is
    waited for up to ``timeout`` seconds, and described to ``on_wait`` first.

    Raises
    ------
    LockedError
        Another process held it for the whole of ``timeout``; names the process.
    StoreError
        The lock file can't be made.
    """
    layout = WarehouseLayout(home_path(home))
    holder = layout.lock.with_suffix(".json")
    try:
        layout.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(layout.lock, timeout=timeout, thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if timeout:
                on_wait(_holder_of(holder))
            lock.acquire()
    except Timeout:
        raise LockedError(
            f"another process is using the warehouse ({_holder_of(holder)})",
            where=str(layout.folder),
            hint="wait for it or stop it; a dead process leaves no lock behind",
        ) from None
    except OSError as error:
        raise StoreError(
            f"the warehouse can't be locked ({error.strerror or error})", where=str(layout.folder)
        ) from error
    try:
        write_record(
            holder, {"pid": os.getpid(), "since": datetime.now(UTC).isoformat(timespec="seconds")}
        )
        yield
    finally:
        lock.release()


def _holder_of(holder: Path) -> str:
    try:
        record = read_record(holder)
    except IntegrityError:
        record = None
    if not record:
        return "it has just started"
    return f"process {record.get('pid')} since {record.get('since')}"


#: The raw datasets that dbt reads; each is the dbt source ``raw.<table>``.
SOURCES: tuple[str, ...] = (
    "raw.movielens_movies",
    "raw.movielens_ratings",
    "raw.movielens_links",
    "raw.movielens_tags",
    "raw.movielens_users",
    "raw.tmdb_movies",
    "raw.tmdb_missing",
    "raw.steam_games",
    "raw.steam_reviews",
    "raw.steam_playtime",
    "raw.amazon_reviews_2018",
    "raw.amazon_meta_2018",
    "raw.amazon_reviews_2023",
    "raw.amazon_meta_2023",
    "raw.own_items",
    "raw.own_ratings",
    "raw.own_users",
)


def link_sources(
    store: Store, versions: Mapping[str, str] | None = None, *, required: Iterable[str] = ()
) -> dict[str, str]:
    """Point ``<home>/warehouse/sources/<table>`` at the snapshot of each raw dataset.

    Sources are optional: a dataset that the store does not have is not linked, and the models of
    its domain can't be built (a domain is built by its dbt tag).

    Every link is replaced by one system call, so that a reader sees the old version or the new
    one. What is linked is recorded in ``<home>/warehouse/sources.json``; linking the same
    versions again changes nothing. Call it under :func:`warehouse_lock`.

    Datasets that ``versions`` does not name are linked at their current versions; those
    ``required``, such as the ones of a domain that is to be built, must be there. Returns the
    version of every dataset of :data:`SOURCES` that the store has.

    Raises
    ------
    StoreError
        A dataset is unknown to dbt, required and not there, has no such version, none is there,
        or the links can't be made. Then the links are as they were, or (disk faults only) partly
        new and not in the record: building from them is refused until linking succeeds.
    """
    versions = versions or {}
    needed = {*required, *versions}
    unknown = sorted(needed - set(SOURCES))
    if unknown:
        raise StoreError(
            f"dbt has no source {unknown[0]}", hint=f"its sources are {', '.join(SOURCES)}"
        )
    snapshots = {
        name: store.get(name, versions[name]) if name in versions else store.current(name)
        for name in SOURCES
        if name in needed or store.has(name)
    }
    if not snapshots:
        raise StoreError(
            "no raw dataset in this store", where=str(store.home), hint="ingest a source first"
        )
    linked = {name: snapshot.version for name, snapshot in snapshots.items()}
    layout = WarehouseLayout(store.home)
    folders = {name: snapshot.path for name, snapshot in snapshots.items()}
    if linked_sources(store.home) == linked and all(
        _points_at(_link(layout, name), folder) for name, folder in folders.items()
    ):
        return linked
    try:
        # Without a record nothing can be exported, even if the process dies before its end.
        layout.linked.unlink(missing_ok=True)
        layout.sources.mkdir(parents=True, exist_ok=True)
        for name, folder in folders.items():
            _replace_link(_link(layout, name), folder)
        for name in set(SOURCES) - set(snapshots):
            _link(layout, name).unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"the sources can't be linked ({error.strerror or error})",
            where=str(layout.sources),
            hint="a file system with symbolic links is needed",
        ) from error
    write_record(
        layout.linked,
        {"linked_at": datetime.now(UTC).isoformat(timespec="microseconds"), "sources": linked},
    )
    return linked


def linked_sources(home: Path | str) -> dict[str, str]:
    """Linked versions by dataset; empty if nothing was linked."""
    return dict(read_links(WarehouseLayout(home_path(home)))["sources"])


def read_links(layout: WarehouseLayout) -> dict[str, Any]:
    """The record of the links: ``linked_at`` (ISO 8601, UTC; "" if there are none), ``sources``."""
    return read_record(layout.linked) or {"linked_at": "", "sources": {}}


def _link(layout: WarehouseLayout, dataset: str) -> Path:
    return layout.sources / dataset.removeprefix("raw.")


def _points_at(link: Path, folder: Path) -> bool:
    return link.is_symlink() and link.resolve() == folder.resolve()


def _replace_link(link: Path, folder: Path) -> None:
    # Relative, so that a home can be moved or mounted elsewhere as a whole.
    target = os.path.relpath(folder.resolve(), link.parent.resolve())
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target, target_is_directory=True)
    temporary.replace(link)


#: Program and process in DuckDB's message about a locked file.
_HOLDER = re.compile(r"lock is held in (.+?) \(PID (\d+)\)")


def database_fault(message: str, database: Path) -> StoreError | None:
    """Error of a database file that could not be opened, from DuckDB's message or a text with it.

    A :class:`LockedError` names the process that has the file open. None if the text is about
    something else.
    """
    message = " ".join(message.split())
    if "could not set lock on file" in message.lower():
        holder = _HOLDER.search(message)
        who = f"process {holder[2]} ({holder[1]})" if holder else "another process"
        return LockedError(
            f"{who} has the warehouse file open",
            where=str(database),
            hint="close it there, or wait until it has finished, and run again",
        )
    if "not a valid DuckDB database" in message or "Corrupt database" in message:
        return StoreError(
            f"the warehouse can't be opened ({message})",
            where=str(database),
            hint="it can be built again: remove the file and run again",
        )
    return None


@contextmanager
def open_warehouse(
    layout: WarehouseLayout, *, memory_limit_mb: int = 1024, threads: int = 0
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A read-only connection; while it is open no other process can write the file.

    DuckDB spills into a folder of its own above its memory limit (MiB); 0 threads takes every core.
    Raises StoreError if there is no warehouse yet or the file is not one, LockedError if another
    process has it open for writing.
    """
    import duckdb

    if not layout.database.is_file():
        raise StoreError(
            "there is no warehouse yet", where=str(layout.database), hint="run dbt build first"
        )
    layout.spill.mkdir(parents=True, exist_ok=True)
    # Two readers must not spill into the same files.
    with tempfile.TemporaryDirectory(prefix="read-", dir=layout.spill) as spill:
        config: dict[str, Any] = {
            "memory_limit": f"{memory_limit_mb}MiB",
            "temp_directory": spill,
            "autoinstall_known_extensions": "false",
        }
        if threads:
            config["threads"] = threads
        try:
            connection = duckdb.connect(str(layout.database), read_only=True, config=config)
        except duckdb.Error as error:
            fault = database_fault(str(error), layout.database)
            raise fault or _unreadable(layout, error) from None
        try:
            connection.execute("set TimeZone = 'UTC'")
            yield connection
        finally:
            connection.close()


def columns_of(connection: duckdb.DuckDBPyConnection, relation: str) -> dict[str, str] | None:
    """Column names and DuckDB types of a relation, in order; None if it does not exist."""
    import duckdb

    try:
        rows = connection.execute(f"describe {relation}").fetchall()
    except duckdb.CatalogException:
        return None
    return {str(row[0]): str(row[1]) for row in rows}


def last_builds(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """The dbt invocation that last built each model, by dbt's unique id, from the build log."""
    import duckdb

    query = """
        select model, arg_max(invocation_id, built_at)
        from understudy_meta.builds
        group by model
    """
    try:
        return {str(m): str(i) for m, i in connection.execute(query).fetchall()}
    except duckdb.CatalogException:
        return {}


def plain_rows(
    connection: duckdb.DuckDBPyConnection, relation: str, limit: int
) -> list[dict[str, Any]] | None:
    """The first rows of a relation as JSON-ready values; None if it does not exist."""
    import duckdb

    try:
        result = connection.execute(f"select * from {relation} limit {int(limit)}")  # noqa: S608
    except duckdb.CatalogException:
        return None
    names = [column[0] for column in result.description or ()]
    return [{n: _plain(v) for n, v in zip(names, row, strict=True)} for row in result.fetchall()]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list):
        return [_plain(v) for v in value[:20]]
    return str(value)[:500]


def _unreadable(layout: WarehouseLayout, error: Exception) -> StoreError:
    return StoreError(
        f"the warehouse can't be opened ({error})",
        where=str(layout.database),
        hint="it can be built again: remove the file and run dbt build",
    )


#: Models and tests in flight at once; DuckDB's own threads come on top.
_JOBS = 4
#: Bytes in memory of a row in a join or a window over all rows of a source (an estimate): keys as
#: text, values and pointers.
_ROW_BYTES = 64


def dbt_environment(settings: Settings) -> dict[str, str]:
    """Environment variables for a dbt process; add them to those of the caller.

    The names don't start with ``UNDERSTUDY_`` (but for the home), because those are settings and an
    unknown one is an error: ``UNDERSTUDY_HOME``, what ``dbt/profiles.yml`` and the sources read
    (``WAREHOUSE_*``), where dbt puts artefacts and logs (``DBT_TARGET_PATH``, ``DBT_LOG_PATH``),
    and how much it logs (``DBT_LOG_LEVEL_FILE``, the caller's or ``info``). The folders exist when
    this returns.
    """
    layout = WarehouseLayout(settings.runtime.folder)
    for folder in (layout.folder, layout.spill, layout.target, layout.logs):
        folder.mkdir(parents=True, exist_ok=True)
    return {
        "UNDERSTUDY_HOME": str(layout.home),
        "WAREHOUSE_FILE": str(layout.database),
        "WAREHOUSE_SOURCES": sql_glob(layout.sources),
        "WAREHOUSE_TEMP": str(layout.spill),
        "WAREHOUSE_MEMORY_LIMIT": f"{settings.runtime.memory_limit_mb}MiB",
        "WAREHOUSE_THREADS": str(settings.runtime.threads or os.cpu_count() or 1),
        "WAREHOUSE_JOBS": str(_jobs(layout, settings.runtime.memory_limit_mb)),
        "DBT_TARGET_PATH": str(layout.target),
        "DBT_LOG_PATH": str(layout.logs),
        # dbt's default, debug, takes a tenth of its time on small tables.
        "DBT_LOG_LEVEL_FILE": os.environ.get("DBT_LOG_LEVEL_FILE", "info"),
    }


def _jobs(layout: WarehouseLayout, limit: int) -> int:
    """Models and tests at a time: one where it would fill the memory (``limit``, MiB) by itself."""
    import pyarrow.parquet as pq

    rows = max(
        (
            sum(pq.read_metadata(file).num_rows for file in folder.glob("**/*.parquet"))
            for folder in layout.sources.glob("*")
        ),
        default=0,
    )
    return 1 if rows * _ROW_BYTES > limit << 20 else _JOBS


#: Tiers of human users (Agent4Rec 2.1.1 and its code, SimUSER 3.2.1 and appendix A): quantiles of
#: users at which the low and the medium tier of activity and of both diversities end; those of the
#: mean squared difference at which the high and the medium tier of conformity end; mean ratings
#: (1-5) from which a user is moderately picky and not picky.
TIER_ENDS = {
    "activity": (0.6, 0.9),
    "conformity": (0.25, 0.8),
    "diversity": (0.33, 0.66),
    "pickiness": (3.5, 4.5),
}


def dbt_vars(settings: Settings) -> dict[str, Any]:
    """Values of dbt's variables: the settings that change what the models make.

    >>> from pipelines.config import Settings
    >>> dbt_vars(Settings())["split_min_interactions"]
    5
    """
    splits, books = settings.splits, settings.books
    return {
        "split_validation": splits.validation,
        "split_test": splits.test,
        "split_min_interactions": splits.min_interactions,
        **{f"trait_{name}": list(ends) for name, ends in TIER_ENDS.items()},
        "games_review_year": settings.games.review_year or 0,
        "books_categories": list(books.categories),
        "books_min_category_size": books.min_category_size,
        "books_full_catalogue": books.full_catalogue,
    }


def sql_glob(path: Path) -> str:
    """A folder's path as it must stand in a DuckDB glob within quotes.

    >>> sql_glob(Path("/o'h/a[1]*"))
    "/o''h/a[[]1][*]"
    """
    return re.sub(r"[\[*?]", lambda m: f"[{m[0]}]", str(path)).replace("'", "''")
