"""Original files as numbered lines: plain files, gzip, and members of zip archives.

A member is streamed straight out of its archive: nothing is unpacked, so names inside an
archive never become paths, and a member that claims to be enormous costs one buffer.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BufferedReader, FileIO
from pathlib import Path
from typing import IO, NamedTuple, cast

from pipelines.errors import SourceError
from pipelines.progress import advance
from pipelines.sources._folders import irregular

#: Longest line that is taken for a row (bytes); longer ones are rejected as ``too_long``.
MAX_LINE = 1 << 20
#: Longest line of any kind (bytes). Beyond it the file is not line-based text.
MAX_RECORD = 64 << 20
#: Bytes read at a time.
BLOCK = 2 << 20
#: Bytes of a line without content.
BLANK = b" \t\r\n"
_BUFFER = 1 << 18
_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
#: Unpacked bytes from which the limit of the ratio applies.
_RATIO_APPLIES_FROM = 64 << 20
# zipfile raises NotImplementedError for unknown compression and RuntimeError for passwords.
_CORRUPT = (
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    KeyError,
)


class UnpackLimits(NamedTuple):
    """Limits of a compressed file; one that exceeds them is a bomb, not a table."""

    #: Unpacked bytes per packed byte (CSV text packs about 4:1; deflate's own limit is 1032:1).
    #: Applies from 64 MiB on.
    ratio: int = 200
    #: Unpacked bytes.
    size: int = 1 << 40

    def check(self, packed: int, unpacked: int, name: str) -> None:
        """Raise :class:`SourceError` if so many packed bytes may not unpack to so many."""
        if unpacked > self.size or unpacked > max(_RATIO_APPLIES_FROM, self.ratio * packed):
            raise SourceError(
                f"{packed:,} compressed bytes unpack to {unpacked:,} or more",
                where=name,
                hint="published files never do; "
                "limits: data.max_unpack_ratio, data.max_unpacked_gb",
            )


UNPACK_LIMITS = UnpackLimits()


@dataclass(frozen=True, slots=True)
class Original:
    """An original file, as bytes; one without a size is packed by gzip."""

    #: Name relative to the data folder, with ``/``; for a member, the archive's name and then the
    #: member's.
    name: str
    path: Path
    #: Bytes (unpacked); None if that is only known at the end.
    size: int | None
    limits: UnpackLimits = UNPACK_LIMITS
    #: Name inside the archive, if the path is one.
    member: str = ""

    def pieces(self, size: int = BLOCK) -> Iterator[bytes]:
        """Content in order, about ``size`` bytes at a time.

        Raises :class:`SourceError` if the disk or the archive fails, the unpacked bytes do not
        have the archive's checksum, or they exceed the limits.
        """
        with _file_errors(self.name), ExitStack() as stack:
            file = stack.enter_context(open_file(self.path, self.name))
            raw: IO[bytes] = file
            if self.member:
                archive = stack.enter_context(zipfile.ZipFile(file))
                raw = stack.enter_context(archive.open(self.member))
            elif self.size is None:
                raw = cast("IO[bytes]", stack.enter_context(gzip.GzipFile(fileobj=file)))
            unpacked = 0
            while data := raw.read(size):
                unpacked += len(data)
                if self.size is None:
                    self.limits.check(file.tell(), unpacked, self.name)
                yield data


@contextmanager
def _file_errors(name: str) -> Iterator[None]:
    """Turn faults of a disk or an archive into a :class:`SourceError`."""
    try:
        yield
    except _CORRUPT as error:
        what = str(error) or type(error).__name__
        if isinstance(error, EOFError):
            what = "it ends in the middle: a whole gzip file was expected"
        raise SourceError(
            f"the archive is corrupt ({what})", where=name, hint="download it again"
        ) from None
    except OSError as error:
        raise SourceError(
            f"the file can't be read ({error.strerror or type(error).__name__})",
            where=name,
            hint="check the path, its permissions and the disk",
        ) from None


def open_file(path: Path, name: str) -> BufferedReader:
    """Open a regular file for reading; a named pipe or a device could block or never end.

    Raises :class:`SourceError` if it is missing, can't be read or is not a regular file.
    """

    def opener(file: str, flags: int) -> int:
        # Without O_NONBLOCK the opening of a named pipe waits for a writer.
        descriptor = os.open(file, flags | os.O_NONBLOCK)
        kind = irregular(os.fstat(descriptor).st_mode)
        if kind:
            os.close(descriptor)
            raise SourceError(
                f"{kind} where a regular file is expected",
                where=name,
                hint="streams are not read: save the data as a file",
            )
        return descriptor

    with _file_errors(name):
        return cast(BufferedReader, open(path, "rb", buffering=_BUFFER, opener=opener))


def any_file(path: Path, name: str, limits: UnpackLimits = UNPACK_LIMITS) -> Original:
    """A file on disk, plain or packed by gzip; its first bytes say which.

    Raises :class:`SourceError` if it is missing, not a file or can't be read.
    """
    with open_file(path, name) as file, _file_errors(name):
        packed = file.peek(2)[:2] == _GZIP
        size = None if packed else os.fstat(file.fileno()).st_size
    return Original(name, path, size, limits)


def zip_members(
    path: Path,
    name: str,
    wanted: Iterable[str],
    limits: UnpackLimits = UNPACK_LIMITS,
    rename: Callable[[str], str] = str,
) -> dict[str, Original]:
    """Members of an archive by base name, for the wanted base names that it holds.

    ``rename`` gives the name by which a base name is known. Only members at the top or one folder
    down are looked at, which is how publishers pack.

    Raises :class:`SourceError` if the archive can't be read, is corrupt, holds a wanted name twice,
    or a member is encrypted or exceeds the limits.
    """
    wanted = set(wanted)
    picked: dict[str, Original] = {}
    with _file_errors(name), open_file(path, name) as file, zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            folder, _, base = info.filename.rpartition("/")
            base = rename(base)
            if base not in wanted or "/" in folder:
                continue
            member = f"{name}/{info.filename}"
            if base in picked:
                raise SourceError(f"the archive holds {base} twice", where=member)
            if info.flag_bits & 1:
                raise SourceError(
                    "the archive is encrypted", where=member, hint="unpack it yourself"
                )
            limits.check(info.compress_size, info.file_size, member)
            picked[base] = Original(member, path, info.file_size, limits, info.filename)
    return picked


def sha256_of(path: Path, *, name: str | None = None) -> str:
    """SHA-256 (hex) of a file's bytes, streamed.

    Raises :class:`SourceError` if the file can't be read.
    """
    with open_file(path, name or str(path)) as file, _file_errors(name or str(path)):
        # A small buffer for the whole file: a new block for each read costs as much as the
        # hash, in pages that the system has to clear.
        return hashlib.file_digest(cast("FileIO", file.raw), "sha256").hexdigest()


def line_blocks(
    original: Original, block: int = BLOCK, blank: bytes = BLANK
) -> Iterator[tuple[int, list[bytes]]]:
    """Lines of a file, some at a time: the number of the first (from 1), and the lines.

    They are without line feeds and byte order mark. Lines of nothing but ``blank`` bytes at the end
    of the file are left out.

    Raises :class:`SourceError` if the file can't be read, or a line is longer than
    :data:`MAX_RECORD`.
    """
    first, done, tail = 1, 0, b""
    for data in original.pieces(block):
        done += len(data)
        body = (tail + data) if tail else data
        cut = body.rfind(b"\n") + 1
        content = len(body[:cut].rstrip(blank))
        end = body.find(b"\n", content) + 1 if content else 0
        # Blank lines wait for what follows them, unless there are very many.
        end = end if cut - end <= MAX_LINE else cut
        if end:
            lines = _split(body[:end], first)
            advance(f"reading {original.name}", done, original.size)
            # Counted before the reader of a header takes it from the list.
            number, first = first, first + len(lines)
            yield number, lines
        tail = body[end:]
        if len(tail) > MAX_RECORD:
            line = first + tail.count(b"\n")
            raise SourceError(
                f"a line is longer than {MAX_RECORD >> 20} MiB",
                where=f"{original.name}:{line}",
                hint="expected one record per line",
            )
    content = len(tail.rstrip(blank))
    if content:
        end = tail.find(b"\n", content)
        advance(f"reading {original.name}", done, original.size)
        yield first, _split(tail[: end + 1] if end >= 0 else tail, first)


def _split(body: bytes, first: int) -> list[bytes]:
    """Lines of a text whose first line has this number."""
    body = body.removeprefix(_BOM) if first == 1 else body
    return body.removesuffix(b"\n").split(b"\n")


def line_text(line: bytes) -> str:
    """The text of a line as a list of rejected rows shows it."""
    return line.decode("utf-8", "replace").rstrip("\r\n")
