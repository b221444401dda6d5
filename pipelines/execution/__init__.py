"""One function over the parts of a large step: in this process, or as tasks of a Ray cluster.

Results come back to the caller, which alone writes to the home: workers need no shared folder.
Importing this loads no Ray.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pipelines.seams import EXECUTORS

if TYPE_CHECKING:
    from pipelines.config import ExecutionSettings

__all__ = ["Executor", "LocalExecutor", "Work", "open_executor"]

Part = TypeVar("Part", contravariant=True)
Result = TypeVar("Result", covariant=True)
P = TypeVar("P")
R = TypeVar("R")


class Work(Protocol[Part, Result]):
    """Picklable function of a part; a worker may keep what it opened for the next part."""

    def __call__(self, part: Part, /) -> Result:
        """Compute a part; picklable."""
        ...

    def versions(self) -> Mapping[str, Any]:
        """What driver and workers must have in common, by name: versions of the code (JSON)."""
        ...


class Executor(Protocol):
    """Maps work over parts."""

    name: str

    def map(self, work: Work[P, R], parts: Iterable[P]) -> Iterator[R]:
        """Results of the parts, in their order; parts are drawn some ahead of the results.

        Closing the iterator ends what is running.

        Raises
        ------
        ConfigError
            If workers are of another version than this process, or can't load the work; before the
            first part.
        EngineError
            If there are no workers, or a part's workers died as often as settings allow.
        UnderstudyError
            What the work raised.
        """
        ...

    def close(self) -> None:
        """End workers that it started."""
        ...


class LocalExecutor:
    """One part after another in this process."""

    name = "local"

    def __init__(self, settings: ExecutionSettings | None = None) -> None:
        pass

    def map(self, work: Callable[[P], R], parts: Iterable[P]) -> Iterator[R]:
        """See :class:`Executor`."""
        return map(work, parts)

    def close(self) -> None:
        """Do nothing: there are no workers."""


def open_executor(settings: ExecutionSettings) -> Executor:
    """The executor that the settings name; to be closed.

    Raises
    ------
    ConfigError
        If there is none of that name (naming the nearest), it is no class with the methods of
        :class:`Executor`, or its cluster can't be reached.
    MissingPackageError
        If its package is not installed.
    """
    executor: Executor = EXECUTORS.open(settings.executor, settings=settings)
    return executor
