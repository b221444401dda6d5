"""The commands `understudy run` and `understudy ui`."""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml
from rich.markup import escape

from orchestration._interrupts import bounded_end
from pipelines.cli import options as cli
from pipelines.config import load_settings
from pipelines.paths import home_path
from pipelines.progress import listening

if TYPE_CHECKING:
    from rich.console import Console

    from orchestration.headless import JobRun, RunReport
    from pipelines.config import Settings
    from pipelines.store import Store

__all__ = ["run", "ui"]

#: Workspace of `dagster dev`, the one at the top level of the repository, which is in no package.
_LOCATIONS = {"understudy": "definitions", "understudy-optional": "optional"}
WORKSPACE = json.dumps(
    {
        "load_from": [
            {"python_module": {"module_name": f"orchestration.{module}", "location_name": name}}
            for name, module in _LOCATIONS.items()
        ]
    }
)
#: Unread names that a run shows; all are in its JSON and in the inventory of files.
_SHOWN = 10
#: Time between two lines about a running step, where there is no terminal (seconds).
_EVERY = 10.0
#: Time without a report after which a stage is not shown (seconds).
_STALE = 60.0
#: Longest time between Ctrl-C or SIGTERM and the end of a run (seconds).
END_AFTER = 8.0

WORLD = {"--data": "world.folder", "--source": "world.source", "--variant": "world.variant"}
#: Data of one's own.
OWN = {
    "--items": "data.own.items",
    "--ratings": "data.own.ratings",
    "--users": "data.own.users",
    "--domain": "data.own.name",
}


@cli.command({**WORLD, **OWN}, rows="steps")
def run(
    call: cli.Call,
    job: Annotated[
        str,
        typer.Option(
            help="everything; one domain: movies, books, games, products or own; ingest; "
            "personas; or a UI job that publishes no release, such as train_rater or train_policy."
        ),
    ] = "everything",
    select: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ASSET",
            help="Run only this asset of the job, such as movies/items; may be repeated.",
        ),
    ] = None,
    columns: Annotated[
        Path | None,
        typer.Option(help="YAML that names the columns of own data, such as `item: ISBN`."),
    ] = None,
    dry_run: cli.DryRunOption = False,
) -> None:
    """Materialise the whole DAG and publish a release of each domain.

    Without options it generates the sample world and runs everything on it. Results that
    did not change since the last run are reused, byte for byte. Domains without original
    files are left out and listed. Before a language model is asked, the expected requests,
    tokens, time and price are shown.

    Examples:
      understudy run
      understudy run --data ./originals --set personas.count=500
      understudy run --items recipes.csv --ratings ratings.csv --domain recipes

    JSON of a dry run: {"calls": [{"table", "requests", "prompt_tokens", "completion_tokens",
    "seconds", "price"}], and the sums of these}.
    """
    call = _on_source(call)
    if columns is not None:
        call = call.also({"data": {"own": {"columns": _columns(columns)}}})
    tree = call.settings
    if dry_run:
        cli.expected_calls(call, _asking(job, tree), dry_run)
        return
    shown = _Steps(quiet=call.quiet)
    from pipelines.store.files import full_disk_errors

    with (
        bounded_end(END_AFTER, f"error: {cli.INTERRUPTED}"),
        shown,
        listening(shown.progress),
        full_disk_errors(tree.runtime.folder),
    ):
        from orchestration.headless import run_jobs

        plan = plan_jobs(job, tree)
        if select and job == "everything":
            # The steps asked for may be of any domain, each with its own cohorts.
            plan = replace(plan, jobs=_selected(select, tree))
        elif select:
            # The selection holds for the job's own run, not for the import of personas before it.
            runs = [replace(r, select=tuple(select)) for r in plan.jobs if r.job == job]
            plan = replace(plan, jobs=runs)
        shown.left_out(plan.left_out)
        shown.unread(plan)
        builds = _asking(job, tree)
        if plan.domains:
            builds = [b for b in builds if b[0].partition(".")[0] in plan.domains]
        cli.expected_calls(call, builds, dry_run)
        report = run_jobs(
            plan.jobs,
            overrides=call.overrides,
            config=call.config,
            observe=shown.step,
        )
    published = [d for d in plan.domains if not select or f"releases/{d}" in select]
    payload = _payload(report, tree, job, published, plan)
    call.emit(payload, lambda screen: _render(screen, payload))


