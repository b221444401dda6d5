"""Faults, what they are injected into, what is promised then, and the tests that hold it.

Steps come from the asset graph, sources, engines, raters and writers from their registries, so that
a new one is in the table when it is registered. As a program it writes the table into
``docs/reliability.md``.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [p for p in (str(REPOSITORY), str(REPOSITORY / "tests")) if p not in sys.path]

from support.step_graph import steps_of_job  # noqa: E402

from pipelines.domains import DOMAINS  # noqa: E402
from pipelines.seams import ENGINES, RATERS, SOURCES, WRITERS  # noqa: E402

__all__ = ["FAULTS", "PAGE", "SUBJECTS", "Fault", "page", "step_kinds"]

PAGE = REPOSITORY / "docs" / "reliability.md"
BEGIN, END = "<!-- table: written by tests/support/promises.py (make docs) -->", "<!-- end -->"
#: `make test`, `make test-pipeline` (CI runs both), `make test-all` and `make soak`.
TIERS = ("commit", "merge", "night")
#: The job whose steps are killed; what judges a release afterwards has tests of its own.
JOBS = ("everything",)


def step_kinds() -> dict[str, list[str]]:
    """Steps of all jobs by name, domains left out: ``<domain>_items`` → movies, books …."""
    kinds: dict[str, list[str]] = {}
    for step in (step for job in JOBS for step in steps_of_job(job)):
        words = step.split("_")
        domain = next((word for word in words if word in DOMAINS), "")
        name = "_".join("<domain>" if word == domain else word for word in words)
        kinds.setdefault(name, []).append(domain)
    return kinds


#: Members of each axis of the fault table, by the name of the axis.
SUBJECTS: dict[str, Callable[[], list[str]]] = {
    "steps": lambda: [step for job in JOBS for step in steps_of_job(job)],
    "sources": lambda: list(SOURCES),
    "engines": lambda: list(ENGINES),
    "raters": lambda: list(RATERS),
    "writers": lambda: list(WRITERS),
}


@dataclass(frozen=True)
class Fault:
    """A row.

    Attributes
    ----------
    name
        What happens.
    into
        An axis of `SUBJECTS` (all of its members), or another place in words.
    promise
        What holds then.
    tests
        ``file::test`` below ``tests``, or a program.
    """

    name: str
    into: str
    promise: str
    tests: tuple[str, ...]


KILLS = "faults/test_step_kills.py"
HOME = "faults/test_home_faults.py"
STORE = "faults/test_store_kills.py"
DISK = "faults/test_store_full_disk.py"
PUSH = "pipelines/store/test_store_push.py"
TITLES = "faults/test_hostile_titles.py"
SOURCE = "faults/test_source_faults.py"
ENGINE = "pipelines/llm/engines"

FAULTS = (
    Fault(
        "SIGKILL of every process",
        "steps",
        "Whole tables and the old `latest`; a plain rerun publishes; `_staging` is empty.",
        (
            f"{KILLS}::test_kill_at_step_leaves_whole_tables",
            f"{KILLS}::test_plain_rerun_after_all_kills_publishes",
            "../benchmarks/soak/soak.py",
        ),
    ),
    Fault(
        "SIGKILL of a process that runs a step",
        "a run in several processes",
        "One error that names the step; its pool's slot is free; a rerun does only the rest. "
        "Workers end with a killed run.",
        ("faults/test_worker_processes.py",),
    ),
    Fault(
        "SIGKILL at any file operation",
        "the store: commit, checks, publish",
        "The same; no half file under a visible name.",
        (
            f"{STORE}::test_a_kill_at_any_file_operation_leaves_only_whole_things",
            f"{STORE}::test_a_kill_in_the_middle_of_any_write_leaves_only_whole_things",
        ),
    ),
    Fault(
        "a push ends at any write: refused, or its answer is lost",
        "releases on an object store",
        "The releases that were there open as before; the next push finishes; exit code 5 without "
        "a credential in the text.",
        (
            f"{PUSH}::test_push_that_ends_at_any_write_leaves_older_release_and_is_finished_by_the_next",
            f"{PUSH}::test_refused_push_shows_no_credential",
        ),
    ),
    Fault(
        "SIGKILL while a cohort is written or scored",
        "personas, scores, answers",
        "Every stored answer stays; none is asked for twice but those in flight.",
        (
            "faults/test_scoring_kills.py",
            "faults/test_answers_kills.py",
        ),
    ),
    Fault(
        "Ctrl-C at a terminal",
        "a run with parallel work",
        "Exit code 130, one line, no process left, whole tables.",
        ("faults/test_terminal_interrupts.py::test_ctrl_c_at_terminal_ends_parallel_work",),
    ),
    Fault(
        "the disk fills up",
        "a run, the store, the answer store",
        "Exit code 5 with the free space named; after space was made a rerun publishes.",
        (
            f"{KILLS}::test_disk_that_fills_up_ends_run_with_exit_5",
            f"{KILLS}::test_run_after_space_was_made_publishes_on_60_mb",
            DISK,
            "faults/test_answers_full_disk.py",
        ),
    ),
    Fault(
        "a read-only home",
        "commands that read, commands that write",
        "Reading works in full; writing ends with exit code 5 and one line.",
        (
            f"{HOME}::test_release_opens_from_read_only_home",
            f"{HOME}::test_write_to_read_only_home_is_exit_5",
        ),
    ),
    Fault(
        "two processes at once",
        "one home on one machine",
        "One run, the other one ends with exit code 5; commits, checks, releases and answers of "
        "both are whole.",
        ("faults/test_store_processes.py", "faults/test_answers_writers.py"),
    ),
    Fault(
        "the clock goes one day back",
        "the store",
        "`<name>@latest` and the current tables are those written last.",
        (f"{HOME}::test_clock_one_day_back_does_not_hide_newest_release",),
    ),
    Fault(
        "the pointer is set back, or names a removed release",
        "`latest`",
        "The older release opens; nothing of the newer one is lost; a removed one is named.",
        (
            f"{HOME}::test_pointer_set_back_opens_older_release_until_next_publish",
            f"{HOME}::test_pointer_to_removed_release_is_named",
        ),
    ),
    Fault(
        "a home of another version",
        "older and newer homes",
        "An older home is adopted and a run on it publishes; a newer one is refused before "
        "anything is written.",
        (
            "faults/test_store_formats.py::test_home_of_previous_version_opens_and_is_adopted",
            "faults/test_store_formats.py::test_home_of_newer_version_is_refused",
            f"{KILLS}::test_plain_rerun_after_all_kills_publishes",
        ),
    ),
    Fault(
        "stored bytes change",
        "tables, lock files, cards, upstream snapshots",
        "`release verify` names the file; `--lineage` also for everything that the tables were "
        "made from.",
        ("pipelines/store/test_store_releases.py::test_lineage_verification_reads_raw_snapshots",),
    ),
    Fault(
        "an original file is a dangling link, a FIFO or a folder",
        "sources",
        "An error that names the file, within seconds; never 0 rows without a word.",
        (f"{SOURCE}::test_file_that_is_none_is_named",),
    ),
    Fault(
        "an original archive is cut off, a text has a broken line; a file is empty or noise",
        "sources",
        "An error that names the file, or its rows are listed as rejected.",
        (f"{SOURCE}::test_damaged_file_is_named_or_its_rows_are_listed",),
    ),
    Fault(
        "hostile titles: escape sequences, template braces, HTML, new lines, instructions, "
        "right-to-left marks",
        "card, prompt, Dagster's pages, terminal",
        "Text stays text in its place; the stored title is unchanged.",
        (
            f"{TITLES}::test_dataset_card_shows_hostile_texts_as_text",
            f"{TITLES}::test_prompt_keeps_a_hostile_title_in_its_line",
            f"{TITLES}::test_dagster_metadata_shows_hostile_titles_as_text",
            f"{TITLES}::test_terminal_gets_no_active_characters",
        ),
    ),
    Fault(
        "requests that can't be served, callers that fail, early close",
        "engines",
        "One answer per request with its status; the engine goes on.",
        (
            f"{ENGINE}/test_transformers_contract.py",
            f"{ENGINE}/test_openai_contract.py",
            f"{ENGINE}/test_scripted_contract.py",
            f"{ENGINE}/test_vllm_server_engine.py",
            "pipelines/llm/grammars/test_guidance_engine.py",
            "vllm/test_vllm_contract.py",
        ),
    ),
    Fault(
        "the key expires in the middle of a run",
        "engine `openai`",
        "The run ends; what was answered is stored; with a new key only the rest is requested.",
        (
            f"{ENGINE}/test_openai_faults.py"
            "::test_a_key_that_expires_stops_the_run_and_a_new_key_asks_the_rest",
        ),
    ),
    Fault(
        "a server that errs, hangs or lies",
        "engine `openai`",
        "Bounded retries; what is answered is stored; a failed answer is never a rating.",
        (f"{ENGINE}/test_openai_faults.py", "faults/test_scoring_faults.py"),
    ),
    Fault(
        "pairs without history, neighbours that fail",
        "raters",
        "A distribution or a status per pair, independent of the others.",
        (
            "pipelines/raters/test_rater_conformance.py",
            "pipelines/raters/test_llm_rater.py",
            "pipelines/raters/test_ensemble_and_replay.py",
        ),
    ),
    Fault(
        "SIGKILL of a cohort's writing, hostile replies",
        "writers",
        "No lost or duplicate persona; a reply outside its grammar is no persona.",
        ("pipelines/personas/test_model_writer.py", "pipelines/personas/test_persona_text.py"),
    ),
)


def page() -> str:
    """The page with a fresh table."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{_faults()}\n{_subjects()}\n{END}{after}"


