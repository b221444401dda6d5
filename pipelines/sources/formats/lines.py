"""Lines of a file: where they start, as text, as whole blocks, and by number."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from pipelines.errors import SourceError
from pipelines.progress import advance
from pipelines.sources.formats.files import Block, Original

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    import pyarrow

__all__ = [
    "MAX_LINE",
    "MAX_RECORD",
    "ahead",
    "content_end",
    "decoded",
    "line_array",
    "line_blocks",
    "line_starts",
    "lines_at",
    "numbered_lines",
]

T = TypeVar("T")

#: Longest line that is taken for a row (bytes); longer ones are rejected as ``too_long``.
MAX_LINE = 1 << 20
#: Longest line of any kind (bytes). Beyond it the file is not line-based text.
MAX_RECORD = 64 << 20
#: Bytes looked at in one go for the end of a line.
_TAIL = 64 << 10
_SEARCHED = 256 << 10
_BOM = b"\xef\xbb\xbf"


def line_starts(body: Block) -> np.ndarray[Any, Any]:
    """Start of each line, and the end: one more than there are lines."""
    import numpy as np

    data = np.frombuffer(body, dtype=np.uint8)
    # Piece by piece, so that what is compared stays in the processor's cache.
    pieces = range(0, len(data), _SEARCHED)
    ends = [np.flatnonzero(data[at : at + _SEARCHED] == 10) + (at + 1) for at in pieces]
    tail = [] if not len(data) or data[-1] == 10 else [len(data)]
    return np.concatenate([[0], *ends, tail]).astype(np.int64, copy=False)


def line_array(body: Block, starts: np.ndarray[Any, Any]) -> pyarrow.LargeBinaryArray:
    """The lines, with their line ends, without copying them."""
    import pyarrow as pa

    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(starts) - 1, [None, pa.py_buffer(starts), pa.py_buffer(body)]
    )


def decoded(raw: pyarrow.LargeBinaryArray) -> pl.Series:
    """Lines as text; null where one is not UTF-8."""
    import polars as pl

    try:
        return pl.Series(values=raw).cast(pl.String)
    except pl.exceptions.ComputeError:
        pass
    lines: list[str | None] = []
    for line in raw.to_pylist():
        try:
            lines.append(line.decode("utf-8"))
        except UnicodeDecodeError:
            lines.append(None)
    return pl.Series(values=lines, dtype=pl.String)


def line_blocks(
    original: Original, block: int, blank: bytes = b" \t\r\n"
) -> Iterator[tuple[int, Block]]:
    """Whole lines of a file, some at a time, with the bytes read from the file so far.

    Lines of nothing but ``blank`` bytes at the end of the file are left out.

    Raises :class:`SourceError` if the file can't be read, or a line is longer than
    :data:`MAX_RECORD`.
    """
    done = 0
    with original.open() as stream:
        tail: Block = b""
        while len(data := stream.after(tail, block)) > len(tail):
            done += len(data) - len(tail)
            cut = _last_line_end(data, len(tail))
            # Blank lines wait for what follows them, unless there are very many.
            end = content_end(data, cut, blank)
            cut = end if cut - end <= MAX_LINE else cut
            if cut:
                yield done, data[:cut]
            tail = data[cut:]
            if len(tail) > MAX_RECORD:
                raise SourceError(
                    f"a line is longer than {MAX_RECORD >> 20} MiB",
                    where=f"{original.name}:{_lines_before(original, done - len(tail))}",
                    hint="expected one record per line",
                )
        end = content_end(tail, len(tail), blank)
        if end:
            yield done, tail[:end]


def numbered_lines(
    original: Original, *, block: int = _SEARCHED << 2
) -> Iterator[tuple[int, bytes]]:
    """Lines of a file with their numbers (from 1), without line ends and byte order mark.

    Raises :class:`SourceError` as :func:`line_blocks`.
    """
    number = 0
    for done, body in line_blocks(original, block):
        advance(f"reading {original.name}", done, original.size)
        for line in bytes(body).removesuffix(b"\n").split(b"\n"):
            number += 1
            yield number, (line.removeprefix(_BOM) if number == 1 else line).removesuffix(b"\r")


def content_end(data: Block, end: int, blank: bytes = b" \t\r\n") -> int:
    r"""End of the last line before ``end`` with other than ``blank`` bytes; 0 if there is none.

    ``end`` is the end of a line, or of the data.

    >>> content_end(b"a\n \n\n", 5), content_end(b" \n", 2), content_end(b"a\nb", 3)
    (2, 0, 3)
    """
    high = end
    while high:
        start = max(0, high - _TAIL)
        piece = bytes(data[start:high])
        content = start + len(piece.rstrip(blank))
        if content > start:
            line_end = bytes(data[content:end]).find(b"\n") + 1
            return content + line_end if line_end else end
        high = start
    return 0


def _last_line_end(data: Block, low: int) -> int:
    """End of the last complete line in ``data[low:]``; 0 if there is none."""
    high = len(data)
    while high > low:
        start = max(low, high - _TAIL)
        end = bytes(data[start:high]).rfind(b"\n") + 1
        if end:
            return start + end
        high = start
    return 0


def _lines_before(original: Original, place: int) -> int:
    """Number of the line at a place of the file, in another pass over it."""
    line, done = 1, 0
    with original.open() as stream:
        while done < place and (data := stream.read(_TAIL)):
            line += data[: place - done].count(b"\n")
            done += len(data)
    return line


def lines_at(
    original: Original, numbers: np.ndarray[Any, Any], block: int, encoding: str = "utf-8"
) -> Iterator[tuple[int, str]]:
    """Text of the lines with these sorted numbers (from 1), in a pass over the file."""
    first, position = 1, 0
    for _, body in line_blocks(original, block):
        if position == len(numbers):
            return
        starts = line_starts(body)
        count = len(starts) - 1
        while position < len(numbers) and numbers[position] < first + count:
            n = int(numbers[position])
            raw = bytes(body[starts[n - first] : starts[n - first + 1]])
            yield n, raw.decode(encoding, "replace").rstrip("\r\n")
            position += 1
        first += count


def ahead(items: Iterator[T], depth: int = 1) -> Iterator[T]:
    """The same items, made by a thread that works up to ``depth`` items ahead.

    Errors of the iterator are raised here, after the items before it. A consumer that stops
    early stops the thread. Who listens to the caller (:mod:`pipelines.progress`) hears the thread.

    >>> list(ahead(iter("abc")))
    ['a', 'b', 'c']
    """
    end, context = object(), copy_context()

    def following() -> T | object:
        return context.run(next, items, end)

    with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as pool:
        try:
            futures = deque(pool.submit(following) for _ in range(depth))
            while (item := futures.popleft().result()) is not end:
                futures.append(pool.submit(following))
                yield item  # type: ignore[misc]  # not the sentinel
        finally:
            pool.shutdown(cancel_futures=True)
            if isinstance(items, Generator):
                items.close()
