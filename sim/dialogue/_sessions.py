"""Lifetimes whose agent is outside the program: of environments, tools and a person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipelines.errors import AnswerError, ConfigError, ReleaseError
from pipelines.hints import nearest
from sim._release import Release, open_release
from sim.dialogue._feedback import tone_of
from sim.dialogue._lifetimes import CELLS, SETTINGS, Cell, Lifetimes, Setting
from sim.dialogue._protocol import (
    FEEDBACK,
    MAX_QUESTIONS,
    OK,
    UNMATCHED,
    Action,
    Answer,
    Customer,
    Dialogue,
    Feedback,
    Turn,
)
from sim.dialogue._shop import Episode, run_dialogues, step
from sim.dialogue._world import MIN_BEST, DialogueWorld
from sim.dialogue.customers import open_customer

#: Facets and products of a choice set at most (count).
MAX_FACETS, MAX_PRODUCTS = 30, 50
#: Answer to a facet that was not asked about.
NOT_ASKED = -3


@dataclass(frozen=True)
class Rules:
    """Settings of a lifetime; ConfigError if one is out of range."""

    #: Setting as in ``Lifetimes.draw``.
    setting: Setting = "customer"
    cell: Cell = "unseen/seen"
    episodes: int = 1
    #: One of `FEEDBACK`.
    feedback: Feedback = "text"
    #: Questions of an episode at most (count).
    max_questions: int = MAX_QUESTIONS
    #: Points per question in rewards; never in regret.
    question_cost: float = 0.0
    #: Best score below which a customer does not shop in a category (points).
    min_best: float = MIN_BEST

    def __post_init__(self) -> None:
        for name, allowed in (("setting", SETTINGS), ("cell", CELLS), ("feedback", FEEDBACK)):
            value = getattr(self, name)
            if value not in allowed:
                hint = nearest(value, allowed)
                raise ConfigError(f"{name} is {value!r}", where="dialogue", hint=hint)
        for name, low in (
            ("episodes", 1),
            ("max_questions", 0),
            ("question_cost", 0),
            ("min_best", 0),
        ):
            value = getattr(self, name)
            if not low <= value < float("inf"):
                raise ConfigError(f"{name} is {value}", where="dialogue", hint=f"at least {low}")


def opened(
    world: DialogueWorld | None,
    customer: str | Customer,
    release: Release | Path | str = "products@latest",
    home: Path | str | None = None,
) -> tuple[DialogueWorld, Customer]:
    """A world, of a release unless it is given, and a customer that is opened on it.

    Raises ReleaseError if a choice set has more than 50 products or 30 facets.
    """
    if world is None:
        if not isinstance(release, Release):
            release = open_release(release, home=home)
        world = DialogueWorld.open(release)
    for shelf in world.sets:
        for what, count, limit in (
            ("products", len(shelf), MAX_PRODUCTS),
            ("facets", len(shelf.facets), MAX_FACETS),
        ):
            if count > limit:
                raise ReleaseError(
                    f"a choice set has {count} {what}, dialogues allow {limit}",
                    where=f"{world.reference or 'world'}, category {shelf.category_id}",
                    hint="build the products again",
                )
    shopper = open_customer(customer) if isinstance(customer, str) else customer
    shopper.open(world, 0)
    return world, shopper


class Session:
    """A lifetime that goes on with every action of :func:`advance`; it depends on its seed alone.

    ``customer`` is opened on the world.
    """

    def __init__(self, world: DialogueWorld, customer: Customer, rules: Rules, seed: int) -> None:
        self.world, self.customer, self.rules, self.seed = world, customer, rules, seed
        self._lifetime = Lifetimes.draw(
            world,
            [seed],
            setting=rules.setting,
            cell=rules.cell,
            episodes=rules.episodes,
            min_best=rules.min_best,
        )
        #: Present episode, or the last one; and the episodes that have ended.
        self.episode = self._begin(0)
        self.ended: list[Episode] = []

    @property
    def over(self) -> bool:
        """Whether the lifetime has ended."""
        return len(self.ended) == self.rules.episodes

    @property
    def dialogue(self) -> Dialogue:
        """Dialogue of the present episode."""
        return self.episode.dialogue

    @property
    def feedback(self) -> float:
        """Feedback on the last episode as a number; -1 without one.

        Regret (points), stars (0-5), or tone of the text (0 delighted, 3 disappointed).
        """
        last, form = (self.ended[-1] if self.ended else None), self.rules.feedback
        if last is None or last.sold < 0 or form == "none":
            return -1.0
        if form == "stars":
            return float(last.stars)
        return float(last.regret if form == "regret" else tone_of(last.regret))

    @property
    def answers(self) -> npt.NDArray[np.int8]:
        """Last answer by facet, `NOT_ASKED` where there is none, of shape (30,)."""
        out = np.full(MAX_FACETS, NOT_ASKED, np.int8)
        for answer in (turn.answer for turn in self.dialogue.turns):
            if answer.facet >= 0:
                out[answer.facet] = answer.value
        return out

    @property
    def products(self) -> npt.NDArray[np.int8]:
        """Values by number in the dialogue and facet, of shape (50, 30).

        -1: the product has no value of the facet; -2: there is no such product or facet.
        """
        out = np.full((MAX_PRODUCTS, MAX_FACETS), -2, np.int8)
        shelf = self.episode.shelf
        for n, facet in enumerate(shelf.facets):
            out[: len(shelf), n] = facet.of[self.dialogue.order]
        return out

    @property
    def allowed(self) -> npt.NDArray[np.bool_]:
        """Facets that can be asked about and products that can be sold, of shape (80,)."""
        out = np.zeros(MAX_FACETS + MAX_PRODUCTS, np.bool_)
        shelf = self.episode.shelf
        if self.dialogue.questions_left > 0:
            out[: len(shelf.facets)] = self.answers[: len(shelf.facets)] == NOT_ASKED
        out[MAX_FACETS : MAX_FACETS + len(shelf)] = True
        return out

    def ask(self, text: str) -> str:
        """Ask a question in words, and return the answer; raises as :func:`advance`."""
        advance([self], [Action(ask=True, text=text)])
        return self.dialogue.turns[-1].words[1]

    def sell(self, number: int) -> Episode:
        """Sell a product by its number in the dialogue; raises as :func:`advance`."""
        advance([self], [Action(product=number)])
        return self.ended[-1]

    def waste(self) -> None:
        """Use up a question that can't be asked, such as one about a facet that is not there."""
        self.dialogue.turns.append(Turn(Action(ask=True), Answer(value=UNMATCHED), ("", "")))

    async def act(self, action: Action) -> None:
        """Do an action of the agent; an impossible one ends the episode with nothing sold."""
        episode = self.episode
        await step(episode, action, self.customer, self.rules.feedback)
        if episode.status != OK and episode.fault != "agent":
            status, episode.status = episode.status, OK
            if episode.fault == "answer":
                episode.dialogue.turns.pop()
            episode.sold, episode.comment = -1, None
            raise AnswerError(
                f"the customer's reply {status}",
                where=f"lifetime {self.seed}, episode {episode.dialogue.episode}",
                hint="reset, or use another customer",
            )
        if episode.over:
            self.ended.append(episode)
            if not self.over:
                self.episode = self._begin(len(self.ended))

    def _begin(self, number: int) -> Episode:
        # A policy could remember a few orders.
        limit = self.rules.max_questions
        return Episode.begin(
            self.world, self._lifetime, 0, number, orders=None, max_questions=limit
        )


def advance(sessions: Sequence[Session], actions: Sequence[Action]) -> None:
    """Do an action in each of some lifetimes that are not over; customers answer in batches.

    Raises AnswerError if a customer's reply failed or leaked; nothing has changed in that lifetime.
    """
    run_dialogues(session.act(action) for session, action in zip(sessions, actions, strict=True))
