"""Conformance tests of executors: inherit :class:`ExecutorContract` and define a fixture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import ContractError, LockedError
from pipelines.execution import Advance, Executor, Piece, run_pieces

__all__ = ["ExecutorContract", "Squares"]


class Squares:
    """Squares numbers into a folder, and fails at the given numbers.

    ``fails`` are numbers by kind: ``permanent`` and ``always`` (a temporary fault in each round),
    or ``once`` (a temporary fault the first time).
    """

    def __init__(self, folder: Path, **fails: int) -> None:
        self.folder, self.fails = folder, fails

    def __call__(self, piece: Piece, advance: Advance) -> Mapping[str, Any]:
        """Write the square of the piece's number."""
        n, tried = piece.number, self.folder / f"{piece.key}.tried"
        first = not tried.exists()
        tried.touch()
        if n == self.fails.get("permanent"):
            raise ContractError("the rows are wrong", where=f"piece {n}")
        if n == self.fails.get("always") or (n == self.fails.get("once") and first):
            raise LockedError("somebody writes", where=f"piece {n}")
        (self.folder / piece.key).write_text(str(n * n))
        advance(1)
        return {"square": n * n}

    def probe(self) -> Mapping[str, Any]:
        """Tell the folder."""
        return {"folder": str(self.folder)}


class ExecutorContract:
    """Conformance tests of an executor, which the fixture ``executor`` returns."""

    @pytest.fixture
    def pieces(self) -> list[Piece]:
        """Seven pieces."""
        return [Piece(f"key-{n}", n) for n in range(7)]

    def test_each_piece_is_done_once(
        self, executor: Executor, pieces: list[Piece], tmp_path: Path
    ) -> None:
        """Each piece has one result."""
        done = list(executor.map(Squares(tmp_path), pieces, lambda _: None))
        found = {d.piece: d.facts["square"] for d in done}
        assert len(done) == len(pieces)
        assert found == {piece: piece.number**2 for piece in pieces}
        assert all(d.fault is None for d in done)

    def test_no_pieces_are_no_work(self, executor: Executor, tmp_path: Path) -> None:
        """No pieces give no results."""
        assert list(executor.map(Squares(tmp_path), [], lambda _: None)) == []

    def test_a_temporary_fault_leaves_the_other_pieces(
        self, executor: Executor, pieces: list[Piece], tmp_path: Path
    ) -> None:
        """A temporary fault is reported with its piece; the others are done."""
        work = Squares(tmp_path, always=3)
        done = {d.piece.number: d for d in executor.map(work, pieces, lambda _: None)}
        assert isinstance(done[3].fault, LockedError)
        assert str(done[3].fault) == "somebody writes: piece 3"
        assert [n for n, d in sorted(done.items()) if d.fault is None] == [0, 1, 2, 4, 5, 6]

    def test_a_piece_with_a_temporary_fault_is_done_in_the_next_round(
        self, executor: Executor, pieces: list[Piece], tmp_path: Path
    ) -> None:
        """A temporary fault is tried again."""
        work = Squares(tmp_path, once=3)
        done = list(run_pieces(executor, work, pieces, rounds=2))
        assert sorted(d.piece.number for d in done) == list(range(7))

    def test_a_permanent_fault_is_raised_as_it_is(
        self, executor: Executor, pieces: list[Piece], tmp_path: Path
    ) -> None:
        """A permanent fault is raised as it is."""
        with pytest.raises(ContractError, match="the rows are wrong: piece 0"):
            list(executor.map(Squares(tmp_path, permanent=0), pieces, lambda _: None))

    def test_what_is_left_after_a_fault_is_computed_by_another_call(
        self, executor: Executor, pieces: list[Piece], tmp_path: Path
    ) -> None:
        """It can be used after a fault."""
        with pytest.raises(ContractError):
            list(executor.map(Squares(tmp_path, permanent=6), pieces, lambda _: None))
        assert len(list(executor.map(Squares(tmp_path), pieces, lambda _: None))) == 7

    def test_closing_the_iterator_ends_the_rest(
        self, executor: Executor, pieces: list[Piece], tmp_path: Path
    ) -> None:
        """Closing the iterator stops the work."""
        many = [Piece(f"many-{n}", n) for n in range(500)]
        running = executor.map(Squares(tmp_path), many, lambda _: None)
        next(running)
        running.close()  # type: ignore[attr-defined]
        assert len([p for p in many if (tmp_path / p.key).exists()]) < 500
        assert len(list(executor.map(Squares(tmp_path), pieces, lambda _: None))) == 7
