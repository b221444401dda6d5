"""Steam (Kang and McAuley): games, reviews and time played."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import orjson

from pipelines.config import Settings
from pipelines.errors import SourceError
from pipelines.licences import Licence
from pipelines.sources import _values as values
from pipelines.sources._folders import check_file, given_files, pick_files, relative_name
from pipelines.sources._protocol import Source
from pipelines.sources._reader import Batch, Column, Lists, columns, json_rows, record_blocks
from pipelines.sources._tables import Check, RawTable, Workspace, raw_table

Kind = Literal["games", "reviews", "items"]

_FOLDER = "steam"
#: The published names; `.gz` may be missing.
_NAMES: Mapping[Kind, str] = {
    "games": "steam_games.json",
    "reviews": "australian_user_reviews.json",
    "items": "australian_users_items.json",
}
EXPECTED = " or ".join(f"{name}.gz" for name in _NAMES.values())
#: Play time refines what a review says; the others are the domain.
REQUIRED: tuple[Kind, ...] = ("games", "reviews")


def find_files(folder: Path, settings: Settings) -> dict[Kind, Path]:
    """The Steam files that there are, in the order games, reviews, items.

    That is ``steam/steam_games.json[.gz]`` and so on in the data folder, or what ``data.steam``
    names.

    Raises :class:`SourceError` if there is a packed and a plain file of one kind, if a required one
    is missing beside the other, or if the folder can't be read.
    """
    data = settings.data.steam
    files: dict[Kind, Path] = {}
    for kind, name in _NAMES.items():
        given = getattr(data, kind)
        paths = (
            [check_file(p, name) for p in given_files([given], settings)]
            if given
            else _lying(folder / _FOLDER, name)
        )
        if len(paths) > 1:
            raise SourceError(
                "a packed and a plain file of the same name",
                where=str(paths[0]),
                hint="keep one of them",
            )
        for path in paths:
            files[kind] = path
    missing = [kind for kind in REQUIRED if kind not in files]
    if files and missing:
        raise SourceError(
            f"the Steam {missing[0]} are missing",
            where=str(folder / _FOLDER),
            hint=f"expected {_NAMES[missing[0]]}.gz there, or its place in data.steam."
            f"{missing[0]}; found {', '.join(relative_name(f, folder) for f in files.values())}",
        )
    return files


def _lying(folder: Path, name: str) -> list[Path]:
    def is_name(filename: str) -> bool:
        return re.sub(r"[ -]", "_", filename.lower()).removesuffix(".gz") == name

    return pick_files(folder, is_name, f"{name}.gz")


#: Largest number of a game, and of minutes played.
_MAX_ID, _MAX_MINUTES = 10**18 - 1, 10**15 - 1
#: A line holds all of a user's games (bytes): of the longest published list about 1 MiB.
_MAX_LITERAL = 16 << 20
#: Spelling of a whole number: of pandas (10.0), and of texts in JSON ("10").
_WHOLE = re.compile(r"\s*([0-9]+)(?:\.0*)?\s*")
_USER = re.compile(r"[^\s/]{1,128}")
#: Years of reviews: the bounds of the checks `rated_from` and `rated_to`.
_YEARS = (1990, 2035)


def _up_to(limit: int) -> Callable[[Any], int]:
    """Reader of whole numbers from 0 to a limit."""

    def read(value: Any) -> int:
        number = values.whole_number(value)
        if not 0 <= number <= limit:
            raise values.UnreadableError
        return number

    return read


def _spelled(value: Any) -> str:
    """The text of a value that is a text or a number."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _score(value: Any) -> str:
    """The digits of a whole number, however it is spelled; other texts as they are."""
    text = _spelled(value)
    match = _WHOLE.fullmatch(text)
    return match[1] if match else text


def _user(value: Any) -> str:
    user = values.identifier(value)
    if not _USER.fullmatch(user):
        raise values.UnreadableError
    return user


def _game(key: str) -> Column:
    return Column(key, "game_id", "integer", "bad_id", required=True, parse=_up_to(_MAX_ID))


_MINUTES: dict[str, Any] = {
    "kind": "integer",
    "reason": "bad_playtime",
    "parse": _up_to(_MAX_MINUTES),
}
_GAMES = (
    _game("id"),
    *columns("app_name", "title", "url", "publisher", "developer"),
    *columns("genres", "tags", "specs", kind="texts"),
    *columns("release_date"),
    *columns("price", "discount_price", parse=_spelled),
    *columns("early_access", kind="boolean"),
    *columns("sentiment"),
    *columns("metascore", parse=_score),
)
_REVIEWS = (
    _game("item_id"),
    *columns("recommend", kind="boolean", reason="bad_recommend", required=True),
    *columns("posted", "last_edited", "funny", "helpful", "review"),
)
_PLAYTIME = (
    _game("item_id"),
    *columns("playtime_forever", required=True, **_MINUTES),
    *columns("playtime_2weeks", **_MINUTES),
)
_OWNER = Column("user_id", "user_id", "id", "bad_id", required=True, parse=_user)


