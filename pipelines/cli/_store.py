"""``understudy status``, ``gc``, ``backup`` and ``restore``: contents and upkeep of a home."""

from __future__ import annotations

import fcntl
import os
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli import options as cli
from pipelines.errors import ReleaseError, StoreError

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.config import RuntimeSettings
    from pipelines.store import Store


@cli.command(rows="snapshots")
def status(
    call: cli.Call,
    releases: Annotated[
        bool, typer.Option("--releases", help="Only the latest releases, without tables.")
    ] = False,
) -> None:
    """Show what the store holds: tables, releases, unfinished writes, disk use.

    JSON: {"home", "exists", "snapshots": [{"dataset", "version", "rows",
    "bytes", "created_at", "problem"}], "releases": [{"name", "version",
    "world", "created_at", "tables", "problem"}], "unfinished": [{"path",
    "bytes", "modified_at", "in_progress"}], "disk": {"total", "folders"}}.
    If "problem" reports damage, the other values are null. With
    --releases, "snapshots" is empty.
    """
    payload = _collect(call.settings.runtime, tables=not releases)
    call.emit(payload, lambda screen: _render_status(payload, screen, tables=not releases))


def _collect(runtime: RuntimeSettings, *, tables: bool) -> dict[str, Any]:
    home = runtime.folder
    out: dict[str, Any] = {
        "home": str(home),
        "exists": home.is_dir(),
        "snapshots": [],
        "releases": [],
        "unfinished": [],
        "disk": {"total": 0, "folders": {}},
    }
    if not out["exists"]:
        return out
    from pipelines.store import Store

    store = Store(home)
    if tables:
        out["snapshots"] = [_snapshot(store, dataset) for dataset in sorted(store.datasets())]
    pointers = store.files.sizes(home / "refs" / "releases")
    names = sorted(name.removesuffix(".json") for name in pointers if name.endswith(".json"))
    out["releases"] = [_release(store, name) for name in names]
    out["unfinished"] = stagings(home)
    folders = disk_use(home)
    out["disk"] = {"total": sum(folders.values()), "folders": folders}
    return out


def _snapshot(store: Store, dataset: str) -> dict[str, Any]:
    row = dict.fromkeys(("version", "rows", "bytes", "created_at", "problem"))
    try:
        snapshot = store.current(dataset)
    except StoreError as error:  # one damaged table must not hide the others
        return {"dataset": dataset, **row, "problem": str(error)}
    facts = {"version": snapshot.version, "rows": snapshot.rows, "bytes": snapshot.bytes}
    return {"dataset": dataset, **row, **facts, "created_at": snapshot.manifest.created_at}


def _release(store: Store, name: str) -> dict[str, Any]:
    row = dict.fromkeys(("version", "world", "created_at", "tables", "problem"))
    try:
        release = store.release(f"{name}@latest")
    except (StoreError, ReleaseError) as error:
        return {"name": name, **row, "problem": str(error)}
    facts = {"version": release.version, "world": release.world, "created_at": release.created_at}
    return {"name": name, **row, **facts, "tables": len(release.tables)}


def stagings(home: Path) -> list[dict[str, Any]]:
    """Writes that have not been committed: in progress, or left behind by a killed process."""
    from datetime import UTC, datetime

    out = []
    root = home / "_staging"
    for entry in sorted(root.iterdir()) if root.is_dir() else []:
        try:
            moment = datetime.fromtimestamp(entry.stat().st_mtime, UTC)
            size = sum(disk_use(entry).values()) if entry.is_dir() else entry.stat().st_size
        except FileNotFoundError:  # committed while we looked
            continue
        out.append(
            {
                "path": str(entry.relative_to(home)),
                "bytes": size,
                "modified_at": moment.isoformat(timespec="seconds"),
                "in_progress": _owned(entry / "_owner.json" if entry.is_dir() else entry),
            }
        )
    return out


