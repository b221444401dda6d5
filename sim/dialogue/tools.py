"""Tools of a selling agent, for post-training libraries; and the tasks that they are given.

:class:`ShoppingTools` follows the contract of TRL's ``environment_factory`` and needs nothing of
TRL. docs/dialogue.md shows it there, in verifiers and in inspect_ai.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from pipelines.errors import ConfigError, ReleaseError
from pipelines.prompts import ShelfProduct, one_line, shelf_block
from sim._release import Release, open_release
from sim.dialogue._book import Book
from sim.dialogue._lifetimes import Lifetimes
from sim.dialogue._protocol import Customer
from sim.dialogue._sessions import Rules, Sessions
from sim.dialogue.customers import open_customer

__all__ = ["ShoppingTools", "shelf_text", "tasks"]

_ROW = np.zeros(1, np.int64)
#: Longest question (characters); the rest is cut off.
_QUESTION = 500
_PROMPT = (
    "You are a shop assistant. A customer wants to buy one product from the shelf, and you are "
    "the one who chooses it: the product that this customer would like most. Find out with the "
    "tool `ask` what the customer wishes, at most {questions} times per shelf, then call "
    "`recommend` once with the number of a product. {episodes}"
)


def tasks(book: Book, seeds: Sequence[int], rules: Rules) -> Iterator[dict[str, Any]]:
    """Rows of a data set for post-training, one per lifetime.

    Returns
    -------
    ``prompt`` (chat messages) and ``task`` (opaque: the lifetime for ``ShoppingTools.reset``).

    Raises
    ------
    ConfigError
        If the cell has too few customers or choice sets for the lifetimes.
    """
    Lifetimes.draw(
        book,
        seeds,
        setting=rules.setting,
        cell=rules.cell,
        episodes=rules.episodes,
        min_best=rules.min_best,
    )
    several = f"There are {rules.episodes} shelves, one after the other." * (rules.episodes > 1)
    content = _PROMPT.format(questions=rules.max_questions, episodes=several).rstrip()
    for seed in seeds:
        task = orjson.dumps([1, book.reference, int(seed), asdict(rules)])
        yield {
            "prompt": [{"role": "user", "content": content}],
            "task": base64.urlsafe_b64encode(task).decode(),
        }


class ShoppingTools:
    """A lifetime of shopping dialogues as two tools, `ask` and `recommend`.

    TRL makes every public method but `reset` and `get_reward` a tool of the model, so that there
    are no others. Products are numbered from 1.

    Parameters
    ----------
    release
        A ``sim.Release``, or a reference such as ``"products@latest"``.
    home
        The store's folder for a reference.
    book
        An opened ``sim.dialogue.Book``, to share it between instances, in place of both.
    customer
        ``"statistical"``, or an object as ``sim.dialogue.Customer``.
    """

    def __init__(
        self,
        release: Release | Path | str = "products@latest",
        *,
        home: Path | str | None = None,
        book: Book | None = None,
        customer: str | Customer = "statistical",
    ) -> None:
        if book is None:
            if not isinstance(release, Release):
                release = open_release(release, home=home)
            book = Book.open(release)
        self._book = book
        self._customer = open_customer(customer) if isinstance(customer, str) else customer
        self._customer.open(book, 0)
        self._sessions: Sessions | None = None
        self._shares: list[float] = []

    def reset(self, **row: Any) -> str:
        """Start the lifetime of a row of `tasks`, and return the first shelf as text.

        Raises
        ------
        ConfigError
            If the row has no valid ``task``.
        ReleaseError
            If the task is of another release.
        """
        seed, rules = _read_task(row.get("task"), self._book)
        self._sessions = Sessions(self._book, self._customer, 1, rules)
        self._sessions.begin(_ROW, np.array([seed]))
        self._shares = []
        return "\n\n" + shelf_text(self._sessions)

    def ask(self, question: str) -> str:
        """Ask the customer one question about their wishes, needs or habits.

        Args:
            question: One short question in words.

        Returns:
            The customer's answer.
        """
        sessions = self._going_on()
        if sessions.questions_left[0] <= 0:
            raise ValueError("no questions are left: recommend a product")
        text = one_line(question)[:_QUESTION] if isinstance(question, str) else ""
        if not text:
            raise ValueError("the question is empty")
        return str(sessions.ask(_ROW, np.array([-1]), np.array([text], dtype=object))[0])

    def recommend(self, product: int) -> str:
        """Recommend one product of the shelf; this ends the visit.

        Args:
            product: Number of the product on the shelf, from 1.

        Returns:
            The customer's feedback, and the next shelf if there is one.
        """
        sessions = self._going_on()
        is_number = isinstance(product, int | np.integer) and not isinstance(product, bool)
        number = int(product) if is_number else 0
        count = int((sessions.order[0] >= 0).sum())
        if not 1 <= number <= count:
            raise ValueError(f"{product!r} is no product: a whole number from 1 to {count}")
        ends = sessions.sell(_ROW, np.array([number - 1]))
        self._shares.append(float(ends.score[0] / ends.best[0]))
        reply = f"Customer: {ends.text[0]}\n\n" if ends.text[0] else ""
        return reply + ("The shop is closed." if sessions.over[0] else shelf_text(sessions))

    def get_reward(self) -> float:
        """Mean of y_r/y* over the episodes of the lifetime, 0 where nothing was sold; 0-1."""
        if self._sessions is None:
            return 0.0
        return sum(self._shares) / self._sessions.rules.episodes

    def _going_on(self) -> Sessions:
        if self._sessions is None:
            raise ValueError("reset() comes first")
        if self._sessions.over[0]:
            raise ValueError("the shop is closed: nothing more can be asked or recommended")
        return self._sessions


def shelf_text(sessions: Sessions) -> str:
    """Customer and numbered products of the first lifetime's current episode, as text."""
    shelf = sessions.book.sets[int(sessions.now(np.array([0]))[0])]
    numbers = sessions.order[0][sessions.order[0] >= 0].tolist()
    products = [
        ShelfProduct(
            place, shelf.titles[n], price=_known(shelf.price[n]), rating=_known(shelf.rating[n])
        )
        for place, n in enumerate(numbers, 1)
    ]
    label = int(sessions.labels[0, sessions.episode[0]]) + 1
    return f"You are serving customer {label}.\n{shelf_block(shelf.name, products)}"


def _known(value: np.float32) -> float | None:
    return None if np.isnan(value) else float(value)


def _read_task(task: Any, book: Book) -> tuple[int, Rules]:
    try:
        version, reference, seed, rules = orjson.loads(base64.urlsafe_b64decode(task))
        if version != 1:
            raise ValueError(version)
        parsed = int(seed), Rules(**rules)
    except (TypeError, ValueError, binascii.Error) as error:
        raise ConfigError(
            "the row has no valid task", where="ShoppingTools.reset", hint="rows of `tasks`"
        ) from error
    if reference != book.reference:
        raise ReleaseError(
            f"the task is of the release {reference or 'of a generated book'}",
            where=f"ShoppingTools.reset, release {book.reference or 'of a generated book'}",
            hint="open that release",
        )
    return parsed
