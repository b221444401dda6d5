"""Pieces one after another in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pipelines.errors import UnderstudyError
from pipelines.execution._protocol import Advance, Done, Piece, Work

if TYPE_CHECKING:
    from pipelines.config import ExecutionSettings


class LocalExecutor:
    """Runs pieces one after another in this process; see :class:`Executor`."""

    name = "local"

    def __init__(self, settings: ExecutionSettings | None = None) -> None:
        pass

    def map(self, work: Work, pieces: Sequence[Piece], advance: Advance) -> Iterator[Done]:
        """See :class:`Executor`."""
        for piece in pieces:
            try:
                facts = work(piece, advance)
            except UnderstudyError as fault:
                if fault.permanent:
                    raise
                yield Done(piece, fault=fault)
            else:
                yield Done(piece, facts)

    def close(self) -> None:
        """Do nothing: there are no workers."""
