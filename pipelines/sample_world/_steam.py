"""The sample world's game shop as Steam files: Python literals, empty records, dates in words."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pipelines.config import SampleSettings
from pipelines.sample_world._amazon import draw_baskets
from pipelines.sample_world._text import Dice, record_of, table, town_name
from pipelines.sample_world._world import SourceFiles, within

GAMES = "steam/steam_games.json.gz"
REVIEWS = "steam/australian_user_reviews.json.gz"
ITEMS = "steam/australian_users_items.json.gz"
_FIRST, _LAST = datetime(2011, 1, 1, tzinfo=UTC), datetime(2015, 12, 31, tzinfo=UTC)
_NAN = math.nan
Record = dict[str, Any]
_TABLES = table("tables")["steam"]
_SHARES: Mapping[str, float] = _TABLES["shares"]
#: Genres; the last is that of programs that are no games.
_GENRES: Sequence[str] = _TABLES["genres"]


class _Game(NamedTuple):
    number: int
    title: str
    genres: tuple[str, ...]
    quality: float


def steam_files(settings: SampleSettings, *, broken_rows: bool) -> SourceFiles:
    """Steam files of a world: games are JSON with ``NaN``, the others have Python's ``repr``."""
    dice, out = Dice(settings.seed, "steam"), SourceFiles()
    games = _add_games(out, within(settings.films, 130, 5_000), dice)
    reviews = within(settings.ratings // 10, 600, 100_000)
    users = within(settings.users, 40, reviews // 8)
    by_genre = {n: matching for n in _GENRES if (matching := [g for g in games if n in g.genres])}
    baskets = draw_baskets(dice, by_genre, games, users, reviews, "steam")
    for number, (taste, mood, chosen) in enumerate(baskets):
        _add_user(out, _user(number), chosen, set(taste), mood, dice)
    if broken_rows:
        lines = out.lines[GAMES]
        doubled = next(n for n, line in enumerate(lines) if line.startswith(b'{"publisher": "'))
        out.spoil(GAMES, doubled + 1, "duplicate_key", lines[doubled])
        cut = repr({"user_id": _user(9_999_999), "reviews": []}).encode()[:-12]
        out.spoil(REVIEWS, 3, "not_json", cut)
        entry = {"item_id": str(games[0].number), "posted": "Posted May 5, 2014.", "review": ""}
        entries = [entry | {"recommend": None}]
        undecided = repr({"user_id": _user(9_999_999), "reviews": entries}).encode()
        out.spoil(REVIEWS, 9, "bad_recommend", undecided)
    return out


def _add_games(out: SourceFiles, count: int, dice: Dice) -> list[_Game]:
    firsts, seconds, houses = (_TABLES[k] for k in ("firsts", "seconds", "houses"))
    names = [f"{town_name(dice)} {dice.pick(houses)}" for _ in range(max(8, count // 12))]
    empty = max(3, round(count * _SHARES["empty"]))
    games: dict[str, _Game] = {}
    lines = out.lines[GAMES]
    while len(games) < count:
        title = f"{dice.pick(firsts)} {dice.pick(seconds)}"
        if dice.chance(0.3):
            title = f"{dice.pick(seconds)} of {town_name(dice)}"
        title = f"{title} {2 + len(games) % 7}" if title in games else title
        if title in games:
            continue
        genres = tuple(sorted(dice.sample(_GENRES[:-1], 1 + dice.below(3))))
        genres = (_GENRES[-1],) if dice.chance(0.02) else genres
        game = _Game(1_000 + 10 * len(games), title, genres, 0.9 * (dice.roll() + dice.roll() - 1))
        games[title] = game
        record = _game_record(game, names, dice)
        lines.append(json.dumps(record).encode())
    lines[:0] = [json.dumps(dict.fromkeys(record, _NAN)).encode()] * empty
    return list(games.values())


def _game_record(game: _Game, houses: Sequence[str], dice: Dice) -> Record:
    unnamed = dice.chance(_SHARES["unnamed"])
    day = datetime(2005, 1, 1, tzinfo=UTC) + timedelta(days=dice.below(4_300))
    release: Any = day.strftime("%Y-%m-%d")
    if dice.chance(_SHARES["words"]):
        release = dice.pick((f"Fall {day.year}", f"{day:%B} {day.year}", "coming soon", _NAN))
    price: Any = dice.pick((0.99, 4.99, 9.99, 14.99, 19.99, 39.99))
    if dice.chance(_SHARES["free"]):
        price = dice.pick(("Free To Play", "Free", "Play for Free!"))
    elif dice.chance(0.03):
        price = dice.pick((_NAN, "Third-party"))
    tags = [t for genre in game.genres for t in (genre, *_TABLES["tags"][genre])]
    return record_of("steam_game", game) | {
        "publisher": dice.pick(houses) if dice.chance(0.75) else _NAN,
        "genres": list(game.genres) if dice.chance(0.92) else _NAN,
        "app_name": _NAN if unnamed else game.title,
        "title": _NAN if unnamed or dice.chance(0.06) else game.title,
        "release_date": release,
        "tags": dice.sample(tags, 6) if dice.chance(0.97) else _NAN,
        "specs": dice.sample(_TABLES["specs"], 1 + dice.below(4)),
        "price": price,
        "early_access": dice.chance(0.06),
        "developer": dice.pick(houses) if dice.chance(0.9) else _NAN,
    }


def _add_user(
    out: SourceFiles, user: str, games: Sequence[_Game], taste: set[str], mood: float, dice: Dice
) -> None:
    entries, items = [], []
    for game in games:
        liking = game.quality + mood + (0.9 if taste & set(game.genres) else -0.3)
        minutes = round(60 * math.exp(1.2 + 1.5 * liking + 2 * (dice.roll() + dice.roll() - 1)))
        good = liking + 1.6 * (dice.roll() + dice.roll() - 1) > -0.5
        day = _FIRST + timedelta(days=dice.below((_LAST - _FIRST).days))
        dated = not dice.chance(_SHARES["yearless"])
        entries.append(_entry(game, good, day, dice, dated=dated))
        if dice.chance(_SHARES["repeated"]):
            entries.append(_entry(game, good, day + timedelta(days=30), dice))
        items.append(_item(game, minutes, dice))
    if dice.chance(_SHARES["unlisted"] * len(games)):
        gone = _Game(7 + 10 * dice.below(90), "Withdrawn", (), 0.0)
        entries.append(_entry(gone, True, _FIRST, dice))
    # The published libraries have users twice; here a third of their games are.
    items += [_item(game, 0, dice) for game in dice.sample(games, len(games) // 3)]
    identity = {"user_id": user, "user_url": f"http://community.example/id/{user}"}
    out.lines[REVIEWS].append(repr(identity | {"reviews": entries}).encode())
    if dice.chance(0.9):
        library = {"user_id": user, "items_count": len(items), "steam_id": user}
        out.lines[ITEMS].append(repr(library | identity | {"items": items}).encode())


def _item(game: _Game, minutes: int, dice: Dice) -> Record:
    recent = minutes // 9 if dice.chance(0.1) else 0
    return record_of("steam_item", game) | {"playtime_forever": minutes, "playtime_2weeks": recent}


def _entry(game: _Game, good: bool, day: datetime, dice: Dice, *, dated: bool = True) -> Record:
    votes = dice.below(12)
    helpful = f"{votes // 2} of {votes} people ({50 if votes else 0}%) found this review helpful"
    return record_of("steam_review", game) | {
        "funny": "1 person found this review funny" if dice.chance(0.1) else "",
        "posted": f"Posted {day:%B} {day.day}{f', {day.year}' if dated else ''}.",
        "helpful": helpful if votes else "No ratings yet",
        "recommend": good,
        "review": dice.pick(_TABLES["praise" if good else "blame"]).format(title=game.title),
    }


def _user(number: int) -> str:
    """An id below those that Steam has given, or a name."""
    return str(10_000_000_000_000_000 + 7 * number) if number % 3 else f"player_{number}"
