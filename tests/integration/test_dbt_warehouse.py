"""The real dbt over real snapshots: what comes out, and what is kept in when something is wrong."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import duckdb
import polars as pl
import pytest
import yaml
from support import marts
from support.marts import PROJECT, export_mart

from pipelines.config import Settings
from pipelines.contracts import CONTRACTS, PUBLISHED
from pipelines.errors import ContractError, IntegrityError, LockedError, StoreError
from pipelines.store import Store
from pipelines.warehouse import (
    MARTS,
    WarehouseLayout,
    dbt_vars,
    failing_rows,
    link_sources,
    mart_tests,
    record_dbt_run,
    warehouse_lock,
)

# A single worker for all of them, so that the module's build is made once.
pytestmark = [
    pytest.mark.pipeline,
]


#: The marts of the domain that is built here.
MOVIES_MARTS = {name: model for name, model in MARTS.items() if name.startswith("movies.")}


def settings_of(home: Path, **sections: object) -> Settings:
    given = {"splits": {"min_interactions": 2}} | sections
    return Settings(runtime={"home": home, "memory_limit_mb": 512, "threads": 2}, **given)


def dbt(home: Path, command: str, *select: str) -> subprocess.CompletedProcess[str]:
    """Run dbt on a home: on the films, or on these models."""
    return marts.dbt(settings_of(home), command, "--select", *(select or ["tag:movies"]))


def commit(store: Store, dataset: str, rows: list[tuple[object, ...]]) -> None:
    schema = CONTRACTS[dataset].polars_schema()
    width = len(rows[0]) if rows else len(schema)
    frame = pl.DataFrame(rows, schema=dict(list(schema.items())[:width]), orient="row")
    # Columns that the rows here do not reach yet are null.
    frame = frame.with_columns(pl.lit(None, schema[n]).alias(n) for n in list(schema)[width:])
    store.commit(dataset, frame, code_version="test", allow_empty=True)


MOVIES = [
    (1, "Matrix, The (1999)", "Sci-Fi|Action"),
    (2, "City of Lost Children, The (Cité des enfants perdus, La) (1995)", "Fantasy"),
    (3, "Babylon 5", "(no genres listed)"),
    (4, "Emma (1996)", "Romance"),
    (5, "Emma (1996)", "Drama"),
    (10, "Unseen", "Drama"),
]
LINKS = [
    (1, "0133093", 603),
    (2, "0112682", 902),
    (3, "0105946", None),
    (4, "0116191", 3573),
    (5, None, 3573),
    (10, "1", 99),
]
# User 1 rates five films, one per day; user 2 three at once; user 3 two; user 4 too few.
RATINGS = [
    (1, 1, 5.0, "0.5-5", 86_400),
    (1, 2, 4.0, "0.5-5", 2 * 86_400),
    (1, 3, 0.5, "0.5-5", 5 * 86_400),
    (1, 4, 3.5, "0.5-5", 4 * 86_400),
    (1, 5, 3.0, "0.5-5", 3 * 86_400),
    (2, 1, 4.0, "0.5-5", 86_400),
    (2, 2, 2.0, "0.5-5", 86_400),
    (2, 3, 1.5, "0.5-5", 86_400),
    (3, 1, 4.5, "0.5-5", 86_400),
    (3, 5, 5.0, "0.5-5", 2 * 86_400),
    (4, 10, 5.0, "0.5-5", 86_400),
]
KEPT = len(RATINGS) - 1
# Of a variant that tells of some users.
USERS = [(1, "F", None, 25, None, 12, "55117"), (9, "M", None, 1, None, 10, None)]
TAGS = [(1, 1, " kung&nbsp;fu ", 86_400)]
TMDB = [
    (
        *(603, "tt0133093", "The Matrix", "The Matrix", "en", "A hacker &amp; a choice."),
        *(["Action"], ["hacker"], ["Keanu Reeves"], ["Lana Wachowski", "Lilly Wachowski"]),
        *("The Matrix Collection", "1999-03-31", 136, 50.5, 8.2, 20_000, 63_000_000, 0, "/m.jpg"),
    ),
    (
        *(902, "tt0112682", "The City of Lost Children", "La CitÃ© des enfants perdus", "fr", ""),
        *([], [], ["Ron Perlman"], ["Marc Caro"], None, "", 0, None, 0.0, 0, 0, 0, None),
    ),
    (
        *(3573, "tt0116191", "Emma", "Emma", "en", "A matchmaker."),
        *([], [], ["Gwyneth Paltrow"], [], None, "1996-08-02", 120, 1.0, 6.5, 100, 0, 0, None),
    ),
]
MISSING = [(99, "not_found")]
WORLD = {
    "raw.movielens_movies": MOVIES,
    "raw.movielens_links": LINKS,
    "raw.movielens_ratings": RATINGS,
    "raw.movielens_tags": TAGS,
    "raw.movielens_users": USERS,
    "raw.tmdb_movies": TMDB,
    "raw.tmdb_missing": MISSING,
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with an awkward name and a whole, recorded build; not to be changed."""
    home = tmp_path_factory.mktemp("dbt") / "o'h {x} [1]"
    store = Store(home)
    for dataset, rows in WORLD.items():
        commit(store, dataset, rows)
    with warehouse_lock(home):
        link_sources(store)
        done = dbt(home, "build")
        assert done.returncode == 0, done.stdout[-4000:]
        record_dbt_run(home)
    return home


