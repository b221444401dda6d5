"""Synthetic users: cohorts, each generated, imported or written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import polars as pl

from pipelines import personas
from pipelines.config import EngineSettings, Settings
from pipelines.domains import DOMAINS, cohort_domain
from pipelines.errors import ConfigError
from pipelines.personas import HANDMADE, IMPORTED, OWN, is_matched
from pipelines.plugins import closing
from pipelines.progress import advance
from pipelines.stages._stage import Inputs, Report, Stage
from pipelines.store import Build, Snapshot, Table

__all__ = ["STAGES"]

#: Personas per step of a generation: what is lost of the statistical writer's work by a kill (a
#: model's replies are kept one by one in the answer store), and how often progress is reported.
_STEP = 2_000
#: Personas that a model writes first (count): if none of them is usable, the run stops.
_FIRST = 16


@contextmanager
def cohort(inputs: Inputs, settings: Settings, report: Report) -> Iterator[Build]:
    """Generate one cohort and add it to a new version of the table.

    ``imported...`` takes the world's persona files, ``handmade...`` the personas of the test
    suites, ``matched`` and ``<domain>-matched`` the personas of matched users; any other name is
    generated.
    """
    name, domain = str(inputs.partition), inputs.domain
    raw = _given(inputs, report)
    identity: dict[str, Any]
    if raw is not None and is_matched(name):
        identity = {"matches": raw.version, "code": personas.MATCHED_VERSION}
    elif raw is not None:
        identity = {"files": raw.version, "code": personas.IMPORT_VERSION, "domain": domain}
        if settings.personas.reader == "model":
            identity["reader"] = personas.READER_PROMPT_VERSION
            identity["engine"] = settings.engine.identity_values()
    elif name.startswith(HANDMADE):
        identity = {"code": personas.HANDMADE_VERSION}
    else:
        identity = _settings(settings, domain) | _own_genres(inputs)
        report.shown["writing"] = {"writer": settings.personas.writer}
        report.shown["joint_shares_backed_off"] = list(_lists(inputs).backed_off)

    def make() -> list[Table]:
        return [Table(f"{domain}.personas", _written(inputs, settings, domain, raw, report))]

    yield Build((f"{domain}.personas",), make, personas.CODE_VERSION, identity, {})


#: Genres of a data set of one's own that personas have opinions of (count), and the fewest ratings
#: from which the share of good ones counts.
_MAX_GENRES, _MIN_RATINGS = 24, 10


def _own_genres(inputs: Inputs) -> dict[str, Any]:
    """Most rated genres of a data set of one's own, each with the share of ratings of 3.5 or more.

    Nothing for other domains, whose genres are packaged. Raises ConfigError if no item has a genre.
    """
    if inputs.domain != OWN:
        return {}
    store = inputs.context.store
    items = store.current(f"{OWN}.items").scan().select("item_id", genre="genres")
    ratings = store.current(f"{OWN}.interactions").scan().select("item_id", "rating")
    genres = (
        items.explode("genre")
        .drop_nulls("genre")
        .join(ratings, on="item_id")
        .group_by("genre")
        .agg(ratings=pl.len(), liked=(pl.col("rating") >= 3.5).mean().round(3).clip(0.1, 0.9))
        .sort(["ratings", "genre"], descending=[True, False])
        .head(_MAX_GENRES)
        .with_columns(pl.when(pl.col("ratings") >= _MIN_RATINGS).then("liked").otherwise(0.5))
        .select("genre", "liked")
        .collect(engine="streaming")
        .rows()
    )
    chosen = inputs.context.settings.personas
    if chosen.writer == "model" and chosen.genres == "model":
        raise ConfigError(
            "a model can't choose among genres of one's own data",
            where="personas.genres",
            hint="use `sampled`",
        )
    if not genres:
        raise ConfigError(
            "no rated item has a genre, so that personas can have no tastes",
            where=f"{OWN}.items",
            hint="name a column of kinds with `genres: COLUMN` in --columns",
        )
    return {"genres_of_data": genres}


def _lists(inputs: Inputs) -> personas.PersonaLists:
    """Lists that the domain's personas are drawn from."""
    genres = _own_genres(inputs).get("genres_of_data", ())
    return personas.load_lists(inputs.domain, tuple(genres))


def _settings(settings: Settings, domain: str) -> dict[str, Any]:
    """Settings that decide a generated cohort."""
    identity = settings.personas.model_dump(mode="json", exclude={"cohort"})
    identity["domain"] = domain
    if settings.personas.writer == "model":
        identity["engine"] = settings.engine.identity_values()
    return identity


