"""Generating the files of a world."""

from __future__ import annotations

import gzip
import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import orjson

from pipelines.config import SampleSettings
from pipelines.sample_world._amazon import amazon_files
from pipelines.sample_world._broken import BrokenPlan, break_record, plan_faults
from pipelines.sample_world._catalogue import draw_films
from pipelines.sample_world._dice import Dice
from pipelines.sample_world._files import given_files
from pipelines.sample_world._films import keyword_numbers
from pipelines.sample_world._genres import NO_GENRES
from pipelines.sample_world._ratings import RatingBlock, RatingModel
from pipelines.sample_world._records import tmdb_record
from pipelines.sample_world._steam import steam_files
from pipelines.sample_world._tags import TagBlock, TagModel
from pipelines.sample_world._world import BrokenRow, FileFacts, SampleWorld

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

__all__ = ["Generator", "Progress"]

#: Called with a stage's name, the units done and their total.
Progress = Callable[[str, int, int | None], None]

_FOLDER = "movielens/sample"
_TMDB = "tmdb/movies.jsonl.gz"
_MAX_TEXT = 500
_README = """\
This folder was generated. It is not MovieLens data.

The films, people and users in it do not exist and no text in it was copied: titles, story
lines and names come from a seeded grammar, ratings from a statistical model. The files have
the format of a MovieLens data set (movies.csv, ratings.csv, links.csv, tags.csv) so that the
loaders for the real ones can be run on it. The IMDb and TMDB numbers in links.csv are
invented too; where they coincide with real ones they mean nothing.

A few rows are wrong on purpose, as they are in real files. sample_world.json, two folders
up, lists them, with the true counts of everything.
"""


