"""A small release through the real store, from frames made by hand that satisfy the contracts.

24 films in four blocks of genres, 40 human users who rate 16 films each and prefer two of the
blocks, six personas. Everything is fixed, so tests can work out by hand what must come of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipelines.config import MatchingSettings
from pipelines.contracts import CONTRACTS
from pipelines.matching import History, StatisticalMatcher, match_users
from pipelines.matching.testing import counted_traits, small_world
from pipelines.personas import matched_personas
from pipelines.store import CheckRecord, Release, Snapshot, Store

GENRES = (("Action", "Thriller"), ("Comedy",), ("Drama", "Romance"), ("Horror", "Sci-Fi"))
NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn")
#: (persona, item) pairs of ``preference_scores`` that are not like the others.
REFUSED = ("persona:default:1", "ml:2")
UNSCORED = ("persona:default:1", "ml:3")


def frames() -> dict[str, pl.DataFrame]:
    """Every table of the movie release by dataset name."""
    films = [f"ml:{n}" for n in range(1, 25)]
    items = pl.DataFrame(
        {
            "item_id": films,
            "title": [f"Film {n}" for n in range(1, 24)] + ["The [bold]Bracket[/bold] & Söhne"],
            "year": [1970 + 2 * n for n in range(1, 24)] + [None],
            "genres": [list(GENRES[(n - 1) // 6]) for n in range(1, 24)] + [[]],
            "overview": [f"What happens in film {n}." for n in range(1, 25)],
            "actors": [[f"Actor {n % 5}", f"Actor {n % 7}"] for n in range(1, 25)],
            "directors": [[f"Director {n % 4}"] for n in range(1, 25)],
            "vote_average": [5.0 + (n % 10) * 0.4 for n in range(1, 25)],
            "popularity": [float(n) for n in range(1, 25)],
            "has_tmdb": [True] * 24,
        }
    )
    start = datetime(2020, 1, 1, tzinfo=UTC)
    rows = []
    for user in range(1, 41):
        liked = {user % 4, (user + 1) % 4}
        for n in range(1, 25):
            if (user + n) % 3:
                block = (n - 1) // 6
                # Some people give half a star more than others, or less.
                rating = (4.5 if block in liked else 1.5 + 0.5 * (n % 3)) + 0.5 * (
                    user % 5 // 2 - 1
                )
                when = start + timedelta(days=user, minutes=(n * 5 + user) % 24)
                rows.append((f"ml-user:{user}", f"ml:{n}", rating, "0.5-5", when))
    interactions = pl.DataFrame(
        rows, schema=["user_id", "item_id", "rating", "scale", "rated_at"], orient="row"
    )
    splits = (
        interactions.sort("user_id", "rated_at")
        .with_columns(back=pl.len().over("user_id") - pl.int_range(pl.len()).over("user_id"))
        .select(
            "user_id",
            "item_id",
            split=pl.when(pl.col("back") == 1)
            .then(pl.lit("test"))
            .when(pl.col("back") == 2)
            .then(pl.lit("validation"))
            .otherwise(pl.lit("train")),
        )
    )
    personas = pl.DataFrame(
        {
            "persona_id": [f"persona:default:{n}" for n in range(6)],
            "cohort": ["default"] * 6,
            "domain": ["movies"] * 6,
            "origin": ["sampled"] * 6,
            "writer": ["statistical"] * 6,
            "name": NAMES,
            "age": [20, 31, 42, 53, 64, 75],
            "gender": ["female", "male"] * 3,
            "job": ["student", "nurse", "carpenter", "teacher", "retired", "retired"],
            "hobby": ["chess", "running", "baking", "birds", "bridge", "gardening"],
            "likes": [sorted(GENRES[n % 4]) for n in range(6)],
            "dislikes": [sorted(GENRES[(n + 2) % 4]) for n in range(6)],
            "leniency": ["average"] * 6,
            "manner": ["average"] * 6,
            "activity": ["medium"] * 6,
            "conformity": ["medium"] * 6,
            "description": [
                f"{name} lives in a town by the river and sees a film every week." for name in NAMES
            ],
        }
    )
    plan = personas.select("persona_id").join(items.select("item_id"), how="cross")
    # The popular films are those with small numbers.
    watched = 0.5 / pl.col("item_id").str.slice(3).cast(pl.Float64)
    plan = plan.with_columns(stratum=pl.lit("all"), inclusion=pl.lit(1.0), exposure=watched)
    triples = pl.DataFrame(
        [
            (film, "Movie", "belongs-to", f"genre:{genre}", "Genre")
            for film, genres in zip(films, items["genres"].to_list(), strict=True)
            for genre in genres
        ],
        schema=["head", "head_type", "relation", "tail", "tail_type"],
        orient="row",
    )
    return {
        "movies.items": items,
        "movies.interactions": interactions,
        "movies.splits": splits,
        "movies.item_stats": item_stats(items, interactions, splits),
        "movies.human_users": human_users(interactions),
        "movies.personas": personas,
        "movies.persona_embeddings": _vectors("persona_id", personas["persona_id"].to_list(), 3),
        "movies.item_embeddings": _vectors("item_id", films, 5),
        "movies.score_plan": plan,
        "movies.preference_scores": _scores(plan),
        "movies.graph_triples": triples,
    }


def item_stats(
    items: pl.DataFrame, interactions: pl.DataFrame, splits: pl.DataFrame
) -> pl.DataFrame:
    """The table `item_stats` of these interactions."""
    train = pl.col("split") == "train"
    rated = interactions.join(splits, on=["user_id", "item_id"]).group_by("item_id")
    counts = rated.agg(
        ratings=pl.len().cast(pl.Int64),
        mean_rating=pl.col("rating").mean(),
        train_ratings=train.sum().cast(pl.Int64),
        train_mean_rating=pl.col("rating").filter(train).mean(),
    )
    return (
        items.select("item_id")
        .join(counts, on="item_id", how="left")
        .with_columns(pl.col("ratings", "train_ratings").fill_null(0))
        .sort(["ratings", "item_id"], descending=[True, False])
        .with_columns(popularity_rank=pl.int_range(1, pl.len() + 1, dtype=pl.Int64))
    )


def human_users(interactions: pl.DataFrame) -> pl.DataFrame:
    """The table `human_users` of these interactions, without what people state of themselves."""
    return interactions.group_by("user_id").agg(
        ratings=pl.len().cast(pl.Int64),
        mean_rating=pl.col("rating").mean(),
        first_rated_at=pl.col("rated_at").min(),
        last_rated_at=pl.col("rated_at").max(),
    )


def matched_frames(
    users: Sequence[str] = ("ml-user:1", "ml-user:2", "ml-user:3"),
    interactions: pl.DataFrame | None = None,
) -> dict[str, pl.DataFrame]:
    """Tables of some users' matched personas, for `replace` of :func:`build`."""
    tables = {**frames(), **({} if interactions is None else {"movies.interactions": interactions})}
    rows, splits = tables["movies.interactions"], tables["movies.splits"]
    train = rows.join(splits.filter(pl.col("split") == "train"), on=["user_id", "item_id"])
    traits = counted_traits(train, "movies")
    history = History.read(
        "movies",
        interactions=rows,
        splits=splits,
        items=conform("movies.items", tables["movies.items"]),
        human_users=conform("movies.human_users", tables["movies.human_users"]),
    )
    settings = MatchingSettings()
    found = match_users(history, traits, StatisticalMatcher(settings), settings, users=users)
    people = conform("movies.personas", matched_personas(found.personas))
    return {
        "movies.interactions": rows,
        "movies.training_traits": traits,
        "movies.matched_personas": found.personas,
        "movies.persona_candidates": found.candidates,
        "movies.personas": pl.concat(
            [conform("movies.personas", tables["movies.personas"]), people]
        ),
    }


