"""Conformance tests of executors: inherit :class:`ExecutorContract` and define a fixture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pipelines.errors import ContractError
from pipelines.execution import Executor

__all__ = ["ExecutorContract", "Squares"]


class Squares:
    """Squares numbers, notes each call in a folder, and fails at the given number."""

    def __init__(self, folder: Path, *, fails: int | None = None) -> None:
        self.folder, self.fails = folder, fails

    def __call__(self, number: int) -> int:
        """Square a number."""
        (self.folder / str(number)).touch()
        if number == self.fails:
            raise ContractError("the rows are wrong", where=f"part {number}")
        return number * number

    def versions(self) -> Mapping[str, str]:
        """Nothing that may differ."""
        return {}


class ExecutorContract:
    """Conformance tests of an executor, which the fixture ``executor`` returns."""

    def test_results_are_in_the_order_of_the_parts(
        self, executor: Executor, tmp_path: Path
    ) -> None:
        """Each part has one result."""
        assert list(executor.map(Squares(tmp_path), range(7))) == [n * n for n in range(7)]
        assert len(list(tmp_path.iterdir())) == 7

    def test_no_parts_are_no_work(self, executor: Executor, tmp_path: Path) -> None:
        """No parts give no results."""
        assert list(executor.map(Squares(tmp_path), [])) == []

    def test_parts_are_drawn_as_results_are_taken(self, executor: Executor, tmp_path: Path) -> None:
        """An endless iterator of parts is no problem."""
        drawn = 0

        def endless() -> object:
            nonlocal drawn
            while True:
                yield drawn
                drawn += 1

        results = executor.map(Squares(tmp_path), endless())  # type: ignore[arg-type]
        assert [next(results) for _ in range(5)] == [0, 1, 4, 9, 16]
        assert drawn < 5 + 100
        close = getattr(results, "close", lambda: None)
        close()

    def test_what_the_work_raises_is_raised(self, executor: Executor, tmp_path: Path) -> None:
        """A fault is raised as it is, and the executor can be used again."""
        with pytest.raises(ContractError, match="the rows are wrong: part 2"):
            list(executor.map(Squares(tmp_path, fails=2), range(7)))
        assert list(executor.map(Squares(tmp_path), range(3))) == [0, 1, 4]

    def test_closing_the_iterator_ends_the_rest(self, executor: Executor, tmp_path: Path) -> None:
        """Closing the iterator stops the work."""
        running = executor.map(Squares(tmp_path), range(500))
        next(running)
        getattr(running, "close", lambda: None)()
        assert len(list(tmp_path.iterdir())) < 500
        assert list(executor.map(Squares(tmp_path), range(3))) == [0, 1, 4]