def _owned(record: Path) -> bool:
    """Return True if a living process holds the lock on a staging's owner record."""
    try:
        descriptor = os.open(record, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # Shared, so that looking never takes a lock away from anybody but a sweeper.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def disk_use(root: Path) -> dict[str, int]:
    """Bytes by first-level entry of a folder; a file with several hard links counts once."""
    seen: set[tuple[int, int]] = set()
    out: dict[str, int] = {}
    for entry in sorted(root.iterdir()):
        total = 0
        if entry.is_dir() and not entry.is_symlink():
            for folder, _, names in os.walk(entry):
                total += sum(_size(Path(folder, name), seen) for name in names)
        else:
            total = _size(entry, seen)
        out[entry.name] = total
    return out


def _size(path: Path, seen: set[tuple[int, int]]) -> int:
    try:
        info = path.lstat()
    except FileNotFoundError:  # a run may be at work
        return 0
    key = (info.st_dev, info.st_ino)
    if key in seen:
        return 0
    seen.add(key)
    return info.st_size


def _render_status(payload: dict[str, Any], screen: Console, *, tables: bool) -> None:
    screen.print(f"home  {payload['home']}", soft_wrap=True)
    if not payload["exists"]:
        screen.print("It does not exist yet: `understudy run` makes it.")
        return
    screen.print(f"disk  {cli.human_bytes(payload['disk']['total'])}")
    screen.print()
    rows: list[tuple[Any, ...]]
    if payload["releases"]:
        rows = [
            (r["name"], "damaged")
            if r["problem"]
            else (r["name"], r["version"], r["world"], r["tables"], cli.human_age(r["created_at"]))
            for r in payload["releases"]
        ]
        columns = ("latest release", "version", "world", "tables", "age")
        screen.print(cli.table(*columns, rows=rows, numeric=["tables", "age"]))
    else:
        screen.print("No release yet: `understudy run` makes one.")
    screen.print()
    if not tables:
        pass
    elif payload["snapshots"]:
        rows = [
            (s["dataset"], "damaged")
            if s["problem"]
            else (s["dataset"], s["version"], s["rows"], cli.human_bytes(s["bytes"]),
                  cli.human_age(s["created_at"]))
            for s in payload["snapshots"]
        ]  # fmt: skip
        columns = ("table", "version", "rows", "size", "age")
        screen.print(cli.table(*columns, rows=rows, numeric=["rows", "size", "age"]))
    else:
        screen.print("No tables yet.")
    for row in (*payload["releases"], *payload["snapshots"]):
        if row["problem"]:
            screen.print(f"\nproblem: {row['problem']}", style="red", soft_wrap=True)
    if payload["unfinished"]:
        screen.print()
        rows = [
            (u["path"], "in progress" if u["in_progress"] else "left by a killed process",
             cli.human_bytes(u["bytes"]), cli.human_age(u["modified_at"]))
            for u in payload["unfinished"]
        ]  # fmt: skip
        heads = ("unfinished write", "", "size", "age")
        screen.print(cli.table(*heads, rows=rows, numeric=["size", "age"]))


Cohorts = set[tuple[str, str]]


@cli.command(rows="versions")
def gc(
    call: cli.Call,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would be removed, remove nothing.")
    ] = False,
    grace: Annotated[
        float, typer.Option(min=0, help="Hours for which an unused version is kept.")
    ] = 24.0,
) -> None:
    """Remove table versions and model answers that no release or current table needs.

    A version is removed if no release pins it and no current table was made from
    it. The stored answers of a table's cohort are removed with its last version;
    those asked for outside of tables are kept and counted. No run may be using
    the store. `understudy answers gc` drops failed answers and those of a model.

    JSON: {"removed", "versions": [{"dataset", "version", "bytes"}], "bytes",
    "kept", "kept_bytes", "answers": {"removed", "attributed", "unattributed"}}.
    """
    from pipelines.llm.answers import AnswerStore, Scope, UnusedReport

    store = call.store()
    answers = UnusedReport(0, 0, 0)

    def with_answers(needed: Cohorts, unneeded: Cohorts) -> None:
        nonlocal answers
        if not (store.home / "answers").is_dir():
            return
        named, gone = ({Scope(*one) for one in some} for some in (needed, unneeded))
        with AnswerStore(store.home, call.settings.serving) as stored:
            answers = stored.gc_tables(named, gone, dry_run=dry_run)

    collected = store.collect_garbage(
        grace=timedelta(hours=grace), dry_run=dry_run, before_removal=with_answers
    )
    payload = {
        "removed": collected.removed,
        "versions": [{"dataset": d, "version": v, "bytes": b} for d, v, b in collected.versions],
        "bytes": collected.bytes,
        "kept": collected.kept,
        "kept_bytes": collected.kept_bytes,
        "answers": asdict(answers),
    }
    rows = [(dataset, version, cli.human_bytes(n)) for dataset, version, n in collected.versions]
    done = "removed" if collected.removed else "would be removed"
    call.emit(
        payload,
        *([cli.table("table", "version", "size", rows=rows, numeric=["size"])] if rows else []),
        f"{len(rows)} versions {done} ({cli.human_bytes(collected.bytes)}), "
        f"{collected.kept} kept ({cli.human_bytes(collected.kept_bytes)}).",
        f"{answers.removed:,} answers {done}, {answers.attributed:,} kept for tables, "
        f"{answers.unattributed:,} kept of no table.",
    )


@cli.command()
def backup(
    call: cli.Call,
    target: Annotated[
        Path, typer.Argument(metavar="FILE", dir_okay=False, help="Tar file to write.")
    ],
) -> None:
    """Write releases, current tables, their upstream versions, and answers to one file.

    Runs may continue meanwhile. Worlds, downloads, dbt's scratch files and
    Dagster's database are not included.

    JSON: {"file", "releases", "versions", "files", "bytes"}.
    """
    with call.progress("writing", "bytes"):
        done = call.store().backup(target)
    call.emit(
        {"file": str(target), **asdict(done)},
        f"{target}: {done.releases} releases, {done.versions} versions of tables, "
        f"{done.files} files, {cli.human_bytes(done.bytes)}.",
    )


@cli.command()
def restore(
    call: cli.Call,
    archive: Annotated[
        Path, typer.Argument(metavar="FILE", dir_okay=False, exists=True, help="A backup.")
    ],
) -> None:
    """Unpack a backup into an empty home and check every byte.

    JSON: {"home", "releases", "versions", "files", "bytes"}.
    """
    from pipelines.store import restore as restored

    target = call.home
    with call.progress("checking", "bytes"):
        done = restored(archive, target)
    call.emit(
        {"home": str(target), **asdict(done)},
        f"{target}: {done.releases} releases, {done.versions} versions of tables, "
        f"{cli.human_bytes(done.bytes)}; every byte is as committed.",
    )