def tiers(reference: str) -> list[str]:
    """When a test of the table runs: with every commit, with every merge, at night.

    Read from the marks of the file and of its tests; ``make soak`` is night work.
    """
    file, _, name = reference.partition("::")
    path = REPOSITORY / "tests" / file
    if path.is_relative_to(REPOSITORY / "tests" / "vllm"):
        return ["merge"]
    if not path.name.startswith("test_"):
        return ["night"]
    module = ast.parse(path.read_text(encoding="utf-8"))
    shared = {
        mark
        for node in module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
        for mark in _marks(node.value)
    }
    marks = []
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith(name or "test_"):
            marks.append(shared.union(*map(_marks, node.decorator_list)))
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test") and not name:
            # Its tests are those of the seam's conformance class.
            marks.append(shared.union(*map(_marks, node.decorator_list)))
    return sorted({_tier(names) for names in marks}, key=TIERS.index)


def _marks(expression: ast.expr) -> set[str]:
    """Names of the marks in an expression: ``pytest.mark.<name>``."""
    return {node.attr for node in ast.walk(expression) if isinstance(node, ast.Attribute)}


def _tier(marks: set[str]) -> str:
    return "night" if "night" in marks else "merge" if "pipeline" in marks else "commit"


def _faults() -> str:
    lines = ["| fault | into | promise | held by | when |", "|---|---|---|---|---|"]
    for fault in FAULTS:
        into = fault.into
        if into in SUBJECTS:
            into = f"all {len(SUBJECTS[into]())} {into}"
        tests = "<br>".join(f"`{test.removeprefix('../')}`" for test in fault.tests)
        when = "<br>".join(", ".join(tiers(test)) for test in fault.tests)
        lines.append(f"| {fault.name} | {into} | {fault.promise} | {tests} | {when} |")
    return "\n".join(lines) + "\n"


def _subjects() -> str:
    lines = ["| axis | members |", "|---|---|"]
    kinds = [
        f"`{kind}` ({', '.join(domains)})" if any(domains) else f"`{kind}`"
        for kind, domains in step_kinds().items()
    ]
    lines.append(f"| steps | {', '.join(kinds)} |")
    for axis, members in SUBJECTS.items():
        if axis != "steps":
            lines.append(f"| {axis} | {', '.join(f'`{m}`' for m in members())} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
