"""Protocol of executors: pieces of work and their outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from pipelines.errors import UnderstudyError

#: Called with what a running piece has done since the last call (units of the work).
Advance: TypeAlias = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a job that one worker computes."""

    #: Hash of what decides its result (hex).
    key: str
    #: Index of the piece within its job.
    number: int


@dataclass(frozen=True, slots=True)
class Done:
    """Outcome of a piece."""

    piece: Piece
    #: Result of the work (JSON); empty after a fault.
    facts: Mapping[str, Any] = field(default_factory=dict)
    #: Why there is no result, where another try may help: a temporary fault of the work, or the
    #: loss of its worker.
    fault: UnderstudyError | None = None


class Work(Protocol):
    """Picklable function that computes a piece.

    A worker calls it piece after piece, so it may keep what it opened. It writes the result to the
    store, whole or not at all, and does nothing if the result is there already.
    """

    def __call__(self, piece: Piece, advance: Advance) -> Mapping[str, Any]:
        """Compute a piece; counts and times of it (JSON)."""
        ...

    def probe(self) -> Mapping[str, Any]:
        """Versions and store contents that driver and workers must have in common (JSON)."""
        ...


class Executor(Protocol):
    """Runner of pieces, in any order."""

    name: str

    def map(self, work: Work, pieces: Sequence[Piece], advance: Advance) -> Iterator[Done]:
        """Run pieces; one :class:`Done` each, as they end.

        A permanent fault of a piece is raised at once and ends the others, as does closing the
        iterator.

        Parameters
        ----------
        work, pieces
            What is done, and with what; keys of pieces differ.
        advance
            Called from the caller's thread with units of a running piece, where they are known
            before its end.

        Raises
        ------
        ConfigError
            If workers are of another version than this process, or can't read the store; before
            the first piece.
        EngineError
            If there are no workers for a piece.
        UnderstudyError
            A permanent fault of the work.
        """
        ...

    def close(self) -> None:
        """End workers that it started."""
        ...
