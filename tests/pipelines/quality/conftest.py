"""A small world whose tables pass every check, and a way to break one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from support.domain_tables import books_like, matched_tables, user_traits
from support.graphs import movie_triples
from support.small_release import conform, human_users, item_stats

from pipelines.config import Settings
from pipelines.contracts import CONTRACTS
from pipelines.graph import item_similarity
from pipelines.personas import generate
from pipelines.store import Snapshot, Store

FILMS, USERS, PERSONAS, SCORED = 150, 60, 300, 40
GENRES = ("Action", "Comedy", "Drama", "Horror", "Romance", "Sci-Fi", "Thriller")
SETTINGS = Settings(personas={"count": PERSONAS})


def _items(rng: np.random.Generator, count: int) -> pl.DataFrame:
    known = rng.random(count) < 0.8
    rows = [
        {
            "item_id": f"ml:{n}",
            "title": f"Film {n}",
            "year": int(1960 + rng.integers(0, 60)),
            "genres": sorted(rng.choice(GENRES, size=2, replace=False).tolist()),
            "overview": f"Story of film {n}." if known[n] else None,
            "actors": [f"Actor {n}"] if known[n] else [],
            "directors": [f"Director {n % 20}"] if known[n] else [],
            "keywords": [],
            "tmdb_id": n + 1,
            "has_tmdb": bool(known[n]),
        }
        for n in range(count)
    ]
    return conform("movies.items", pl.DataFrame(rows, infer_schema_length=None))


def _interactions(rng: np.random.Generator, films: int, users: int) -> pl.DataFrame:
    weight = 1 / np.arange(1, films + 1)
    start = datetime(2001, 5, 1, tzinfo=UTC)
    rows = []
    for user in range(users):
        seen = rng.choice(films, size=min(30, films), replace=False, p=weight / weight.sum())
        bias = rng.normal(0, 0.4)
        for position, film in enumerate(seen):
            stars = np.clip(np.round(2 * (3.4 + bias + rng.normal(0, 0.9))) / 2, 0.5, 5)
            rows.append(
                {
                    "user_id": f"ml-user:{user}",
                    "item_id": f"ml:{film}",
                    "rating": float(stars),
                    "scale": "0.5-5",
                    "rated_at": start + timedelta(days=user, hours=position),
                }
            )
    return pl.DataFrame(rows, schema=CONTRACTS["movies.interactions"].polars_schema())


def _splits(interactions: pl.DataFrame) -> pl.DataFrame:
    place = pl.col("rated_at").rank("ordinal").over("user_id") / pl.len().over("user_id")
    part = (
        pl.when(place <= 0.8)
        .then(pl.lit("train"))
        .when(place <= 0.9)
        .then(pl.lit("validation"))
        .otherwise(pl.lit("test"))
    )
    return interactions.select("user_id", "item_id", split=part)


def _embeddings(ids: pl.Series, rng: np.random.Generator) -> pl.DataFrame:
    vectors = rng.normal(size=(len(ids), 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return pl.DataFrame(
        {
            ids.name: ids,
            "model": ["test-encoder@0"] * len(ids),
            "text_sha256": [f"{n:064x}" for n in range(len(ids))],
            "vector": pl.Series(vectors.tolist(), dtype=pl.List(pl.Float32)),
        }
    )


def _score_plan(personas: pl.DataFrame, count: int) -> pl.DataFrame:
    films = pl.DataFrame({"item_id": [f"ml:{n}" for n in range(count)]})
    more = {"stratum": pl.lit("all"), "inclusion": pl.lit(1.0), "exposure": pl.lit(0.1)}
    return personas.select("persona_id").join(films, how="cross").with_columns(**more)


def _scores(plan: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    answers = np.arange(1, 11)
    centre = np.clip(rng.normal(6.8, 1.8, size=plan.height), 1, 10)
    weight = np.exp(-0.5 * ((answers - centre[:, None]) / 1.2) ** 2)
    weight /= weight.sum(axis=1, keepdims=True)
    drawn = (weight.cumsum(axis=1) < rng.random((plan.height, 1))).sum(axis=1).clip(0, 9)
    return plan.select(
        "persona_id",
        "item_id",
        rater=pl.lit("statistical"),
        scale=pl.lit("1-10"),
        probabilities=pl.Series(weight.tolist(), dtype=pl.List(pl.Float64)),
        expected=pl.Series(weight @ answers),
        mode=pl.Series(answers[weight.argmax(axis=1)]).cast(pl.Int64),
        sample=pl.Series(answers[drawn]).cast(pl.Int64),
        entropy=pl.Series(-(weight * np.log(weight + 1e-300)).sum(axis=1)),
        status=pl.lit("ok"),
        prompt_version=pl.lit(None, pl.String),
        answer_key=pl.lit(None, pl.String),
        explanation=pl.lit(None, pl.String),
        note=pl.lit(None, pl.String),
    )


def population(**changes: float | int | None) -> pl.DataFrame:
    """A population report whose bounded figures are people's; ``changes`` are made to its rows."""
    row = {
        "unit": "share",
        "personas_value": 0.1, "personas_low": 0.08, "personas_high": 0.12,
        "people_value": 0.1, "people_low": 0.08, "people_high": 0.12,
        "ratio": 1.0, "ratio_low": 0.8, "ratio_high": 1.2, "chance": 0.0,
        "personas": 300, "people": 600, "ratings": 50_000,
    }  # fmt: skip
    names = ("headroom", "item_person_share", "split_half_covariance")
    rows = [{"figure": name} | row | changes for name in names]
    return pl.DataFrame(rows, CONTRACTS["movies.population"].polars_schema())


