"""The driver: runs pieces, and again those that were lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipelines.errors import EngineError, UnderstudyError
from pipelines.execution._protocol import Advance, Done, Executor, Piece, Work

#: Lost pieces that the one-line error names; all of them are in its details (count).
_NAMED = 3


def run_pieces(
    executor: Executor,
    work: Work,
    pieces: Sequence[Piece],
    *,
    rounds: int,
    advance: Advance = lambda _: None,
) -> Iterator[Done]:
    """Run pieces, and those again that had a temporary fault or lost their worker.

    A piece is run at most ``rounds`` times; the other arguments are those of :meth:`Executor.map`.
    Results are in the order of arrival.

    Raises
    ------
    UnderstudyError
        A permanent fault of a piece.
    EngineError
        Listing the pieces that are left after all rounds; the others are finished.
    """
    left = {piece.key: piece for piece in pieces}
    faults: dict[str, UnderstudyError] = {}
    for _ in range(rounds):
        for done in executor.map(work, list(left.values()), advance):
            if done.fault is None:
                del left[done.piece.key]
                yield done
            else:
                faults[done.piece.key] = done.fault
        if not left:
            return
    first, *more = left.values()
    numbers = ", ".join(str(piece.number) for piece in [first, *more][:_NAMED])
    raise EngineError(
        f"{len(left)} of {len(pieces)} pieces failed {rounds} times: {faults[first.key]}",
        where=f"executor {executor.name}, pieces {numbers}{' ...' if len(more) >= _NAMED else ''}",
        hint="the others are kept; run again: only these are computed",
        details={
            "pieces": [
                {"number": p.number, "key": p.key, "fault": str(faults[p.key])}
                for p in left.values()
            ]
        },
    )
