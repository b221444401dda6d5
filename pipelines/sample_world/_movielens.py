"""The films' files: MovieLens' four CSV files and TMDB's records, with faults on purpose."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import orjson
import polars as pl

from pipelines.config import SampleSettings
from pipelines.progress import advance
from pipelines.sample_world._films import NO_GENRES, Film, draw_films, keyword_numbers
from pipelines.sample_world._ratings import Ints, RatingBlock, RatingModel, TagModel
from pipelines.sample_world._text import Dice, record_of, table
from pipelines.sample_world._world import ROWS_PER_FAULT, WorldFolder

#: Called with a stage's name, the units done and their total.
_MOVIELENS, _TMDB = "movielens/sample", "tmdb/movies.jsonl.gz"
_TABLES = table("tables")
_FAULTS = _TABLES["faults"]


@dataclass(slots=True)
class _Faults:
    """Planned faults."""

    unknown_film: int | None = None
    #: Positions in the catalogue by fault, faults of extra rows by user, the name encoded twice.
    films: dict[str, int] = field(default_factory=dict)
    users: dict[int, str] = field(default_factory=dict)
    name: str = ""

    @classmethod
    def plan(cls, seed: int, films: Sequence[Film], users: int, ratings: int) -> _Faults:
        """Choose what to break, and change the films so that their fields are the truth."""
        plan = cls(films[-1].movie_id + 7)
        reasons = tuple(_FAULTS["ratings"])
        for k, reason in enumerate(reasons[: ratings // ROWS_PER_FAULT]):
            plan.users[1 + int(users * (k + 0.5) / len(reasons))] = reason
        plain = [
            i
            for i, f in enumerate(films)
            if all((f.has_record, f.overview, f.cast, f.directors))
            and not any((f.remake, f.collection, f.listed_original))
        ]
        picked = Dice(seed, "faults").sample(plain, len(_FAULTS["films"]))
        at = plan.films = dict(zip(_FAULTS["films"], picked, strict=False))
        if "no_year" in at:
            films[at["no_year"]].year_listed = False
        if "shared_tmdb_id" in at:
            film = films[at["shared_tmdb_id"]]
            film.tmdb_id, film.has_record = films[at["shared"]].tmdb_id, False
        if "html_entities" in at:
            film = films[at["html_entities"]]
            town = film.story.slots["town"]
            film.overview += f' "{town} & back," says the ticket, and it isn\'t a joke.'
        records = sum(f.has_record for f in films)
        for k, fault in enumerate(("not_json", "record_of_another_film"), start=1):
            if fault in at and records >= k * ROWS_PER_FAULT:
                films[at[fault]].has_record = False
            else:
                at.pop(fault, None)
        for i, film in enumerate(films):
            people = film.directors + [actor for actor, _ in film.cast]
            name = next((p.name for p in people if _twice(p.name) not in (None, p.name)), None)
            if name and film.has_record and i != at.get("html_entities"):
                at["double_encoded"], plan.name = i, name
                break
        return plan

    def ratings(self, block: RatingBlock, movie_ids: Ints) -> Iterator[tuple[int, str, str]]:
        """Rows to insert into a block of ratings: after how many of its rows, reason and text."""
        for user, reason in sorted(self.users.items()):
            start, end = np.searchsorted(block.user, [user, user + 1]).tolist()
            rated = block.film[start:end]
            free = np.setdiff1d(np.arange(len(movie_ids)), rated)
            if start == end or not (len(free) or reason in ("unknown_film", "duplicate_key")):
                continue
            # A duplicate is older than the row it repeats, which is the line before it.
            i = (start + end) // 2
            stars = 1.0 if block.half_stars[i] > 5 else 4.5
            when, older = block.timestamp[start], block.timestamp[i] - 86_400
            position, film = i + 1, movie_ids[block.film[i]]
            if reason == "unknown_film":
                position, film = end, self.unknown_film
            elif reason != "duplicate_key":
                extra = free[len(free) // 2]
                position, film = start + int(np.searchsorted(rated, extra)), movie_ids[extra]
            values = {"user": user, "film": film, "stars": stars, "when": when, "older": older}
            yield position, reason, _FAULTS["ratings"][reason].format_map(values)


def _twice(text: str) -> str | None:
    """The text after its UTF-8 bytes were read as Windows-1252; None if they can't be."""
    try:
        return text.encode("utf-8").decode("cp1252")
    except UnicodeDecodeError:
        return None


def _tmdb_record(film: Film, dice: Dice, fame: float, quality: float) -> dict[str, Any]:
    """The record of a film; ``quality`` is in stars above the mean, ``fame`` has mean 1."""
    names, person = _TABLES["tmdb_genres"], partial(record_of, "person")
    genres = dict(names[g] for g in film.genres if g in names)
    stated = not dice.chance(0.35)
    budget = round(10 ** (6.2 + 1.4 * dice.roll()) * (0.4 + min(fame, 8.0)), -5) if stated else 0
    revenue = budget * (0.2 + dice.exponential(1.8)) * (1 + 0.4 * quality) if stated else 0
    cast = [person(p) | {"character": role, "order": n} for n, (p, role) in enumerate(film.cast)]
    crew = [person(p) | {"job": job, "department": part} for p, job, part in film.crew]
    keywords = [{"id": 1_000 + 7 * keyword_numbers()[k], "name": k} for k in film.keywords]
    return record_of("tmdb", film) | {
        "budget": int(budget),
        "genres": [{"id": number, "name": name} for number, name in genres.items()],
        "popularity": round(0.6 + 9.0 * fame * (0.6 + 0.8 * dice.roll()), 3),
        "poster_path": None if dice.chance(0.25) else f"/sample-{film.tmdb_id}.jpg",
        "revenue": max(0, int(revenue)),
        "vote_average": round(min(9.6, max(1.5, 6.3 + 1.5 * quality + 0.5 * dice.roll())), 3),
        "vote_count": int(3 + 400 * fame * (0.5 + dice.roll())),
        "credits": {"cast": cast, "crew": crew},
        "keywords": {"keywords": keywords},
    }


