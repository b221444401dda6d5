"""Coroutines that wait for batches of replies: visits of agents and shopping dialogues."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def run_all(
    coroutines: Iterable[Coroutine[Any, Any, T]],
    group: Callable[[Any], Hashable],
    answer: Callable[[Any, list[Any]], Sequence[Any]],
) -> list[T]:
    """Run coroutines to their end and return their results, in order.

    Whenever all of them wait, the largest group of questions is answered: those who wait for
    another group meet those who come to it, so that batches stay as large as the run.

    Parameters
    ----------
    coroutines
        They await questions and get replies.
    group
        Group of a question: those of one group are answered together.
    answer
        Called with a group and its questions; returns a reply for each, in order.
    """
    running: list[Coroutine[Any, Any, T]] = []
    results: dict[int, T] = {}
    waiting: dict[int, Any] = {}

    def resume(number: int, reply: Any) -> None:
        try:
            waiting[number] = running[number].send(reply)
        except StopIteration as end:
            results[number] = end.value

    for number, coroutine in enumerate(coroutines):
        running.append(coroutine)
        resume(number, None)
    while waiting:
        groups: defaultdict[Hashable, list[int]] = defaultdict(list)
        for number in sorted(waiting):
            groups[group(waiting[number])].append(number)
        key, numbers = max(groups.items(), key=lambda pair: len(pair[1]))
        replies = answer(key, [waiting.pop(number) for number in numbers])
        for number, reply in zip(numbers, replies, strict=True):
            resume(number, reply)
    return [results[number] for number in range(len(running))]
