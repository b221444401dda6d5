"""``understudy gc``, ``backup`` and ``restore``: upkeep of a home."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli import options as cli

Cohorts = set[tuple[str, str]]

if TYPE_CHECKING:
    from rich.console import Console


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

    def with_answers(kept: Cohorts, unneeded: Cohorts) -> None:
        nonlocal answers
        if not (store.home / "answers").is_dir():
            return
        named, gone = ({Scope(*one) for one in some} for some in (kept, unneeded))
        with AnswerStore(store.home, call.settings.serving) as stored:
            answers = stored.gc_tables(named, gone, dry_run=dry_run)

    found = store.collect_garbage(
        grace=timedelta(hours=grace), dry_run=dry_run, before_removal=with_answers
    )
    payload = {
        "removed": found.removed,
        "versions": [{"dataset": d, "version": v, "bytes": b} for d, v, b in found.versions],
        "bytes": found.bytes,
        "kept": found.kept,
        "kept_bytes": found.kept_bytes,
        "answers": asdict(answers),
    }

    def render(screen: Console) -> None:
        if found.versions:
            rows = [
                (dataset, version, cli.human_bytes(n)) for dataset, version, n in found.versions
            ]
            screen.print(cli.table("table", "version", "size", rows=rows, numeric=["size"]))
        done = "removed" if found.removed else "would be removed"
        screen.print(
            f"{len(found.versions)} versions {done} ({cli.human_bytes(found.bytes)}), "
            f"{found.kept} kept ({cli.human_bytes(found.kept_bytes)})."
        )
        screen.print(
            f"{answers.removed:,} answers {done}, {answers.attributed:,} kept for tables, "
            f"{answers.unattributed:,} kept of no table."
        )

    call.emit(payload, render)


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
    payload = {"file": str(target), **asdict(done)}

    def render(screen: Console) -> None:
        screen.print(
            f"{target}: {done.releases} releases, {done.versions} versions of tables, "
            f"{done.files} files, {cli.human_bytes(done.bytes)}."
        )

    call.emit(payload, render)


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
    payload = {"home": str(target), **asdict(done)}

    def render(screen: Console) -> None:
        screen.print(
            f"{target}: {done.releases} releases, {done.versions} versions of tables, "
            f"{cli.human_bytes(done.bytes)}; every byte is as committed."
        )

    call.emit(payload, render)
