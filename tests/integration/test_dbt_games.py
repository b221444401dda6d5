"""Steam reviews through the real dbt: what the tables of the games domain hold, and what not."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import duckdb
import polars as pl
import pytest
from support.marts import dbt, export_mart

from pipelines.config import Settings
from pipelines.contracts import CONTRACTS
from pipelines.store import Store
from pipelines.warehouse import (
    MARTS,
    WarehouseLayout,
    link_sources,
    mart_tests,
    record_dbt_run,
    warehouse_lock,
)

# A single worker for all of them, so that the module's build is made once.
pytestmark = pytest.mark.pipeline

GAMES_MARTS = {name: model for name, model in MARTS.items() if name.startswith("games.")}

GAMES = [
    {"game_id": 10, "title": "Alpha &amp; Co", "genres": ["Action", "Indie"], "price": "9.99",
     "release_date": "2010-11-09", "developer": "Ex &amp; Why"},
    {"game_id": 20, "app_name": "Beta", "genres": ["Strategy"], "price": "Free To Play",
     "release_date": "Fall 2012"},
    {"game_id": 30, "title": "Gamma"},
    {"game_id": 40, "price": "1.99"},
]  # fmt: skip


def review(
    line: int, position: int, user: str, game: int, good: bool, posted: str
) -> dict[str, object]:
    empty = dict.fromkeys(("last_edited", "funny", "helpful", "review"), "")
    place = {"line": line, "position": position, "user_id": user, "game_id": game}
    return {**place, "recommend": good, "posted": f"Posted {posted}.", **empty}


REVIEWS = [
    review(1, 1, "a", 10, True, "January 2, 2011"),
    review(1, 2, "a", 20, False, "January 3, 2011"),
    review(1, 3, "a", 30, True, "January 4, 2011"),
    # The second review of a game is the one that stays.
    review(1, 4, "a", 10, False, "January 5, 2011"),
    review(2, 1, "b", 10, True, "2012-01-02"),
    review(2, 2, "b", 20, True, "2012-01-03"),
    review(3, 1, "c", 10, True, "July 3"),
    review(3, 2, "c", 40, True, "July 3, 2012"),
    review(4, 1, "d", 10, True, "July 3, 2012"),
]
PLAYTIME = [("a", 10, 60), ("a", 30, 3000), ("b", 20, 119), ("b", 20, 30)]


def settings_of(home: Path) -> Settings:
    return Settings(
        splits={"min_interactions": 2},
        runtime={"home": home, "memory_limit_mb": 512, "threads": 2},
    )


def commit(store: Store, dataset: str, rows: list[dict[str, object]]) -> None:
    schema = CONTRACTS[dataset].polars_schema()
    empty = {name: [] if isinstance(dtype, pl.List) else None for name, dtype in schema.items()}
    frame = pl.DataFrame([empty | row for row in rows], schema=schema)
    store.commit(dataset, frame, code_version="test", allow_empty=True)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that knows nothing but Steam, built and exported."""
    home = tmp_path_factory.mktemp("games")
    store = Store(home)
    commit(store, "raw.steam_games", GAMES)
    commit(store, "raw.steam_reviews", REVIEWS)
    times = [
        {"line": 1, "position": n, "user_id": u, "game_id": g, "playtime_forever": m}
        for n, (u, g, m) in enumerate(PLAYTIME, start=1)
    ]
    commit(store, "raw.steam_playtime", times)
    with warehouse_lock(home):
        assert set(link_sources(store)) == {
            f"raw.steam_{t}" for t in ("games", "reviews", "playtime")
        }
        done = dbt(settings_of(home), "build", "--select", "tag:games")
        assert done.returncode == 0, done.stdout[-4000:]
        record_dbt_run(home)
    for name in GAMES_MARTS:
        export_mart(store, name, settings_of(home))
    return home


def table(home: Path, name: str) -> pl.DataFrame:
    return Store(home).current(f"games.{name}").read()


