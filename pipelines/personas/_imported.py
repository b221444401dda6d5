"""Imported personas: what persona files state, as rows of the `personas` contract.

Their text is data that somebody else wrote and that later stands in prompts. Chat-template
mark-up is rejected when the files are read; here every run of white space and control characters
becomes one space, invisible formatting characters go, and braces become brackets, so that no
template takes a part of it for a slot.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import polars as pl

from pipelines.domains import cohort_domain
from pipelines.errors import ConfigError, ContractError
from pipelines.personas._generate import ID_DIGITS, completed
from pipelines.personas._lists import load_lists
from pipelines.personas._phrases import DOMAIN_NAMES
from pipelines.personas._reader import PRICE_TASTES, read_fields
from pipelines.renames import RENAMED
from pipelines.sources.persona_files import NOT_SAID

if TYPE_CHECKING:
    from pipelines.store import Snapshot

#: Raised when the same files would give other personas, or their fields are read in another way.
IMPORT_VERSION = "imported-5"
#: Longest description that the contract allows (characters).
_MAX_TEXT = 8000
_BATCH = 20_000
#: Opens the text of a persona that has attributes only.
_OPENING = "This is what is known of this person. "
_INVISIBLE = (
    r"[\x{AD}\x{34F}\x{61C}\x{180E}\x{200B}-\x{200F}\x{202A}-\x{202E}\x{2060}-\x{206F}\x{FEFF}]"
)
_INCOME = r'(?i)"[^"]*income[^"]*"\s*:\s*"[^"\d]{0,20}(\d[\d,]{0,12})'
#: Incomes below and from which a person looks for low or high prices (dollars a year; set by hand;
#: of 10,000 census records 22 % state less than the first and 37 % the second or more).
_LOW_INCOME, _HIGH_INCOME = 35_000, 100_000
_FEMALE, _MALE = ("female", "f", "woman"), ("male", "m", "man")


def imported(
    raw: pl.DataFrame, cohort: str = "imported", *, start: int = 0, domain: str = "movies"
) -> pl.DataFrame:
    """Personas of a frame of ``raw.persona_files``, one per row.

    Attributes that a row does not state stay null. An age band (``45 to 54 years``) is
    no age: it stays in the raw table, and in the description of a persona that has attributes
    only. Such a description lists the attributes; its writer is `statistical`. A text keeps the
    writer that the file states, else `unknown`. Likes and dislikes are empty, leniency and manner
    null: raters read them from the text (:func:`pipelines.personas.read_fields`). Of products they
    are read here, and a stated income sets the taste for prices that the text does not state: low
    ones below 35,000 dollars a year, high ones from 100,000.

    ``raw`` has rows of ``raw.persona_files`` in its order; the first persona's number is ``start``.
    The cohort's name may say the domain.

    Returns
    -------
    A frame of the `personas` contract with origin `imported`, in its order.

    Raises
    ------
    ContractError
        If there are no rows, or the texts of some are empty when cleaned.
    ConfigError
        If there are more than the ids' digits can number.
    """
    if raw.is_empty():
        raise ContractError("no personas to import", where="raw.persona_files")
    if start + raw.height > 10**ID_DIGITS:
        raise ConfigError(
            f"a cohort's personas are numbered from 0 to {10**ID_DIGITS - 1}",
            where=f"cohort {cohort}: {raw.height} from {start}",
        )
    listed = _attribute_texts(raw["attributes"])
    texts = raw.select(_neutral("text").alias("text")).to_series()
    number = pl.int_range(start, start + raw.height).cast(pl.String).str.zfill(ID_DIGITS)
    stated = raw.with_columns(listed=listed, own=texts).select(
        persona_id=pl.lit(f"persona:{cohort}:") + number,
        cohort=pl.lit(cohort),
        domain=pl.lit(cohort_domain(cohort, domain)),
        origin=pl.lit("imported"),
        writer=pl.when(pl.col("own").is_null())
        .then(pl.lit("statistical"))
        .otherwise(pl.coalesce(_neutral("writer").replace(RENAMED), pl.lit("unknown"))),
        name=_said("name"),
        age=_age(),
        gender=_gender(),
        job=_job(),
        description=pl.coalesce("own", "listed"),
    )
    frame = completed(stated)
    without = frame.filter(pl.col("description").is_null())
    if without.height:
        raise ContractError(
            f"{without.height} personas have neither a text nor an attribute",
            where="raw.persona_files",
            details={"rows": without.select("persona_id").head(10).to_dicts()},
        )
    domain = frame["domain"][0]
    genres = load_lists(domain).genres if domain in DOMAIN_NAMES else []
    if not set(genres) >= PRICE_TASTES:
        return frame
    read = read_fields(frame, genres).drop("read")
    tastes = pl.concat_list("likes", "dislikes").list.set_intersection(sorted(PRICE_TASTES))
    likes = pl.concat_list(
        "likes", pl.when(tastes.list.len() == 0).then(_price_taste(raw["attributes"]))
    )
    return frame.with_columns(
        read.with_columns(likes=likes.list.drop_nulls().list.unique().list.sort())
    )


def _price_taste(attributes: pl.Series) -> pl.Series:
    """The taste for prices that goes with a stated income; null where none is stated."""
    income = attributes.str.extract(_INCOME, 1).str.replace_all(",", "").cast(pl.Int64)
    high, low = sorted(PRICE_TASTES)
    return pl.select(
        pl.when(income < _LOW_INCOME)
        .then(pl.lit(low))
        .when(income >= _HIGH_INCOME)
        .then(pl.lit(high))
    ).to_series()


def imported_batches(
    raw: Snapshot, cohort: str = "imported", *, rows: int = _BATCH, domain: str = "movies"
) -> Iterator[pl.DataFrame]:
    """Like :func:`imported`, for a snapshot of ``raw.persona_files``, some rows at a time."""
    start = 0
    for frame in raw.scan().collect_batches(chunk_size=rows, maintain_order=True):
        if frame.height:
            yield imported(frame, cohort, start=start, domain=domain)
            start += frame.height


def _neutral(column: str) -> pl.Expr:
    """The text without invisible and control characters, in single spaces; null if empty."""
    return (
        pl.col(column)
        .str.replace_all(_INVISIBLE, "")
        .str.replace_all(r"[\p{Z}\p{Cc}]+", " ")
        .str.replace_all("{", "(", literal=True)
        .str.replace_all("}", ")", literal=True)
        .str.strip_chars(" ")
        .replace("", None)
    )


def _said(column: str) -> pl.Expr:
    value = _neutral(column)
    return pl.when(~value.str.to_lowercase().is_in(sorted(NOT_SAID))).then(value)


def _age() -> pl.Expr:
    years = pl.col("age").str.extract(r"^\s*(\d{1,3})(?:\s*years?(?:\s*old)?)?\s*$", 1)
    age = years.cast(pl.Int64)
    return pl.when(age.is_between(4, 100)).then(age)


def _gender() -> pl.Expr:
    value = _neutral("gender").str.to_lowercase()
    return (
        pl.when(value.is_in(_FEMALE))
        .then(pl.lit("female"))
        .when(value.is_in(_MALE))
        .then(pl.lit("male"))
        .otherwise(pl.lit(None, pl.String))
    )


def _job() -> pl.Expr:
    value = _said("job")
    low = value.str.to_lowercase()
    return pl.when(low.is_in(("student", "retired"))).then(low).otherwise(value)


def _attribute_texts(attributes: pl.Series) -> pl.Series:
    """Texts that list each row's attributes; null for rows without any."""
    import duckdb

    table = pl.DataFrame({"attributes": attributes}).with_row_index("row").to_arrow()
    with duckdb.connect() as connection:
        connection.register("persona_attributes", table)
        listing = connection.execute(_LISTING, {"nothing": sorted(NOT_SAID)}).to_arrow_table()
    frame = pl.from_arrow(listing)
    assert isinstance(frame, pl.DataFrame)
    return (
        frame.select(
            pl.when(pl.col("listed") != "")
            .then(pl.lit(_OPENING) + pl.col("listed").str.slice(0, _MAX_TEXT - len(_OPENING)))
            .alias("listed")
        )
        .select(_neutral("listed"))
        .to_series()
    )


_LISTING = """
    select
        array_to_string(list_transform(
            list_filter(
                map_entries(from_json(attributes, '"MAP(VARCHAR, VARCHAR)"')),
                lambda e: not list_contains($nothing, lower(trim(e.value)))
            ),
            lambda e:
                upper(e.key[1]) || lower(replace(e.key[2:], '_', ' ')) || ': ' || e.value || '.'
        ), ' ') as listed
    from persona_attributes
    order by row
"""
