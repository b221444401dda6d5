"""Original files as byte streams: plain files and members of zip archives.

A member is streamed straight out of its archive: nothing is unpacked, so names inside an
archive never become paths, and a member that claims to be enormous costs one buffer.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, Self, TypeAlias

from pipelines.errors import SourceError

__all__ = [
    "Block",
    "MadeStream",
    "Original",
    "Stream",
    "any_file",
    "folder_errors",
    "plain_file",
    "sha256_of",
    "zip_members",
]

#: Bytes of a file.
Block: TypeAlias = bytes | memoryview

_BUFFER = 1 << 20
#: Small enough to be copied within the processor's cache.
_PIECE = 256 << 10
_GZIP = b"\x1f\x8b"
#: A member that unpacks to more than this many times its packed size is a bomb, not a table
#: (CSV text packs about 4:1; deflate's own limit is 1032:1).
_MAX_RATIO = 200
_RATIO_APPLIES_FROM = 64 << 20


@dataclass(frozen=True, slots=True)
class Original:
    """One original file, as bytes.

    Attributes
    ----------
    name
        Name relative to the data folder, with ``/``; for a member, the archive's name and
        then the member's.
    size
        Bytes (unpacked); None if that is only known at the end.
    open
        Opens a stream; may be called again for another pass.
    """

    name: str
    size: int | None
    open: Callable[[], Stream]


class _Bytes(Protocol):
    def read(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


class Stream(AbstractContextManager["Stream"]):
    """Sequential bytes whose faults are :class:`SourceError`.

    Parameters
    ----------
    raw
        The underlying stream.
    name
        What to call it in errors.
    closing
        What else to close with it, such as the archive.
    """

    def __init__(self, raw: _Bytes, name: str, closing: Iterable[IO[bytes] | zipfile.ZipFile]):
        self._raw = raw
        self._name = name
        self._closing = tuple(closing)

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes; empty at the end.

        Raises
        ------
        SourceError
            If the disk or the archive fails, or the unpacked bytes have another checksum
            than the archive says.
        """
        try:
            return self._raw.read(size)
        except _CORRUPT as error:
            raise _corrupt(self._name, error) from None
        except OSError as error:
            raise _unreadable(self._name, error) from None

    def after(self, start: Block, size: int) -> Block:
        """``start`` and what follows it, mostly ``size`` bytes; ``start`` alone at the end.

        In one piece of memory, filled as it is read: Arrow's pool hands it out again when nothing
        refers to it any more, where each new ``bytes`` of some MiB is pages to be cleared first.

        Raises
        ------
        SourceError
            As :meth:`read`.
        """
        import numpy as np
        import pyarrow as pa

        buffer = pa.allocate_buffer(len(start) + size)
        whole = np.frombuffer(buffer, dtype=np.uint8).data
        whole[: len(start)] = start
        filled = len(start)
        while filled < len(whole):
            data = self.read(min(_PIECE, len(whole) - filled))
            if not data:
                break
            whole[filled : filled + len(data)] = data
            filled += len(data)
        return whole[:filled]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._raw.close()
        for other in self._closing:
            other.close()


