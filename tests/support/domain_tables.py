"""Good tables of the domains whose items are sold, made from those of the movies."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from support.small_release import conform

from pipelines.config import GraphSettings, MatchingSettings, PersonaSettings
from pipelines.graph import item_similarity, triple_batches
from pipelines.matching import History, StatisticalMatcher, match_users
from pipelines.personas import generate

__all__ = ["books_like"]


def books_like(movies: Mapping[str, pl.DataFrame], graph: GraphSettings) -> dict[str, pl.DataFrame]:
    """Books in the place of films: the same people, likings and times, on whole stars."""
    tables = {
        name.removeprefix("movies."): _renamed(frame)
        for name, frame in movies.items()
        if name.startswith("movies.")
    }
    films = tables["items"]
    items = conform(
        "books.items",
        films.select(
            "item_id",
            "title",
            "year",
            "genres",
            description="overview",
            authors="directors",
            category=pl.lit("Books"),
            edition=pl.lit("2023"),
            category_path=pl.concat_list(pl.lit(["Books"]), "genres"),
        ),
    )
    interactions = conform(
        "books.interactions",
        tables["interactions"].with_columns(
            rating=pl.col("rating").round().clip(1, 5), scale=pl.lit("1-5")
        ),
    )
    users = _means(tables["human_users"], interactions, "user_id")
    parts = {
        "items": items,
        "interactions": interactions,
        "splits": tables["splits"],
        "users": users,
    }
    triples = pl.concat(triple_batches("books", parts, graph))
    similar = pl.concat(item_similarity(triples, tables["item_embeddings"], graph, domain="books"))
    return {
        "books.items": items,
        "books.interactions": interactions,
        "books.splits": tables["splits"],
        "books.item_stats": _means(tables["item_stats"], interactions, "item_id"),
        "books.human_users": users,
        "books.user_traits": user_traits(users),
        "books.item_embeddings": tables["item_embeddings"],
        "books.personas": generate(
            PersonaSettings(count=tables["personas"].height, cohort="books")
        ),
        "books.persona_embeddings": tables["persona_embeddings"],
        "books.score_plan": tables["score_plan"],
        "books.preference_scores": _on_five(tables["preference_scores"]),
        "books.population": tables["population"],
        "books.graph_triples": triples,
        "books.item_similarity": similar,
        **matched_tables("books", interactions, tables["splits"], items),
    }


def _renamed(frame: pl.DataFrame) -> pl.DataFrame:
    """Keys of books and of their readers."""
    keys = [c for c in ("item_id", "user_id", "persona_id") if c in frame.columns]
    asin = pl.format("asin:B{}", pl.col("item_id").str.slice(3).str.zfill(9))
    reader = pl.col("user_id").str.replace("ml-user:", "amazon-user:A")
    persona = pl.col("persona_id").str.replace("persona:default:", "persona:books:")
    made = {"item_id": asin, "user_id": reader, "persona_id": persona}
    return frame.with_columns(**{key: made[key] for key in keys})


def _means(table: pl.DataFrame, interactions: pl.DataFrame, key: str) -> pl.DataFrame:
    """The table with the mean ratings of these interactions."""
    means = interactions.group_by(key).agg(mean=pl.col("rating").mean())
    columns = table.columns
    found = table.join(means, on=key, how="left").with_columns(mean_rating="mean")
    if "train_mean_rating" in columns:
        train = pl.when(pl.col("train_ratings") > 0).then("mean")
        found = found.with_columns(train_mean_rating=train)
    return found.select(columns)


def _on_five(scores: pl.DataFrame) -> pl.DataFrame:
    """Scores on 1-10 as such on 1-5: every second answer joined with the one before."""
    pairs = pl.concat_list(
        pl.col("probabilities").list.get(2 * n) + pl.col("probabilities").list.get(2 * n + 1)
        for n in range(5)
    )
    return scores.with_columns(
        scale=pl.lit("1-5"),
        probabilities=pairs,
        expected=(pl.col("expected") + 0.5) / 2,
        mode=(pl.col("mode") + 1) // 2,
        sample=(pl.col("sample") + 1) // 2,
    )


def user_traits(users: pl.DataFrame) -> pl.DataFrame:
    """Habits of these users; of each tier a third."""
    place = pl.int_range(pl.len()) % 3
    tier = pl.when(place == 0).then(pl.lit("low")).when(place == 1).then(pl.lit("medium"))
    tier = tier.otherwise(pl.lit("high"))
    return users.select(
        "user_id",
        activity=pl.int_range(pl.len()) + 5,
        activity_tier=tier,
        conformity=pl.int_range(pl.len()) / 100,
        conformity_tier=tier,
        diversity=pl.lit(3, pl.Int64),
        diversity_tier=tier,
        diversity_80=pl.lit(2, pl.Int64),
        diversity_80_tier=tier,
        mean_rating="mean_rating",
        pickiness=pl.when(pl.col("mean_rating") < 3.5)
        .then(pl.lit("extremely_picky"))
        .otherwise(pl.lit("moderately_picky")),
    )


def matched_tables(
    domain: str, interactions: pl.DataFrame, splits: pl.DataFrame, items: pl.DataFrame
) -> dict[str, pl.DataFrame]:
    """Traits of training rows, and personas of forty users whose source tells ages and jobs."""
    train = interactions.join(
        splits.filter(pl.col("split") == "train"), on=["user_id", "item_id"], how="semi"
    )
    counts = train.group_by("user_id").agg(
        mean_rating=pl.col("rating").mean(), ratings=pl.len().cast(pl.Int64)
    )
    if counts.height < 2:  # one user has nobody to be compared with: nobody is matched
        return {}
    habits = user_traits(counts.sort("user_id"))
    traits = habits.with_columns(activity=counts.sort("user_id")["ratings"])
    ages, jobs = ("18-24", "25-34", "56+"), ("student", "writer", "retired")
    number = pl.int_range(pl.len()) % 3
    people = counts.sort("user_id").select(
        "user_id",
        age_band=number.replace_strict(range(3), ages),
        occupation=number.replace_strict(range(3), jobs),
    )
    history = History.read(
        domain, interactions=interactions, splits=splits, items=items, human_users=people
    )
    settings = MatchingSettings(users=40)
    found = match_users(history, traits, StatisticalMatcher(settings), settings)
    return {
        # Users have equally many ratings here: these are of people who differ.
        f"{domain}.training_traits": habits,
        f"{domain}.matched_personas": found.personas,
        f"{domain}.persona_candidates": found.candidates,
    }