@pytest.fixture
def copy(built: Path, tmp_path: Path) -> Path:
    """The same, to be damaged."""
    home = tmp_path / "copy"
    shutil.copytree(built, home, symlinks=True)
    return home


@pytest.fixture(scope="module")
def published(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, with every mart exported."""
    home = tmp_path_factory.mktemp("dbt") / "published"
    shutil.copytree(built, home, symlinks=True)
    for name in MOVIES_MARTS:
        export_mart(Store(home), name, settings_of(home), run_id="r1")
    return home


@pytest.fixture(scope="module")
def exported(published: Path) -> dict[str, pl.DataFrame]:
    return {name: Store(published).current(name).read() for name in MOVIES_MARTS}


# -- what comes out ---------------------------------------------------------------------------


def test_items_have_the_features_of_both_sources(exported: dict[str, pl.DataFrame]) -> None:
    rows = {r["item_id"]: r for r in exported["movies.items"].to_dicts()}
    assert list(rows) == ["ml:1", "ml:10", "ml:2", "ml:3", "ml:4", "ml:5"]
    matrix = rows["ml:1"]
    assert matrix == {
        "item_id": "ml:1",
        "title": "The Matrix",
        "year": 1999,
        "genres": ["Action", "Sci-Fi"],
        "overview": "A hacker & a choice.",
        "actors": ["Keanu Reeves"],
        "directors": ["Lana Wachowski", "Lilly Wachowski"],
        "keywords": ["hacker"],
        "collection": "The Matrix Collection",
        "original_title": "The Matrix",
        "original_language": "en",
        "release_date": date(1999, 3, 31),
        "runtime": 136,
        "budget": 63_000_000,
        "revenue": None,
        "popularity": 50.5,
        "vote_average": 8.2,
        "vote_count": 20_000,
        "poster_path": "/m.jpg",
        "tmdb_id": 603,
        "imdb_id": "tt0133093",
        "has_tmdb": True,
    }
    lost = rows["ml:2"]
    assert lost["title"] == "The City of Lost Children"
    assert lost["original_title"] == "La Cité des enfants perdus"
    assert [lost[c] for c in ("overview", "release_date", "runtime", "vote_average")] == [None] * 4
    assert (lost["year"], lost["vote_count"], lost["keywords"]) == (1995, 0, [])


def test_films_without_or_with_a_shared_tmdb_record_stay_in(
    exported: dict[str, pl.DataFrame],
) -> None:
    rows = {r["item_id"]: r for r in exported["movies.items"].to_dicts()}
    babylon, unseen = rows["ml:3"], rows["ml:10"]
    assert (babylon["year"], babylon["genres"], babylon["actors"]) == (None, [], [])
    assert (babylon["has_tmdb"], unseen["has_tmdb"]) == (False, False)
    assert (unseen["tmdb_id"], unseen["imdb_id"]) == (99, "tt0000001")
    assert rows["ml:4"]["overview"] == rows["ml:5"]["overview"] == "A matchmaker."
    # MovieLens has no IMDb id for the second one; TMDB's is of the same film.
    assert rows["ml:5"]["imdb_id"] == "tt0116191"


def test_interactions_keep_scale_and_time(exported: dict[str, pl.DataFrame]) -> None:
    frame = exported["movies.interactions"]
    assert frame.height == KEPT
    assert frame.schema == PUBLISHED["movies.interactions"].polars_schema()
    assert frame.row(0) == ("ml-user:1", "ml:1", 5.0, "0.5-5", datetime(1970, 1, 2, tzinfo=UTC))
    assert frame["scale"].unique().to_list() == ["0.5-5"]


def test_splits_go_by_time(exported: dict[str, pl.DataFrame]) -> None:
    parts = {(u, i): s for u, i, s in exported["movies.splits"].rows()}
    assert len(parts) == KEPT
    assert {i: s for (u, i), s in parts.items() if u == "ml-user:1"} == {
        "ml:1": "train",
        "ml:2": "train",
        "ml:5": "train",
        "ml:4": "validation",
        "ml:3": "test",
    }
    # Two interactions are one to train on and one to test.
    assert {i: s for (u, i), s in parts.items() if u == "ml-user:3"} == {
        "ml:1": "train",
        "ml:5": "test",
    }


def test_users_with_too_few_interactions_are_left_out_and_counted(published: Path) -> None:
    store = Store(published)
    for name in ("interactions", "splits", "human_users", "user_traits"):
        users = store.current(f"movies.{name}").read(["user_id"])["user_id"].unique().sort()
        assert users.to_list() == ["ml-user:1", "ml-user:2", "ml-user:3"], name
    filtered = {name: store.current(name).manifest.stats["filtered"] for name in MOVIES_MARTS}
    reason = "user_with_too_few_interactions"
    assert {n: f for n, f in filtered.items() if f} == {
        "movies.interactions": {reason: 1},
        "movies.human_users": {reason: 1},
    }
    # The film that only they rated stays, unrated.
    stats = store.current("movies.item_stats").read().filter(item_id="ml:10")
    assert stats["ratings"].to_list() == [0]


def test_traits_follow_the_formulas(exported: dict[str, pl.DataFrame]) -> None:
    # On 1-5 a half-star rating r is (r - 0.5) * 8 / 9 + 1. Means per film, in half stars:
    # 1: 4.5, 2: 3, 3: 1, 4: 3.5, 5: 4. Differences of user 1: .5, 1, -.5, 0, -1.
    square = (8 / 9) ** 2
    traits = {r["user_id"]: r for r in exported["movies.user_traits"].to_dicts()}
    assert traits["ml-user:1"] == {
        "user_id": "ml-user:1",
        "activity": 5,
        "activity_tier": "medium",
        "conformity": round(2.5 / 5 * square, 6),
        "conformity_tier": "high",
        # Action and Sci-Fi, Fantasy, none, Romance, Drama.
        "diversity": 5,
        # The others have three: the quantile 0.66 of three users is the second value.
        "diversity_tier": "high",
        # Five genres once each: four are 0.8 of them.
        "diversity_80": 4,
        "diversity_80_tier": "high",
        "mean_rating": round((3.2 - 0.5) * 8 / 9 + 1, 6),
        "pickiness": "extremely_picky",
    }
    # User 2: -.5, -1, .5; user 3: 0, 1. Of three users the quantile 0.9 is the largest value
    # itself, so that nobody is above it; activities are 2, 3, 5, and `low` ends at the second.
    two, three = traits["ml-user:2"], traits["ml-user:3"]
    assert (two["conformity"], three["conformity"]) == (
        round(1.5 / 3 * square, 6),
        round(0.5 * square, 6),
    )
    assert (two["activity_tier"], three["activity_tier"]) == ("low", "low")
    assert (two["diversity"], three["diversity"]) == (3, 3)
    assert (three["mean_rating"], three["pickiness"]) == (
        round((4.75 - 0.5) * 8 / 9 + 1, 6),
        "not_picky",
    )


def test_statistics_count_and_rank(exported: dict[str, pl.DataFrame]) -> None:
    stats = {r["item_id"]: r for r in exported["movies.item_stats"].to_dicts()}
    assert stats["ml:1"] == {
        "item_id": "ml:1",
        "ratings": 3,
        "mean_rating": 4.5,
        "train_ratings": 3,
        "train_mean_rating": 4.5,
        "popularity_rank": 1,
    }
    # Film 2: 4.0 (user 1) and 2.0 (user 2, in validation); ties by number: 2, 3, 5.
    assert (stats["ml:2"]["mean_rating"], stats["ml:2"]["train_mean_rating"]) == (3.0, 4.0)
    assert (stats["ml:3"]["mean_rating"], stats["ml:3"]["train_mean_rating"]) == (1.0, None)
    assert [stats[f"ml:{n}"]["popularity_rank"] for n in (1, 2, 3, 4, 5, 10)] == [1, 2, 3, 5, 4, 6]
    assert (stats["ml:10"]["ratings"], stats["ml:10"]["mean_rating"]) == (0, None)
    users = {r["user_id"]: r for r in exported["movies.human_users"].to_dicts()}
    one = users["ml-user:1"]
    assert (one["age_band"], one["gender"], one["occupation"]) == ("25-34", "F", "programmer")
    assert users["ml-user:2"] == {
        "user_id": "ml-user:2",
        "ratings": 3,
        "mean_rating": 2.5,
        "first_rated_at": datetime(1970, 1, 2, tzinfo=UTC),
        "last_rated_at": datetime(1970, 1, 2, tzinfo=UTC),
        "age_band": None,
        "gender": None,
        "occupation": None,
    }


def test_every_column_of_every_model_is_documented(built: Path) -> None:
    documented = {
        model["name"]: [c["name"] for c in model["columns"]]
        for file in PROJECT.glob("models/**/*.yml")
        for model in yaml.safe_load(file.read_text(encoding="utf-8")).get("models", [])
        if "movies" in model["name"] or model["name"].startswith(("stg_movielens", "stg_tmdb"))
    }
    with duckdb.connect(str(WarehouseLayout(built).database), read_only=True) as connection:
        columns: dict[str, list[str]] = {}
        for table, column in connection.execute(
            "select table_name, column_name from information_schema.columns "
            "where table_schema in ('staging', 'intermediate', 'marts') "
            "order by table_name, ordinal_position"
        ).fetchall():
            columns.setdefault(table, []).append(column)
    assert columns == documented


# -- what the store keeps of it ---------------------------------------------------------------


def test_an_export_says_what_it_was_made_from(published: Path) -> None:
    store = Store(published)
    items = store.current("movies.items").manifest
    assert items.inputs == {
        name: store.current(name).version
        for name in ("raw.movielens_links", "raw.movielens_movies", "raw.tmdb_movies")
    }
    assert items.run_id == "r1"
    splits = store.current("movies.splits").manifest
    assert list(splits.inputs) == ["raw.movielens_ratings"]
    # Code and variables are those of the domain, which is built as a whole.
    assert splits.code_version == items.code_version
    assert splits.config == items.config
    assert items.config == {
        name: value
        for name, value in dbt_vars(settings_of(published)).items()
        if name.startswith(("split_", "trait_"))
    }


def test_an_export_records_its_tests_as_checks(published: Path) -> None:
    store = Store(published)
    checks = store.checks("movies.items", store.current("movies.items").version)
    unique = checks["movies_items_unique"]
    assert (unique.passed, unique.severity, unique.kind) == (True, "error", "dbt")
    # Found in what it is made from; unit tests are about the code, and no part of a build.
    assert checks["stg_movielens__links_tmdb_accounted_for"].passed
    assert "titles_and_years_are_parsed" not in checks
    # Two films share a TMDB record: shown, with the rows, but nothing is stopped.
    shared = checks["movies_items_share_no_tmdb_record"]
    assert (shared.passed, shared.severity) == (False, "warn")
    assert shared.details["rows"] == [{"unique_field": 3573, "n_records": 2}]
    assert failing_rows(published, "movies_items_share_no_tmdb_record") == shared.details["rows"]
    assert failing_rows(published, "movies_items_unique") == []
    required = {t.name for t in mart_tests(published, "movies_items") if t.severity == "error"}
    assert required <= set(checks)
    assert "movies_splits_shares" not in checks


def test_the_same_build_is_not_exported_twice(
    published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, settings = Store(published), settings_of(published)
    before = store.current("movies.splits")
    inodes = {f: f.stat().st_ino for f in before.files()}
    monkeypatch.setattr(Store, "write", lambda *a, **k: pytest.fail("wrote again"))
    after = export_mart(store, "movies.splits", settings)
    assert after.version == before.version
    assert {f: f.stat().st_ino for f in after.files()} == inodes


# -- what is kept in --------------------------------------------------------------------------


def test_links_to_absent_films_stop_what_depends_on_them(copy: Path) -> None:
    store, settings = Store(copy), settings_of(copy)
    kept = export_mart(store, "movies.items", settings)
    commit(store, "raw.movielens_links", [*LINKS, (77, "0000077", 77)])
    link_sources(store)
    with pytest.raises(StoreError, match=r"raw\.movielens_links@.* is linked now"):
        export_mart(store, "movies.items", settings)
    done = dbt(copy, "build")
    assert done.returncode == 1
    record_dbt_run(copy)
    with pytest.raises(StoreError, match="run dbt build"):
        export_mart(store, "movies.items", settings)
    assert failing_rows(copy, "stg_movielens__links_name_known_films") == [{"from_field": 77}]
    assert failing_rows(copy, "stg_movielens__links_tmdb_accounted_for") == [{"tmdb_id": 77}]
    assert store.current("movies.items") == kept
    # Interactions would name items that are not there; users have nothing to do with it.
    with pytest.raises(ContractError, match=r"movies_interactions_known_items \(skipped\)"):
        export_mart(store, "movies.interactions", settings)
    assert export_mart(store, "movies.human_users", settings).rows == 3


#: Damages to the warehouse, and the test that must notice.
DAMAGE = {
    "insert into marts.movies_items select * from marts.movies_items where item_id = 'ml:4'": [
        "movies_items_unique",
        "movies_items_no_film_lost",
    ],
    "update marts.movies_items set title = null where item_id = 'ml:2'": ["movies_items_complete"],
    "update marts.movies_items set genres = ['B', 'A'] where item_id = 'ml:1'": [
        "movies_items_genres_sorted"
    ],
    "update marts.movies_items set overview = 'x' where item_id = 'ml:3'": [
        "movies_items_nulls_without_tmdb"
    ],
    "insert into marts.movies_interactions select user_id, item_id, 4.9, scale, rated_at "
    "from marts.movies_interactions where user_id = 'ml-user:3'": [
        "movies_interactions_unique",
        "movies_interactions_none_lost",
        "movies_interactions_on_scale",
    ],
    "insert into marts.movies_interactions values "
    "('ml-user:9', 'ml:9', 5.0, '0.5-5', timestamptz '2001-01-01 00:00:00+00')": [
        "movies_interactions_known_items",
        "movies_interactions_known_users",
        "movies_splits_cover_interactions",
        "movies_splits_once_each",
        "movies_human_users_count_interactions",
        "movies_item_stats_count_interactions",
    ],
    "update marts.movies_interactions set rated_at = null where user_id = 'ml-user:3'": [
        "movies_interactions_complete"
    ],
    # The oldest rating of user 1 into test, the latest into train; user 2 has too few for a test.
    "update marts.movies_splits set split = case item_id when 'ml:1' then 'test' else 'train' end "
    "where user_id = 'ml-user:1'": [
        "movies_splits_in_time_order",
        "movies_item_stats_count_train",
    ],
    "update marts.movies_splits set split = 'test' where user_id = 'ml-user:2'": [
        "movies_splits_shares"
    ],
    "update marts.movies_splits set split = 'dev' where user_id = 'ml-user:3'": [
        "movies_splits_known_parts"
    ],
    "update marts.movies_item_stats set popularity_rank = 7 where item_id = 'ml:1'": [
        "movies_item_stats_ranks"
    ],
    "update marts.movies_item_stats set mean_rating = 3 where item_id = 'ml:10'": [
        "movies_item_stats_consistent"
    ],
    "insert into marts.movies_item_stats values ('ml:8', 0, null, 0, null, 8), "
    "('ml:8', 0, null, 0, null, 9)": ["movies_item_stats_unique", "movies_item_stats_cover_items"],
    "insert into marts.movies_human_users select user_id, 1, 1.0, last_rated_at + interval 1 day, "
    "last_rated_at, null, null, null from marts.movies_human_users where user_id = 'ml-user:1'": [
        "movies_human_users_unique",
        "movies_human_users_times_in_order",
    ],
    "insert into marts.movies_user_traits select * replace (case activity_tier when 'high' then "
    "'low' else 'high' end as activity_tier, case conformity_tier when 'high' then 'low' else "
    "'high' end as conformity_tier, case diversity_tier when 'high' then 'low' else 'high' end as "
    "diversity_tier, case diversity_80_tier when 'high' then 'low' else 'high' end as "
    "diversity_80_tier, 'not_picky' as pickiness) from marts.movies_user_traits": [
        "movies_user_traits_unique",
        "movies_user_traits_count_interactions",
        "movies_user_traits_activity_tiers",
        "movies_user_traits_conformity_tiers",
        "movies_user_traits_diversity_tiers",
        "movies_user_traits_diversity_80_tiers",
        "movies_user_traits_pickiness",
    ],
    "update marts.movies_user_traits set diversity = null, user_id = 'ml-user:7' "
    "where user_id = 'ml-user:3'": [
        "movies_user_traits_complete",
        "movies_user_traits_cover_users",
    ],
    "insert into marts.movies_training_traits select * replace (case activity_tier when 'high' "
    "then 'low' else 'high' end as activity_tier, case conformity_tier when 'high' then 'low' else "
    "'high' end as conformity_tier, case diversity_tier when 'high' then 'low' else 'high' end as "
    "diversity_tier, case diversity_80_tier when 'high' then 'low' else 'high' end as "
    "diversity_80_tier, 'not_picky' as pickiness) from marts.movies_training_traits": [
        "movies_training_traits_unique",
        "movies_training_traits_count_interactions",
        "movies_training_traits_activity_tiers",
        "movies_training_traits_conformity_tiers",
        "movies_training_traits_diversity_tiers",
        "movies_training_traits_diversity_80_tiers",
        "movies_training_traits_pickiness",
    ],
    "update marts.movies_training_traits set diversity = null, user_id = 'ml-user:7' "
    "where user_id = 'ml-user:3'": [
        "movies_training_traits_complete",
        "movies_training_traits_cover_users",
    ],
    "update marts.movies_human_users set mean_rating = null where user_id = 'ml-user:3'": [
        "movies_human_users_complete"
    ],
}
#: Tests of the staging layer that the raw files below break.
RAW_DAMAGE = {
    "stg_movielens__links_name_known_films",
    "stg_movielens__links_tmdb_accounted_for",
    "stg_movielens__tags_name_known_films",
    "stg_tmdb__missing_have_no_record",
}


def test_every_blocking_test_notices_what_it_is_for(copy: Path) -> None:
    store = Store(copy)
    commit(store, "raw.movielens_links", [*LINKS, (77, "0000077", 77)])
    commit(store, "raw.movielens_tags", [(1, 77, "x", 1)])
    commit(store, "raw.tmdb_missing", [*MISSING, (603, "not_found")])
    link_sources(store)
    with duckdb.connect(str(WarehouseLayout(copy).database)) as connection:
        for statement in DAMAGE:
            assert connection.execute(statement).fetchall()[0][0] > 0, statement
    # The views still read the home that this one was copied from.
    assert dbt(copy, "run", "staging.movielens", "staging.tmdb").returncode == 0
    assert dbt(copy, "test").returncode == 1
    record_dbt_run(copy)
    tests = {t.name: t for model in MOVIES_MARTS.values() for t in mart_tests(copy, model)}
    failed = {t.name for t in tests.values() if t.blocks}
    expected = {name for names in DAMAGE.values() for name in names} | RAW_DAMAGE
    assert expected - {"stg_movielens__tags_name_known_films"} <= failed
    blocking = {t.name for t in tests.values() if t.severity == "error"}
    assert blocking <= expected, "a blocking test that nothing here can make fail"
    for name in sorted(expected):
        assert failing_rows(copy, name), name
    assert failing_rows(copy, "movies_splits_shares")[0]["test_size"] is not None


def test_a_mart_whose_columns_differ_is_refused(copy: Path) -> None:
    with duckdb.connect(str(WarehouseLayout(copy).database)) as connection:
        connection.execute("alter table marts.movies_items alter year type integer")
        connection.execute("drop table marts.movies_splits")
    with pytest.raises(ContractError, match="columns differ from the contract in year"):
        export_mart(Store(copy), "movies.items", settings_of(copy))
    with pytest.raises(StoreError, match="the mart is not in the warehouse"):
        export_mart(Store(copy), "movies.splits", settings_of(copy))


def test_rows_that_break_the_contract_are_refused(copy: Path) -> None:
    with duckdb.connect(str(WarehouseLayout(copy).database)) as connection:
        connection.execute("update marts.movies_interactions set rating = 9 where rating = 5")
    store = Store(copy)
    with pytest.raises(ContractError, match=r"movies\.interactions"):
        export_mart(store, "movies.interactions", settings_of(copy))
    assert not store.has("movies.interactions")


def test_no_warehouse_an_unknown_mart_and_a_broken_file_have_their_own_errors(
    tmp_path: Path,
) -> None:
    store, settings = Store(tmp_path), settings_of(tmp_path)
    with pytest.raises(StoreError, match="there is no warehouse yet"):
        export_mart(store, "movies.items", settings)
    with pytest.raises(StoreError, match=r"no mart for this dataset: movies\.personas"):
        export_mart(store, "movies.personas", settings)
    layout = WarehouseLayout(tmp_path)
    layout.folder.mkdir()
    layout.database.write_bytes(b"not a database" * 1000)
    with pytest.raises(StoreError, match="can't be opened"):
        export_mart(store, "movies.items", settings)
    layout.database.unlink()
    duckdb.connect(str(layout.database)).close()
    with pytest.raises(StoreError, match="dbt has not built this mart"):
        export_mart(store, "movies.items", settings)
    layout.builds.write_text("{")
    with pytest.raises(IntegrityError, match="record of the warehouse can't be read"):
        export_mart(store, "movies.items", settings)


@pytest.fixture
def writing(built: Path) -> Iterator[int]:
    """Id of a process that has the warehouse open for writing."""
    code = (
        "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True);"
        "sys.stdin.read()"
    )
    path = str(WarehouseLayout(built).database)
    with subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        yield process.pid
        process.kill()


def test_a_warehouse_that_is_being_written_is_locked(built: Path, writing: int) -> None:
    with pytest.raises(LockedError, match=rf"process {writing} .*python.* has the warehouse file"):
        export_mart(Store(built), "movies.items", settings_of(built))
    with pytest.raises(LockedError):
        failing_rows(built, "movies_items_share_no_tmdb_record")
