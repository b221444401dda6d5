"""Writing a sample world: every file in a folder aside, which then takes its name at once."""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import hashlib
import html
import io
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import orjson

from pipelines.config import SampleSettings
from pipelines.errors import SourceError
from pipelines.sample_world._amazon import amazon_files
from pipelines.sample_world._files import given_files
from pipelines.sample_world._films import (
    NO_GENRES,
    Film,
    draw_films,
    keyword_numbers,
    tmdb_record,
)
from pipelines.sample_world._ratings import RatingBlock, RatingModel, TagBlock, TagModel
from pipelines.sample_world._steam import steam_files
from pipelines.sample_world._text import Dice
from pipelines.sample_world._world import (
    KEY_FILE,
    ROWS_PER_FAULT,
    BrokenRow,
    FileFacts,
    SampleWorld,
)
from pipelines.store.files import storage_errors

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

__all__ = ["CODE_VERSION", "write_sample_world"]


_RATING_FAULTS = (
    "off_scale", "bad_timestamp", "duplicate_key", "wrong_columns", "unknown_film",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BrokenRating:
    """A row to insert into ratings.csv, after ``position`` rows of its block."""

    position: int
    reason: str
    text: str


@dataclass(slots=True)
class BrokenPlan:
    """What is broken where. Films are given by position in the catalogue."""

    users: dict[int, str] = field(default_factory=dict)
    unknown_film: int = 0
    without_year: int | None = None
    link_to_unknown: bool = False
    shared: tuple[int, int] | None = None
    not_json: int | None = None
    another_film: int | None = None
    entities: int | None = None
    entities_truth: str = ""
    double_encoded: tuple[int, str] | None = None

    def truth(self, fault: str) -> str | None:
        """What a repairable fault of a record hides."""
        if fault == "html_entities":
            return self.entities_truth
        if fault == "double_encoded" and self.double_encoded is not None:
            return self.double_encoded[1]
        return None

    def ratings(self, block: RatingBlock, movie_ids: NDArray[np.int64]) -> list[BrokenRating]:
        """The rows to insert into a block of ratings, by position.

        A user who has rated every film gets no broken row that would need another film.
        """
        out: list[BrokenRating] = []
        for user, reason in sorted(self.users.items()):
            start, end = np.searchsorted(block.user, [user, user + 1])
            if start == end:
                continue
            film, when = block.film[start:end], int(block.timestamp[start])
            free = np.setdiff1d(np.arange(len(movie_ids)), film)
            if reason == "unknown_film":
                out.append(BrokenRating(int(end), reason, f"{user},{self.unknown_film},4.0,{when}"))
                continue
            if reason == "duplicate_key":
                # Older than the row it repeats, which is the line before it.
                i = (start + end) // 2
                stars = 1.0 if block.half_stars[i] > 5 else 4.5
                row = f"{user},{movie_ids[block.film[i]]},{stars},{block.timestamp[i] - 86_400}"
                out.append(BrokenRating(int(i) + 1, reason, row))
                continue
            if len(free) == 0:
                continue
            extra = int(free[len(free) // 2])
            row = {
                "off_scale": f"{user},{movie_ids[extra]},7.0,{when}",
                "bad_timestamp": f"{user},{movie_ids[extra]},3.5,yesterday",
                "wrong_columns": f"{user},{movie_ids[extra]},4.0",
            }[reason]
            out.append(BrokenRating(int(start + np.searchsorted(film, extra)), reason, row))
        return sorted(out, key=lambda r: r.position)


def plan_faults(seed: int, films: Sequence[Film], users: int, ratings: int) -> BrokenPlan:
    """Choose what to break, and break the films (not the ratings).

    The films are changed so that their fields say what is true of the files: a film whose
    record is broken has no record, a repaired story line is the truth.
    """
    dice = Dice(seed, "faults")
    plan = BrokenPlan(unknown_film=films[-1].movie_id + 7)
    n_ratings = min(len(_RATING_FAULTS), ratings // ROWS_PER_FAULT)
    for k, reason in enumerate(_RATING_FAULTS[:n_ratings]):
        plan.users[1 + int(users * (k + 0.5) / len(_RATING_FAULTS))] = reason
    plan.link_to_unknown = len(films) >= ROWS_PER_FAULT

    plain = [
        i
        for i, f in enumerate(films)
        if not (f.remake or f.collection or f.listed_original)
        and f.has_record
        and f.overview
        and f.cast
        and f.directors
    ]
    picked = iter(dice.sample(plain, 6))
    plan.without_year = next(picked, None)
    if plan.without_year is not None:
        films[plan.without_year].year_listed = False
    first, second = next(picked, None), next(picked, None)
    if first is not None and second is not None:
        plan.shared = (first, second)
        films[second].tmdb_id = films[first].tmdb_id
        films[second].has_record = False
    plan.entities = next(picked, None)
    if plan.entities is not None:
        film = films[plan.entities]
        film.overview += f' "{film.story.town} & back," says the ticket, and it isn\'t a joke.'
        plan.entities_truth = film.overview
    records = sum(f.has_record for f in films)
    if records >= ROWS_PER_FAULT:
        plan.not_json = next(picked, None)
    if records >= 2 * ROWS_PER_FAULT:
        plan.another_film = next(picked, None)
    for position in (plan.not_json, plan.another_film):
        if position is not None:
            films[position].has_record = False
    plan.double_encoded = _accented(films, plan)
    return plan


def _accented(films: Sequence[Film], plan: BrokenPlan) -> tuple[int, str] | None:
    for i, film in enumerate(films):
        if film.has_record and i != plan.entities:
            people = film.directors + [role.actor for role in film.cast]
            for person in people:
                if double_encoded(person.name) not in (None, person.name):
                    return i, person.name
    return None


def double_encoded(text: str) -> str | None:
    """The text as it looks after its UTF-8 bytes were read as Windows-1252; None if it can't.

    >>> double_encoded("Renée")
    'RenÃ©e'
    """
    try:
        return text.encode("utf-8").decode("cp1252")
    except UnicodeDecodeError:
        return None


def break_record(record: dict[str, Any], position: int, plan: BrokenPlan) -> str | None:
    """Damage a film's TMDB record as planned; returns the reason, or None if it stays whole."""
    if position == plan.another_film:
        record["imdb_id"] = f"tt{9_900_000 + position % 99_999:07d}"
        record["title"] = record["original_title"] = "Another Film Altogether"
        return "record_of_another_film"
    if position == plan.entities:
        record["overview"] = html.escape(plan.entities_truth)
        return "html_entities"
    if plan.double_encoded is not None and position == plan.double_encoded[0]:
        name = plan.double_encoded[1]
        for part in ("cast", "crew"):
            for person in record["credits"][part]:
                if person["name"] == name:
                    person["name"] = double_encoded(name)
        return "double_encoded"
    return None


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
    """One world being written."""

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
        """Write ratings and tags block by block."""
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


#: Bumped whenever the same settings give other bytes.
CODE_VERSION = "3"


def write_sample_world(
    folder: Path,
    settings: SampleSettings,
    *,
    broken_rows: bool = True,
    progress: Progress | None = None,
) -> SampleWorld:
    """Generate a world of original files: MovieLens CSV, TMDB records, Amazon reviews.

    Writes ``movielens/sample/{movies,ratings,links,tags}.csv`` and ``README.txt``,
    ``tmdb/movies.jsonl.gz``, ``amazon/{2018,2023}/*.gz``, and the answer key
    ``sample_world.json``. The same settings give the same bytes. A complete world of the same
    settings is left as it is; everything is written aside and takes its name at the end, so that
    no half world is ever at ``folder``.

    Memory does not grow with the number of ratings (they are generated and written block by
    block), only with films and users: below 500 MB for 25 million ratings, 62,000 films and 162,000
    users.

    Parameters
    ----------
    folder
        Where to; must be absent, empty, or hold a world that this function wrote.
    settings
        Films, users and valid ratings (exact counts) and the seed.
    broken_rows
        Whether a few rows are broken on purpose; see :class:`BrokenRow`.
    progress
        Called with a stage's name, the units done and their total.

    Returns
    -------
    SampleWorld
        The answer key.

    Raises
    ------
    ConfigError
        If there are more ratings than pairs of a user and a film.
    SourceError
        If ``folder`` holds anything else.
    StoreError
        If it can't be written (full disk, permissions).

    Examples
    --------
    >>> import tempfile
    >>> from pipelines.config import SampleSettings
    >>> with tempfile.TemporaryDirectory() as home:
    ...     world = write_sample_world(
    ...         Path(home) / "world", SampleSettings(films=40, users=10, ratings=300)
    ...     )
    >>> world.films, world.users, world.ratings
    (40, 10, 300)
    """
    report = progress or (lambda _stage, _done, _total: None)
    folder = Path(folder)
    found = SampleWorld.read(folder)
    if found is not None and _is_same(found, settings, broken_rows):
        return found
    if found is None and folder.exists() and not _is_replaceable(folder):
        raise SourceError(
            "the folder holds something else than a sample world",
            where=str(folder),
            hint="choose an absent or empty folder",
        )
    with storage_errors(folder), _aside(folder) as partial:
        world = Generator(settings, broken_rows, report, CODE_VERSION).write(partial)
        (partial / KEY_FILE).write_bytes(world.to_json())
        _sync(partial)
        _take_name(partial, folder, settings, broken_rows)
    return world


def _is_same(found: SampleWorld, settings: SampleSettings, broken_rows: bool) -> bool:
    return (found.code_version, found.settings, found.broken_rows) == (
        CODE_VERSION,
        settings,
        broken_rows,
    )


def _is_replaceable(folder: Path) -> bool:
    """Whether the folder is empty or was written by us, whole or not."""
    return folder.is_dir() and (not any(folder.iterdir()) or (folder / KEY_FILE).is_file())


@contextmanager
def _aside(folder: Path) -> Iterator[Path]:
    """A folder beside ``folder`` to write in; gone afterwards unless it was renamed.

    It is locked while in use: one that isn't is what a killed process left, and is removed.
    """
    parent = folder.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.glob(f".{folder.name}.*.partial"):
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.callback(os.close, _locked(left))
            shutil.rmtree(left)
    with contextlib.ExitStack() as stack:
        partial = _new_locked(folder, stack)
        try:
            yield partial
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def _new_locked(folder: Path, stack: contextlib.ExitStack) -> Path:
    while True:
        partial = _beside(folder)
        partial.mkdir()
        # Between these two lines a cleaning process may take the new folder for a left one.
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            stack.callback(os.close, _locked(partial))
            if partial.is_dir():
                return partial


def _beside(folder: Path) -> Path:
    return folder.absolute().with_name(f".{folder.name}.{uuid.uuid4().hex}.partial")


def _locked(folder: Path) -> int:
    """An open descriptor that holds the folder's lock; BlockingIOError if another does."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def _take_name(partial: Path, folder: Path, settings: SampleSettings, broken_rows: bool) -> None:
    """Rename ``partial`` to ``folder``; an older world there is moved away first.

    If somebody else was quicker with the same world, theirs stays: the bytes are the same.
    """

    def done() -> bool:
        found = SampleWorld.read(folder)
        return found is not None and _is_same(found, settings, broken_rows)

    if done():
        return
    if folder.is_dir() and any(folder.iterdir()):
        old = _beside(folder)
        folder.rename(old)
        shutil.rmtree(old, ignore_errors=True)
    try:
        partial.rename(folder)
    except OSError:
        if not done():
            raise
    _sync_folder(folder.absolute().parent)


def _sync(folder: Path) -> None:
    """Have everything below ``folder`` on disk."""
    for path in [*folder.rglob("*"), folder]:
        if path.is_dir():
            _sync_folder(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
