"""Agents that a language model plays (BIEL, figures 9 and 12-16)."""

from __future__ import annotations

import math
from functools import cache, partial
from pathlib import PurePath
from typing import Any, ClassVar, Literal

import numpy as np

from pipelines.errors import ConfigError
from pipelines.llm.engines import Choice, Message
from pipelines.llm.grammars import Grammar, dialogue_action, dialogue_percentages, dialogue_text
from pipelines.llm.session import ModelSession
from pipelines.prompts import (
    DIALOGUE_CLAIMS,
    DIALOGUE_STRATEGIES,
    ShelfProduct,
    dialogue_agent_messages,
    dialogue_summary_messages,
    past_block,
    shelf_block,
)
from pipelines.seeding import hash_text
from sim.dialogue._asking import DialogueModel, Journal, Prompt, person_lines, seed_of
from sim.dialogue._protocol import OK, Action, Dialogue, Outcome, PastEpisode
from sim.dialogue._world import DialogueWorld, Ints

__all__ = ["CONTEXTS", "ModelAgent"]

Context = Literal["raw", "summary", "off"]
#: What an agent is shown of past episodes: their dialogues, its summaries of them, or nothing.
CONTEXTS: tuple[Context, ...] = ("raw", "summary", "off")
#: Ways of asking for confidences: P(yes) of a choice for each claim, stated percentages, or both.
_CONFIDENCES = ("none", "choice", "stated", "both")
_ACT, _SUMMARY = 221, 222
#: Tokens kept free for the fault that is named when a prompt is asked again.
_MARGIN = 64
#: Words of a product's text in the shelf, and shelves that are kept rendered (count).
_WORDS, _SHELVES = 12, 4096

# Grammars that many dialogues share.
_action = cache(dialogue_action)
_summary = cache(lambda: dialogue_text("summary"))
_stated = cache(lambda: dialogue_percentages(tuple(DIALOGUE_CLAIMS)))
_numbers = cache(lambda size: Choice(tuple(str(number + 1) for number in range(size))))
_yes_no = Choice(("yes", "no"))