class _Output:
    """A file being written, with its size, lines and checksum."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()
        self.bytes = 0
        self.lines = 0

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._sha256.update(data)
        self.bytes += len(data)
        self.lines += data.count(b"\n")

    def facts(self) -> FileFacts:
        return FileFacts(self.bytes, self.lines, self._sha256.hexdigest())


class Generator:
    """One world being written.

    Parameters
    ----------
    settings
        Size and seed.
    broken_rows
        Whether a few rows are broken on purpose.
    report
        Told about progress.
    code_version
        Goes into the answer key.

    Raises
    ------
    ConfigError
        If so many ratings don't fit.
    """

    def __init__(
        self, settings: SampleSettings, broken_rows: bool, report: Progress, code_version: str
    ) -> None:
        self._settings = settings
        self._report = report
        self._code_version = code_version
        self._broken_rows = broken_rows
        self._broken: list[BrokenRow] = []
        self._files: dict[str, FileFacts] = {}
        self._films = draw_films(
            settings.seed,
            settings.films,
            lambda done: report("sample films", done, settings.films),
        )
        self._model = RatingModel(settings.seed, self._films, settings.users, settings.ratings)
        self._plan = (
            plan_faults(settings.seed, self._films, settings.users, settings.ratings)
            if broken_rows
            else BrokenPlan()
        )
        self._movie_ids = np.array([f.movie_id for f in self._films], dtype=np.int64)

    def write(self, folder: Path) -> SampleWorld:
        """Write every file but the answer key into an existing folder, and return that."""
        (folder / _FOLDER).mkdir(parents=True)
        (folder / "tmdb").mkdir()
        with self._open(folder, f"{_FOLDER}/README.txt") as out:
            out.write(_README.encode())
        self._write_movies(folder)
        self._write_links(folder)
        budgets = self._write_records(folder)
        tags, rated, stars = self._write_ratings(folder)
        others = {"amazon": self._write_amazon(folder)}
        others |= self._write_given(folder)
        others |= {"steam": self._write_steam(folder)}
        films = self._films
        own = [f for f in films if f.has_record]
        return SampleWorld(
            code_version=self._code_version,
            settings=self._settings,
            broken_rows=self._broken_rows,
            films=len(films),
            users=self._settings.users,
            ratings=int(stars.sum()),
            tags=tags,
            rated_films=rated,
            rating_counts={str(k / 2): int(stars[k]) for k in range(1, 11)},
            films_linked=sum(f.tmdb_id is not None for f in films),
            tmdb_ids=len({f.tmdb_id for f in films if f.tmdb_id is not None}),
            films_with_record=len(own),
            films_with_overview=sum(bool(f.overview) for f in own),
            films_with_cast=sum(bool(f.cast) for f in own),
            films_with_director=sum(bool(f.directors) for f in own),
            films_with_release_date=sum(bool(f.release_date) for f in own),
            films_with_runtime=sum(bool(f.runtime) for f in own),
            films_with_keywords=sum(bool(f.keywords) for f in own),
            films_with_budget=budgets,
            films_in_series=sum(f.collection is not None for f in own),
            series=len({f.collection.id for f in own if f.collection is not None}),
            remakes=sum(f.remake for f in films),
            films_without_genres=sum(not f.genres_listed for f in films),
            films_without_year=sum(not f.year_listed for f in films),
            others=others,
            broken=tuple(sorted(self._broken, key=lambda row: (row.file, row.line))),
            files=dict(sorted(self._files.items())),
        )

    @contextmanager
    def _open(self, folder: Path, name: str) -> Iterator[_Output]:
        with (folder / name).open("wb") as file:
            out = _Output(file)
            yield out
        self._files[name] = out.facts()

    def _note(
        self, file: str, line: int, reason: str, text: str, *, rejected: bool, truth: str | None
    ) -> None:
        self._broken.append(BrokenRow(file, line, reason, rejected, text[:_MAX_TEXT], truth))

    def _write_movies(self, folder: Path) -> None:
        import polars as pl

        name = f"{_FOLDER}/movies.csv"
        genres = ["|".join(f.genres) if f.genres_listed else NO_GENRES for f in self._films]
        frame = pl.DataFrame(
            {
                "movieId": self._movie_ids,
                "title": [f.movielens_title for f in self._films],
                "genres": genres,
            }
        )
        with self._open(folder, name) as out:
            out.write(_csv(frame, header=True))
        i = self._plan.without_year
        if i is not None:
            text = _csv(frame[i : i + 1]).decode().rstrip()
            truth = str(self._films[i].year)
            self._note(name, i + 2, "no_year", text, rejected=False, truth=truth)

    def _write_links(self, folder: Path) -> None:
        import polars as pl

        name = f"{_FOLDER}/links.csv"
        frame = pl.DataFrame(
            {
                "movieId": self._movie_ids,
                "imdbId": [f.imdb_id for f in self._films],
                "tmdbId": pl.Series([f.tmdb_id for f in self._films], dtype=pl.Int64),
            }
        )
        plan = self._plan
        with self._open(folder, name) as out:
            out.write(_csv(frame, header=True))
            if plan.link_to_unknown:
                row = f"{plan.unknown_film},9999999,{100 + 4 * len(self._films)}"
                out.write(f"{row}\r\n".encode())
                self._note(name, out.lines, "unknown_film", row, rejected=True, truth=None)
        if plan.shared is not None:
            i = plan.shared[1]
            text = _csv(frame[i : i + 1]).decode().rstrip()
            self._note(name, i + 2, "shared_tmdb_id", text, rejected=False, truth=None)

    def _write_records(self, folder: Path) -> int:
        """Write TMDB's file; returns how many own records have a budget."""
        keywords = tuple(keyword_numbers())
        fame = self._model.weight * len(self._films)
        plan, with_budget, line = self._plan, 0, 0
        with (
            self._open(folder, _TMDB) as out,
            # No name and no time in the header: the same content gives the same bytes.
            gzip.GzipFile("", "wb", compresslevel=6, fileobj=out, mtime=0) as packed,  # type: ignore[call-overload]
        ):
            for i, film in enumerate(self._films):
                if not (film.has_record or i in (plan.not_json, plan.another_film)):
                    continue
                line += 1
                record = tmdb_record(
                    film,
                    Dice(self._settings.seed, "record", i),
                    fame=float(fame[i]),
                    quality=float(self._model.quality[i]),
                    keywords=keywords,
                )
                fault = break_record(record, i, plan)
                text = orjson.dumps(record)
                if i == plan.not_json:
                    fault, text = "not_json", text[: len(text) * 3 // 5]
                with_budget += film.has_record and record["budget"] > 0
                packed.write(text + b"\n")
                if fault is not None:
                    shown = text.decode("utf-8", "ignore")
                    rejected = fault in ("not_json", "record_of_another_film")
                    truth = plan.truth(fault)
                    self._note(_TMDB, line, fault, shown, rejected=rejected, truth=truth)
                if line % 5_000 == 0:
                    self._report("sample TMDB records", i, len(self._films))
        self._files[_TMDB] = replace(self._files[_TMDB], lines=line)
        return with_budget

    def _write_amazon(self, folder: Path) -> Mapping[str, int]:
        files = amazon_files(self._settings, broken_rows=self._broken_rows)
        for name, lines in files.lines.items():
            self.write_packed(folder, name, lines)
        self._broken += files.broken
        return files.counts

    def _write_steam(self, folder: Path) -> Mapping[str, int]:
        files = steam_files(self._settings, broken_rows=self._broken_rows)
        for name, lines in files.lines.items():
            self.write_packed(folder, name, lines)
        self._broken += files.broken
        return files.counts

    def _write_given(self, folder: Path) -> Mapping[str, Mapping[str, int]]:
        files = given_files(self._settings, broken_rows=self._broken_rows)
        for name, lines in files.lines.items():
            if name.endswith(".gz"):
                self.write_packed(folder, name, lines)
                continue
            (folder / name).parent.mkdir(exist_ok=True)
            with self._open(folder, name) as out:
                out.write(b"".join(line + b"\n" for line in lines))
        self._broken += files.broken
        return files.counts

    def write_packed(self, folder: Path, name: str, lines: Sequence[bytes]) -> None:
        """Write a gzip file of lines, and note its facts."""
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with (
            self._open(folder, name) as out,
            gzip.GzipFile("", "wb", compresslevel=6, fileobj=out, mtime=0) as packed,  # type: ignore[call-overload]
        ):
            packed.writelines(line + b"\n" for line in lines)
        self._files[name] = replace(self._files[name], lines=len(lines))

    def _write_ratings(self, folder: Path) -> tuple[int, int, NDArray[np.int64]]:
        """Write ratings and tags block by block.

        Returns
        -------
        tuple
            Number of tags, of rated films, and ratings by half stars (index 0-10).
        """
        import polars as pl

        model, total, done = self._model, self._settings.ratings, 0
        tagging = TagModel(self._films, model)
        texts = pl.Series(tagging.texts)
        per_film = np.zeros(len(self._films), dtype=np.int64)
        stars = np.zeros(11, dtype=np.int64)
        n_tags = 0
        with (
            self._open(folder, f"{_FOLDER}/ratings.csv") as ratings,
            self._open(folder, f"{_FOLDER}/tags.csv") as tags,
        ):
            ratings.write(b"userId,movieId,rating,timestamp\r\n")
            tags.write(b"userId,movieId,tag,timestamp\r\n")
            for number in range(model.blocks):
                block = model.block(number)
                self._write_block(ratings, block)
                tagged = tagging.block(number, block)
                tags.write(_csv(self._tag_frame(tagged, texts)))
                n_tags += len(tagged.user)
                per_film += np.bincount(block.film, minlength=len(per_film))
                stars += np.bincount(block.half_stars, minlength=11)
                done += len(block.user)
                self._report("sample ratings", done, total)
        return n_tags, int((per_film > 0).sum()), stars

    def _write_block(self, out: _Output, block: RatingBlock) -> None:
        import polars as pl

        frame = pl.DataFrame(
            {
                "userId": block.user,
                "movieId": self._movie_ids[block.film],
                "rating": block.half_stars / 2,
                "timestamp": block.timestamp,
            }
        )
        name, start = f"{_FOLDER}/ratings.csv", 0
        for row in self._plan.ratings(block, self._movie_ids):
            out.write(_csv(frame[start : row.position]))
            start = row.position
            out.write(f"{row.text}\r\n".encode())
            self._note(name, out.lines, row.reason, row.text, rejected=True, truth=None)
        out.write(_csv(frame[start:]))

    def _tag_frame(self, block: TagBlock, texts: pl.Series) -> pl.DataFrame:
        import polars as pl

        return pl.DataFrame(
            {
                "userId": block.user,
                "movieId": self._movie_ids[block.film],
                "tag": texts.gather(block.text),
                "timestamp": block.timestamp,
            }
        )


def _csv(frame: pl.DataFrame, *, header: bool = False) -> bytes:
    """Rows as MovieLens writes them: CRLF, quotes only where needed, one decimal."""
    if frame.height == 0 and not header:
        return b""
    buffer = io.BytesIO()
    frame.write_csv(
        buffer,
        include_header=header,
        line_terminator="\r\n",
        quote_style="necessary",
        float_precision=1,
    )
    return buffer.getvalue()
