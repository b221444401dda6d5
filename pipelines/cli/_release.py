"""``understudy release`` and ``report``: list, check, compare and export releases; a page."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pipelines.cli import options as cli
from pipelines.errors import IntegrityError, ReleaseError
from pipelines.markdown import terminal_text

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.store import Release, ReleaseDiff, Store, TableDiff


release = cli.group("List, show, verify, push, compare and export releases.")


@release.command("list")
@cli.command(rows="releases")
def list_(
    call: cli.Call,
    name: Annotated[str | None, typer.Argument(help="Only releases of this name.")] = None,
) -> None:
    """List releases, newest first.

    JSON: {"releases": [{"name", "version", "latest", "world",
    "created_at", "tables", "rows", "bytes"}]}.
    """
    store = call.store()
    releases = store.releases(name)
    if name is not None and not releases:
        store.release(name)  # raises, naming what there is
    latest = {str(_latest(store, n)) for n in {r.name for r in releases}}
    rows = [{**_brief(r), "latest": str(r) in latest} for r in reversed(releases)]
    numbers = ["tables", "rows", "size", "age"]
    cells = [
        (f"{r['name']}@{r['version']}" + (" (latest)" if r["latest"] else ""), r["world"],
         r["tables"], r["rows"], cli.human_bytes(r["bytes"]), cli.human_age(r["created_at"]))
        for r in rows
    ]  # fmt: skip
    listed = cli.table("release", "world", *numbers, rows=cells, numeric=numbers)
    call.emit({"releases": rows}, listed if rows else "No release yet: `understudy run` makes one.")


@release.command()
@cli.command(rows="tables")
def show(
    call: cli.Call,
    release: cli.RefArgument = "latest",
    card: Annotated[bool, typer.Option("--card", help="Print the whole dataset card.")] = False,
) -> None:
    """Show a release: its tables, checks and dataset card.

    JSON: {"name", "version", "created_at", "world", "path",
    "tables": [{"table", "dataset", "version", "rows", "bytes"}],
    "cohorts": {cohort: personas},
    "checks": {"passed", "warned", "failed", "not_applicable", "kinds": {kind: {"passed",
    "warned", "failed", "not_applicable"}}, "failures": [{"dataset", "name", "severity",
    "details"}], "unjudged": [{"dataset", "name", "reason"}]},
    "settings", "card"}.
    """
    stored = call.release(release)
    payload = _describe(stored)

    def render(screen: Console) -> None:
        _render_release(payload, screen)
        whole = terminal_text(payload["card"]).rstrip()
        # The card's text before its first section describes the release.
        excerpt = whole if card else whole.partition("\n## ")[0].partition("\n")[2].strip()
        screen.print()
        screen.print(excerpt, soft_wrap=card)
        if excerpt != whole:
            screen.print("\nThe whole dataset card: --card.")

    call.emit(payload, render)


@release.command()
@cli.command(rows="figures")
def population(
    call: cli.Call,
    release: cli.RefArgument = "latest",
    page: Annotated[
        Path | None, typer.Option(help="Write an HTML page with plots to this file.")
    ] = None,
) -> None:
    """Compare a release's personas with people: tastes, levels and spreads.

    JSON: {"release", "statement", "figures": [{"figure", "unit", "personas_value",
    "personas_low", "personas_high", "people_value", "people_low", "people_high", "ratio",
    "ratio_low", "ratio_high", "chance", "personas", "people", "ratings"}], "page"}; the page is
    null unless requested.
    """
    from pipelines.graph import write_bytes
    from pipelines.markdown import html_page
    from pipelines.raters import population_markdown, population_pictures, population_rows

    stored = call.release(release)
    if "population" not in stored.tables:
        raise ReleaseError(
            "the release has no population report",
            where=str(stored),
            hint="it predates these reports, or its domain has no personas",
        )
    snapshot = stored.snapshot("population")
    rows, facts = snapshot.read(), snapshot.manifest.stats["population"]
    text = population_markdown(rows, facts)
    title = f"Population of {stored.name}@{stored.version}"
    if page is not None:
        whole = html_page(title, f"# {title}\n\n{text}", population_pictures(rows, facts))
        write_bytes(page, whole.encode())
    payload = {
        "release": f"{stored.name}@{stored.version}",
        "statement": facts["statement"],
        "figures": rows.to_dicts(),
        "page": None if page is None else str(page),
    }
    # The ratios are on the page and in the JSON: four columns need more than 80 characters.
    numbers = ("personas", "people")
    shown = [(f"{name} ({unit})", *cells[:2]) for name, unit, *cells in population_rows(rows)]
    call.emit(
        payload,
        facts["statement"],
        cli.table("figure", *numbers, rows=shown, numeric=numbers),
        *([] if page is None else [f"Page: {page}"]),
    )


@release.command()
@cli.command()
def verify(
    call: cli.Call,
    release: cli.RefArgument = "latest",
    lineage: Annotated[
        bool, typer.Option("--lineage", help="Also verify every upstream snapshot of the tables.")
    ] = False,
) -> None:
    """Re-read every file of a release and compare its hash; exit code 5 on a mismatch.

    With --lineage, every upstream snapshot of its tables is verified too, raw
    ones included. Original files are outside the store and are not read.

    JSON: {"release", "ok", "files", "bytes", "upstream", "originals",
    "problems": []}; with problems, an error document whose details list them.
    """
    stored = call.release(release)
    with call.progress(f"verifying {stored}", "bytes"):
        report = call.store().verify(stored, lineage=lineage)
    if not report.ok:
        first, *others = report.problems
        more = f"; and {len(others)} more" if others else ""
        raise IntegrityError(
            f"{report.release} is not as published: {first}{more}",
            hint="restore it from a copy, or publish again",
            details={"release": report.release, "problems": list(report.problems)},
        )
    counts = {n: getattr(report, n) for n in ("files", "bytes", "upstream", "originals")}
    size = f"{report.files} files, {cli.human_bytes(report.bytes)}"
    upstream = (
        f"{report.upstream} upstream snapshots are as committed; "
        f"{report.originals} original files were not read."
    )
    call.emit(
        {"release": report.release, "ok": True, **counts, "problems": []},
        f"{report.release} is as published ({size} read).",
        *([upstream] if lineage else []),
    )


@release.command()
@cli.command()
def push(
    call: cli.Call,
    target: Annotated[
        str,
        typer.Argument(
            metavar="S3://BUCKET/PREFIX", help="Where to; credentials in AWS_* variables."
        ),
    ],
    release: cli.RefArgument = "latest",
) -> None:
    """Copy a release to an object store, from where open_release("s3://…") reads it.

    Its files are verified first. Files that are there already are not uploaded
    again: an interrupted push is finished by running it again. NAME@latest is
    there the release that was pushed last.

    JSON: {"release", "address", "files", "bytes", "uploaded_files", "uploaded_bytes"}.
    """
    stored = call.release(release)
    with call.progress(f"pushing {stored}", "bytes"):
        pushed = call.store().push(stored, target)
    call.emit(
        {"release": str(stored), **asdict(pushed)},
        f"{pushed.address}: {pushed.files} files, {cli.human_bytes(pushed.bytes)}; "
        f"{pushed.uploaded_files} uploaded, {cli.human_bytes(pushed.uploaded_bytes)}.",
    )


#: Shifts shown in the terminal: the index at least, and how many of a table.
_SHIFTED, _MOST_SHIFTS = 0.01, 3


@release.command()
@cli.command(rows="tables")
def diff(
    call: cli.Call,
    a: Annotated[str, typer.Argument(help=cli.REF_HELP, autocompletion=cli.complete_refs)],
    b: Annotated[
        str, typer.Argument(help="The release to compare with.", autocompletion=cli.complete_refs)
    ],
    page: Annotated[Path | None, typer.Option(help="Write a page with plots to this file.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Compare releases of different domains.")
    ] = False,
) -> None:
    """Show what changed from release A to release B, table by table, and why.

    A shift is the population stability index (below 0.1 small, above 0.25
    large) and, for numeric columns, the Wasserstein distance in the column's unit.

    JSON: {"a", "b", "same", "tables": [{"table", "status": "same",
    "changed", "added" or "removed", "before", "after", "rows_before",
    "rows_after", "columns_added", "columns_removed", "columns_retyped",
    "rows_added", "rows_removed", "rows_changed", "samples", "shifts":
    [{"column", "psi", "wasserstein", "mean_before", "mean_after", "bins",
    "before", "after"}], "causes"}], "page"}.
    """
    from pipelines.graph import write_bytes

    store = call.store()
    first, second = (store.release(call.ref(ref)) for ref in (a, b))
    with call.progress("comparing"):
        memory = call.settings.runtime.memory_limit_mb
        difference = store.diff(first, second, memory_limit_mb=memory, force=force)
    if page is not None:
        write_bytes(page, _diff_page(difference).encode())
    payload = {
        "a": difference.a,
        "b": difference.b,
        "same": difference.same,
        "tables": [asdict(t) for t in difference.tables.values()],
        "page": None if page is None else str(page),
    }

    def render(screen: Console) -> None:
        screen.print(f"{difference.a} → {difference.b}", style="bold")
        if difference.same:
            screen.print("All tables have the same versions.")
            return
        numbers = ["rows", "added", "removed", "changed"]
        rows = [
            (t.table, t.status, f"{t.rows_before:,} → {t.rows_after:,}",
             *("" if t.status != "changed" else "?" if n is None else n
               for n in (t.rows_added, t.rows_removed, t.rows_changed)))
            for t in difference.tables.values()
        ]  # fmt: skip
        screen.print(cli.table("table", "", *numbers, rows=rows, numeric=numbers))
        for t in difference.tables.values():
            for line in _changes(t):
                screen.print(line)
        if page is not None:
            screen.print(f"Page: {page}")

    call.emit(payload, render)


def _changes(t: TableDiff) -> list[str]:
    """Lines about one table: columns, example keys, shifts, causes."""
    lines = [
        f"{t.table}: columns {change}: {', '.join(columns)}"
        for change in ("added", "removed", "retyped")
        if (columns := getattr(t, f"columns_{change}"))
    ]
    for kind, keys in t.samples.items():
        keys_text = "; ".join(" ".join(str(v) for v in key.values()) for key in keys)
        lines.append(f"{t.table}: {kind}, such as {keys_text}")
    for shift in [s for s in t.shifts if s.psi >= _SHIFTED][:_MOST_SHIFTS]:
        moved = (
            f", Wasserstein {shift.wasserstein:.3g}, mean {shift.mean_before:.4g} → "
            f"{shift.mean_after:.4g}"
            if shift.wasserstein is not None
            else ""
        )
        lines.append(f"{t.table}: {shift.column} shifted, PSI {shift.psi:.3f}{moved}")
    lines += [f"{t.table}: because {cause}" for cause in t.causes]
    return lines


def _diff_page(diff: ReleaseDiff) -> str:
    """Page of a comparison: counts, causes, and a picture of every shift."""
    from pipelines.figures import grouped_bars
    from pipelines.markdown import escape_markdown, html_page, terminal_text

    title = f"{diff.a} → {diff.b}"
    lines = [f"# {title}", "", "| table | status | rows before | rows after | added | removed | "
             "changed |", "| --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    pictures = {}
    for t in diff.tables.values():
        cells = (t.rows_before, t.rows_after, t.rows_added, t.rows_removed, t.rows_changed)
        shown = " | ".join("" if n is None else f"{n:,}" for n in cells)
        lines.append(f"| {t.table} | {t.status} | {shown} |")
        for shift in t.shifts:
            if shift.psi >= _SHIFTED:
                pictures[f"{t.table}.{shift.column}"] = grouped_bars(
                    f"{t.table}.{shift.column}: PSI {shift.psi:.3f}", "", "share", shift.bins,
                    [("before", shift.before), ("after", shift.after)], rotate=True,
                )  # fmt: skip
    lines.append("")
    for t in diff.tables.values():
        lines += [terminal_text(escape_markdown(line)) + "\n" for line in _changes(t)]
    return html_page(title, "\n".join(lines), pictures)


def complete_formats(incomplete: str) -> list[str]:
    """Export formats that start with what was typed (shell completion)."""
    from pipelines.seams import EXPORTS

    return [name for name in EXPORTS.names() if name.startswith(incomplete)]


@release.command()
@cli.command()
def export(
    call: cli.Call,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="movielens, recbole, lenskit, huggingface, croissant, minari, or a plug-in.",
            autocompletion=complete_formats,
        ),
    ],
    release: cli.RefArgument = "latest",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to create; default: <name>-<format> in the current folder."),
    ] = None,
    users: Annotated[
        Literal["personas", "people"],
        typer.Option(help="movielens, recbole, lenskit: users whose ratings are exported."),
    ] = "personas",
    rating: Annotated[
        Literal["sample", "expected", "mode"],
        typer.Option(help="A persona's rating: seeded draw, mean, or most probable."),
    ] = "sample",
    with_texts: Annotated[
        bool,
        typer.Option(
            "--with-texts", help="Include texts whose sources do not allow redistribution."
        ),
    ] = False,
    episodes: Annotated[
        int, typer.Option(min=1, help="minari: episodes of random choices (count).")
    ] = 100,
    steps: Annotated[int, typer.Option(min=1, help="minari: longest episode (steps).")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="minari: seed.")] = 0,
    push: Annotated[
        str | None,
        typer.Option(
            metavar="OWNER/NAME",
            help="huggingface: also upload to this dataset (private if new; token in HF_TOKEN).",
        ),
    ] = None,
    may_redistribute: Annotated[
        bool,
        typer.Option(
            "--may-redistribute", help="Confirm that the terms of all sources allow the upload."
        ),
    ] = False,
) -> None:
    """Export a release in the file format of another tool.

    The folder also holds the dataset card, the terms and, if texts are left out,
    a script that adds them from your own release.

    Examples:
      understudy release export movies@latest --format recbole --out ./recbole

    JSON: {"release", "world", "format", "options", "left_out": {table:
    {"columns", "file", "key"}}, "files": {path: bytes}, "folder", "pushed"}.
    """
    from pipelines.errors import ConfigError
    from pipelines.exports import ExportOptions, export_release, push_to_hub

    if push is not None and form != "huggingface":
        raise ConfigError("only huggingface can be uploaded", where=f"--format {form}")
    stored = call.release(release)
    target = out or Path(f"{stored.name}-{form}")
    options = ExportOptions(users, rating, with_texts, episodes, steps, seed)
    with call.progress(f"exporting {stored.name}", "rows"):
        written = export_release(stored, form, target, options)
    pushed = None if push is None else push_to_hub(target, push, stored, permitted=may_redistribute)
    payload = {**written, "folder": str(target), "pushed": pushed}
    size = cli.human_bytes(sum(written["files"].values()))
    left_out = (
        f"left out of {table_name}: {', '.join(hidden['columns'])} (join_texts.py adds them from "
        "your own release)"
        for table_name, hidden in written["left_out"].items()
    )
    call.emit(
        payload,
        f"{stored} as {form}: {target} ({len(written['files'])} files, {size})",
        *left_out,
        *([f"uploaded: {pushed}"] if pushed else []),
    )


def _latest(store: Store, name: str) -> Release | None:
    try:
        return store.release(f"{name}@latest")
    except (IntegrityError, ReleaseError):
        return None  # its lock file is damaged or gone: the others are still worth listing


def _brief(release: Release) -> dict[str, Any]:
    return {
        "name": release.name,
        "version": release.version,
        "world": release.world,
        "created_at": release.created_at,
        "tables": len(release.tables),
        "rows": sum(t.rows for t in release.tables.values()),
        "bytes": sum(t.bytes for t in release.tables.values()),
    }


def _describe(release: Release) -> dict[str, Any]:
    from pipelines.store import count_outcomes

    # Of the tables that the release holds, as its card counts them, not of what they are made from.
    pinned = {lock.dataset for lock in release.tables.values()}
    records = [
        (d, c) for d, checks in release.checks.items() if d in pinned for c in checks.values()
    ]
    kinds = list(dict.fromkeys(c.kind for _, c in records))
    failures = [
        {"dataset": d, "name": c.name, "severity": c.severity, "details": c.details}
        for d, c in records
        if c.passed is False
    ]
    unjudged = [
        {"dataset": d, "name": c.name, "reason": c.details.get("skipped", "")}
        for d, c in records
        if c.passed is None
    ]
    return {
        "name": release.name,
        "version": release.version,
        "created_at": release.created_at,
        "world": release.world,
        "path": str(release.path),
        "tables": [
            {
                "table": name,
                "dataset": lock.dataset,
                "version": lock.version,
                "rows": lock.rows,
                "bytes": lock.bytes,
            }
            for name, lock in release.tables.items()
        ],
        "cohorts": _cohorts(release),
        "checks": {
            **count_outcomes(c for _, c in records),
            "kinds": {k: count_outcomes(c for _, c in records if c.kind == k) for k in kinds},
            "failures": failures,
            "unjudged": unjudged,
        },
        "settings": release.settings,
        "card": release.card(),
    }


def _cohorts(release: Release) -> dict[str, int]:
    """Personas of each cohort (count)."""
    if "personas" not in release.tables:
        return {}
    counts = release.snapshot("personas").manifest.stats.get("cohorts", {})
    return dict(sorted(counts.items()))


def _render_release(payload: dict[str, Any], screen: Console) -> None:
    screen.print(f"{payload['name']}@{payload['version']}", style="bold")
    screen.print(f"world {payload['world']}, published {payload['created_at']}")
    screen.print(f"lock file {payload['path']}", soft_wrap=True)
    screen.print()
    rows = [
        (r["table"], r["version"], r["rows"], cli.human_bytes(r["bytes"]))
        for r in payload["tables"]
    ]
    columns = ("table", "version", "rows", "size")
    screen.print(cli.table(*columns, rows=rows, numeric=["rows", "size"]))
    if payload["cohorts"]:
        counts = ", ".join(f"{name} {count:,}" for name, count in payload["cohorts"].items())
        screen.print(f"\ncohorts of personas: {counts}", markup=False)
    checks = payload["checks"]
    by_kind = ", ".join(f"{sum(n.values())} {kind}" for kind, n in checks["kinds"].items())
    screen.print()
    screen.print(f"checks: {cli.shown_outcomes(checks)}" + (f" ({by_kind})" if by_kind else ""))
    for failure in checks["failures"]:
        screen.print(f"  {failure['severity']}: {failure['dataset']} {failure['name']}")


@cli.command()
def report(
    call: cli.Call,
    release: cli.RefArgument = "latest",
    html: Annotated[bool, typer.Option("--html", help="Write a self-contained HTML page.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="File of the page; default: <name>-<version>.html in the current folder.",
        ),
    ] = None,
    persona: Annotated[str | None, typer.Option(help="Persona shown; default: the first.")] = None,
) -> None:
    """Report on a release: a persona, personas versus people, raters, checks, lineage, terms.

    JSON: {"release", "world", "persona": {"persona_id", "description", "likes", "dislikes",
    "ratings": [{"item_id", "title", "expected", "probabilities", "why"}]},
    "checks": {"passed", "warned", "failed", "not_applicable"}, "page"};
    the persona and the page are null where there is none.
    """
    from pipelines.graph import write_bytes
    from pipelines.quality import release_report, report_page

    stored = call.release(release)
    with call.progress(f"reading {stored.name}"):
        values = release_report(stored, persona=persona)
        page = None
        if html or out is not None:
            page = out or Path(f"{stored.name}-{stored.version}.html")
            write_bytes(page, report_page(values).encode())
    shown = values["persona"]
    columns = ("item_id", "title", "expected", "probabilities", "why")
    who = ("persona_id", "description", "likes", "dislikes")
    payload = {
        "release": str(stored),
        "world": stored.world,
        "persona": shown
        and {
            **{key: shown[key] for key in who},
            "ratings": [{key: rating[key] for key in columns} for rating in shown["ratings"]],
        },
        "checks": values["checks"]["counts"],
        "page": None if page is None else str(page),
    }

    def render(screen: Console) -> None:
        screen.print(values["title"], style="bold")
        screen.print(f"{stored}: {', '.join(values['contents'])}")
        for note in values["notes"]:
            screen.print(note)
        if shown:
            heading = ", ".join([shown["name"] or shown["persona_id"], *shown["facts"]])
            screen.print(f"\n{heading}", style="bold")
            screen.print(shown["description"])
            rows = [(r["title"], r["why"], f"{r['expected']:.1f}") for r in shown["ratings"]]
            screen.print(cli.table(values["item"], "why", "rating", rows=rows, numeric=["rating"]))
        screen.print(f"checks: {cli.shown_outcomes(values['checks']['counts'])}")
        screen.print("The whole report: --html." if page is None else f"Page: {page}")

    call.emit(payload, render)
