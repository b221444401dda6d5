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
from sim._release import Release
from sim.dialogue._lifetimes import Lifetimes
from sim.dialogue._protocol import Customer
from sim.dialogue._sessions import Rules, Session, opened
from sim.dialogue._world import DialogueWorld

__all__ = ["ShoppingTools", "shelf_text", "tasks"]

#: Longest question (characters); the rest is cut off.
_QUESTION = 500
_PROMPT = (
    "You are a shop assistant. A customer wants to buy one product from the shelf, and you are "
    "the one who chooses it: the product that this customer would like most. Find out with the "
    "tool `ask` what the customer wishes, at most {questions} times per shelf, then call "
    "`recommend` once with the number of a product. {episodes}"
)


def tasks(world: DialogueWorld, seeds: Sequence[int], rules: Rules) -> Iterator[dict[str, Any]]:
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
        world,
        seeds,
        setting=rules.setting,
        cell=rules.cell,
        episodes=rules.episodes,
        min_best=rules.min_best,
    )
    several = f"There are {rules.episodes} shelves, one after the other." * (rules.episodes > 1)
    content = _PROMPT.format(questions=rules.max_questions, episodes=several).rstrip()
    for seed in seeds:
        task = orjson.dumps([1, world.reference, int(seed), asdict(rules)])
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
    world
        An opened ``sim.dialogue.DialogueWorld``, to share it between instances, in place of both.
    customer
        ``"statistical"``, or an object as ``sim.dialogue.Customer``.
    """

    def __init__(
        self,
        release: Release | Path | str = "products@latest",
        *,
        home: Path | str | None = None,
        world: DialogueWorld | None = None,
        customer: str | Customer = "statistical",
    ) -> None:
        self._world, self._customer = opened(world, customer, release, home)
        self._session: Session | None = None

    def reset(self, **row: Any) -> str:
        """Start the lifetime of a row of `tasks`, and return the first shelf as text.

        Raises
        ------
        ConfigError
            If the row has no valid ``task``.
        ReleaseError
            If the task is of another release.
        """
        seed, rules = _read_task(row.get("task"), self._world)
        self._session = Session(self._world, self._customer, rules, seed)
        return "\n\n" + shelf_text(self._session)

    def ask(self, question: str) -> str:
        """Ask the customer one question about their wishes, needs or habits.

        Args:
            question: One short question in words.

        Returns:
            The customer's answer.
        """
        session = self._going_on()
        if session.dialogue.questions_left <= 0:
            raise ValueError("no questions are left: recommend a product")
        text = one_line(question)[:_QUESTION] if isinstance(question, str) else ""
        if not text:
            raise ValueError("the question is empty")
        return session.ask(text)

    def recommend(self, product: int) -> str:
        """Recommend one product of the shelf; this ends the visit.

        Args:
            product: Number of the product on the shelf, from 1.

        Returns:
            The customer's feedback, and the next shelf if there is one.
        """
        session = self._going_on()
        is_number = isinstance(product, int | np.integer) and not isinstance(product, bool)
        number = int(product) if is_number else 0
        count = len(session.episode.shelf)
        if not 1 <= number <= count:
            raise ValueError(f"{product!r} is no product: a whole number from 1 to {count}")
        comment = session.sell(number - 1).comment
        reply = f"Customer: {comment.text}\n\n" if comment is not None else ""
        return reply + ("The shop is closed." if session.over else shelf_text(session))

    def get_reward(self) -> float:
        """Mean of y_r/y* over the episodes of the lifetime, 0 where nothing was sold; 0-1."""
        if self._session is None:
            return 0.0
        shares = [float(e.y[e.sold] / e.best) for e in self._session.ended]
        return sum(shares) / self._session.rules.episodes

    def _going_on(self) -> Session:
        if self._session is None:
            raise ValueError("reset() comes first")
        if self._session.over:
            raise ValueError("the shop is closed: nothing more can be asked or recommended")
        return self._session


def shelf_text(session: Session) -> str:
    """Customer and numbered products of the present episode, as text."""
    shelf, dialogue = session.episode.shelf, session.dialogue
    products = [
        ShelfProduct(
            place, shelf.titles[n], price=_known(shelf.price[n]), rating=_known(shelf.rating[n])
        )
        for place, n in enumerate(dialogue.order.tolist(), 1)
    ]
    block = shelf_block(shelf.name, products)
    return f"You are serving customer {dialogue.customer + 1}.\n{block}"


def _known(value: np.float32) -> float | None:
    return None if np.isnan(value) else float(value)


def _read_task(task: Any, world: DialogueWorld) -> tuple[int, Rules]:
    try:
        version, reference, seed, rules = orjson.loads(base64.urlsafe_b64decode(task))
        if version != 1:
            raise ValueError(version)
        parsed = int(seed), Rules(**rules)
    except (TypeError, ValueError, binascii.Error) as error:
        raise ConfigError(
            "the row has no valid task", where="ShoppingTools.reset", hint="rows of `tasks`"
        ) from error
    if reference != world.reference:
        raise ReleaseError(
            f"the task is of the release {reference or 'of a generated world'}",
            where=f"ShoppingTools.reset, release {world.reference or 'of a generated world'}",
            hint="open that release",
        )
    return parsed
