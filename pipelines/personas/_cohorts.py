"""Cohorts in the store: written alone, kept beside the others, never half."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from pipelines.errors import ConfigError, LockedError
from pipelines.personas._generate import generate_batches
from pipelines.personas._imported import IMPORT_VERSION, imported_batches
from pipelines.personas._writers import Writer, load_writer
from pipelines.scratch import scratch_folder

if TYPE_CHECKING:
    from pipelines.config import Settings
    from pipelines.store import Snapshot, Store

__all__ = ["HANDMADE", "IMPORTED", "Cohort", "write_cohort"]

#: Cohorts whose name begins so come from the world's persona files, or were written by hand.
IMPORTED, HANDMADE = "imported", "handmade"
#: Personas per step of a generation: what is lost of the statistical writer's work by a kill (a
#: model's replies are kept one by one in the answer store), and how often progress is told.
_STEP = 2_000
#: Seconds to wait for another process that is writing its cohort into the table.
_PATIENCE = 120.0


@dataclass
class Cohort:
    """What writing a cohort came to.

    Attributes
    ----------
    snapshot
        The table with this cohort and all others.
    personas
        Of this cohort (count).
    facts
        Writer, model and prompt; tokens and calls of this run. JSON-ready.
    """

    snapshot: Snapshot
    personas: int
    facts: dict[str, Any] = field(default_factory=dict)


def write_cohort(
    store: Store,
    settings: Settings,
    cohort: str,
    *,
    code_version: str,
    run_id: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    raw: Snapshot | None = None,
) -> Cohort:
    """Make one cohort and commit it beside the others as a new version of ``personas``.

    The rows are made first and then joined with those of the other cohorts under a lock, so
    that cohorts made at the same time don't lose each other. A cohort equal to the one that is
    there gives the version that is there.

    Parameters
    ----------
    store, settings
        Where, and how many, by whom, with which seed.
    cohort
        Its name, which also says its domain (:func:`pipelines.domains.cohort_domain`).
        ``imported...`` takes the personas of `raw`, ``handmade...`` those of the test suites.
    code_version, run_id
        For the manifest.
    progress
        Called with the personas done and planned.
    raw
        Snapshot of ``raw.persona_files``, for an imported cohort.

    Raises
    ------
    ConfigError
        If an imported cohort is asked for without persona files.
    AnswerError
        If the writer could not describe some; everything it did is kept in the answer store.
    EngineError
        If the model died; a rerun goes on where it stopped.
    LockedError
        If another process makes this cohort, or keeps the table locked.
    """
    writer = _writer(settings, cohort)
    try:
        # One process at a time makes a cohort of this name.
        with scratch_folder(store.home, f"cohort-{cohort}") as folder:
            made = _make(folder, settings, cohort, writer, progress, raw)
            facts = _facts(writer)
            with _table_lock(store.home):
                snapshot = _join(
                    store, cohort, made, _config(settings, cohort, made, raw), code_version, run_id
                )
    finally:
        close = getattr(writer, "close", None)
        if close is not None:
            close()
    return Cohort(snapshot, made.personas, facts)


@dataclass
class _Made:
    """Parquet parts of the new cohort, in the table's order."""

    parts: list[Path]
    personas: int


def _writer(settings: Settings, cohort: str) -> Writer | None:
    if cohort.startswith((IMPORTED, HANDMADE)):
        return None
    return load_writer(settings.personas.writer, settings)


def _make(
    folder: Path,
    settings: Settings,
    cohort: str,
    writer: Writer | None,
    progress: Callable[[int, int], None] | None,
    raw: Snapshot | None,
) -> _Made:
    made, planned = _Made([], 0), settings.personas.count
    if raw is not None:
        planned = raw.rows
    for frame in _frames(settings, cohort, writer, raw):
        part = folder / f"{len(made.parts):06d}.parquet"
        frame.write_parquet(part)
        made.parts.append(part)
        made.personas += frame.height
        if progress is not None:
            progress(made.personas, max(planned, made.personas))
    return made


def _frames(
    settings: Settings, cohort: str, writer: Writer | None, raw: Snapshot | None
) -> Iterator[pl.DataFrame]:
    if cohort.startswith(IMPORTED):
        if raw is None:
            raise ConfigError(
                "there are no persona files to import",
                where=f"cohort {cohort}",
                hint="put them into personas/ of the data folder, or set data.personas.files",
            )
        return imported_batches(raw, cohort, domain=settings.personas.domain)
    if cohort.startswith(HANDMADE):
        from pipelines.personas._handmade import handmade_personas

        return iter([handmade_personas(_domain(settings, cohort), cohort=cohort)])
    planned = settings.personas.model_copy(
        update={"cohort": cohort, "domain": _domain(settings, cohort)}
    )
    model = settings.personas.writer == "model"
    step = settings.serving.window if model else _STEP
    return generate_batches(planned, writer=writer, batch=step)


def _domain(settings: Settings, cohort: str) -> str:
    from pipelines.domains import cohort_domain

    return cohort_domain(cohort.removeprefix(f"{HANDMADE}-"), settings.personas.domain)


def _facts(writer: Writer | None) -> dict[str, Any]:
    facts = getattr(writer, "facts", None)
    return dict(facts()) if facts is not None else {"writer": getattr(writer, "name", "none")}


def _config(settings: Settings, cohort: str, made: _Made, raw: Snapshot | None) -> dict[str, Any]:
    """What decides this cohort's rows."""
    if raw is not None:
        return {"count": made.personas, "files": raw.version, "code": IMPORT_VERSION}
    if cohort.startswith(HANDMADE):
        return {"count": made.personas}
    planned = settings.personas.model_dump(mode="json", exclude={"cohort"})
    planned["domain"] = _domain(settings, cohort)
    if settings.personas.writer == "model":
        planned["engine"] = settings.engine.identity_values()
    return planned


def _join(
    store: Store,
    cohort: str,
    made: _Made,
    config: dict[str, Any],
    code_version: str,
    run_id: str | None,
) -> Snapshot:
    before = store.current("personas") if store.has("personas") else None
    configs: dict[str, Any] = {}
    counts: dict[str, int] = {}
    if before is not None:
        configs = dict(before.manifest.config.get("cohorts", {}))
        counts = {name: int(n) for name, n in before.manifest.stats.get("cohorts", [])}
    configs[cohort], counts[cohort] = config, made.personas
    with store.write(
        "personas", code_version=code_version, config={"cohorts": configs}, run_id=run_id
    ) as writer:
        # Ids begin with the cohort's name; as a text, `a` comes before `a-b` only with the
        # colon that follows it in the id.
        for name in sorted(counts, key=lambda n: f"{n}:"):
            if name == cohort:
                for part in made.parts:
                    writer.append(pl.read_parquet(part))
            elif before is not None:
                kept = before.scan().filter(pl.col("cohort") == name)
                for frame in kept.collect_batches(maintain_order=True):
                    if frame.height:
                        writer.append(frame)
        writer.note(cohorts=[[name, n] for name, n in sorted(counts.items())])
    return writer.snapshot


@contextmanager
def _table_lock(home: Path) -> Iterator[None]:
    import filelock

    path = home / "_locks" / "personas.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path, timeout=_PATIENCE)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise LockedError(
            "another process is writing personas", where=str(path), hint="try again later"
        ) from None
    try:
        yield
    finally:
        lock.release()