class ModelAgent(DialogueModel):
    """Asks or recommends with a language model.

    A reply is ``QUESTION: …`` or ``RECOMMEND: number``. The product that is sold is the most
    probable one of a `Choice` over the numbers, whose whole distribution is kept; a number in the
    reply means only that the agent wants to sell. Where it must sell, the `Choice` alone is
    asked. A reply that can't be used is asked once more with the fault named, then the action is
    `FAILED`. It keeps no state but its summaries: past episodes are those of the dialogue.

    Where it must ask (planning protocol) it asks without stopping. A probe is a turn without
    questions left, which no later prompt shows.

    Parameters
    ----------
    settings, engine, session, temperature, min_p, repetition_penalty
        As of :class:`sim.dialogue._asking.DialogueModel`.
    strategy
        One of ``base, greedy, dp, cot, oracle``; None: the class's own.
    context
        `raw`: past dialogues with sale and feedback; `summary`: a summary that the agent wrote of
        each (figure 13); `off`. Prompts longer than the model's context lose the oldest episodes
        first, counted in ``Action.forgotten``.
    ask_freely
        Leave out the sentence of figure 12 that asks for few questions.
    confidences
        How the six confidences of a recommendation or probe are asked for: `none`, `choice` (P(yes)
        for each claim), `stated` (percentages in one reply) or `both`.
    words
        Words of a product's text that are shown (count).

    Raises
    ------
    ConfigError
        If an option is unknown, or the model scored the world that it is an oracle for.
    """

    strategy: ClassVar[str] = "base"
    context: ClassVar[Context] = "raw"

    def __init__(
        self,
        settings: Any = None,
        *,
        engine: Any = None,
        session: ModelSession | None = None,
        strategy: str | None = None,
        context: Context | None = None,
        ask_freely: bool = False,
        confidences: Literal["none", "choice", "stated", "both"] = "none",
        words: int = _WORDS,
        temperature: float = 0.8,
        min_p: float = 0.1,
        repetition_penalty: float = 1.1,
    ) -> None:
        self._strategy = strategy or self.strategy
        self._context_form = context or self.context
        for option, value, allowed in (
            ("strategy", self._strategy, DIALOGUE_STRATEGIES),
            ("context", self._context_form, CONTEXTS),
            ("confidences", confidences, _CONFIDENCES),
        ):
            if value not in allowed:
                raise ConfigError(
                    f"unknown {option} {value!r}",
                    where="agent of a language model",
                    hint=f"one of {', '.join(allowed)}",
                )
        super().__init__(
            settings,
            engine=engine,
            session=session,
            temperature=temperature,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
        )
        self._confidences, self._text_words = confidences, words
        self._frugal = self._strategy in ("base", "cot") and not ask_freely
        self._shelves: dict[tuple[int, bytes], str] = {}

    @property
    def name(self) -> str:
        """``model-`` and the strategy; ``model-summary`` for summaries of the base strategy."""
        if (self._strategy, self._context_form) == ("base", "summary"):
            return "model-summary"
        suffix = "" if self._context_form == "raw" else f"-{self._context_form}"
        return f"model-{self._strategy}{suffix}"

    @property
    def privileged(self) -> bool:
        """Whether it reads personas: the oracle alone."""
        return self._strategy == "oracle"

    def open(self, world: DialogueWorld, seed: int) -> None:
        """Take in choice sets; see :class:`sim.dialogue.Agent`."""
        model = self._engine.identity.model
        # Settings name a model by folder or hub name, an engine by the last part of either.
        scored = {PurePath(rater).name for rater in world.raters}
        if self.privileged and PurePath(model).name in scored:
            raise ConfigError(
                f"the model {model} scored the products: its oracle would know the answers",
                where=world.reference or "world",
                hint="use a model outside the ensemble of raters",
            )
        self._world, self._seed = world, seed
        self._shelves.clear()

    def learn(self, outcome: Outcome) -> None:
        """Do nothing: past episodes are read from the dialogue."""

    def metadata(self) -> dict[str, Any]:
        """Model, prompts, sampling and options."""
        return {
            "agent": self.name,
            "strategy": self._strategy,
            "context": self._context_form,
            "frugal": self._frugal,
            "confidences": self._confidences,
            "words": self._text_words,
            "reads_order": True,
            **self.described(),
        }

    async def act(self, dialogue: Dialogue) -> Action:
        """Ask or recommend; see :class:`sim.dialogue.Agent`."""
        journal = Journal()
        past = await self._past(dialogue, journal)
        sells, thinks = dialogue.questions_left <= 0 or self.privileged, self._strategy == "cot"
        messages = partial(dialogue_agent_messages, self._strategy, **self._values(dialogue))
        forgotten = self._cut(dialogue, partial(messages, past=past), past, sells=sells)
        ask = self._asker(dialogue, partial(messages, past=past), journal)
        thought, question, shares = "", None, None
        if journal.status == OK and (thinks or not sells):
            may_sell, size = sells or not dialogue.forced, len(dialogue.order)
            grammar = _action(size, ask=not sells, sell=may_sell, thought=thinks)
            captures = await ask(grammar, ask=not sells, sell=may_sell)
            if captures is not None:
                question, thought = captures.get("question"), captures.get("thought", "")
        if question is None and journal.status == OK:
            numbers = _numbers(len(dialogue.order))
            shares = await ask(numbers, thought=thought, begun=self.begun)
        product = -1 if shares is None else int(shares.argmax())
        confidences = stated = None
        if product >= 0 and journal.status == OK:
            confidences, stated = await self._confident(
                dialogue, partial(messages, past=past, product=product + 1), journal
            )
        return Action(
            ask=question is not None,
            product=product,
            text=question,
            confidences=confidences,
            stated=stated,
            distribution=None if shares is None else shares.astype(np.float32),
            forgotten=forgotten,
            **journal.fields(),
        )

    def _prompt(self, dialogue: Dialogue, constraint: Grammar | Choice, messages: Any) -> Prompt:
        group = f"dialogue/{self._world.sets[dialogue.set].category_id}"
        seed = seed_of(dialogue.seed(), _ACT)
        return Prompt(lambda fault: messages(fault=fault), constraint, group, seed)

    def _asker(self, dialogue: Dialogue, messages: Any, journal: Journal) -> Any:
        """A function that asks under a constraint, with further values of the prompt."""
        return lambda constraint, **values: self.reply(
            self._prompt(dialogue, constraint, partial(messages, **values)), journal
        )

    def _values(self, dialogue: Dialogue) -> dict[str, Any]:
        """What all prompts of a turn show."""
        values: dict[str, Any] = {
            "shelf": self._shelf(dialogue.set, dialogue.order),
            "products": len(dialogue.order),
            "customer": f"customer {dialogue.customer + 1}",
            "said": dialogue.transcript,
            "frugal": self._frugal,
            "turns_left": dialogue.questions_left if self._strategy == "dp" else None,
        }
        if self.privileged:
            assert dialogue.persona is not None
            values["person"] = person_lines(self._world, dialogue.persona)
        return values

    def _cut(self, dialogue: Dialogue, messages: Any, past: list[str], *, sells: bool) -> int:
        """Leave out the oldest episodes until the longest prompt fits; how many went."""
        grammar = _action(len(dialogue.order), thought=self._strategy == "cot")
        room = 8 if sells and self._strategy != "cot" else self.longest(grammar)
        if self._confidences in ("stated", "both"):
            room = max(room, self.longest(_stated()))
        before = len(past)
        while past and not self.fits(messages(), room + _MARGIN):
            del past[0]
        return before - len(past)

    async def _confident(
        self, dialogue: Dialogue, messages: Any, journal: Journal
    ) -> tuple[list[float] | None, list[float] | None]:
        """Six confidences by P(yes) and as stated; None where not asked for."""
        form = self._confidences
        names = list(DIALOGUE_CLAIMS)
        claims: list[str | None] = [*names] if form in ("choice", "both") else []
        claims += [None] if form in ("stated", "both") else []
        replies = await self.replies(
            [
                self._prompt(
                    dialogue,
                    _stated() if claim is None else _yes_no,
                    partial(messages, claim=claim),
                )
                for claim in claims
            ],
            journal,
        )
        by_claim = dict(zip(claims, replies, strict=True))
        believed = [
            math.nan if reply is None else float(reply[0])
            for claim, reply in by_claim.items()
            if claim is not None
        ]
        percents = by_claim.get(None)
        stated = None if percents is None else [int(percents[name]) / 100 for name in names]
        return believed or None, stated

    async def _past(self, dialogue: Dialogue, journal: Journal) -> list[str]:
        """Blocks about past episodes, oldest first; summaries are kept in the memory."""
        if self._context_form == "off" or self.privileged:
            return []
        blocks = [_episode(episode) for episode in dialogue.past]
        if self._context_form == "raw":
            return blocks
        summaries: dict[str, str] = dialogue.memory.setdefault("summaries", {})
        missing = [block for block in blocks if block not in summaries]
        replies = await self.replies(
            [
                Prompt(
                    partial(self._summary_messages, block),
                    _summary(),
                    f"dialogue/summary/{dialogue.lifetime}",
                    seed_of(self._seed, hash_text(block), _SUMMARY),
                )
                for block in missing
            ],
            journal,
        )
        for block, reply in zip(missing, replies, strict=True):
            if reply is not None:
                summaries[block] = reply["text"]
        return [
            _episode(episode, summaries.get(block, ""))
            for episode, block in zip(dialogue.past, blocks, strict=True)
        ]

    def _summary_messages(self, block: str, fault: str | None) -> tuple[Message, ...]:
        return dialogue_summary_messages(self._strategy, block, fault=fault)

    def _shelf(self, number: int, order: Ints) -> str:
        shelf = self._world.sets[number]
        products = order[: len(shelf)]
        key = number, products.tobytes()
        if key not in self._shelves:
            if len(self._shelves) >= _SHELVES:
                self._shelves.clear()
            self._shelves[key] = shelf_block(
                shelf.name,
                [
                    ShelfProduct(
                        place + 1,
                        shelf.titles[product],
                        _known(shelf.price[product]),
                        _known(shelf.rating[product]),
                        _beginning(shelf.texts[product], shelf.titles[product], self._text_words),
                    )
                    for place, product in enumerate(products.tolist())
                ],
            )
        return self._shelves[key]


def _episode(episode: PastEpisode, summary: str = "") -> str:
    return past_block(
        episode.episode + 1,
        episode.customer,
        episode.category,
        said=episode.turns,
        product=episode.sold or "",
        feedback=episode.feedback,
        summary=summary,
    )


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _beginning(text: str, title: str, words: int) -> str:
    """The first words of a text; none if it only repeats the title."""
    parts = text.removeprefix(title).split()
    return " ".join(parts[:words]) + (" ..." if len(parts) > words > 0 else "")


class Greedy(ModelAgent):
    """Prompted to ask the question that rules out most products (figure 15)."""

    strategy = "greedy"


class Planner(ModelAgent):
    """Prompted to plan by expected value of information, with the turns left (figure 16)."""

    strategy = "dp"


class Reasoner(ModelAgent):
    """Writes a thought before each action (figure 14)."""

    strategy = "cot"


class Summariser(ModelAgent):
    """Remembers past episodes by its own summaries of them (figure 13)."""

    context = "summary"


class Oracle(ModelAgent):
    """Reads the persona and chooses at once (figure 9)."""

    strategy = "oracle"
