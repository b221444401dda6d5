"""Steam: what comes out of its files, and what each kind of bad row or file becomes."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from pipelines.config import Settings
from pipelines.errors import SourceError
from pipelines.sources import World, ingest, open_source
from pipelines.store import Snapshot, Store

NAN = '{"publisher": NaN, "genres": NaN, "app_name": NaN, "title": NaN, "id": NaN, "price": NaN}'
GAMES = [
    NAN,
    "{u'publisher': u'Ex & Why', u'genres': [u'Action', u'Indie'], u'app_name': u\"It's a game\", "
    "u'title': u'It\\u2122s', u'release_date': u'2018-01-04', u'tags': [u'Pixel'], u'price': 4.99, "
    "u'early_access': False, u'id': u'761140', u'developer': nan, u'metascore': 96}",
    '{"app_name": "Second", "title": NaN, "price": "Free To Play", "early_access": true, '
    '"id": "20"}',
]
REVIEW = {"funny": "", "posted": "Posted November 5, 2011.", "last_edited": "", "item_id": "20"}
REVIEW |= {"helpful": "No ratings yet", "recommend": True, "review": "it's"}
USERS = [
    repr(
        {
            "user_id": "7656",
            "user_url": "http://x",
            "reviews": [REVIEW, REVIEW | {"recommend": False}],
        }
    ),
    repr({"user_id": "nobody", "user_url": "http://x", "reviews": []}),
    repr(
        {
            "user_id": "js 4".replace(" ", "_"),
            "user_url": "http://x",
            "reviews": [REVIEW | {"item_id": "761140"}],
        }
    ),
]
LIBRARY = {"item_id": "20", "item_name": "Second", "playtime_forever": 130, "playtime_2weeks": 0}
ITEMS = [
    repr(
        {"user_id": "7656", "items_count": 1, "items": [LIBRARY, LIBRARY | {"playtime_forever": 0}]}
    )
]


def write(
    folder: Path, games: list[str] = GAMES, users: list[str] = USERS, items: list[str] | None = None
) -> Path:
    (folder / "steam").mkdir(parents=True, exist_ok=True)
    for name, lines in (
        ("steam_games", games),
        ("australian_user_reviews", users),
        ("australian_users_items", items),
    ):
        if lines is not None:
            content = "".join(f"{line}\n" for line in lines).encode()
            (folder / "steam" / f"{name}.json.gz").write_bytes(gzip.compress(content))
    return folder


def read(folder: Path, home: Path, **settings: Any) -> dict[str, Snapshot]:
    tree = Settings(
        world={"folder": folder},
        runtime={"home": home, "threads": 1},
        **({"ingest": {"max_rejected_share": 1.0}} | settings),
    )
    source = open_source("steam", tree)
    files = tuple(source.files(folder))
    world = World("given", folder, "given", {"steam": files}, source.feeds(folder))
    found = ingest("steam", world, Store(home), tree)
    return {name.removeprefix("raw.steam_"): snapshot for name, snapshot in found.items()}


def rejected(found: dict[str, Snapshot]) -> list[tuple[str, int, str]]:
    frame = found["rejected"].read()
    return [(f.rpartition("/")[2].split(".")[0], n, r) for f, n, r, *_ in frame.rows()]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_records_of_both_spellings_come_out_as_published(data: Path, home: Path) -> None:
    found = read(write(data, items=ITEMS), home)
    games = found["games"].read()
    assert games.select("game_id", "app_name", "title", "price", "metascore").rows() == [
        (20, "Second", None, "Free To Play", None),
        (761140, "It's a game", "It™s", "4.99", "96"),
    ]
    assert games["genres"].to_list() == [[], ["Action", "Indie"]]
    assert games["early_access"].to_list() == [True, False]
    assert games["developer"].to_list() == [None, None]
    reviews = found["reviews"].read()
    assert reviews.select("line", "position", "user_id", "game_id", "recommend").rows() == [
        (1, 1, "7656", 20, True),
        (1, 2, "7656", 20, False),
        (3, 1, "js_4", 761140, True),
    ]
    assert set(reviews["posted"]) == {"Posted November 5, 2011."}
    assert set(reviews["review"]) == {"it's"}
    assert found["playtime"].read().rows() == [(1, 1, "7656", 20, 130, 0), (1, 2, "7656", 20, 0, 0)]
    assert rejected(found) == []


def test_rows_are_counted_in_and_out(data: Path, home: Path) -> None:
    found = read(write(data), home)
    stats = found["games"].manifest.stats
    assert (stats["rows_read"], stats["rejected"], stats["filtered"]) == (3, 0, {"empty_record": 1})
    assert found["reviews"].manifest.stats["rows_read"] == 3
    assert found["reviews"].manifest.stats["users"] == 3
    # The file of times played is optional.
    assert found["playtime"].rows == 0


def test_each_bad_game_is_rejected_for_its_reason_and_with_its_line(data: Path, home: Path) -> None:
    games = [
        *GAMES,
        '{"app_name": "No id", "id": NaN}',
        '{"app_name": "Bad id", "id": "x1"}',
        '{"app_name": "Again", "id": "20"}',
        "{'app_name': 'it's', 'id': '30'}",
        "",
        "['a', 'list']",
        '{"app_name": [5], "id": "40"}',
        '{"app_name": "Cut", "id"',
    ]
    found = read(write(data, games), home)
    assert rejected(found) == [
        ("steam_games", 4, "bad_id"),
        ("steam_games", 5, "bad_id"),
        ("steam_games", 6, "duplicate_key"),
        ("steam_games", 7, "not_json"),
        ("steam_games", 8, "blank_line"),
        ("steam_games", 9, "not_object"),
        ("steam_games", 10, "wrong_type"),
        ("steam_games", 11, "not_json"),
    ]
    texts = found["rejected"].read()["text"].to_list()
    # As it stands in the file, not as it was read.
    assert texts[3] == "{'app_name': 'it's', 'id': '30'}"
    assert found["games"].rows == 2


def test_each_bad_review_is_rejected_for_its_reason_with_its_place(data: Path, home: Path) -> None:
    bad = [
        REVIEW | {"item_id": "x"},
        REVIEW | {"recommend": "yes"},
        7,
        REVIEW,
        REVIEW | {"recommend": None},
    ]
    users = [
        *USERS,
        repr({"user_id": "a", "reviews": bad}),
        repr({"user_id": 5.5, "reviews": []}),
        repr({"user_id": "b c", "reviews": []}),
        repr({"user_id": "d", "reviews": {"item_id": "20"}}),
        repr({"user_id": "e"}),
    ]
    found = read(write(data, users=users), home)
    assert rejected(found) == [
        ("australian_user_reviews", 4, "bad_id"),
        ("australian_user_reviews", 4, "bad_recommend"),
        ("australian_user_reviews", 4, "bad_recommend"),
        ("australian_user_reviews", 4, "not_object"),
        ("australian_user_reviews", 5, "bad_id"),
        ("australian_user_reviews", 6, "bad_id"),
        ("australian_user_reviews", 7, "wrong_type"),
        ("australian_user_reviews", 8, "wrong_type"),
    ]
    texts = found["rejected"].read()["text"].to_list()
    assert [text.partition(":")[0] for text in texts[:4]] == [
        "reviews[1]", "reviews[2]", "reviews[5]", "reviews[3]",
    ]  # fmt: skip
    assert found["reviews"].read().filter(user_id="a")["position"].to_list() == [4]
    # Entries and rejected lines are the file's rows.
    assert found["reviews"].manifest.stats["rows_read"] == 3 + 5 + 4


def test_each_bad_time_is_rejected(data: Path, home: Path) -> None:
    bad = [LIBRARY | {"playtime_forever": -1}, LIBRARY | {"playtime_forever": "9.5"}, LIBRARY]
    found = read(write(data, items=[*ITEMS, repr({"user_id": "a", "items": bad})]), home)
    assert rejected(found) == [("australian_users_items", 2, "bad_playtime")] * 2
    assert found["playtime"].rows == 3


def test_numbers_and_truth_values_of_pandas_are_read(data: Path, home: Path) -> None:
    games = [
        repr({"id": 0.0, "app_name": 1984, "genres": "['Action', 'Indie']", "metascore": "96.0"})
    ]
    review = REVIEW | {"item_id": 0, "recommend": "True"}
    old = REVIEW | {"item_id": "0", "posted": "Posted November 5, 1911."}
    users = [repr({"user_id": 5.0, "reviews": str([review, old])})]
    library = LIBRARY | {"item_id": 0.0, "playtime_forever": "9.0", "playtime_2weeks": None}
    found = read(write(data, games, users, [repr({"user_id": "5", "items": [library]})]), home)
    game = found["games"].read().row(0, named=True)
    assert (game["game_id"], game["app_name"], game["metascore"]) == (0, "1984", "96")
    assert game["genres"] == ["Action", "Indie"]
    reviews = found["reviews"].read().select("user_id", "game_id", "recommend")
    assert reviews.rows() == [("5", 0, True)]
    assert found["playtime"].read()["playtime_forever"].to_list() == [9]
    fault = found["rejected"].read().row(0, named=True)
    assert (fault["reason"], fault["field"]) == ("bad_timestamp", "posted")


def test_bytes_that_are_no_text_cost_one_line(data: Path, home: Path) -> None:
    write(data)
    path = data / "steam" / "australian_user_reviews.json.gz"
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    lines[1] = lines[1].replace(b"nobody", b"nob\xffdy")
    path.write_bytes(gzip.compress(b"".join(lines)))
    found = read(data, home)
    assert rejected(found) == [("australian_user_reviews", 2, "invalid_utf8")]
    assert found["reviews"].rows == 3


def test_too_many_rejected_rows_fail_the_run_and_commit_nothing(data: Path, home: Path) -> None:
    write(data, [*GAMES, "{'app_name': 'it's', 'id': '30'}"])
    with pytest.raises(
        SourceError, match=r"1 of 4 rows rejected.*not_json 1.*steam_games"
    ) as caught:
        read(data, home, ingest={"max_rejected_share": 0.01})
    assert caught.value.details["rows"][0]["line"] == 4
    assert not Store(home).has("raw.steam_games")


@pytest.mark.parametrize("name", ["steam_games", "australian_user_reviews"])
def test_a_cut_archive_is_named(data: Path, home: Path, name: str) -> None:
    path = write(data) / "steam" / f"{name}.json.gz"
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(SourceError, match=rf"corrupt.*ends in the middle.*{name}"):
        read(data, home)
    assert not Store(home).has("raw.steam_games")


@pytest.mark.parametrize("packed", [True, False])
def test_an_empty_file_is_named(data: Path, home: Path, packed: bool) -> None:
    path = write(data) / "steam" / "steam_games.json.gz"
    path.write_bytes(gzip.compress(b"") if packed else b"")
    with pytest.raises(SourceError, match="the file is empty: steam/steam_games"):
        read(data, home)


def test_a_missing_file_and_two_of_a_kind_are_named(data: Path, home: Path) -> None:
    folder = write(data) / "steam"
    plain = folder / "steam_games.json"
    plain.write_bytes(b"{}")
    with pytest.raises(SourceError, match="a packed and a plain file"):
        read(data, home)
    plain.unlink()
    (folder / "australian_user_reviews.json.gz").unlink()
    with pytest.raises(
        SourceError, match=r"the Steam reviews are missing.*australian_user_reviews"
    ):
        read(data, home)


def test_a_folder_that_may_not_be_listed_is_an_error_and_not_an_absent_source(
    data: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(data)
    real = Path.iterdir

    def forbidden(self: Path) -> Any:
        if self.name == "steam":
            raise PermissionError(13, "Permission denied")
        return real(self)

    monkeypatch.setattr(Path, "iterdir", forbidden)
    with pytest.raises(SourceError, match=r"can't be read \(Permission denied\).*steam"):
        read(data, home)


def test_files_may_lie_where_the_settings_say_and_be_plain(
    data: Path, home: Path, tmp_path: Path
) -> None:
    write(data)
    other = tmp_path / "elsewhere"
    other.mkdir()
    moved = other / "games.json"
    moved.write_bytes(gzip.decompress((data / "steam" / "steam_games.json.gz").read_bytes()))
    (data / "steam" / "steam_games.json.gz").unlink()
    found = read(data, home, data={"steam": {"games": str(moved)}})
    assert found["games"].rows == 2
    assert found["games"].manifest.stats["file"] == "games.json"


def test_a_folder_without_steam_is_no_source(data: Path) -> None:
    data.mkdir()
    source = open_source("steam", Settings(world={"folder": data}))
    assert not source.present(data)
    assert source.feeds(data) == frozenset()
    assert source.files(data) == []


@pytest.mark.shared_data
@pytest.mark.pipeline
def test_the_real_files_come_out_whole(shared_data: Path, home: Path) -> None:
    found = read(shared_data, home, ingest={"max_rejected_share": 0.01})
    assert found["games"].rows == 32_132
    assert found["games"].manifest.stats["filtered"] == {"empty_record": 200}
    assert rejected(found) == [
        ("steam_games", 275, "bad_id"),
        ("steam_games", 14_774, "duplicate_key"),
        ("steam_games", 31_162, "bad_id"),
    ]
    reviews = found["reviews"].read()
    assert (reviews.height, reviews["user_id"].n_unique()) == (59_161, 25_467)
    assert reviews["recommend"].sum() == 52_350