class MadeStream(Stream):
    """A stream whose bytes are made of those of another, which it closes.

    Its ``read`` may give more than it is asked for: whole lines, or longer characters.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def after(self, start: Block, size: int) -> Block:
        """As :meth:`Stream.after`."""
        # Made in pieces, whose by-products stay in the processor's cache.
        pieces, made = [start], 0
        while made < size and (data := self.read(min(_PIECE, size - made))):
            pieces.append(data)
            made += len(data)
        return b"".join(pieces) if made else start

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.__exit__(kind, error, trace)


# zipfile raises NotImplementedError for unknown compression and RuntimeError for passwords.
_CORRUPT = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


def _corrupt(name: str, error: BaseException) -> SourceError:
    return SourceError(
        f"the archive is corrupt ({error or type(error).__name__})",
        where=name,
        hint="download it again",
    )


def _unreadable(name: str, error: OSError) -> SourceError:
    return SourceError(
        f"the file can't be read ({error.strerror or type(error).__name__})",
        where=name,
        hint="check the path, its permissions and the disk",
    )


@contextmanager
def folder_errors(folder: Path, expected: str) -> Iterator[None]:
    """Turn what the system says about looking into a folder into a :class:`SourceError`.

    A folder that may not be listed, or listed but not entered, must not look like one without
    files.
    """
    try:
        yield
    except OSError as error:
        raise SourceError(
            f"the folder can't be read ({error.strerror or type(error).__name__})",
            where=str(folder),
            hint=f"check its permissions; expected {expected}",
        ) from None


def plain_file(path: Path, name: str) -> Original:
    """A file on disk.

    Raises
    ------
    SourceError
        If it is missing, not a file or can't be read.
    """

    def opened() -> Stream:
        try:
            return Stream(path.open("rb"), name, ())
        except OSError as error:
            raise _unreadable(name, error) from None

    with opened():
        pass
    return Original(name, path.stat().st_size, opened)


def any_file(path: Path, name: str) -> Original:
    """A file on disk, plain or packed by gzip; its first bytes say which.

    Raises
    ------
    SourceError
        If it is missing, not a file or can't be read; later, when a packed file is cut short or
        damaged.
    """
    plain = plain_file(path, name)
    with plain.open() as stream:
        packed = stream.read(2) == _GZIP
    if not packed:
        return plain

    def opened() -> Stream:
        try:
            raw = path.open("rb")
        except OSError as error:
            raise _unreadable(name, error) from None
        return Stream(_Unpacked(raw), name, (raw,))

    return Original(name, None, opened)


class _Unpacked:
    """The content of a gzip file of one or more members.

    Much faster than :class:`gzip.GzipFile`, which reads a few KiB at a time.
    """

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed = packed
        self._member = zlib.decompressobj(wbits=31)
        self._fed = b""

    def close(self) -> None:
        """Do nothing: the packed file is closed by who opened it."""

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes; empty at the end.

        Raises
        ------
        EOFError
            If the file ends inside a member.
        zlib.error
            If it is damaged, or its checksum is another.
        """
        while True:
            if self._member.eof:
                # Members may follow each other; zeros that pad the end are no member.
                rest = self._member.unused_data.lstrip(b"\0") or self._packed.read(_BUFFER)
                rest = rest.lstrip(b"\0")
                if not rest:
                    return b""
                self._member, self._fed = zlib.decompressobj(wbits=31), rest
            if not self._fed:
                self._fed = self._packed.read(_BUFFER)
                if not self._fed:
                    raise EOFError("it ends in the middle: a whole gzip file was expected")
            data = self._member.decompress(self._fed, size)
            self._fed = self._member.unconsumed_tail
            if data:
                return data


def zip_members(path: Path, name: str, wanted: Iterable[str]) -> dict[str, Original]:
    """Members of an archive by base name, for the wanted base names that it holds.

    Only members at the top or one folder down are looked at, which is how publishers pack.

    Raises
    ------
    SourceError
        If the archive can't be read, is corrupt, holds a wanted name twice, or a member is
        encrypted or unpacks to an absurd size.
    """
    wanted = set(wanted)
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
    except _CORRUPT as error:
        raise _corrupt(name, error) from None
    except OSError as error:
        raise _unreadable(name, error) from None
    found: dict[str, Original] = {}
    for info in infos:
        folder, _, base = info.filename.rpartition("/")
        if base not in wanted or "/" in folder:
            continue
        member = f"{name}/{info.filename}"
        if base in found:
            raise SourceError(f"the archive holds {base} twice", where=member)
        if info.flag_bits & 1:
            raise SourceError("the archive is encrypted", where=member, hint="unpack it yourself")
        if info.file_size > max(_RATIO_APPLIES_FROM, _MAX_RATIO * info.compress_size):
            raise SourceError(
                f"{info.compress_size:,} bytes claim to unpack to {info.file_size:,}",
                where=member,
                hint="this is not a published archive",
            )
        found[base] = Original(member, info.file_size, _member_opener(path, info.filename, member))
    return found


def _member_opener(path: Path, inside: str, member: str) -> Callable[[], Stream]:
    def opened() -> Stream:
        try:
            archive = zipfile.ZipFile(path)
            try:
                return Stream(archive.open(inside), member, (archive,))
            except BaseException:
                archive.close()
                raise
        except (*_CORRUPT, KeyError) as error:
            raise _corrupt(member, error) from None
        except OSError as error:
            raise _unreadable(member, error) from None

    return opened


def sha256_of(path: Path, *, name: str | None = None) -> str:
    """SHA-256 (hex) of a file's bytes, streamed.

    Raises
    ------
    SourceError
        If the file can't be read.
    """
    try:
        with path.open("rb", buffering=0) as file:
            # One small buffer for the whole file: a block of its own for each read costs as much
            # as the hash, in pages that the system has to clear.
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(name or str(path), error) from None