def _given(inputs: Inputs, report: Report) -> Snapshot | None:
    """The table that a cohort is taken from; None for one that is generated."""
    name = str(inputs.partition)
    if is_matched(name):
        dataset = f"{inputs.domain}.matched_personas"
        if not inputs.context.store.has(dataset):
            raise ConfigError(
                "no user has been matched",
                where=f"cohort {name}",
                hint=f"run `understudy match --domain {inputs.domain}` first",
            )
        return inputs.context.store.current(dataset)
    return _persona_files(inputs, report) if name.startswith(IMPORTED) else None


def _persona_files(inputs: Inputs, report: Report) -> Snapshot:
    """The world's persona files, read now.

    As an input of the stage they would leave out every cohort where there are no files.
    """
    from pipelines.sources import ingest
    from pipelines.worlds import prepare_world

    settings = inputs.context.settings
    world = prepare_world(settings)
    if not world.has("persona_files"):
        raise ConfigError(
            "no persona files to import",
            where=f"cohort {inputs.partition}",
            hint="put them into personas/ of the data folder, or set data.personas.files",
        )
    store = inputs.context.store
    snapshots = ingest("persona_files", world, store, settings, run_id=inputs.run_id)
    return snapshots["raw.persona_files"]


def _written(
    inputs: Inputs, settings: Settings, domain: str, raw: Snapshot | None, report: Report
) -> Iterator[pl.DataFrame]:
    """Personas of the cohort, in the table's order."""
    name, writer, total = str(inputs.partition), None, 0
    # Zero too: counts of an earlier version of the cohort do not hold for this one.
    report.cohort_stats["invalid"] = 0
    chosen = settings.personas.model_copy(update={"cohort": name, "domain": domain})
    if raw is not None and is_matched(name):
        frames = iter([personas.matched_personas(raw.read())])
    elif raw is not None:
        frames = personas.imported_batches(raw, name, domain=domain)
        # Counts of an earlier version of the cohort do not hold for this one.
        report.cohort_stats["reader"] = {}
        if settings.personas.reader == "model":
            frames = _read_by_model(inputs, settings, frames, report)
    elif name.startswith(HANDMADE):
        frames = iter([personas.handmade_personas(domain, cohort=name)])
    else:
        writer = personas.load_writer(chosen.writer, settings)
        asks = chosen.writer == "model"
        frames = personas.generate_batches(
            chosen,
            writer=writer,
            batch=settings.serving.window if asks else _STEP,
            first_batch=_FIRST if asks else None,
            error_budget=settings.serving.error_budget,
            lists=_lists(inputs),
        )
    with closing(writer):
        for frame in frames:
            yield frame
            total += frame.height
            planned = raw.rows if raw is not None else chosen.count
            advance(f"personas of {name}", total, max(planned, total))
        metadata = getattr(writer, "metadata", None)
        report.shown["writing"] = (
            dict(metadata()) if metadata else {"writer": getattr(writer, "name", "none")}
        )
    if writer is not None:
        report.cohort_stats["invalid"] = chosen.count - total
    report.cohort_stats["cohorts"] = total


def _read_by_model(
    inputs: Inputs, settings: Settings, frames: Iterator[pl.DataFrame], report: Report
) -> Iterator[pl.DataFrame]:
    """Imported personas with the fields that a model reads from their texts."""
    from pipelines.llm.answers import AnswerStore
    from pipelines.llm.engines import load_engine

    engine = load_engine(settings.engine, settings.serving)
    store = AnswerStore(settings.runtime.home, settings.serving)
    genres = _lists(inputs).genres
    with personas.ModelReader(
        engine, inputs.domain, store=store, serving=settings.serving
    ) as reader:
        for frame in frames:
            yield reader.read_fields(frame, genres)
        report.cohort_stats["reader"] = reader.metadata()


def _asked(settings: Settings, cohort: str | None) -> list[tuple[EngineSettings, bool]]:
    """The engine, if a model writes or reads the cohort."""
    name = str(cohort)
    if is_matched(name) or name.startswith(HANDMADE):
        return []
    chosen = settings.personas.reader if name.startswith(IMPORTED) else settings.personas.writer
    return [(settings.engine, False)] if chosen == "model" else []


def _stage(domain: str) -> Stage:
    def left_out(settings: Settings, name: str | None) -> str | None:
        in_domain = cohort_domain(str(name), settings.personas.domain) == domain
        return None if in_domain else f"{name} is not a cohort of the {domain}"

    return Stage(
        datasets=(f"{domain}.personas",),
        code_version=personas.CODE_VERSION,
        open=cohort,
        settings=lambda settings: _settings(settings, domain),
        by_cohort=True,
        after=(f"{OWN}.items", f"{OWN}.interactions") if domain == OWN else (),
        left_out=left_out,
        asks=_asked,
    )


STAGES = [_stage(name) for name in DOMAINS]