@cli.command({"--port": "runtime.ui_port", **WORLD})
def ui(
    call: cli.Call,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
) -> None:
    """Start Dagster's webserver and daemon for the home; Ctrl-C stops both."""
    from pipelines.domains import DOMAINS
    from pipelines.errors import ConfigError
    from pipelines.store.files import full_disk_errors

    call = _on_source(call)
    tree, number = call.settings, call.settings.runtime.ui_port
    if fault := cli.port_fault(host, number):
        raise ConfigError(
            f"the UI can't listen on {host}:{number}",
            where=fault,
            hint="another UI may be running there; give a free port with --port",
        )
    from orchestration.instance import open_instance

    folder = tree.runtime.folder.resolve()
    persona_domain = tree.personas.domain
    cohorts = [domain.cohort(tree.personas.cohort) for domain in DOMAINS.values()]
    workspace = folder / "dagster" / "workspace.yaml"
    # Made, so that webserver and daemon find it.
    with full_disk_errors(folder), open_instance(folder, *cohorts, domain=persona_domain):
        workspace.write_text(WORKSPACE, encoding="utf-8")
    env = os.environ | dict(_environment(call.overrides, "UNDERSTUDY_"))
    env["UNDERSTUDY_HOME"] = str(tree.runtime.home.resolve())
    if call.config:
        env["UNDERSTUDY_CONFIG"] = str(call.config.resolve())
    env["DAGSTER_HOME"] = str(folder / "dagster")
    # Lineage of the code location of the pipeline alone: *Materialize all* there is the pipeline.
    graph = f"http://{host}:{number}/asset-groups~code_location%3A%22understudy%22"
    shown = cli.console(stderr=True)
    shown.print(f"Dagster UI: http://{host}:{number}  (Ctrl-C stops it)")
    shown.print(f"The pipeline: {graph}", soft_wrap=True, highlight=False)
    # `dg dev`, which Dagster recommends instead, needs a project on disk and is not installed here.
    quiet = "ignore:Function `dev_command` is superseded"
    args = [sys.executable, "-W", quiet, "-m", "dagster", "dev", "-w", str(workspace)]
    os.execve(sys.executable, [*args, "-h", host, "-p", str(number)], env)  # noqa: S606


def _asking(job: str, tree: Settings) -> list[tuple[str, str]]:
    """Tables of a job that a model may be asked for, each with its cohort."""
    from pipelines.domains import DOMAINS, cohort_domain

    chosen = tree.personas
    if job == "personas":
        return [(f"{cohort_domain(chosen.cohort, chosen.domain)}.personas", chosen.cohort)]
    return [
        (f"{name}.{table}", DOMAINS[name].cohort(chosen.cohort))
        for name in (DOMAINS if job == "everything" else [job] if job in DOMAINS else [])
        for table in ("personas", "preference_scores")
    ]


def _columns(path: Path) -> dict[str, str]:
    """The columns that a file names, by meaning."""
    from pipelines.errors import ConfigError

    try:
        named = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"the columns can't be read ({error})", where=str(path)) from None
    if not isinstance(named, dict):
        raise ConfigError(
            "no map of columns", where=str(path), hint="expected lines such as `item: ISBN`"
        )
    return {str(key): str(value) for key, value in named.items()}


def _on_source(call: cli.Call) -> cli.Call:
    """The call on the source that it names, in place of a folder that a file names."""
    world = call.overrides.get("world", {})
    if "source" not in world or "folder" in world:
        return call
    return call.also({"world": {"folder": None}})


def _environment(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    """Variables that set what a call's options set, for another process; paths are absolute."""
    for key, value in values.items():
        name = f"{prefix}{key.upper()}"
        if isinstance(value, Mapping):
            yield from _environment(value, f"{name}__")
        elif name == "UNDERSTUDY_WORLD__FOLDER" and value is not None:
            yield name, str(Path(value).resolve())
        elif value is not None and name != "UNDERSTUDY_RUNTIME__HOME":
            yield name, value if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True)
class Plan:
    """Runs behind a command."""

    #: Runs of jobs, in order.
    jobs: list[JobRun]
    #: Domains that get a release.
    domains: list[str]
    #: Domains without files in this world.
    left_out: list[str]
    #: Names in the data folder that no source reads, and missing parts without which files are not
    #: used.
    unread: Sequence[str] = ()
    unused: Sequence[str] = ()


