"""Formats of recommender libraries: users, items and ratings as MovieLens, RecBole and LensKit."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from pipelines.errors import ReleaseError
from pipelines.exports._export import Export
from pipelines.exports._tables import public_facts
from pipelines.graph import escaped
from pipelines.graph import write_recbole as write_graph
from pipelines.progress import add

_PERSONA_COLUMNS = ("cohort", "writer", "age", "gender", "job")
_PERSON_COLUMNS = ("age_band", "gender", "occupation")


def write_movielens(export: Export) -> None:
    """MovieLens' ``ratings.csv``, ``movies.csv``, ``links.csv`` and ``tags.csv``.

    Ids are numbers: MovieLens' own of its films, else places in the order of our ids, which are in
    ``users.csv`` and ``items.csv``. Personas' ratings have no time: their timestamp is 0. A release
    has no people's tags, and LensKit's loader needs some: ``tags.csv`` holds each item's genres, by
    a user without ratings whose number follows the last one, at the time of publishing.
    """
    items, users = _items(export), _users(export)
    number = pl.col("item_id").str.strip_prefix("ml:").cast(pl.Int64, strict=False)
    keys = items.select("item_id", movieId=number).collect(engine="streaming")
    if keys["movieId"].null_count():
        keys = keys.with_columns(movieId=pl.int_range(1, pl.len() + 1, dtype=pl.Int64))
    people = users.with_row_index("userId", 1).collect(engine="streaming")
    year = pl.col("year").cast(pl.String)
    title = pl.concat_str("title", pl.lit(" ("), year, pl.lit(")"))
    numbered = items.join(keys.lazy(), on="item_id", maintain_order="left")
    some = pl.col("genres").list.len() > 0
    genres = pl.when(some).then("genres").otherwise(pl.lit(["(no genres listed)"]))
    _csv(
        export,
        "movies.csv",
        numbered.select("movieId", title=pl.coalesce(title, "title"), genres=genres.list.join("|")),
    )
    published = int(datetime.fromisoformat(export.release.created_at).timestamp())
    tagger, now = pl.lit(people.height + 1).alias("userId"), pl.lit(published)
    tags = numbered.select(tagger, "movieId", tag=genres, timestamp=now)
    _csv(export, "tags.csv", tags.explode("tag"))
    _csv(export, "items.csv", numbered.select("movieId", "item_id"))
    linked = "imdb_id" in items.collect_schema()
    imdb = pl.col("imdb_id").str.strip_prefix("tt") if linked else pl.lit(None)
    tmdb = pl.col("tmdb_id") if linked else pl.lit(None)
    _csv(export, "links.csv", numbered.select("movieId", imdbId=imdb, tmdbId=tmdb))
    _csv(export, "users.csv", people.lazy())
    ratings = (
        _ratings(export)
        .join(people.lazy().select("user_id", "userId"), on="user_id", maintain_order="left")
        .join(keys.lazy(), on="item_id", maintain_order="left")
    )
    seconds = pl.col("timestamp").cast(pl.Int64).fill_null(0)
    _csv(export, "ratings.csv", ratings.select("userId", "movieId", "rating", timestamp=seconds))


def write_recbole(export: Export) -> None:
    """RecBole's atomic files ``<name>.inter``, ``.user``, ``.item``, ``.kg`` and ``.link``.

    Only facts about items are in the graph. ``.inter`` has no ``timestamp`` for personas, whose
    ratings have no time, and no ``split`` either.
    """
    name = export.release.name
    items = _items(export)
    schema = items.collect_schema()
    texts = [c for c in ("overview", "description") if c in schema]
    item = {
        "item_id:token": _token("item_id"),
        "title:token_seq": _words("title"),
        "year:float": pl.col("year"),
        "genres:token_seq": pl.col("genres").list.eval(_token("")).list.join(" "),
        **{f"{c}:token_seq": _words(c) for c in texts},
    }
    _tabs(export, f"{name}.item", items.select(**item))
    users = _users(export)
    kinds = {"age": "float"}
    more = [c for c in users.collect_schema().names() if c != "user_id"]
    user = {f"{c}:{kinds.get(c, 'token')}": pl.col(c) if c in kinds else _token(c) for c in more}
    _tabs(export, f"{name}.user", users.select(**{"user_id:token": _token("user_id"), **user}))
    ratings = _ratings(export)
    inter = {
        "user_id:token": _token("user_id"),
        "item_id:token": _token("item_id"),
        "rating:float": pl.col("rating"),
    }
    if export.options.users == "people":
        inter |= {"timestamp:float": pl.col("timestamp"), "split:token": pl.col("split")}
    _tabs(export, f"{name}.inter", ratings.select(**inter))
    if "graph_triples" in export.release.tables:
        domain = export.release.tables["items"].dataset.partition(".")[0]
        graph = write_graph(public_facts(export), export.folder, name, domain=domain)
        add(graph.triples)
    if "items" in export.left_out:
        export.ids["items"] = {"file": f"{name}.item", "key": "item_id:token"}


def write_lenskit(export: Export) -> None:
    """LensKit's native data set: ``lenskit.data.Dataset.load(folder / "dataset")`` opens it.

    Entities ``item`` and ``user`` and the interaction ``rating``, without the library: its format
    is a schema and a Parquet file for each, the interactions by the numbers of users and items.
    """
    folder = export.folder / "dataset"
    folder.mkdir()
    catalogue = _items(export).sort("item_id")
    schema = catalogue.collect_schema()
    names = ("title", "year", "genres", "overview", "description")
    items = catalogue.select("item_id", *(c for c in names if c in schema))
    users = _users(export).sort("user_id")
    numbers = [
        frame.select(f"{kind}_id")
        .with_row_index(f"{kind}_num")
        .with_columns(pl.col(f"{kind}_num").cast(pl.Int32))
        .collect(engine="streaming")
        .lazy()
        for kind, frame in (("user", users), ("item", items))
    ]
    ratings = _ratings(export)
    for kind, frame in zip(("user_id", "item_id"), numbers, strict=True):
        ratings = ratings.join(frame, on=kind, maintain_order="left")
    times: dict[str, Any] = {}
    if export.options.users == "people":
        times = {"timestamp": pl.col("timestamp").cast(pl.Int64), "split": pl.col("split")}
    # LensKit wants the rows by user and item number: the order of our keys, which are sorted alike.
    coordinates = ratings.select("user_num", "item_num", pl.col("rating"), **times)
    entities = {"user": users, "item": items, "rating": coordinates.set_sorted("user_num")}
    for kind, frame in entities.items():
        _parquet(folder / f"{kind}.parquet", frame)
    kinds: dict[str, dict[str, Any]] = {}
    for kind, frame in entities.items():
        columns = frame.collect_schema()
        kinds[kind] = {
            column: {"layout": "list" if isinstance(dtype, pl.List) else "scalar"}
            for column, dtype in columns.items()
            if column not in {"user_id", "item_id", "user_num", "item_num"}
        }
    document = {
        "version": "2025.3",
        "name": str(export.release),
        "default_interaction": "rating",
        "entities": {k: {"id_type": "str", "attributes": kinds[k]} for k in ("user", "item")},
        "relationships": {
            "rating": {
                "entities": {"user": None, "item": None},
                "interaction": True,
                "repeats": "forbidden",
                "attributes": kinds["rating"],
            }
        },
    }
    (folder / "schema.json").write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    if "items" in export.left_out:
        export.ids["items"] = {"file": "dataset/item.parquet", "key": "item_id"}


def _items(export: Export) -> pl.LazyFrame:
    """Items without the columns that are left out."""
    return _scan(export, "items").drop(export.left_out.get("items", ()))


def _users(export: Export) -> pl.LazyFrame:
    """Users with ``user_id`` and what is known of them."""
    if export.options.users == "people":
        return _scan(export, "human_users").select("user_id", *_PERSON_COLUMNS)
    return (
        _scan(export, "personas")
        .select(*_PERSONA_COLUMNS, user_id="persona_id")
        .select("user_id", *_PERSONA_COLUMNS)
    )


def _ratings(export: Export) -> pl.LazyFrame:
    """Ratings by key: ``user_id, item_id, rating``, ``timestamp`` (seconds; null of personas).

    Of people also ``split``. A score without an answer is no rating.
    """
    if export.options.users == "people":
        # Split and interactions have the same key; only the keys are held.
        splits = _scan(export, "splits").select("user_id", "item_id", "split")
        return (
            _scan(export, "interactions")
            .select(
                "user_id",
                "item_id",
                "rating",
                timestamp=pl.col("rated_at").dt.timestamp("us") / 1e6,
            )
            .join(splits, on=["user_id", "item_id"], how="left", maintain_order="left")
        )
    return (
        _scan(export, "preference_scores")
        .filter(pl.col("status") == "ok")
        .select(
            pl.col("persona_id").alias("user_id"),
            "item_id",
            pl.col(export.options.rating).cast(pl.Float64).alias("rating"),
            timestamp=pl.lit(None, pl.Float64),
        )
    )


def _scan(export: Export, table: str) -> pl.LazyFrame:
    if table not in export.release.tables:
        raise ReleaseError(
            f"the release lacks the table {table}",
            where=str(export.release),
            hint=f"it has {', '.join(export.release.tables)}",
        )
    return export.release.snapshot(table).scan()


def _token(column: str) -> pl.Expr:
    """A value as one token, escaped as the graph's ids are (the empty name: a list's element).

    RecBole separates fields by tabs and the words of a field by spaces.
    """
    value = pl.col(column) if column else pl.element()
    return escaped(value.cast(pl.String).str.replace_all(r"\s+", "_"))


def _words(column: str) -> pl.Expr:
    """Text as words: a quotation mark would begin a quoted field."""
    plain = pl.col(column).str.replace_all('"', "'", literal=True)
    return plain.str.replace_all(r"[\s\pC]+", " ").str.strip_chars()


def _csv(export: Export, name: str, frame: pl.LazyFrame, **form: Any) -> None:
    path = export.folder / name
    frame.sink_csv(path, engine="streaming", **form)
    add(_rows(path))


def _tabs(export: Export, name: str, frame: pl.LazyFrame) -> None:
    _csv(export, name, frame, separator="\t", quote_style="never")


def _parquet(path: Path, frame: pl.LazyFrame) -> None:
    """Write rows with Arrow's 32-bit texts and lists, in batches: LensKit takes no others."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    wide = path.with_suffix(".wide")
    frame.sink_parquet(wide, engine="streaming")
    with pq.ParquetFile(wide) as file:
        fields = [field.with_type(_narrow(field.type)) for field in file.schema_arrow]
        schema = pa.schema(fields)
        with pq.ParquetWriter(path, schema, compression="zstd") as writer:
            for batch in file.iter_batches():
                writer.write_table(pa.Table.from_batches([batch]).cast(schema))
        add(file.metadata.num_rows)
    wide.unlink()


def _narrow(kind: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_narrow(kind.value_type))
    return pa.string() if pa.types.is_large_string(kind) else kind


def _rows(path: Path) -> int:
    """Lines of a file, less its header."""
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b"")) - 1
