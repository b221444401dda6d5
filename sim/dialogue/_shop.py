"""An episode: questions to a customer, one recommendation, and the customer's comment."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from sim._scheduler import run_all
from sim.dialogue._feedback import stars_of
from sim.dialogue._lifetimes import ORDERS, Lifetimes, product_order
from sim.dialogue._protocol import (
    FAILED,
    OK,
    Action,
    Agent,
    Batched,
    Comment,
    Customer,
    Dialogue,
    Feedback,
    Outcome,
    PastEpisode,
    Question,
    Reply,
    Sale,
    Turn,
)
from sim.dialogue._world import ChoiceSet, DialogueWorld, Floats

T = TypeVar("T")


@dataclass(eq=False)
class Episode:
    """A dialogue with what its agent does not see: the customer's persona and scores."""

    dialogue: Dialogue
    shelf: ChoiceSet
    persona: int
    #: Scores of shape (products,).
    y: Floats
    #: Last action, sold product as a number of the choice set, and the customer's comment.
    action: Action | None = None
    sold: int = -1
    comment: Comment | None = None
    #: Status, and where it is not `ok` the speaker at fault: ``agent``, ``answer``, ``feedback``.
    status: str = OK
    fault: str | None = None
    #: Recommendations probed after questions, with the number of those.
    probes: list[tuple[int, Action]] = field(default_factory=list)
    #: Tokens of both sides, and most past episodes that a prompt left out (counts).
    tokens: int = 0
    forgotten: int = 0

    @classmethod
    def begin(
        cls,
        world: DialogueWorld,
        lifetimes: Lifetimes,
        row: int,
        number: int,
        *,
        orders: int | None = ORDERS,
        **options: Any,
    ) -> Episode:
        """Begin an episode of a lifetime; options are fields of :class:`Dialogue`.

        ``orders``: as of :func:`product_order`.
        """
        chosen, persona = int(lifetimes.sets[row, number]), int(lifetimes.personas[row, number])
        seed, shelf = int(lifetimes.seeds[row]), world.sets[chosen]
        dialogue = Dialogue(
            chosen,
            int(lifetimes.customers[row, number]),
            product_order(world, seed, number, chosen, orders=orders),
            lifetime=seed,
            episode=number,
            **options,
        )
        return cls(dialogue, shelf, persona, shelf.y[persona])

    @cached_property
    def best(self) -> np.float32:
        """Best score of the choice set."""
        return np.float32(self.y.max())

    @property
    def regret(self) -> np.float32:
        """Best score minus that of the sold product (points)."""
        return np.float32(self.best - self.y[self.sold])

    @property
    def stars(self) -> int:
        """Stars of the sold product (0-5)."""
        return int(stars_of(self.y[self.sold], self.best))

    @property
    def over(self) -> bool:
        """Whether a product was sold or a reply could not be used."""
        return self.sold >= 0 or self.status != OK

    def product(self, action: Action) -> int:
        """Product of an action as a number of the choice set; -1 where out of range."""
        inside = 0 <= action.product < len(self.shelf)
        return int(self.dialogue.order[action.product]) if inside else -1

    def possible(self, action: Action, dialogue: Dialogue) -> bool:
        """Whether the choice set has the facet or product, and questions are left."""
        if not action.ask:
            return 0 <= action.product < len(self.shelf)
        named = action.facet >= 0 or (action.facet == -1 and bool(action.text))
        return dialogue.questions_left > 0 and named and action.facet < len(self.shelf.facets)

    def note(self, speaker: str, reply: Reply, status: str | None = None) -> None:
        """Count a reply, and end the episode if it can't be used."""
        self.tokens += reply.tokens
        status = status or reply.status
        if status != OK:
            self.status, self.fault = status, speaker

    def outcome(self, form: Feedback) -> Outcome:
        """The end as its agent learns of it."""
        text = self.comment.text if self.comment is not None else None
        return Outcome(
            self.dialogue,
            self.sold,
            regret=float(self.regret) if form == "regret" else None,
            stars=self.stars if form == "stars" else None,
            text=text if form == "text" else None,
        )

    def remembered(self) -> PastEpisode:
        """The episode as later prompts show it."""
        ok = self.status == OK
        return PastEpisode(
            episode=self.dialogue.episode,
            category=self.shelf.name,
            customer=f"customer {self.dialogue.customer + 1}",
            turns=self.dialogue.transcript,
            sold=self.shelf.titles[self.sold] if ok else None,
            feedback=(self.comment.text or "") if ok and self.comment is not None else "",
        )


async def shop(
    episode: Episode, agent: Agent, customer: Customer, form: Feedback, *, probed: bool = False
) -> None:
    """Play an episode to its end.

    ``probed``: what the agent would sell after each question is noted; it enters no history.
    """
    dialogue = episode.dialogue
    while not episode.over:
        if probed and dialogue.turns:
            last = dialogue.last_turn()
            probe = await agent.act(last)
            episode.tokens += probe.tokens
            if probe.status == OK and not probe.ask and episode.possible(probe, last):
                episode.probes.append((len(dialogue.turns), probe))
        action = await agent.act(dialogue)
        episode.forgotten = max(episode.forgotten, action.forgotten)
        await step(episode, action, customer, form)


async def step(episode: Episode, action: Action, customer: Customer, form: Feedback) -> None:
    """Put a question to the customer, or sell a product to them."""
    dialogue = episode.dialogue
    episode.action = action
    impossible = action.status == OK and not episode.possible(action, dialogue)
    episode.note("agent", action, FAILED if impossible else None)
    if episode.status != OK:
        return
    if action.ask:
        question = Question(dialogue, episode.persona, action.facet, action.text)
        answer = await customer.answer(question)
        dialogue.turns.append(Turn.of(episode.shelf, action, answer))
        episode.note("answer", answer)
        return
    episode.sold = episode.product(action)
    if form == "text":
        sale = Sale(dialogue, episode.persona, episode.sold, episode.y)
        episode.comment = await customer.feedback(sale)
        episode.note("feedback", episode.comment)
    elif form == "regret":
        episode.comment = Comment(text=f"Regret: {episode.regret:.1f} points.")
    elif form == "stars":
        episode.comment = Comment(text=f"{episode.stars} of 5 stars.")


def run_dialogues(coroutines: Iterable[Coroutine[Batched, Any, T]]) -> list[T]:
    """Run coroutines of dialogues to their end; what they await is answered in batches."""
    return run_all(
        coroutines,
        lambda item: item.answer,
        lambda answer, items: answer([item.item for item in items]),
    )