def plan_jobs(job: str, tree: Settings) -> Plan:
    """The runs behind ``--job``.

    Imported personas come before the releases, which hold them beside the standing cohorts.

    Raises :class:`ConfigError` if there is no such job, or no files for it.
    """
    from orchestration.defs.jobs import REPORTS
    from orchestration.headless import JobRun
    from orchestration.naming import asset_key
    from pipelines.domains import DOMAINS, cohort_domain
    from pipelines.errors import ConfigError
    from pipelines.sources import SOURCES
    from pipelines.worlds import prepare_world

    names = ("everything", *DOMAINS, "ingest", "personas", *REPORTS)
    if job == "train_surrogate":
        return _surrogates(tree)
    if job in REPORTS:
        return Plan([JobRun(job)], [], [])
    if job not in names:
        raise ConfigError("unknown job", where=job, hint=f"known: {', '.join(names)}")
    if job == "personas":
        domain = cohort_domain(tree.personas.cohort, tree.personas.domain)
        tables = (asset_key(f"{domain}.{table}") for table in ("personas", "persona_embeddings"))
        return Plan([JobRun("personas", select=tuple(k.to_user_string() for k in tables))], [], [])
    world = prepare_world(tree)
    if job == "ingest":
        return Plan([JobRun(job)], [], [], world.unread, world.unused)
    domains = list(DOMAINS) if job == "everything" else [job]
    present = [name for name in domains if name in world.domains]
    if not present:
        raise ConfigError(
            f"no files for the {job} here",
            where=str(world.folder),
            hint=f"found: {', '.join(sorted(world.domains))}; see docs/data.md",
        )
    cohorts = {n: DOMAINS[n].cohort(tree.personas.cohort) for n in present}
    before: list[JobRun] = []
    imported = cohort_domain("imported", tree.personas.domain)
    if imported in present and world.has("persona_files"):
        # The imported cohort reads the files; the other assets show them, and what they are of.
        raw = ("raw.world_files", *SOURCES["persona_files"].datasets)
        files = (asset_key(name).to_user_string() for name in raw)
        table = asset_key(f"{imported}.personas")
        before = [
            JobRun("personas", "imported", select=(table.to_user_string(),), listed=False),
            JobRun("everything", select=tuple(files)),
        ]
    runs = [JobRun(name, cohorts.get(name)) for name in present]
    # Nobody misses data of their own where there is none, nor the others beside it.
    missed = () if tree.data.own.named else tuple(name for name in domains if name != "own")
    left_out = [name for name in missed if name not in present]
    return Plan([*before, *runs], present, left_out, world.unread, world.unused)


def _surrogates(tree: Settings) -> Plan:
    """A surrogate of each domain whose scores are stored."""
    from orchestration.headless import JobRun
    from orchestration.naming import asset_key
    from pipelines.contracts import SURROGATE_DOMAINS
    from pipelines.store import Store

    store = Store(tree.runtime.home)
    scored = [d for d in SURROGATE_DOMAINS if store.has(f"{d}.preference_scores")]
    made = [
        asset_key(f"{domain}.{table}").to_user_string()
        # Without any, the run says what is missing.
        for domain in scored or SURROGATE_DOMAINS
        for table in ("rating_surrogate", "surrogate_fidelity")
    ]
    return Plan([JobRun("train_surrogate", select=tuple(made))], [], [])


def _selected(names: Sequence[str], tree: Settings) -> list[JobRun]:
    """Runs of some assets of any domains: what domains share first."""
    from orchestration.headless import JobRun
    from pipelines.domains import DOMAINS

    parts: dict[str, list[str]] = {"everything": []}
    for domain in DOMAINS:
        parts[domain] = [name for name in names if domain in name.split("/")[:2]]
    parts["everything"] = [n for n in names if not any(n in own for own in parts.values())]
    return [JobRun(job, select=tuple(own)) for job, own in parts.items() if own]


