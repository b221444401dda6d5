"""Original files as byte streams: plain files and members of zip archives.

A member is streamed straight out of its archive: nothing is unpacked, so names inside an
archive never become paths, and a member that claims to be enormous costs one buffer.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import BufferedReader, FileIO
from pathlib import Path
from typing import IO, NamedTuple, Protocol, Self, TypeAlias, cast

from pipelines.errors import SourceError
from pipelines.sources._folders import irregular

__all__ = [
    "UNPACK_LIMITS",
    "Block",
    "Original",
    "Stream",
    "UnpackLimits",
    "any_file",
    "open_file",
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
#: Unpacked bytes from which the limit of the ratio applies.
_RATIO_APPLIES_FROM = 64 << 20


class UnpackLimits(NamedTuple):
    """Limits of a compressed file; one that exceeds them is a bomb, not a table."""

    #: Unpacked bytes per packed byte (CSV text packs about 4:1; deflate's own limit is 1032:1).
    #: Applies from 64 MiB on.
    ratio: int = 200
    #: Unpacked bytes.
    size: int = 1 << 40

    def exceeded(self, packed: int, unpacked: int) -> bool:
        """Whether this many packed bytes may not unpack to so many."""
        return unpacked > self.size or unpacked > max(_RATIO_APPLIES_FROM, self.ratio * packed)

    def error(self, packed: int, unpacked: int, name: str) -> SourceError:
        """Build the error of a file that exceeds them."""
        return SourceError(
            f"{packed:,} compressed bytes unpack to {unpacked:,} or more",
            where=name,
            hint="published files never do; limits: data.max_unpack_ratio, data.max_unpacked_gb",
        )


UNPACK_LIMITS = UnpackLimits()


@dataclass(frozen=True, slots=True)
class Original:
    """An original file, as bytes."""

    #: Name relative to the data folder, with ``/``; for a member, the archive's name and then the
    #: member's.
    name: str
    #: Bytes (unpacked); None if that is only known at the end.
    size: int | None
    #: Opens a stream; may be called again for another pass.
    open: Callable[[], Stream]


class _Bytes(Protocol):
    def read(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


class Stream(AbstractContextManager["Stream"]):
    """Sequential bytes whose faults are :class:`SourceError`.

    ``name`` is what errors call it; ``closing`` is closed with it, such as the archive.
    """

    def __init__(self, raw: _Bytes, name: str, closing: Iterable[IO[bytes] | zipfile.ZipFile]):
        self._raw = raw
        self._name = name
        self._closing = tuple(closing)

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes; empty at the end.

        Raises :class:`SourceError` if the disk or the archive fails, or the unpacked bytes do not
        have the archive's checksum.
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

        Raises :class:`SourceError` as :meth:`read`.
        """
        import numpy as np
        import pyarrow as pa

        buffer = pa.allocate_buffer(len(start) + size)
        view = np.frombuffer(buffer, dtype=np.uint8).data
        view[: len(start)] = start
        filled = len(start)
        while filled < len(view):
            data = self.read(min(_PIECE, len(view) - filled))
            if not data:
                break
            view[filled : filled + len(data)] = data
            filled += len(data)
        return view[:filled]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()
        for other in self._closing:
            other.close()


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

    try:
        return open(path, "rb", opener=opener)
    except OSError as error:
        raise _unreadable(name, error) from None


def plain_file(path: Path, name: str) -> Original:
    """A file on disk.

    Raises :class:`SourceError` if it is missing, not a file or can't be read.
    """

    def opened() -> Stream:
        return Stream(open_file(path, name), name, ())

    with open_file(path, name) as file:
        size = os.fstat(file.fileno()).st_size
    return Original(name, size, opened)


