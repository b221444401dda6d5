"""Entries of a source's folder: which files are read, which are not, and which can't be.

Every look at a data folder goes through this module, so that a closed folder, a dangling link
or a named pipe is reported alike for all sources and never looks like an absent file.
"""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pipelines.downloads import Download, fetch
from pipelines.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from pipelines.config import Settings


def given_files(names: Iterable[str], settings: Settings) -> list[Path]:
    """The named files, on disk.

    An address (``http://…``, ``https://…``) is downloaded once into ``<home>/downloads/given``,
    resumed if it was cut; remove the file there to fetch it anew. There is no published checksum
    for it: the one of what arrived is in the inventory of the world's files.

    Raises
    ------
    ConfigError
        If an address has no file name.
    SourceError
        If a download is refused or (:class:`SourceUnavailableError`) does not succeed.
    """
    return [_located(name, settings) for name in names]


def relative_name(path: Path, folder: Path) -> str:
    """A file's name relative to the data folder; of one that lies elsewhere, its own name."""
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name


def _located(name: str, settings: Settings) -> Path:
    address = urlsplit(name)
    if address.scheme not in ("http", "https"):
        return Path(name).expanduser().absolute()
    base = address.path.rpartition("/")[2]
    if not base:
        raise ConfigError("the address names no file", where=name)
    # A folder per address, so that files of one name don't stand for each other.
    place = hashlib.sha256(name.encode()).hexdigest()[:12]
    query = f"?{address.query}" if address.query else ""
    return fetch(
        Download(base, f"{address.path.lstrip('/')}{query}", "sha256", ""),
        settings.runtime.folder / "downloads" / "given" / place,
        base_url=f"{address.scheme}://{address.netloc}",
    )


#: Suffixes that browsers and file managers add to a name: `Books (1).json`, `Books [old].json`.
_ADDED = re.compile(r"[ _-]*(?:\([^)]*\)|\[[^\]]*\])|\s+")
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def irregular(mode: int) -> str | None:
    """Kind of a file that is not a regular one, from its mode; None for a regular file.

    >>> irregular(stat.S_IFIFO), irregular(stat.S_IFREG)
    ('a named pipe', None)
    """
    if stat.S_ISREG(mode):
        return None
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "no regular file")


@contextmanager
def _folder_errors(folder: Path, expected: str) -> Iterator[None]:
    """Turn an OSError of looking into a folder into a :class:`SourceError`."""
    try:
        yield
    except OSError as error:
        raise SourceError(
            f"the folder can't be read ({error.strerror or type(error).__name__})",
            where=str(folder),
            hint=f"check its permissions; expected {expected}",
        ) from None


def has_folder(folder: Path, expected: str) -> bool:
    """Whether a source's folder exists.

    Raises :class:`SourceError` if it can't be looked at, or the name is something else: a file, a
    dangling link.
    """
    with _folder_errors(folder, expected):
        try:
            mode = folder.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            if not folder.is_symlink():
                return False
            raise SourceError(
                "the link leads nowhere", where=str(folder), hint=f"expected {expected}"
            ) from None
    if not stat.S_ISDIR(mode):
        raise SourceError(
            f"{irregular(mode) or 'a file'} where a folder is expected",
            where=str(folder),
            hint=f"expected {expected}",
        )
    return True


def entries(folder: Path, expected: str) -> list[Path]:
    """Entries of a folder by name; none if the folder is absent.

    Raises :class:`SourceError` if the folder can't be listed or entered, or is not a folder.
    """
    if not has_folder(folder, expected):
        return []
    with _folder_errors(folder, expected):
        paths = sorted(folder.iterdir())
        for path in paths[:1]:
            path.lstat()  # a folder that may be listed may still not be entered
    return paths


