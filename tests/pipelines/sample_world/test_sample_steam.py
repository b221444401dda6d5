"""The sample world's Steam files, and what the loader finds in them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from pipelines.config import SampleSettings, Settings
from pipelines.sample_world import SampleWorld, write_sample_world
from pipelines.sample_world._steam import GAMES, steam_files
from pipelines.sources import World, ingest, open_source
from pipelines.store import Snapshot, Store


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> tuple[SampleWorld, dict[str, Snapshot], Path]:
    folder = tmp_path_factory.mktemp("sample") / "world"
    key = write_sample_world(folder, SampleSettings(films=140, users=280, ratings=22_400))
    home = tmp_path_factory.mktemp("home")
    settings = Settings(world={"folder": folder}, runtime={"home": home})
    files = tuple(open_source("steam", settings).files(folder))
    world = World("sample", folder, "generated", {"steam": files}, frozenset({"games"}))
    return key, ingest("steam", world, Store(home), settings), folder


def test_the_loader_finds_every_row(
    read: tuple[SampleWorld, dict[str, Snapshot], Path],
) -> None:
    _, found, _ = read
    games = found["raw.steam_games"]
    assert games.rows == 140
    assert games.manifest.stats["filtered"] == {"empty_record": 7}
    reviews = found["raw.steam_reviews"].read()
    assert (reviews.height, reviews["user_id"].n_unique()) == (2_399, 280)
    assert reviews.height - reviews.select("user_id", "game_id").n_unique() == 37
    assert reviews["posted"].str.contains(r"^Posted \w+ \d+\.$").sum() == 223
    assert found["raw.steam_playtime"].rows == 2_660


def test_the_loader_rejects_the_listed_rows_and_no_others(
    read: tuple[SampleWorld, dict[str, Snapshot], Path],
) -> None:
    key, found, _ = read
    rejected = found["raw.steam_rejected"].read()
    assert sorted(rejected.select("file", "line", "reason").rows()) == sorted(
        (row.file, row.line, row.reason) for row in key.rejected if row.file.startswith("steam/")
    )
    assert sorted(rejected["reason"]) == ["bad_recommend", "duplicate_key", "not_json"]


def test_the_files_have_the_published_spellings(
    read: tuple[SampleWorld, dict[str, Snapshot], Path],
) -> None:
    _, _, folder = read
    with gzip.open(folder / "steam" / "steam_games.json.gz") as file:
        assert file.readline().startswith(b'{"publisher": NaN, "genres": NaN')
    with gzip.open(folder / "steam" / "australian_user_reviews.json.gz") as file:
        first = file.read()
    assert first.startswith(b"{'user_id': 'player_0'")
    assert b"'recommend': True" in first
    assert b"\"I can't stop playing" in first


def test_the_same_settings_give_the_same_lines_and_sizes_follow_them() -> None:
    small, large = SampleSettings(films=20, users=10, ratings=200), SampleSettings(films=700)
    one, two = (steam_files(small, broken_rows=True) for _ in range(2))
    assert one.lines == two.lines
    assert steam_files(small, broken_rows=False).broken == []
    games = steam_files(large, broken_rows=False).lines[GAMES]
    assert sum(b'"id": NaN' not in line for line in games) == 700
    other = steam_files(small.model_copy(update={"seed": 3}), broken_rows=True)
    assert other.lines != one.lines