def _vectors(key: str, ids: list[str], seed: int) -> pl.DataFrame:
    raw = np.random.default_rng(seed).normal(size=(len(ids), 8))
    unit = (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)
    return pl.DataFrame(
        {
            key: ids,
            "model": ["hand-made"] * len(ids),
            "text_sha256": [hashlib.sha256(i.encode()).hexdigest() for i in ids],
            "vector": unit.tolist(),
        }
    )


def _scores(plan: pl.DataFrame) -> pl.DataFrame:
    """Scores on 1-5: a persona gives the number of its digit plus one, always."""
    rows = []
    for persona, item in plan.select("persona_id", "item_id").iter_rows():
        if (persona, item) == UNSCORED:
            continue
        ok = (persona, item) != REFUSED
        answer = min(int(persona[-1]) + 1, 5)
        certain = [1.0 if a == answer else 0.0 for a in range(1, 6)]
        rows.append(
            {
                "persona_id": persona,
                "item_id": item,
                "rater": "statistical",
                "scale": "1-5",
                "probabilities": certain if ok else None,
                "expected": float(answer) if ok else None,
                "mode": answer if ok else None,
                "sample": answer if ok else None,
                "entropy": 0.0 if ok else None,
                "status": "ok" if ok else "refused",
                "prompt_version": None,
                "answer_key": None,
                "explanation": None,
                "note": None,
            }
        )
    return pl.DataFrame(rows)