def _empty(_: int, game: Mapping[str, Any]) -> str | None:
    """The reason for which a record without any value is left out."""
    return None if any(game.get(c.field) not in (None, []) for c in _GAMES) else "empty_record"


def _tables(files: Mapping[Kind, Path], folder: Path, work: Workspace) -> Iterator[RawTable]:
    """Games by number, then reviews and time played by place."""
    import polars as pl

    def rows(kind: Kind, fields: Sequence[Column], **more: Any) -> Iterator[Batch]:
        original = work.original(files[kind], relative_name(files[kind], folder))
        blocks = record_blocks(original, f"one JSON object per line with {fields[0].field}")
        yield from json_rows(blocks, fields, max_line=_MAX_LITERAL, **more)

    def part(kind: Kind, batches: Iterator[Batch]) -> dict[str, Iterator[Batch]]:
        return {relative_name(files[kind], folder): batches} if kind in files else {}

    def entries(kind: Kind, name: str, fields: Sequence[Column], *checks: Check) -> RawTable:
        lists = Lists(kind, _OWNER)

        def counted() -> Iterator[Batch]:
            yield from rows(kind, fields, lists=lists)
            table.stats["users"] = lists.records

        table = raw_table(
            f"raw.steam_{name}", part(kind, counted()), work, columns=(_OWNER, *fields),
            checks=lambda _: checks, allow_empty=kind == "items",
        )  # fmt: skip
        return table

    yield raw_table(
        "raw.steam_games", part("games", rows("games", _GAMES, check=_empty)), work,
        columns=_GAMES, key=("game_id",), filtered=("empty_record",),
    )  # fmt: skip
    year = pl.col("posted").str.extract(r"\b(\d{4})\b").cast(pl.Int64)
    posted = Check("bad_timestamp", "posted", year.is_between(*_YEARS))
    yield entries("reviews", "reviews", _REVIEWS, posted)
    yield entries("items", "playtime", _PLAYTIME)


class SteamSource(Source):
    """Steam's games, reviews and, if there, time played: one Python literal a line.

    Lines are Python's or JSON's spelling of a dictionary; they are never evaluated. Games come
    out by number, reviews and time played by their place in the file, all as published. Games
    without any value (the published file begins with thousands) are filtered as
    ``empty_record``. Rejected are lines that hold no dictionary (``blank_line``,
    ``too_long``, ``invalid_utf8``, ``not_json``, ``not_object``) and, by reason:

    =================  =====================================================================
    ``bad_id``         a game or user that is missing or has characters of no id
    ``bad_recommend``  a review that neither recommends nor doesn't
    ``bad_playtime``   a time played that is missing, no whole number, or negative
    ``bad_timestamp``  a review from beyond 1990 to 2035
    ``duplicate_key``  a second record of a game; the first in the file stays
    ``wrong_type``     another field whose value can't be read as what is published
    =================  =====================================================================

    A rejected review or time played has the line of its user; its text begins with its number
    in the user's list. A user whose list is empty makes no row.
    """

    name: ClassVar[str] = "steam"
    expected: ClassVar[str] = EXPECTED
    code_version: ClassVar[str] = "steam-4"
    datasets: ClassVar[tuple[str, ...]] = (
        "raw.steam_games",
        "raw.steam_reviews",
        "raw.steam_playtime",
        "raw.steam_rejected",
    )
    domains: ClassVar[frozenset[str]] = frozenset({"games"})
    licence: ClassVar[Licence] = Licence(
        name="Steam data of Kang and McAuley",
        url="https://cseweb.ucsd.edu/~jmcauley/datasets.html#steam_data",
        terms="For academic use; cite the papers. The reviews are their writers', the store's "
        "texts Valve's and the publishers'.",
        citation="W.-C. Kang, J. McAuley. Self-Attentive Sequential Recommendation. ICDM 2018. "
        "A. Pathak, K. Gupta, J. McAuley. Generating and Personalizing Bundle Recommendations on "
        "Steam. SIGIR 2017.",
    )

    def present(self, folder: Path) -> bool:
        """Whether files are named in the settings or lie in ``folder/steam``."""
        return bool(find_files(folder, self.settings))

    def files(self, folder: Path) -> list[Path]:
        """Return the files that are read: games, reviews and, if there, items."""
        return list(find_files(folder, self.settings).values())

    def read(self, folder: Path, work: Workspace) -> Iterator[RawTable]:
        """Read games, reviews and time played."""
        files = find_files(folder, self.settings)
        if not files:
            raise SourceError(
                "no Steam files", where=str(folder / self.name), hint="see docs/data.md"
            )
        yield from _tables(files, folder, work)
