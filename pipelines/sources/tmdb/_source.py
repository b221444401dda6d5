"""TMDB as a source: raw tables from a dump, else from the API, else everything missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import orjson
import polars as pl

from pipelines.config import Settings
from pipelines.errors import SourceError
from pipelines.licences import Licence
from pipelines.sources._folders import pick_files
from pipelines.sources._lines import MAX_LINE, numbered_lines
from pipelines.sources._ordered import OrderedRows
from pipelines.sources._protocol import Progress, RawTable, Source, Workspace, no_progress
from pipelines.sources.tmdb._cache import TmdbCache
from pipelines.sources.tmdb._identity import WantedFilms
from pipelines.sources.tmdb._records import (
    FilmRow,
    RecordFaultError,
    flatten,
    record_id,
    to_frame,
)

__all__ = ["CODE_VERSION", "TmdbSource"]

#: Raised when the same records would give other rows.
CODE_VERSION = "1"
#: Records that are held as Python objects at a time.
BATCH_ROWS = 4096
#: Name that stands for the API where a file is named.
API_FILE = "api"
_NAMES = ("movies.jsonl.gz", "movies.jsonl")
#: Positions in a flattened row; see the contract ``raw.tmdb_movies``.
_IMDB, _TITLE, _ORIGINAL, _RELEASE = 1, 2, 3, 11

Mode = Literal["dump", "api", "none"]


class TmdbSource(Source):
    """Film records of The Movie Database for the films that MovieLens links to.

    A data folder's ``tmdb/movies.jsonl[.gz]`` is read if it is there. If not, the API is asked
    (given a token) and what earlier runs cached is used. Without either, every film is
    missing (``not_fetched``); films stay in the catalogue all the same, with nulls.

    Examples
    --------
    >>> from pathlib import Path
    >>> TmdbSource(Settings()).files(Path("a folder without a dump"))
    []
    """

    name: ClassVar[str] = "tmdb"
    expected: ClassVar[str] = " or ".join(_NAMES)
    domains: ClassVar[frozenset[str]] = frozenset({"movies"})
    licence: ClassVar[Licence] = Licence(
        name="TMDB API terms of use",
        url="https://www.themoviedb.org/api-terms-of-use",
        terms=(
            "Non-commercial use with attribution; content may be kept for at most six months. "
            "This product uses the TMDB API but is not endorsed or certified by TMDB."
        ),
        citation="The Movie Database (TMDB), https://www.themoviedb.org",
    )
    datasets: ClassVar[tuple[str, ...]] = (
        "raw.tmdb_movies",
        "raw.tmdb_missing",
        "raw.tmdb_rejected",
    )
    needs: ClassVar[tuple[str, ...]] = ("raw.movielens_links", "raw.movielens_movies")
    code_version: ClassVar[str] = CODE_VERSION

    def __init__(self, settings: Settings, *, progress: Progress = no_progress) -> None:
        super().__init__(settings, progress=progress)
        self.cache = TmdbCache(settings.runtime.home / "cache" / "tmdb")

    def feeds(self, folder: Path) -> frozenset[str]:  # noqa: ARG002 - records alone are no domain
        """None: it adds to the films of another source."""
        return frozenset()

    def present(self, folder: Path) -> bool:  # noqa: ARG002 - absent records are rows too
        """Say yes: without a dump and a token, every film is listed as missing."""
        return True

    def files(self, folder: Path) -> list[Path]:
        """Return the dump, or nothing.

        Raises
        ------
        SourceError
            If there are a packed and a plain dump: they might differ.
        """
        found = pick_files(folder / self.folder_name, _NAMES.__contains__, self.expected)
        if len(found) > 1:
            raise SourceError(
                "two TMDB dumps", where=str(folder / "tmdb"), hint=f"keep one of {_NAMES}"
            )
        return found

    def mode(self, folder: Path) -> Mode:
        """Where records come from: ``dump``, ``api`` (with its cache), or ``none``."""
        if self.files(folder):
            return "dump"
        return "api" if self.settings.tmdb.token or self.cache else "none"

    def identity(self, folder: Path) -> Mapping[str, Any]:
        """Return the mode; nothing of the client's settings changes what is read."""
        return {"mode": self.mode(folder)}

    def reusable(self, folder: Path) -> bool:
        """Not if the API is asked: its records change."""
        return self.mode(folder) != "api"

    def read(self, folder: Path, work: Workspace) -> Iterator[RawTable]:
        """``raw.tmdb_movies``, then ``raw.tmdb_missing``.

        ``work.wanted_tmdb`` may have a column ``title`` (the MovieLens title), which lets a
        record with a renumbered IMDb id be told from a record of another film. Without the
        frame every record of a dump is taken.

        Raises
        ------
        SourceError
            If the dump is broken, empty, or of none of the wanted films; for what the client
            raises see :meth:`TmdbClient.fetch`.
        """
        wanted = None if work.wanted_tmdb is None else WantedFilms(work.wanted_tmdb)
        reading = _Reading(self, folder, work, wanted)
        yield RawTable(
            "raw.tmdb_movies",
            reading.movies(),
            reading.file,
            rows_read=lambda: reading.rows_read,
            filtered=lambda: {"not_wanted": reading.not_wanted},
            stats=reading.stats,
            # ML-1M and ML-100K link to no TMDB film.
            allow_empty=wanted is not None and not len(wanted),
        )
        missing = reading.missing()
        yield RawTable(
            "raw.tmdb_missing",
            iter([missing] if missing.height else []),
            None,
            rows_read=lambda: missing.height,
            stats=lambda: dict(missing.group_by("reason").len().sort("reason").rows()),
        )