def conform(dataset: str, frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with the contract's columns and types; columns it lacks are null or empty."""
    schema = CONTRACTS[dataset].polars_schema()
    columns = []
    for name, kind in schema.items():
        if name in frame.columns:
            columns.append(pl.col(name).cast(kind))
        elif isinstance(kind, pl.List):
            columns.append(pl.lit([], dtype=kind).alias(name))
        else:
            columns.append(pl.lit(None, dtype=kind).alias(name))
    return frame.select(columns)


def build(
    home: Path,
    *,
    name: str = "movies",
    world: str = "sample",
    without: tuple[str, ...] = (),
    replace: Mapping[str, pl.DataFrame] | None = None,
    settings: Mapping[str, Any] | None = None,
    card: str = "# Movies\n\nSix personas and 24 films, made by hand for tests.\n",
) -> Release:
    """Commit every table with a passed check and publish them.

    Parameters
    ----------
    home
        The store's folder.
    without
        Short names of tables to leave out.
    replace
        Frames by dataset that take the place of the usual ones.
    """
    tables = {**frames(), **(replace or {})}
    kept = {d: frame for d, frame in tables.items() if d.rpartition(".")[2] not in without}
    return _publish(home, name, kept, world=world, card=card, settings=dict(settings or {}))


def _publish(home: Path, name: str, frames: Mapping[str, pl.DataFrame], **facts: Any) -> Release:
    store = Store(home)
    tables: dict[str, Snapshot] = {}
    required: dict[str, list[str]] = {}
    for dataset, frame in frames.items():
        short = dataset.rpartition(".")[2]
        snapshot = store.commit(dataset, conform(dataset, frame), code_version="test")
        check = f"{short}_is_complete"
        store.record_checks(dataset, snapshot.version, [CheckRecord(check, True)])
        tables[short], required[dataset] = snapshot, [check]
    return store.publish(name, tables, required=required, **facts)


def commit_users(store: Store, domain: str = "movies", *, stated: bool = True) -> None:
    """Commit what users are matched from: the tables of `small_world`, with ids of the domain."""
    item, user = {
        "movies": ("ml:{}", "ml-user:{}"),
        "books": ("asin:B{}", "amazon-user:A{}"),
        "games": ("steam:1{}", "steam-user:{}"),
    }[domain]
    ids = {
        "item_id": pl.format(item, pl.col("item_id").str.extract(r"(\d+)").str.zfill(9)),
        "user_id": pl.format(user, pl.col("user_id").str.extract(r"(\d+)")),
    }
    tables = small_world(stated=stated, domain=domain)
    rows = tables["interactions"].with_columns(
        rated_at=datetime(2020, 1, 1, tzinfo=UTC), recommended=pl.col("rating") > 2.5
    )
    users = tables["human_users"].join(human_users(rows), on="user_id")
    tables |= {"interactions": rows, "human_users": users}
    tables["items"] = tables["items"].with_columns(
        has_tmdb=False, category=pl.lit("Books"), edition=pl.lit("2023")
    )
    for table, frame in tables.items():
        named = frame.with_columns(**{k: v for k, v in ids.items() if k in frame.columns})
        dataset = f"{domain}.{table}"
        store.commit(dataset, conform(dataset, named), code_version="test")


#: Of a domain: an item's and a user's id, the word in titles, and columns of its own.
_FORMS: dict[str, tuple[str, str, str, dict[str, pl.Expr]]] = {
    "books": (
        "asin:{}",
        "amazon-user:{}",
        "Book",
        {
            "description": pl.col("overview"),
            "authors": pl.col("directors"),
            "category": pl.lit("Books"),
            "edition": pl.lit("2023"),
        },
    ),
    "games": (
        "steam:1{}",
        "steam-user:{}",
        "Game",
        {"developer": pl.col("directors").list.first()},
    ),
}


def build_domain(home: Path, domain: str) -> Release:
    """A release of books or games, made of the same people and stories: rated on 1-5."""
    item, user, word, own = _FORMS[domain]
    movies = frames()
    rename = pl.format(item, pl.col("item_id").str.slice(3).str.zfill(10)).alias("item_id")
    rename_user = pl.format(user, pl.col("user_id").str.slice(8)).alias("user_id")
    items = movies["movies.items"].select(
        rename, pl.col("title").str.replace("Film", word), "year", "genres", **own
    )
    interactions = movies["movies.interactions"].with_columns(
        rename,
        rename_user,
        rating=pl.col("rating").ceil(),
        scale=pl.lit("1-5"),
        recommended=pl.col("rating") > 2.5,
    )
    if domain == "books":
        interactions = interactions.drop("recommended")
    stats = movies["movies.item_stats"].with_columns(
        rename, pl.col("mean_rating", "train_mean_rating").clip(1, 5)
    )
    tables = {
        f"{domain}.items": items,
        f"{domain}.interactions": interactions,
        f"{domain}.item_stats": stats,
        f"{domain}.splits": movies["movies.splits"].with_columns(rename, rename_user),
        f"{domain}.preference_scores": movies["movies.preference_scores"].with_columns(rename),
        f"{domain}.personas": movies["movies.personas"].with_columns(domain=pl.lit(domain)),
    }
    return _publish(
        home, domain, tables, world="sample", card=f"# {domain.title()}\n",
        settings={"scoring": {"scale": "1-5", "seed": 2}},
    )  # fmt: skip