def check_file(path: Path, expected: str) -> Path:
    """Return the path of a regular file.

    Raises :class:`SourceError` if it is anything else: a dangling link, a folder, a named pipe, a
    device.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        dangling = isinstance(error, FileNotFoundError) and path.is_symlink()
        what = "the link leads nowhere" if dangling else "the file can't be read"
        raise SourceError(
            what if dangling else f"{what} ({error.strerror or type(error).__name__})",
            where=str(path),
            hint=f"expected {expected}",
        ) from None
    kind = irregular(mode)
    if kind:
        raise SourceError(
            f"{kind} where a regular file is expected",
            where=str(path),
            hint=f"expected {expected}; move it away, or put the file itself there",
        )
    return path


def resembling(name: str) -> str:
    """Name in small letters without blanks and parts in brackets.

    >>> resembling("Movies (1).csv")
    'movies.csv'
    """
    return _ADDED.sub("", name).lower()


#: Other publications of the same data, by the name of a file.
_LOOKS = tuple(
    (re.compile(pattern, re.IGNORECASE), what)
    for pattern, what in (
        (r"tmdb_5000_\w+\.csv", "Kaggle's TMDB 5000, CSV"),
        (r"movies_metadata\.csv|(links|ratings)_small\.csv", "Kaggle's The Movies Dataset, CSV"),
        (r"tmdb.*\.csv", "TMDB records as CSV"),
        (r"(movie|rating|link|tag)s?\.csv|genome[-_]\w+\.csv", "MovieLens in CSV"),
        (r"(movies|ratings|users|tags)\.dat|u\.(data|item|user)", "MovieLens"),
        (r"ml[-_]\w+(\.zip)?", "a MovieLens archive"),
        (r".*\.(inter|item|user|kg|link)", "RecBole's atomic files"),
        (r"bx[-_].*\.csv", "Book-Crossing"),
        (r"(book_tags|to_read|books)\.csv", "goodbooks-10k"),
        (r"steam.*\.csv|games\.csv|recommendations\.csv", "Kaggle's Steam data, CSV"),
        (r"(raw_)?(meta_|reviews?_)?\w+\.jsonl?(\.gz)?", "records in JSON lines"),
        (r".*\.parquet", "Parquet files, as Hugging Face has them"),
    )
)
#: File names that a message shows.
_SHOWN = 5


def described(folder: Path) -> str:
    """The files below a folder and what they look like, for messages; empty if there are none."""
    inside = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    names = [path.name for path in inside if not path.name.startswith(".")]
    if not names:
        return ""
    more = f" and {len(names) - _SHOWN} more" if names[_SHOWN:] else ""
    looks = next((what for look, what in _LOOKS if any(map(look.fullmatch, names))), None)
    like = f", which looks like {looks}" if looks else ""
    return f"; found {', '.join(names[:_SHOWN])}{more}{like}"


def unclear_name(path: Path, expected: str, resembles: str = "") -> SourceError:
    """Error of a file whose name only resembles a source file's, such as ``resembles``."""
    return SourceError(
        f"the name resembles a source file's{resembles and f' ({resembles})'}, but is not one",
        where=str(path),
        hint=f"rename it or move it away; expected {expected}",
    )


def pick_files(
    folder: Path,
    accepts: Callable[[str], bool],
    expected: str,
    *,
    resembles: Callable[[str], bool] | None = None,
) -> list[Path]:
    """Regular files of a folder whose names are wanted, by name; none if it is absent.

    A name that is not wanted but ``resembles`` one (default: its :func:`resembling` name is wanted)
    is an error, and so is one of something else than a file.

    Raises :class:`SourceError` if the folder can't be read, a wanted name is not a regular file, or
    a name only resembles a wanted one.
    """
    picked = []
    for path in entries(folder, expected):
        if accepts(path.name):
            picked.append(check_file(path, expected))
        elif resembles(path.name) if resembles else accepts(resembling(path.name)):
            raise unclear_name(path, expected)
    return picked


def unread(folder: Path, read: Iterable[Path], sources: Collection[str]) -> list[str]:
    """Names in a data folder that no source reads, with ``/``; folders end with ``/``.

    A folder is listed as a whole unless it is a source's or holds a file that is read. ``read`` are
    the files that are read, ``sources`` the names of the sources' folders.

    Raises :class:`SourceError` if a folder can't be read.
    """
    files = set(read)
    parents = {parent for path in files for parent in path.parents}
    parents |= {folder / name for name in sources}

    def left(here: Path) -> Iterator[str]:
        for path in entries(here, "a folder of source files"):
            if path in files:
                continue
            is_folder = path.is_dir()
            if is_folder and path in parents:
                yield from left(path)
            else:
                yield path.relative_to(folder).as_posix() + "/" * is_folder

    return list(left(folder))