class _Reading:
    """One pass over the records, and what it found."""

    def __init__(
        self, source: TmdbSource, folder: Path, work: Workspace, wanted: WantedFilms | None
    ) -> None:
        self._source = source
        self._work = work
        self._wanted = wanted
        self._mode = source.mode(folder)
        self._dump = source.files(folder)[0] if self._mode == "dump" else None
        self.file = f"tmdb/{self._dump.name}" if self._dump else API_FILE
        self.rows_read = 0
        self.not_wanted = 0
        self._taken: set[int] = set()
        self._faulty: dict[int, str] = {}
        self._reasons: dict[int, str] = {}  # of films that the API gave no record for
        self._counts: Counter[str] = Counter()
        self._fetch: dict[str, Any] = {}

    def movies(self) -> Iterator[pl.DataFrame]:
        """Frames of ``raw.tmdb_movies``, by ``tmdb_id``."""
        if self._dump is not None:
            yield from self._sorted(self._frames(self._from_dump(self._dump)))
            self._refuse_useless(self._dump)
        elif self._mode == "api":
            yield from self._frames(self._from_api())  # asked for in order

    def missing(self) -> pl.DataFrame:
        """Return the frame of ``raw.tmdb_missing``; complete after :meth:`movies`."""
        absent = "not_in_dump" if self._mode == "dump" else "not_fetched"
        rows = [
            (film, self._faulty.get(film) or self._reasons.get(film, absent))
            for film in self._wanted or ()
            if film not in self._taken
        ]
        return pl.DataFrame(rows, schema={"tmdb_id": pl.Int64, "reason": pl.String}, orient="row")

    def stats(self) -> dict[str, Any]:
        """Return the counts for the manifest."""
        wanted = {} if self._wanted is None else {"wanted": len(self._wanted)}
        return {"mode": self._mode, **wanted, **dict(sorted(self._counts.items())), **self._fetch}

    def _from_dump(self, path: Path) -> Iterator[FilmRow]:
        for line, text in numbered_lines(self._work.original(path, self.file)):
            if not text.strip():
                continue
            self.rows_read += 1
            if self.rows_read == 1 and text.lstrip().startswith(b"["):
                raise SourceError(
                    "the dump is one JSON array; expected one record per line",
                    where=str(path),
                    hint="convert it, for instance with `jq -c '.[]'`",
                )
            if self.rows_read % BATCH_ROWS == 0:
                self._work.progress("tmdb", self.rows_read, None)
            if len(text) > MAX_LINE:
                self._reject(line, "too_long", text)
                continue
            try:
                record = orjson.loads(text)
            except orjson.JSONDecodeError:
                self._reject(line, "not_json", text)
                continue
            row = self._take(record, line, text)
            if row is not None:
                yield row
        self._work.progress("tmdb", self.rows_read, self.rows_read)

    def _from_api(self) -> Iterator[FilmRow]:
        from pipelines.sources.tmdb._client import TmdbClient

        if self._wanted is None:
            raise SourceError("no films to ask TMDB for", hint="ingest movielens first")
        settings = self._source.settings.tmdb
        cache = self._source.cache
        if settings.token:
            report = TmdbClient(settings, cache).fetch(self._wanted, self._work.progress)
            self._fetch = {
                "api_failed": len(report.failed),
                "api_cache_corrupt": len(report.corrupt),
            }
        for position, film in enumerate(self._wanted, start=1):
            entry = cache.lookup(film).entry
            if entry is None:
                continue
            if entry.record is None:
                self._reasons[film] = "not_found"
                continue
            self.rows_read += 1
            text = orjson.dumps(entry.record)
            if entry.status == "another_film":
                self._faulty[film] = "record_of_another_film"
                self._reject(position, "record_of_another_film", text)
                continue
            row = self._take(entry.record, position, text)
            if row is not None:
                yield row

    def _take(self, record: object, line: int, text: bytes) -> FilmRow | None:
        """Return the flattened record if it is wanted, new and usable; else account for it."""
        film: int | None = None
        try:
            film = record_id(record)
            if self._wanted is not None and film not in self._wanted:
                self.not_wanted += 1
                return None
            if film in self._taken:
                raise RecordFaultError("duplicate_id")
            row = flatten(record)
            if self._of_another_film(film, row):
                raise RecordFaultError("record_of_another_film")
        except RecordFaultError as fault:
            self._reject(line, fault.reason, text)
            if film is not None:
                another = fault.reason == "record_of_another_film"
                self._faulty[film] = fault.reason if another else "unusable_record"
            return None
        self._taken.add(film)
        return row

    def _of_another_film(self, film: int, row: FilmRow) -> bool:
        if self._wanted is None or not self._wanted.contradicts(film, row[_IMDB]):
            return False
        titles = [row[_TITLE], row[_ORIGINAL]]
        if self._wanted.is_another(film, row[_IMDB], titles, row[_RELEASE]):
            return True
        self._counts["imdb_id_differs"] += 1
        return False

    def _reject(self, line: int, reason: str, text: bytes) -> None:
        shown = text.decode("utf-8", errors="replace").replace("\x00", "").strip()
        self._work.reject(self.file, line, reason, shown)

    def _frames(self, rows: Iterator[FilmRow]) -> Iterator[pl.DataFrame]:
        held: list[FilmRow] = []
        for row in rows:
            held.append(row)
            if len(held) >= BATCH_ROWS:
                yield self._counted(to_frame(held))
                held = []
        if held:
            yield self._counted(to_frame(held))

    def _counted(self, frame: pl.DataFrame) -> pl.DataFrame:
        counts = frame.select(
            with_overview=pl.col("overview").is_not_null().sum(),
            with_actors=(pl.col("actors").list.len() > 0).sum(),
            with_directors=(pl.col("directors").list.len() > 0).sum(),
            with_keywords=(pl.col("keywords").list.len() > 0).sum(),
            with_release_date=pl.col("release_date").is_not_null().sum(),
            with_poster=pl.col("poster_path").is_not_null().sum(),
        )
        self._counts.update({k: int(v) for k, v in counts.row(0, named=True).items()})
        return frame

    def _sorted(self, frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Yield the rows by ``tmdb_id``, through the scratch folder: a dump has no order."""
        runtime = self._source.settings.runtime
        rows = OrderedRows(
            self._work.scratch / "tmdb",
            ("tmdb_id",),
            (),  # ids are unique already: the first usable record of each was taken
            memory_limit_mb=runtime.memory_limit_mb,
            threads=runtime.threads,
        )
        for frame in frames:
            rows.append(frame)
        yield from rows.batches()

    def _refuse_useless(self, path: Path) -> None:
        if self.rows_read == 0:
            raise SourceError("the dump holds no records", where=str(path))
        if self._wanted is not None and len(self._wanted) and not self._taken:
            raise SourceError(
                f"none of the dump's {self.rows_read} records is usable for a wanted film",
                where=str(path),
                hint="is it a dump of TMDB movie records?",
            )