def write_films(folder: WorldFolder, settings: SampleSettings, *, broken_rows: bool) -> None:
    """Write the files of MovieLens and TMDB."""
    seed, users = settings.seed, settings.users
    films = draw_films(seed, settings.films)
    model = RatingModel(seed, films, users, settings.ratings)
    faults = _Faults.plan(seed, films, users, settings.ratings) if broken_rows else _Faults()
    with folder.open(f"{_MOVIELENS}/README.txt") as write:
        write(_TABLES["readme"].encode())
    _write_lists(folder, model, faults)
    _write_tmdb(folder, model, faults)
    _write_ratings(folder, model, faults)


def _write_lists(folder: WorldFolder, model: RatingModel, faults: _Faults) -> None:
    """Write movies.csv and links.csv."""
    films, movies, links = model.films, f"{_MOVIELENS}/movies.csv", f"{_MOVIELENS}/links.csv"
    rows = pl.DataFrame({
        "movieId": model.movie_id,
        "title": [f.movielens_title for f in films],
        "genres": ["|".join(f.genres) if f.genres_listed else NO_GENRES for f in films],
        "imdbId": [f.imdb_id for f in films],
        "tmdbId": pl.Series([f.tmdb_id for f in films], dtype=pl.Int64),
    })  # fmt: skip
    listed, linked = rows.drop("imdbId", "tmdbId"), rows.drop("title", "genres")
    for reason, name, frame in (("no_year", movies, listed), ("shared_tmdb_id", links, linked)):
        with folder.open(name) as write:
            write(_csv(frame, header=True))
            if name == links and faults.unknown_film and len(films) >= ROWS_PER_FAULT:
                row = f"{faults.unknown_film},9999999,{100 + 4 * len(films)}"
                write(f"{row}\r\n".encode())
                folder.fault(name, folder.lines[name], "unknown_film", True, row)
        i = faults.films.get(reason)
        if i is not None:
            folder.fault(name, i + 2, reason, False, _csv(frame[i : i + 1]).decode().rstrip())


def _write_tmdb(folder: WorldFolder, model: RatingModel, faults: _Faults) -> None:
    """Write TMDB's file."""
    films, fame = model.films, model.weight * len(model.films)
    kinds = ("not_json", "record_of_another_film", "html_entities", "double_encoded")
    with folder.open(_TMDB) as write:
        for i, film in enumerate(films):
            if not film.has_record and i not in map(faults.films.get, kinds[:2]):
                continue
            dice, quality = Dice(model.seed, "record", i), float(model.quality[i])
            record = _tmdb_record(film, dice, float(fame[i]), quality)
            fault = next((kind for kind in kinds if faults.films.get(kind) == i), None)
            if fault == "record_of_another_film":
                record["imdb_id"] = f"tt{9_900_000 + i % 99_999:07d}"
                record["title"] = record["original_title"] = "Another Film Altogether"
            elif fault == "html_entities":
                record["overview"] = html.escape(record["overview"])
            elif fault == "double_encoded":
                for person in [*record["credits"]["cast"], *record["credits"]["crew"]]:
                    if person["name"] == faults.name:
                        person["name"] = _twice(person["name"])
            text = orjson.dumps(record)
            text = text[: len(text) * 3 // 5] if fault == "not_json" else text
            write(text + b"\n")
            if fault is not None:
                shown = text.decode("utf-8", "ignore")[:500]
                folder.fault(_TMDB, folder.lines[_TMDB], fault, fault in kinds[:2], shown)
            if folder.lines[_TMDB] % 5_000 == 0:
                advance("sample TMDB records", i, len(films))


def _write_ratings(folder: WorldFolder, model: RatingModel, faults: _Faults) -> None:
    """Write ratings and tags block by block of users."""
    name, tagging, done = f"{_MOVIELENS}/ratings.csv", TagModel(model), 0
    with folder.open(name) as write, folder.open(f"{_MOVIELENS}/tags.csv") as write_tags:
        write(b"userId,movieId,rating,timestamp\r\n")
        write_tags(b"userId,movieId,tag,timestamp\r\n")
        for number in range(model.blocks):
            block = model.block(number)
            frame = pl.DataFrame({
                "userId": block.user,
                "movieId": model.movie_id[block.film],
                "rating": block.half_stars / 2,
                "timestamp": block.timestamp,
            })  # fmt: skip
            start = 0
            for position, reason, row in sorted(faults.ratings(block, model.movie_id)):
                write(_csv(frame[start:position]) + f"{row}\r\n".encode())
                start = position
                folder.fault(name, folder.lines[name], reason, True, row)
            write(_csv(frame[start:]))
            write_tags(_csv(tagging.block(number, block)))
            done += len(block.film)
            advance("sample ratings", done, int(model.activity.sum()))


def _csv(frame: pl.DataFrame, *, header: bool = False) -> bytes:
    """Rows as MovieLens writes them: CRLF, quotes only where needed, one decimal."""
    return frame.write_csv(
        include_header=header, line_terminator="\r\n", quote_style="necessary", float_precision=1
    ).encode()