class _Steps:
    """Step lines on stderr, and what is running now with its elapsed and remaining time.

    On a terminal a live line shows it; elsewhere a line is printed every ten seconds.
    """

    def __init__(self, *, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.screen = cli.console(stderr=True, markup=True)
        self.quiet = quiet
        self.clock = clock
        self.live: Any = None
        self.running: dict[str, float] = {}
        #: Stages of steps that run side by side: done, total, begin and last report of each.
        self.stages: dict[str, tuple[int, int | None, float, float]] = {}
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if self.quiet:
            return
        if self.screen.is_terminal:
            self.live = self.screen.status("loading")
            self.live.start()
        threading.Thread(target=self._repeat, name="progress", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self.live:
            self.live.stop()

    def _repeat(self) -> None:
        while not self._ended.wait(1.0 if self.live else _EVERY):
            self.tick()

    def tick(self) -> None:
        """Show what is running."""
        with self._lock:
            now = self.clock()
            name = min(self.running, key=self.running.__getitem__, default=None)
            if name is None:
                return
            seconds = now - self.running[name]
            text = escape(name)
            # Counts without a total have no end that would take them off: the latest stands.
            counts = {n: last for n, (_, total, _, last) in self.stages.items() if total is None}
            count = max(counts, key=counts.__getitem__, default=None)
            shown = [
                stage_line(stage, done, total, now - began)
                for stage, (done, total, began, last) in self.stages.items()
                if now - last < _STALE and (total is not None or stage == count)
            ]
            if shown:
                text += f"  [dim]{escape('; '.join(shown))}[/]"
            if self.live:
                self.live.update(f"{text}  {cli.human_seconds(seconds)}")
            else:
                self.screen.print(f"… {seconds:6.1f} s  {text}", soft_wrap=True)

    def step(self, event: str, name: str, seconds: float, detail: str) -> None:
        if self.quiet:
            return
        with self._lock:
            if event == "start":
                self.running[name] = self.clock()
            elif event != "check":
                self.running.pop(name, None)
                # A step's last report may be below its total. Steps that still run report again.
                self.stages = {
                    stage: (done, total, began, -math.inf)
                    for stage, (done, total, began, _) in self.stages.items()
                    if self.running
                }
        if event == "start":
            if self.live:
                self.live.update(escape(name))
            return
        mark = {"done": "[green]✓[/]", "failed": "[red]✗[/]", "check": "[yellow]![/]"}[event]
        took = f"{seconds:6.1f} s" if event != "check" else " " * 8
        line = f"{mark} {took}  {escape(name)}  [dim]{escape(detail)}[/]"
        self.screen.print(line, soft_wrap=True)

    def left_out(self, domains: Sequence[str]) -> None:
        """Say which domains have no files."""
        if domains and not self.quiet:
            names = ", ".join(domains)
            self.screen.print(f"[yellow]-[/]           {names}: left out, no files (docs/data.md)")

    def unread(self, plan: Plan) -> None:
        """List files of the data folder that are not read, and those that are of no use."""
        if self.quiet:
            return
        if plan.unread:
            shown = ", ".join(plan.unread[:_SHOWN])
            more = f" and {len(plan.unread) - _SHOWN} more" if len(plan.unread) > _SHOWN else ""
            text = escape(shown + more)
            self.screen.print(f"[yellow]-[/]           not read: {text}", soft_wrap=True)
        for text in plan.unused:
            self.screen.print(f"[yellow]-[/]           {escape(text)}", soft_wrap=True)

    def progress(self, stage: str, done: int, total: int | None) -> None:
        with self._lock:
            now = self.clock()
            began = self.stages[stage][2] if stage in self.stages else now
            self.stages[stage] = (done, total, began, now)
            if total is not None and done >= total:
                del self.stages[stage]
            if self.live:
                self.live.update(escape(stage_line(stage, done, total, now - began)))


def stage_line(stage: str, done: int, total: int | None, seconds: float) -> str:
    """Progress of a slow step, with an estimate of the remaining time.

    >>> stage_line("movies: scoring", 1_000, 4_000, 30.0)
    'movies: scoring 1,000 of 4,000, about 1 min 30 s left'
    >>> stage_line("downloading", 512, None, 3.0)
    'downloading 512'
    """
    if not total:
        return f"{stage} {done:,}"
    # Less than a hundredth tells nothing: the first piece waits for what is loaded.
    due = seconds >= 1 and done * 100 >= total
    left = f", about {cli.human_seconds(seconds * (total - done) / done)} left" if due else ""
    return f"{stage} {done:,} of {total:,}{left}"


def _payload(
    report: RunReport, settings: Settings, job: str, published: list[str], plan: Plan
) -> dict[str, Any]:
    from pipelines.sources import SOURCES, rejected_rows
    from pipelines.store import Store

    store = Store(settings.runtime.home)
    steps = {step.name for step in report.steps}
    return {
        "job": job,
        "run_id": report.run_id,
        "seconds": round(report.seconds, 1),
        "home": str(store.home),
        "steps": [
            {"name": s.name, "seconds": round(s.seconds, 2), "rows": s.rows} for s in report.steps
        ],
        "checks": {
            "passed": report.checks_passed,
            "warned": report.checks_warned,
            "failed": report.checks_failed,
            "not_applicable": report.checks_not_applicable,
        },
        "ui": f"http://127.0.0.1:{settings.runtime.ui_port}",
        "left_out": plan.left_out,
        "unread": list(plan.unread),
        "unused": list(plan.unused),
        "rejected": rejected_rows(store, [n for n in SOURCES if f"ingest_{n}" in steps]),
        "releases": [_released(store, settings, domain) for domain in published],
    }


def _released(store: Store, settings: Settings, domain: str) -> dict[str, Any]:
    from pipelines.quality import release_summary
    from pipelines.stages import release_name

    release = store.release(f"{release_name(settings, domain)}@latest")
    return {
        "domain": domain,
        "release": f"{release.name}@{release.version}",
        "world": release.world,
        "tables": {
            name: {"rows": lock.rows, "bytes": lock.bytes, "version": lock.version}
            for name, lock in release.tables.items()
        },
        "summary": release_summary(
            store, {name: release.snapshot(name) for name in release.tables}
        ),
    }


def _program() -> str:
    """Name of this program in the user's shell, or its path if it is not on PATH."""
    if shutil.which("understudy"):
        return "understudy"
    here = Path(sys.executable).with_name("understudy")
    return str(here.relative_to(Path.cwd())) if here.is_relative_to(Path.cwd()) else str(here)


def _render(screen: Console, payload: dict[str, Any]) -> None:
    from pipelines.sources import rejected_line

    checks = payload["checks"]
    screen.print()
    for released in payload["releases"]:
        from pipelines.quality import render_summary

        published, world = f"Published {released['release']}", escape(released["world"])
        screen.print(f"[bold]{published}[/]  (world: {world})", markup=True)
        rows = cli.table("table", "rows", "size", "version", numeric=("rows", "size"))
        for name, entry in released["tables"].items():
            rows.add_row(
                name, f"{entry['rows']:,}", cli.human_bytes(entry["bytes"]), entry["version"]
            )
        screen.print(rows)
        screen.print(render_summary(released["summary"]))
        screen.print()
    screen.print(
        f"Checks: {cli.shown_outcomes(checks)}.  "
        f"Took {payload['seconds']:.0f} s.  "
        f"Store: {payload['home']}",
        soft_wrap=True,
    )
    for name in checks["warned"]:
        screen.print(f"  [yellow]![/] {escape(name)}", markup=True, soft_wrap=True)
    for text in (*payload["unused"], *map(rejected_line, payload["rejected"])):
        screen.print(f"  [yellow]![/] {escape(text)}", markup=True, soft_wrap=True)
    if payload["left_out"]:
        screen.print(f"  - left out, no files: {', '.join(payload['left_out'])}")
    if payload["releases"]:
        program = _program()
        # Commands of another home than the one that they take by themselves name it.
        home = payload["home"]
        default_home = home == str(home_path(load_settings().runtime.home))
        of_home = "" if default_home else f" --home {shlex.quote(home)}"
        argument = "" if default_home else f", home={home!r}"
        first = payload["releases"][0]["release"].partition("@")[0]
        generated = all(entry["world"].startswith("sample") for entry in payload["releases"])
        real = f"{program} run --data <folder>{of_home}"
        on_real = [(real, "run the same on real files (docs/data.md)")] if generated else []
        lines = (
            (f"{program} episode{of_home}", "watch a simulated user rate what it is shown"),
            (f"{program} release show{of_home}", "what was published, and how it was checked"),
            (f"{program} ui{of_home}", f"the DAG in your browser: {payload['ui']}"),
            *on_real,
        )
        width = max(len(command) for command, _ in lines)
        screen.print(
            "\nNext:\n"
            + "".join(f"  {command:{width}}  {what}\n" for command, what in lines)
            + "\n"
            "  from understudy import open_release\n"
            f"  open_release('{first}@latest'{argument})['items'].polars()",
            soft_wrap=True,
            highlight=False,
        )
