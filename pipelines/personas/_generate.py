"""Cohorts of personas as frames of the `personas` contract."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from pipelines.config import PersonaSettings
from pipelines.domains import cohort_domain
from pipelines.errors import AnswerError, ConfigError
from pipelines.personas._attributes import sample_attributes
from pipelines.personas._lists import PersonaLists, load_lists
from pipelines.personas._writers import Writer, load_writer

#: Digits of a persona's number: written out so that ids sort by number.
ID_DIGITS = 7
_BATCH = 20_000


def generate(
    settings: PersonaSettings,
    *,
    start: int = 0,
    count: int | None = None,
    cohort: str | None = None,
    writer: Writer | None = None,
) -> pl.DataFrame:
    """Personas `start` to `start + count - 1` of a cohort: the `personas` contract, in its order.

    Tastes are in the domain that is the first word of the cohort's name, else in that of the
    settings. Persona n depends on (seed, cohort name, domain, n) only, so a cohort is the same
    whatever the batch size or the number of workers. The cohort's name and the writer, if given,
    replace those of the settings.

    Raises
    ------
    ConfigError
        If the range is empty or does not fit the id's digits.
    AnswerError
        If the writer could not describe some of them; the details list which and why.
    """
    frames = list(
        generate_batches(settings, start=start, count=count, cohort=cohort, writer=writer)
    )
    return pl.concat(frames)


def generate_batches(
    settings: PersonaSettings,
    *,
    start: int = 0,
    count: int | None = None,
    cohort: str | None = None,
    writer: Writer | None = None,
    batch: int = _BATCH,
    first_batch: int | None = None,
    error_budget: float = 0.0,
    lists: PersonaLists | None = None,
) -> Iterator[pl.DataFrame]:
    """Like `generate`, in frames of up to `batch` rows, in the contract's order.

    Personas that the writer could not describe are left out, up to the share `error_budget` of
    `count`; their numbers stay unused. None in the first frame, of up to `first_batch` rows, is an
    error at once.
    """
    cohort = cohort or settings.cohort
    count = settings.count - start if count is None else count
    if start < 0 or count < 1 or start + count > 10**ID_DIGITS:
        raise ConfigError(
            f"a cohort's personas are numbered from 0 to {10**ID_DIGITS - 1}, at least one",
            where=f"cohort {cohort}: {count} from {start}",
        )
    writer = writer or load_writer(settings.writer)
    lists = lists or load_lists(cohort_domain(cohort, settings.domain))
    failed: list[pl.DataFrame] = []
    edges = [start, *range(start + (first_batch or batch), start + count, batch), start + count]
    for first, end in itertools.pairwise(edges):
        index = np.arange(first, end, dtype=np.int64)
        attributes = sample_attributes(
            settings.seed, cohort, index, lists, min_age=settings.min_age
        )
        written = writer.write(attributes)
        sampled = attributes.drop(written.columns, strict=False)
        frame = pl.concat([sampled, written], how="horizontal")
        failed.append(frame.filter(pl.col("status") != "ok").select("index", "status"))
        lost = pl.concat(failed)
        nothing = first_batch is not None and lost.height == end - start
        if nothing or lost.height > error_budget * count:
            counts = lost["status"].value_counts(sort=True).rows()
            refusal = getattr(writer, "refusal", None)
            raise AnswerError(
                f"{lost.height} of {end - start} personas have no description",
                where=f"cohort {cohort}, writer {writer.name}"
                + (f"; {refusal}" if refusal else ""),
                hint=", ".join(f"{n} {status}" for status, n in counts)
                + f"; serving.error_budget allows {error_budget:.0%} of {count}",
                details={"rows": lost.head(10).to_dicts()},
            )
        yield _rows(frame.filter(pl.col("status") == "ok"), cohort, writer)


def _rows(frame: pl.DataFrame, cohort: str, writer: Writer) -> pl.DataFrame:
    """Rows of the contract."""
    number = pl.col("index").cast(pl.String).str.zfill(ID_DIGITS)
    return completed(
        frame.with_columns(
            persona_id=pl.lit(f"persona:{cohort}:") + number,
            cohort=pl.lit(cohort),
            origin=pl.lit("sampled"),
            writer=pl.lit(writer.name),
        )
    )


#: Columns of the `personas` contract.
SCHEMA: dict[str, Any] = {
    **dict.fromkeys(("persona_id", "cohort", "domain", "origin", "writer", "name"), pl.String),
    "age": pl.Int64,
    **dict.fromkeys(("gender", "job", "hobby"), pl.String),
    **dict.fromkeys(("likes", "dislikes"), pl.List(pl.String)),
    **dict.fromkeys(("leniency", "manner", "activity", "conformity"), pl.String),
    "description": pl.String,
}


def completed(frame: pl.DataFrame) -> pl.DataFrame:
    """The contract's columns of a frame: absent ones are null, or empty lists."""
    return frame.select(
        pl.col(name)
        if name in frame.columns
        else pl.lit([] if isinstance(kind, pl.List) else None, kind).alias(name)
        for name, kind in SCHEMA.items()
    )