def any_file(path: Path, name: str, limits: UnpackLimits = UNPACK_LIMITS) -> Original:
    """A file on disk, plain or packed by gzip; its first bytes say which.

    Raises :class:`SourceError` if it is missing, not a file or can't be read; later, when a packed
    file is cut short, damaged or exceeds the limits.
    """
    plain = plain_file(path, name)
    with plain.open() as stream:
        packed = stream.read(2) == _GZIP
    if not packed:
        return plain

    def opened() -> Stream:
        raw = open_file(path, name)
        return Stream(_Unpacked(raw, name, limits), name, (raw,))

    return Original(name, None, opened)


class _Unpacked:
    """The content of a gzip file of one or more members.

    Much faster than :class:`gzip.GzipFile`, which reads a few KiB at a time.
    """

    def __init__(self, packed: IO[bytes], name: str, limits: UnpackLimits) -> None:
        self._packed = packed
        self._name = name
        self._limits = limits
        self._member = zlib.decompressobj(wbits=31)
        self._fed = b""
        self._taken = self._made = 0

    def close(self) -> None:
        """Do nothing: the packed file is closed by who opened it."""

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes; empty at the end.

        Raises EOFError if the file ends inside a member, zlib.error if it is damaged or its
        checksum is another, SourceError if it unpacks to more than the limits allow.
        """
        while True:
            if self._member.eof:
                # Members may follow each other; zeros that pad the end are no member.
                following = self._member.unused_data.lstrip(b"\0") or self._feed()
                following = following.lstrip(b"\0")
                if not following:
                    return b""
                self._member, self._fed = zlib.decompressobj(wbits=31), following
            if not self._fed:
                self._fed = self._feed()
                if not self._fed:
                    raise EOFError("it ends in the middle: a whole gzip file was expected")
            data = self._member.decompress(self._fed, size)
            self._fed = self._member.unconsumed_tail
            if data:
                self._made += len(data)
                packed = self._taken - len(self._fed)
                if self._limits.exceeded(packed, self._made):
                    raise self._limits.error(packed, self._made, self._name)
                return data

    def _feed(self) -> bytes:
        data = self._packed.read(_BUFFER)
        self._taken += len(data)
        return data


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
    try:
        with open_file(path, name) as file, zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
    except _CORRUPT as error:
        raise _corrupt(name, error) from None
    except OSError as error:
        raise _unreadable(name, error) from None
    picked: dict[str, Original] = {}
    for info in infos:
        folder, _, base = info.filename.rpartition("/")
        base = rename(base)
        if base not in wanted or "/" in folder:
            continue
        member = f"{name}/{info.filename}"
        if base in picked:
            raise SourceError(f"the archive holds {base} twice", where=member)
        if info.flag_bits & 1:
            raise SourceError("the archive is encrypted", where=member, hint="unpack it yourself")
        if limits.exceeded(info.compress_size, info.file_size):
            raise limits.error(info.compress_size, info.file_size, member)
        picked[base] = Original(member, info.file_size, _member_opener(path, info.filename, member))
    return picked


def _member_opener(path: Path, inside: str, member: str) -> Callable[[], Stream]:
    def opened() -> Stream:
        file = open_file(path, member)
        try:
            archive = zipfile.ZipFile(file)
            return Stream(archive.open(inside), member, (archive, file))
        except BaseException as error:
            file.close()
            if isinstance(error, OSError):
                raise _unreadable(member, error) from None
            if isinstance(error, (*_CORRUPT, KeyError)):
                raise _corrupt(member, error) from None
            raise

    return opened


def sha256_of(path: Path, *, name: str | None = None) -> str:
    """SHA-256 (hex) of a file's bytes, streamed.

    Raises :class:`SourceError` if the file can't be read.
    """
    try:
        with open_file(path, name or str(path)) as file:
            # A small buffer for the whole file: a new block for each read costs as much as the
            # hash, in pages that the system has to clear.
            digest = hashlib.file_digest(cast("FileIO", file.raw), "sha256")
            return digest.hexdigest()
    except OSError as error:
        raise _unreadable(name or str(path), error) from None