def test_games_have_names_prices_and_days(home: Path) -> None:
    items = table(home, "items")
    columns = ("item_id", "title", "year", "genres", "price", "release_date", "developer")
    assert items.select(columns).rows() == [
        ("steam:10", "Alpha & Co", 2010, ["Action", "Indie"], 9.99, date(2010, 11, 9), "Ex & Why"),
        ("steam:20", "Beta", 2012, ["Strategy"], 0.0, None, None),
        ("steam:30", "Gamma", None, [], None, None, None),
    ]


def test_verdicts_and_times_played_become_ratings(home: Path) -> None:
    rows = table(home, "interactions").rows()
    day = datetime(2011, 1, 5, tzinfo=UTC)
    assert rows[0] == ("steam-user:a", "steam:10", 1.0, "1-5", day, False, 60, True)
    assert [(r[0][-1], r[1], r[2], r[6], r[7]) for r in rows] == [
        ("a", "steam:10", 1.0, 60, True),
        ("a", "steam:20", 2.0, None, False),
        ("a", "steam:30", 5.0, 3000, True),
        ("b", "steam:10", 4.0, None, False),
        ("b", "steam:20", 3.0, 119, True),
    ]


def test_what_is_left_out_is_counted_by_reason(home: Path) -> None:
    store = Store(home)
    filtered = {n: store.current(n).manifest.stats["filtered"] for n in GAMES_MARTS}
    assert {n: f for n, f in filtered.items() if f} == {
        "games.items": {"game_without_title": 1},
        "games.interactions": {
            "game_not_in_catalogue": 1,
            "repeated_review": 1,
            "review_without_date": 1,
            "user_with_too_few_interactions": 1,
        },
        "games.human_users": {"user_with_too_few_interactions": 1},
    }
    kept = store.current("games.interactions").rows
    assert kept + sum(filtered["games.interactions"].values()) == len(REVIEWS)


def test_the_shared_tables_are_made_like_those_of_films(home: Path) -> None:
    parts = {(u[-1], i): s for u, i, s in table(home, "splits").rows()}
    assert parts == {
        ("a", "steam:20"): "train",
        ("a", "steam:30"): "validation",
        ("a", "steam:10"): "test",
        ("b", "steam:10"): "train",
        ("b", "steam:20"): "test",
    }
    stats = {r["item_id"]: r for r in table(home, "item_stats").to_dicts()}
    assert (stats["steam:10"]["mean_rating"], stats["steam:10"]["train_mean_rating"]) == (2.5, 4.0)
    assert [stats[f"steam:{n}"]["popularity_rank"] for n in (10, 20, 30)] == [1, 2, 3]
    users = table(home, "human_users")
    assert users.select("user_id", "ratings", "age_band", "gender").rows() == [
        ("steam-user:a", 3, None, None),
        ("steam-user:b", 2, None, None),
    ]
    traits = {r["user_id"][-1]: r for r in table(home, "user_traits").to_dicts()}
    # Means: 2.5, 2.5, 5. User a differs by -1.5, -0.5, 0; user b by 1.5, 0.5.
    assert (traits["a"]["conformity"], traits["b"]["conformity"]) == (round(2.5 / 3, 6), 1.25)
    assert (traits["a"]["diversity"], traits["b"]["diversity"]) == (3, 3)
    assert (traits["a"]["mean_rating"], traits["b"]["mean_rating"]) == (round(8 / 3, 6), 3.5)
    assert (traits["a"]["pickiness"], traits["b"]["pickiness"]) == (
        "extremely_picky",
        "moderately_picky",
    )


def test_the_domain_stands_alone(home: Path) -> None:
    tests = {t.name: t for model in GAMES_MARTS.values() for t in mart_tests(home, model)}
    assert not {t.name for t in tests.values() if t.blocks}
    assert not [name for name in tests if "movie" in name or "tmdb" in name]
    with duckdb.connect(str(WarehouseLayout(home).database), read_only=True) as connection:
        found = connection.execute(
            "select distinct table_name from information_schema.tables where table_schema in "
            "('staging', 'intermediate', 'marts')"
        ).fetchall()
    assert all("steam" in name or "games" in name for (name,) in found)
