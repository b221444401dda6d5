"""Lines of a dump, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipelines.sources._original import any_file

__all__ = ["MAX_LINE", "dump_lines"]

#: Longest line that is read as a record (bytes); the largest real ones have some 300 KB.
MAX_LINE = 8 << 20
_BLOCK = 1 << 20
_BOM = b"\xef\xbb\xbf"


def dump_lines(
    path: Path, *, max_line: int = MAX_LINE, block: int = _BLOCK
) -> Iterator[tuple[int, bytes, bool]]:
    """Non-blank lines of a plain or gzip file as (1-based number, bytes, whole).

    ``whole`` is false for a line of more than ``max_line`` bytes, of which only the start is
    given. Whether the file is gzip is seen from its first bytes, not from its name.

    Raises
    ------
    SourceError
        If the file can't be read, or its compression is broken or cut off.
    """
    number = 0
    with any_file(path, str(path)).open() as stream:
        held = b""  # the start of the line that the last block ended in
        cut = False  # whether the rest of that line is being skipped
        first = True
        while chunk := stream.read(block):
            if first:
                chunk = chunk.removeprefix(_BOM)
                first = False
            *lines, rest = chunk.split(b"\n")
            for line in lines:
                number += 1
                text, held = held + line, b""
                whole, cut = not cut and len(text) <= max_line, False
                if text.strip():
                    yield number, text if whole else text[:max_line], whole
            if cut:
                continue
            held += rest
            if len(held) > max_line:
                held, cut = held[:max_line], True
        if held.strip():
            yield number + 1, held, not cut
