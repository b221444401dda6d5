"""Tables of ml-100k straight from the published archive, split and summed up by dbt's macros."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import jinja2
import polars as pl

from pipelines.config import Settings
from pipelines.warehouse import dbt_vars

__all__ = ["dbt_macros", "hundred_k_tables", "run_sql", "splits_by_dbt", "traits_by_dbt"]

GENRES = (
    "unknown", "Action", "Adventure", "Animation", "Children", "Comedy", "Crime", "Documentary",
    "Drama", "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi",
    "Thriller", "War", "Western",
)  # fmt: skip
_AGES = ((18, "under 18"), (25, "18-24"), (35, "25-34"), (45, "35-44"), (50, "45-49"),
         (56, "50-55"), (200, "56+"))  # fmt: skip


def dbt_macros(repository: Path) -> Any:
    """dbt's own macros, with the default settings as variables."""
    texts = [
        (repository / "dbt" / "macros" / name).read_text()
        for name in ("ratings.sql", "domains.sql")
    ]
    names = ("ref", "config", "source", "adapter", "execute", "return")
    values = dbt_vars(Settings())
    globals_ = {"var": values.__getitem__, **dict.fromkeys(names, lambda *_: "")}
    return (
        jinja2.Environment(autoescape=False).from_string("\n".join(texts), globals=globals_).module
    )


def run_sql(query: str, **tables: pl.DataFrame) -> pl.DataFrame:
    """A query over frames."""
    with duckdb.connect() as connection:
        for name, frame in tables.items():
            connection.register(name, frame.to_arrow())
        return connection.sql(query).pl()


def splits_by_dbt(repository: Path, ratings: pl.DataFrame) -> pl.DataFrame:
    """Rows of ``user, item, rating, rated_at`` with the column `split` of dbt's macro."""
    query = dbt_macros(repository).user_splits("rated_rows", "user", "item")
    return run_sql(query, rated_rows=ratings.with_columns(scale=pl.lit("1-5")))


def traits_by_dbt(
    repository: Path, interactions: pl.DataFrame, splits: pl.DataFrame, items: pl.DataFrame
) -> pl.DataFrame:
    """The table `training_traits`, made by the macros that the models call."""
    macros = dbt_macros(repository)
    query = macros.user_traits(macros.training_interactions("split_rows"), "item_rows")
    # The models of splits keep what they split, ratings and scales.
    rows = splits.join(interactions, on=["user_id", "item_id"], validate="1:1")
    return run_sql(query, split_rows=rows, item_rows=items)


def hundred_k_tables(archive: Path, repository: Path) -> Mapping[str, pl.DataFrame]:
    """``items, interactions, splits, human_users, training_traits`` of ml-100k."""
    with zipfile.ZipFile(archive) as packed:

        def read(name: str, separator: str) -> pl.DataFrame:
            member = next(n for n in packed.namelist() if n.endswith(name))
            text = packed.read(member).decode("latin-1").encode()
            return pl.read_csv(
                io.BytesIO(text), separator=separator, has_header=False, quote_char=None
            )

        ratings, films, people = read("u.data", "\t"), read("u.item", "|"), read("u.user", "|")
    ratings.columns = ["user", "item", "rating", "rated_at"]
    keys = SimpleNamespace(
        user_id=pl.format("ml-user:{}", "user"), item_id=pl.format("ml:{}", "item")
    )
    interactions = ratings.select(
        user_id=keys.user_id,
        item_id=keys.item_id,
        rating=pl.col("rating").cast(pl.Float64),
        scale=pl.lit("1-5"),
        rated_at=pl.from_epoch("rated_at").dt.replace_time_zone("UTC"),
    )
    splits = splits_by_dbt(repository, ratings).select(
        user_id=keys.user_id, item_id=keys.item_id, split="split"
    )
    flags = films.columns[5 : 5 + len(GENRES)]
    items = films.select(
        item_id=pl.format("ml:{}", films.columns[0]),
        title=pl.col(films.columns[1]).str.replace(r" \(\d{4}\)$", ""),
        year=pl.col(films.columns[1]).str.extract(r"\((\d{4})\)$").cast(pl.Int64),
        genres=pl.concat_list(
            pl.when(pl.col(flag) == 1).then(pl.lit(name))
            for flag, name in zip(flags[1:], GENRES[1:], strict=True)
        ).list.drop_nulls().list.sort(),
        directors=pl.lit([], pl.List(pl.String)),
    )  # fmt: skip
    band = pl.lit(None, pl.String)
    for below, name in reversed(_AGES):
        band = pl.when(pl.col(people.columns[1]) < below).then(pl.lit(name)).otherwise(band)
    users = people.select(
        user_id=pl.format("ml-user:{}", people.columns[0]),
        age_band=band,
        gender=people.columns[2],
        occupation=people.columns[3],
    )
    return {
        "items": items,
        "interactions": interactions,
        "splits": splits,
        "human_users": users,
        "training_traits": traits_by_dbt(repository, interactions, splits, items),
    }
