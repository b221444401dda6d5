"""MovieLens' and Steam's formats, grown to any size.

DuckDB can't read Python literals: beside Steam's files lies the same content as JSON lines, and
that is what DuckDB reads.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _amazon import Format

__all__ = ["FILMS_AND_GAMES"]

_BLOCK = 50_000
_FILMS = 60_000
_TWIN = ".twin.jsonl"


@dataclass(frozen=True, slots=True)
class _World(Format):
    """A format whose loader wants other files beside the one that is grown.

    Attributes
    ----------
    beside
        Content by name, in the folder of the grown file.
    twin
        Lines of the same content for DuckDB, if it can't read the format.
    """

    beside: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)
    twin: Callable[[int], Iterator[bytes]] | None = None

    def write(self, folder: Path, rows: int) -> int:
        """Grow the file; the number of its rows."""
        path = folder / self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        for name, content in self.beside.items():
            (path.parent / name).write_bytes(content())
        for lines, target in ((self.lines, path), (self.twin, Path(f"{path}{_TWIN}"))):
            if lines is not None:
                with target.open("wb") as file:
                    file.writelines(lines(rows))
        return rows


def _ratings(
    separator: bytes, stars: tuple[bytes, ...], end: bytes, *, ordered: bool, header: bytes = b""
) -> Callable[[int], Iterator[bytes]]:
    """Ratings of users who rated 150 films each; in the order of users or of no kind."""

    def lines(rows: int) -> Iterator[bytes]:
        if header:
            yield header + end
        per_user = 150
        for start in range(0, rows, _BLOCK):
            out = []
            for n in range(start, min(rows, start + _BLOCK)):
                # Steps that are coprime to the counts visit every pair once.
                k = n if ordered else n * 7_368_787 % rows
                film = (
                    1 + (k % per_user) * (_FILMS // per_user) + k // per_user % (_FILMS // per_user)
                )
                row = (b"%d" % (1 + k // per_user), b"%d" % film, stars[k % len(stars)],
                       b"%d" % (900_000_000 + k * 37 % 500_000_000))  # fmt: skip
                out.append(separator.join(row) + end)
            yield b"".join(out)

    return lines


def _films(separator: bytes, end: bytes, tail: bytes, header: bytes = b"") -> bytes:
    rows = (
        b"%d%sFilm %d (1999)%s%s" % (n, separator, n, separator, tail) for n in range(1, _FILMS + 1)
    )
    return header + end.join(rows) + end


def _scan_csv(separator: str, *, header: bool) -> str:
    columns = "{{'u': 'BIGINT', 'm': 'BIGINT', 'r': 'DOUBLE', 't': 'BIGINT'}}"
    return (
        f"select * from read_csv('{{file}}', delim='{separator}', header={header}, quote='', "
        f"columns={columns}, auto_detect=false)"
    )


_HALVES = tuple(b"%d.%d" % (n // 2, n % 2 * 5) for n in range(1, 11))
_WHOLES = (b"1", b"2", b"3", b"4", b"5")
_ITEM = b"01-Jan-1995||http://x|" + b"|".join([b"0"] * 8 + [b"1"] + [b"0"] * 10)


def _texts(count: int) -> list[str]:
    """Reviews as people write them: half of them with an apostrophe, some with quotes or lines."""
    rng = random.Random(9)
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 9))) for _ in range(900)]
    out = []
    for n in range(count):
        text = " ".join(rng.choices(words, k=rng.randint(2, 70)))
        if n % 2:
            text += " it's"
        if n % 9 == 0:
            text += ' "really"\nso \u2665'
        out.append(text)
    return out


def _users(
    entries: Callable[[int, int], dict[str, Any]], key: str, per_user: int
) -> tuple[Callable[[int], Iterator[bytes]], Callable[[int], Iterator[bytes]]]:
    """Lines of users with a list each, as Python writes them and as JSON."""

    def grown(
        spelled: Callable[[Any], str],
    ) -> Callable[[int], Iterator[bytes]]:
        def lines(rows: int) -> Iterator[bytes]:
            done, user = 0, 0
            pool = [[entries(u, n) for n in range(1 + u % (2 * per_user - 1))] for u in range(997)]
            texts = [spelled(p)[1:-1].encode() for p in pool]
            while done < rows:
                count = min(len(pool[user % 997]), rows - done)
                inner = texts[user % 997]
                if count < len(pool[user % 997]):
                    inner = spelled(pool[user % 997][:count])[1:-1].encode()
                head = spelled({"user_id": f"{76561190000000000 + user}", "user_url": "http://x"})
                yield head[:-1].encode() + f", {spelled(key)}: [".encode() + inner + b"]}\n"
                done, user = done + count, user + 1

        return lines

    return grown(repr), grown(lambda value: json.dumps(value, ensure_ascii=False))


_TEXTS = _texts(4000)


def _review(user: int, n: int) -> dict[str, Any]:
    return {
        "funny": "", "posted": f"Posted March {1 + n % 28}, 2014.", "last_edited": "",
        "item_id": str(10 + 10 * ((user * 31 + n) % 30_000)), "helpful": "No ratings yet",
        "recommend": (user + n) % 9 != 0, "review": _TEXTS[(user * 7 + n) % 4000],
    }  # fmt: skip


def _owned(user: int, n: int) -> dict[str, Any]:
    number = 10 + 10 * ((user * 31 + n) % 30_000)
    name = f"Somebody's Game {number}" if n % 9 == 0 else f"Game {number}"
    return {
        "item_id": str(number), "item_name": name, "playtime_forever": n * 37 % 5000,
        "playtime_2weeks": 0,
    }  # fmt: skip


_REVIEW_LINES, _REVIEW_TWIN = _users(_review, "reviews", 2)
_OWNED_LINES, _OWNED_TWIN = _users(_owned, "items", 60)


def _scan_list(key: str, **fields: str) -> str:
    inner = ", ".join(f"{name} {kind}" for name, kind in fields.items())
    return (
        f"select user_id, unnest({key}, recursive := true) from read_json('{{file}}{_TWIN}', "
        f"format='newline_delimited', maximum_object_size=67108864, "
        f"columns={{{{'user_id': 'VARCHAR', '{key}': 'STRUCT({inner})[]'}}}})"
    )


_GAME = b"{'id': '10', 'app_name': 'Game'}\n"
_NO_REVIEW = b"{'user_id': 'a', 'reviews': [{'item_id': '10', 'recommend': True}]}\n"

#: By name, in the order in which they are measured.
FILMS_AND_GAMES: Mapping[str, Format] = {
    "movielens-csv": _World(
        "movielens",
        "movielens/ml-25m/ratings.csv",
        "raw.movielens_ratings",
        _ratings(b",", _HALVES, b"\r\n", ordered=True, header=b"userId,movieId,rating,timestamp"),
        _scan_csv(",", header=True),
        beside={
            "movies.csv": lambda: _films(b",", b"\r\n", b"Drama|War", b"movieId,title,genres\r\n"),
            "links.csv": lambda: b"movieId,imdbId,tmdbId\r\n1,0000001,1\r\n",
            "tags.csv": lambda: b"userId,movieId,tag,timestamp\r\n",
        },
    ),
    "movielens-1m": _World(
        "movielens",
        "movielens/ml-1m/ratings.dat",
        "raw.movielens_ratings",
        _ratings(b"::", _WHOLES, b"\n", ordered=True),
        _scan_csv("::", header=False),
        beside={
            "movies.dat": lambda: _films(b"::", b"\n", b"Drama|War"),
            "users.dat": lambda: b"1::F::1::10::48067\n",
        },
    ),
    "movielens-100k": _World(
        "movielens",
        "movielens/ml-100k/u.data",
        "raw.movielens_ratings",
        _ratings(b"\t", _WHOLES, b"\n", ordered=False),
        _scan_csv("\\t", header=False),
        beside={
            "u.item": lambda: _films(b"|", b"\n", _ITEM),
            "u.user": lambda: b"1|24|M|technician|85711\n",
        },
    ),
    "steam-reviews": _World(
        "steam",
        "steam/australian_user_reviews.json",
        "raw.steam_reviews",
        _REVIEW_LINES,
        _scan_list(
            "reviews", funny="VARCHAR", posted="VARCHAR", last_edited="VARCHAR",
            item_id="VARCHAR", helpful="VARCHAR", recommend="BOOLEAN", review="VARCHAR",
        ),
        beside={"steam_games.json": lambda: _GAME},
        twin=_REVIEW_TWIN,
    ),
    "steam-libraries": _World(
        "steam",
        "steam/australian_users_items.json",
        "raw.steam_playtime",
        _OWNED_LINES,
        _scan_list(
            "items", item_id="VARCHAR", playtime_forever="BIGINT", playtime_2weeks="BIGINT"
        ),
        beside={
            "steam_games.json": lambda: _GAME,
            "australian_user_reviews.json": lambda: _NO_REVIEW,
        },
        twin=_OWNED_TWIN,
    ),
}  # fmt: skip