def build(
    films: int = FILMS,
    users: int = USERS,
    settings: Settings = SETTINGS,
    *,
    seed: int = 5,
    change: Callable[[pl.DataFrame, pl.DataFrame], tuple[pl.DataFrame, pl.DataFrame]] | None = None,
) -> dict[str, pl.DataFrame]:
    """Every table of a world of films and books; ``change`` is made to its items and ratings."""
    rng = np.random.default_rng(seed)
    items, interactions = _items(rng, films), _interactions(rng, films, users)
    if change:
        items, interactions = change(items, interactions)
    splits, personas = _splits(interactions), generate(settings.personas)
    plan = _score_plan(personas, min(SCORED, films))
    people = conform("movies.human_users", human_users(interactions))
    vectors = _embeddings(items["item_id"], rng)
    triples = movie_triples(items, interactions, splits, people, settings.graph)
    movies = {
        "movies.items": items,
        "movies.interactions": interactions,
        "movies.splits": splits,
        "movies.item_stats": conform("movies.item_stats", item_stats(items, interactions, splits)),
        "movies.human_users": people,
        "movies.user_traits": user_traits(people),
        "movies.personas": personas,
        "movies.persona_embeddings": _embeddings(personas["persona_id"], rng),
        "movies.item_embeddings": vectors,
        "movies.score_plan": plan,
        "movies.preference_scores": _scores(plan, rng),
        "movies.population": population(),
        "movies.graph_triples": triples,
        "movies.item_similarity": pl.concat(item_similarity(triples, vectors, settings.graph)),
        **matched_tables("movies", interactions, splits, items),
    }
    return movies | books_like(movies, settings.graph)


@dataclass(frozen=True)
class World:
    """A store with one good snapshot of every table."""

    store: Store
    settings: Settings
    frames: Mapping[str, pl.DataFrame]
    tables: Mapping[str, Snapshot]

    def broken(
        self,
        dataset: str,
        change: Callable[[pl.DataFrame], pl.DataFrame],
        stats: Mapping[str, Any] | None = None,
    ) -> Snapshot:
        """A committed snapshot of a table after a change (its contract may still hold)."""
        current = self.store.current(dataset).version
        snapshot = self.store.commit(
            dataset,
            change(self.frames[dataset]),
            code_version="broken",
            inputs=self.tables[dataset].manifest.inputs,
            stats=stats,
            allow_empty=True,
        )
        self.store.point(dataset, current)
        return snapshot


_INPUTS = {
    "movies.splits": ("movies.interactions",),
    "movies.item_stats": ("movies.items", "movies.splits"),
    "movies.human_users": ("movies.interactions",),
    "movies.user_traits": ("movies.interactions", "movies.items"),
    "movies.training_traits": ("movies.interactions", "movies.items", "movies.splits"),
    "movies.persona_embeddings": ("movies.personas",),
    "movies.item_embeddings": ("movies.items",),
    "movies.score_plan": ("movies.personas", "movies.items", "movies.item_stats"),
    "movies.preference_scores": ("movies.score_plan", "movies.splits"),
    "movies.population": ("movies.preference_scores", "movies.interactions"),
    "movies.graph_triples": ("movies.items", "movies.splits", "movies.interactions"),
    "movies.item_similarity": ("movies.graph_triples", "movies.item_embeddings"),
    "movies.matched_personas": ("movies.interactions", "movies.splits", "movies.training_traits"),
    "movies.persona_candidates": ("movies.interactions", "movies.splits"),
}


def commit(home: Path, frames: Mapping[str, pl.DataFrame], settings: Settings) -> World:
    """A store that holds the tables."""
    store = Store(home)
    tables: dict[str, Snapshot] = {}
    for dataset, frame in frames.items():
        inputs = {name: tables[name].version for name in _INPUTS.get(dataset, ())}
        tables[dataset] = store.commit(dataset, frame, code_version="1", inputs=inputs)
    return World(store, settings, frames, tables)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The good world."""
    return commit(tmp_path_factory.mktemp("quality") / "home", build(), SETTINGS)


@pytest.fixture
def make_world(tmp_path: Path) -> Callable[..., World]:
    """A world of another size: films, users, personas."""

    def make(films: int, users: int, personas: int, **options: Any) -> World:
        settings = Settings(personas={"count": personas})  # type: ignore[arg-type]
        return commit(tmp_path / "home", build(films, users, settings, **options), settings)

    return make
