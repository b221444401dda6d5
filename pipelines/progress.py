"""How far the work of a run has come: whoever started it listens, and nothing is handed down.

Work says ``advance("embedding", 64, 300)`` wherever it is; a command or a run listens with
``with listening(bar):``. Nobody has to listen. The listener belongs to the context of the caller
(:mod:`contextvars`): tasks inherit it, threads only with a copy of the context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

#: Called with a step's name, the units done and, where it is known, the total.
Listener: TypeAlias = Callable[[str, int, int | None], object]

_T = TypeVar("_T")
_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


def advance(step: str, done: int = 0, total: int | None = None) -> None:
    """Say how far a step has come (units); ``total`` is None where it is not known.

    >>> with listening(print):
    ...     advance("reading ratings.csv", 3, 10)
    reading ratings.csv 3 10
    >>> advance("reading ratings.csv", 4, 10)
    """
    listener = _LISTENER.get()
    if listener is not None:
        listener(step, done, total)


def listened() -> bool:
    """Return True if a listener is set."""
    return _LISTENER.get() is not None


@contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Let ``listener`` hear what the work inside says, in place of whoever listens outside.

    None lets nobody hear it.
    """
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


@contextmanager
def within(step: str | None = None, *, before: int = 0, total: int | None = None) -> Iterator[None]:
    """Let what the work inside says be heard as a part of a larger step.

    ``before`` units of ``total`` were done before it; ``step`` is the name of the whole.

    >>> with listening(print), within("all seeds", before=10, total=20):
    ...     advance("training", 5, 10)
    all seeds 15 20
    """
    outer = _LISTENER.get()

    def listener(inner: str, done: int, of: int | None) -> None:
        if outer is not None:
            outer(step or inner, before + done, of if total is None else total)

    with listening(None if outer is None else listener):
        yield


def heard(items: Iterable[_T], listener: Listener) -> Iterator[_T]:
    """The items, of which ``listener`` hears what is said while each is made.

    What the listener says itself is heard by whoever listens outside. A generator that listens
    itself would still listen while its caller works.

    >>> def answers():
    ...     advance("answers", 6)
    ...     yield "ok"
    >>> with listening(print):
    ...     list(heard(answers(), lambda _, done, total: advance("pairs", done // 2, 9)))
    pairs 3 9
    ['ok']
    """
    source, outer = iter(items), _LISTENER.get()

    def outside(step: str, done: int, total: int | None) -> None:
        with listening(outer):
            listener(step, done, total)

    while True:
        with listening(outside):
            try:
                item = next(source)
            except StopIteration:
                return
        yield item


@dataclass
class _Count:
    step: str
    total: int | None
    done: int = 0


_COUNT: ContextVar[_Count | None] = ContextVar("count", default=None)


@contextmanager
def counting(step: str, total: int | None = None) -> Iterator[None]:
    """Begin a step whose units are told one by one, with :func:`add`."""
    token = _COUNT.set(_Count(step, total))
    try:
        advance(step, 0, total)
        yield
    finally:
        _COUNT.reset(token)


def add(units: int = 1) -> None:
    """Say that so many more units of the step of :func:`counting` are done.

    >>> with listening(print), counting("verifying", 30):
    ...     add(10)
    ...     add(20)
    verifying 0 30
    verifying 10 30
    verifying 30 30
    """
    count = _COUNT.get()
    if count is not None:
        count.done += units
        advance(count.step, count.done, count.total)


_STOP: ContextVar[Callable[[], bool] | None] = ContextVar("stop", default=None)


@contextmanager
def stoppable(asked: Callable[[], bool]) -> Iterator[None]:
    """Let work inside that can stop early ask whether it should; ``asked`` answers."""
    token = _STOP.set(asked)
    try:
        yield
    finally:
        _STOP.reset(token)


def stopping() -> bool:
    """Return True if the work should store what it has and stop."""
    stop = _STOP.get()
    return stop is not None and stop()
