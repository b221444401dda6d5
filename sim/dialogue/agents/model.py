"""Agents that a language model plays (BIEL, figures 9 and 12-16)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
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
from sim.dialogue._asking import DialogueModel, Journal, Prompt, seed_of
from sim.dialogue._book import Book, ChoiceSet, Ints
from sim.dialogue._protocol import OK, Actions, Bools, Outcomes, PastEpisode, Views

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


@dataclass
class _Turn:
    """A row of a batch: what its prompts share."""

    shelf: ChoiceSet
    group: str
    seed: int
    values: dict[str, Any]
    past: list[str] = field(default_factory=list)


class ModelAgent(DialogueModel):
    """Asks or recommends with a language model.

    A reply is ``QUESTION: …`` or ``RECOMMEND: number``. The product that is sold is the most
    probable one of a `Choice` over the numbers, whose whole distribution is kept; a number in the
    reply means only that the agent wants to sell. Where it must sell, the `Choice` alone is
    asked. A reply that can't be used is asked once more with the fault named, then the row is
    `FAILED`. It keeps no state but its summaries: past episodes are those of the views.

    Rows that must ask (planning protocol) ask without stopping. A probe is a turn without
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
        first, counted in ``Actions.forgotten``.
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
        If an option is unknown, or the model scored the book that it is an oracle for.
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
        self._summaries: dict[int, dict[str, str]] = {}
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

    def open(self, book: Book, seed: int) -> None:
        """Take in choice sets; see :class:`sim.dialogue.Agent`."""
        model = self._engine.identity.model
        # Settings name a model by folder or hub name, an engine by the last part of either.
        scored = {PurePath(rater).name for rater in book.raters}
        if self.privileged and PurePath(model).name in scored:
            raise ConfigError(
                f"the model {model} scored the products: its oracle would know the answers",
                where=book.reference or "book",
                hint="use a model outside the ensemble of raters",
            )
        self._book, self._seed = book, seed
        self._summaries.clear()
        self._shelves.clear()

    def learn(self, outcomes: Outcomes) -> None:
        """Do nothing: past episodes are read from the views."""

    def wipe(self, lifetimes: Ints) -> None:
        """Forget the summaries of these lifetimes."""
        for lifetime in lifetimes.tolist():
            self._summaries.pop(lifetime, None)

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

    def act(self, views: Views) -> Actions:
        """Ask or recommend; see :class:`sim.dialogue.Agent`."""
        n, journal = len(views), Journal(len(views))
        past = self._past(views, journal)
        turns = [self._turn(views, row, past[row]) for row in range(n)]
        sells = (views.questions_left <= 0) | self.privileged
        forgotten = np.array([self._cut(turns[row], sells[row]) for row in range(n)], np.int64)
        text, thoughts = self._acted(views, turns, sells, journal)
        ask = np.array([text[row] is not None for row in range(n)], np.bool_)
        shares = self._recommended(turns, ~ask, thoughts, journal)
        product = np.where(np.isnan(shares[:, 0]), -1, np.nan_to_num(shares).argmax(axis=1))
        failed = (journal.status != OK) | (~ask & (product < 0))
        believed, stated = self._confident(turns, np.where(failed, -1, product), journal)
        return Actions(
            ask=ask,
            facet=np.full(n, -1),
            product=product,
            text=text,
            confidences=believed,
            stated=stated,
            distribution=shares,
            forgotten=forgotten,
            **journal.fields(),
        )

    # Prompts ------------------------------------------------------------------------------------

    def _turn(self, views: Views, row: int, past: list[str]) -> _Turn:
        number = int(views.set[row])
        shelf = self._book.sets[number]
        values: dict[str, Any] = {
            "shelf": self._shelf(number, views.order[row]),
            "products": len(shelf),
            "customer": _customer(views.customer[row]),
            "said": views.transcript(row),
            "frugal": self._frugal,
            "turns_left": int(views.questions_left[row]) if self._strategy == "dp" else None,
        }
        if self.privileged:
            assert views.persona is not None
            person = int(views.persona[row])
            stated = [(k.capitalize(), v) for k, v in self._book.attributes[person].items()]
            values["person"] = [*stated, ("Who this is", self._book.descriptions[person])]
        return _Turn(
            shelf, f"dialogue/{shelf.category_id}", seed_of(views.seeds[row], _ACT), values, past
        )

    def _messages(self, turn: _Turn, **values: Any) -> tuple[Message, ...]:
        return dialogue_agent_messages(self._strategy, past=turn.past, **(turn.values | values))

    def _cut(self, turn: _Turn, sells: bool) -> int:
        """Leave out the oldest episodes until the longest prompt fits; how many went."""
        grammar = _action(turn.values["products"], thought=self._strategy == "cot")
        room = 8 if sells and self._strategy != "cot" else self.longest(grammar)
        if self._confidences in ("stated", "both"):
            room = max(room, self.longest(_stated()))
        before = len(turn.past)
        while turn.past and not self.fits(self._messages(turn), room + _MARGIN):
            del turn.past[0]
        return before - len(turn.past)

    def _shelf(self, number: int, order: Ints) -> str:
        shelf = self._book.sets[number]
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

    # Asking -------------------------------------------------------------------------------------

    def _acted(
        self, views: Views, turns: Sequence[_Turn], sells: Bools, journal: Journal
    ) -> tuple[Any, list[str]]:
        """Questions (None where the row recommends or failed) and thoughts before a sale."""
        thinks = self._strategy == "cot"
        prompts = []
        for row, turn in enumerate(turns):
            if journal.status[row] != OK:
                continue
            asks, may_sell = not sells[row], not bool(views.must_ask[row]) or bool(sells[row])
            if asks or thinks:
                size = turn.values["products"]
                grammar = _action(size, ask=asks, sell=may_sell, thought=thinks)
                prompts.append(
                    self._prompt(row, "act", turn, grammar, turn.seed, ask=asks, sell=may_sell)
                )
        text, thoughts = np.full(len(turns), None, object), [""] * len(turns)
        for (row, _), reply in self.replies(prompts, journal).items():
            assert isinstance(reply, dict)
            text[row] = reply.get("question")
            thoughts[row] = reply.get("thought", "")
        return text, thoughts

    def _recommended(
        self, turns: Sequence[_Turn], mask: Bools, thoughts: Sequence[str], journal: Journal
    ) -> Any:
        """Distributions over the products' numbers, of shape (n, largest set); NaN without one."""
        prompts = [
            self._prompt(
                row, "recommend", turn, _numbers(turn.values["products"]),
                thought=thoughts[row], begun=self.begun,
            )
            for row, turn in enumerate(turns)
            if mask[row] and journal.status[row] == OK
        ]  # fmt: skip
        shares = np.full((len(turns), int(self._book.sizes.max())), np.nan, np.float32)
        for (row, _), reply in self.replies(prompts, journal).items():
            assert not isinstance(reply, dict)
            shares[row] = 0.0
            shares[row, : len(reply)] = reply
        return shares

    def _confident(
        self, turns: Sequence[_Turn], product: Ints, journal: Journal
    ) -> tuple[Any, Any]:
        """Six confidences by P(yes) and as stated, of shape (n, 6); None where not asked for."""
        form = self._confidences
        names = list(DIALOGUE_CLAIMS)
        claims: list[str | None] = [*names] if form in ("choice", "both") else []
        claims += [None] if form in ("stated", "both") else []
        believed, stated = np.full((2, len(turns), len(names)), np.nan, np.float32)
        prompts = [
            self._prompt(
                row, claim or "stated", turn, _stated() if claim is None else _yes_no,
                turn.seed, product=int(product[row]) + 1, claim=claim,
            )
            for row, turn in enumerate(turns)
            if product[row] >= 0
            for claim in claims
        ]  # fmt: skip
        for (row, name), reply in self.replies(prompts, journal).items():
            if isinstance(reply, dict):
                stated[row] = [int(reply[claim]) / 100 for claim in names]
            else:
                believed[row, names.index(name)] = reply[0]
        return (believed if len(claims) > 1 else None), (stated if None in claims else None)

    def _past(self, views: Views, journal: Journal) -> list[list[str]]:
        """Blocks about past episodes by row, oldest first."""
        if self._context_form == "off" or self.privileged:
            return [[] for _ in range(len(views))]
        episodes = [views.past(row) for row in range(len(views))]
        blocks = [[_episode(episode) for episode in past] for past in episodes]
        if self._context_form == "raw":
            return blocks
        prompts = []
        for row, raw in enumerate(blocks):
            lifetime = int(views.lifetime[row])
            summaries = self._summaries.setdefault(lifetime, {})
            for block in raw:
                if block not in summaries:
                    seed = seed_of(self._seed, hash_text(block), _SUMMARY)
                    prompts.append(
                        Prompt(
                            row, block, self._summary_messages(block), _summary(),
                            f"dialogue/summary/{lifetime}", seed,
                        )
                    )  # fmt: skip
        for (row, block), reply in self.replies(prompts, journal).items():
            assert isinstance(reply, dict)
            self._summaries[int(views.lifetime[row])][block] = reply["text"]
        return [
            [
                _episode(episode, self._summaries[int(views.lifetime[row])].get(block, ""))
                for episode, block in zip(episodes[row], raw, strict=True)
            ]
            for row, raw in enumerate(blocks)
        ]

    def _summary_messages(self, block: str) -> Callable[[str | None], tuple[Message, ...]]:
        return lambda fault: dialogue_summary_messages(self._strategy, block, fault=fault)

    def _prompt(
        self,
        row: int,
        name: str,
        turn: _Turn,
        constraint: Grammar | Choice,
        seed: int = 0,
        **values: Any,
    ) -> Prompt:
        return Prompt(
            row,
            name,
            lambda fault: self._messages(turn, fault=fault, **values),
            constraint,
            turn.group,
            seed,
        )


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


def _customer(label: int) -> str:
    return f"customer {int(label) + 1}"


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
