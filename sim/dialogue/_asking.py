"""Prompts of dialogues to a language model, asked once more where a reply can't be used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from pipelines.llm.engines import Answer, Choice, Constraint, Message, Request, Sampling
from pipelines.llm.grammars import Grammar
from pipelines.llm.session import ModelSession
from pipelines.prompts import DIALOGUE_PROMPT_VERSION, dialogue_prompt_digest
from pipelines.seeding import combine
from sim.dialogue._protocol import FAILED, OK, Batched
from sim.dialogue._world import DialogueWorld

#: Seeds that every server takes: 31 bits.
_SEED_BITS = 0x7FFF_FFFF
_UNREADABLE = "it was not in the form that was asked for"

#: A status other than `OK`, and the fault in words.
Fault = tuple[str, str]
#: Captures of a grammar by name, or a distribution over the options of a choice.
Captures = dict[str, str]


@dataclass(frozen=True)
class Prompt:
    """A prompt of one dialogue."""

    #: Rendered conversation, given the fault of the last reply or None.
    messages: Callable[[str | None], tuple[Message, ...]]
    #: Grammar of the reply, or options whose distribution is read.
    constraint: Grammar | Choice
    #: Prompts of a group begin alike.
    group: str
    seed: int = 0
    #: Check of a text's captures: a fault, or None.
    fault: Callable[[Captures], Fault | None] = lambda _: None


class Journal:
    """Status, answer keys and tokens of a reply while prompts are answered for it."""

    def __init__(self) -> None:
        self.status = OK
        self.tokens = 0
        self._keys: dict[str, None] = {}

    def count(self, key: str, answer: Answer) -> None:
        """Count an answer, whatever its status."""
        self._keys[key] = None
        self.tokens += answer.prompt_tokens + answer.completion_tokens

    def fields(self) -> dict[str, Any]:
        """The fields of all replies; keys in the order of asking."""
        keys = ",".join(self._keys) or None
        return {"status": self.status, "answer_key": keys, "tokens": self.tokens}


class DialogueModel(ModelSession):
    """Base of agents and customers that a language model plays.

    ``temperature``, ``min_p`` and ``repetition_penalty`` are those of texts
    (:class:`pipelines.llm.engines.Sampling`); without the last one a small model repeats itself.
    The others are those of :class:`pipelines.llm.session.ModelSession`.
    """

    def __init__(
        self,
        settings: Any = None,
        *,
        engine: Any = None,
        session: ModelSession | None = None,
        temperature: float = 0.8,
        min_p: float = 0.1,
        repetition_penalty: float = 1.1,
    ) -> None:
        super().__init__(settings, engine=engine, session=session)
        self._texts = Sampling(temperature, min_p=min_p, repetition_penalty=repetition_penalty)

    def described(self) -> dict[str, Any]:
        """Model, prompts and sampling, which all replies depend on."""
        return {
            "language_model": self._engine.identity.model,
            "engine": asdict(self._engine.identity),
            "prompt_version": DIALOGUE_PROMPT_VERSION,
            "prompt_sha256": dialogue_prompt_digest(),
            "temperature": self._texts.temperature,
            "min_p": self._texts.min_p,
            "repetition_penalty": self._texts.repetition_penalty,
        }

    async def reply(self, prompt: Prompt, journal: Journal) -> Any:
        """Captures or a distribution; None where two replies could not be used."""
        return (await self.replies([prompt], journal))[0]

    async def replies(self, prompts: Sequence[Prompt], journal: Journal) -> list[Any]:
        """Captures or distributions of prompts that are asked together.

        A prompt whose reply can't be used is asked once more, with the fault named. After a second
        fault its reply is None, and the journal takes the status of that fault.
        """
        replies: list[Any] = [None] * len(prompts)
        faults: dict[int, Fault | None] = dict.fromkeys(range(len(prompts)))
        for _ in range(2):
            asked_again = [(prompts[n], fault) for n, fault in faults.items()]
            answers = await Batched(self._answered, asked_again) if asked_again else []
            repeated: dict[int, Fault | None] = {}
            for n, (key, answer) in zip(faults, answers, strict=True):
                journal.count(key, answer)
                replies[n], fault = _read(prompts[n], answer)
                if fault is not None:
                    repeated[n] = fault
            faults = repeated
        for fault in faults.values():
            assert fault is not None
            journal.status = fault[0]
        return replies

    def _answered(
        self, dialogues: list[list[tuple[Prompt, Fault | None]]]
    ) -> list[list[tuple[str, Answer]]]:
        """Keys and answers of the prompts of many dialogues, in order."""
        prompts = [
            (n, place, prompt, fault)
            for n, dialogue in enumerate(dialogues)
            for place, (prompt, fault) in enumerate(dialogue)
        ]
        # Requests of a group follow each other: they begin alike.
        prompts.sort(key=lambda row: row[2].group)
        requests = (self._request(prompt, fault, (n, place)) for n, place, prompt, fault in prompts)
        answers = {request.tag: (key, answer) for request, key, answer in self._ask(requests)}
        return [
            [answers[n, place] for place in range(len(dialogue))]
            for n, dialogue in enumerate(dialogues)
        ]

    def _request(self, prompt: Prompt, fault: Fault | None, tag: Any) -> Request:
        sampling, seed = Sampling(1.0, max_tokens=1), 0
        constraint: Constraint
        if isinstance(prompt.constraint, Grammar):
            sampling = replace(self._texts, max_tokens=self.longest(prompt.constraint))
            seed, constraint = prompt.seed, prompt.constraint.constraint
        else:
            constraint = prompt.constraint
        return Request(
            prompt.messages(None if fault is None else fault[1]),
            constraint=constraint,
            sampling=sampling,
            seed=seed,
            group=prompt.group,
            tag=tag,
        )


def seed_of(*keys: Any) -> int:
    """Seed of a request, from a hash of the keys."""
    return int(combine(*keys)) & _SEED_BITS


def person_lines(world: DialogueWorld, persona: int) -> list[tuple[str, str]]:
    """Labels and values of a persona: stated attributes, and the description."""
    stated = [
        (name.replace("_", " ").capitalize(), value)
        for name, value in world.attributes[persona].items()
    ]
    return [*stated, ("Who this is", world.descriptions[persona])]


def _read(prompt: Prompt, answer: Answer) -> tuple[Any, Fault | None]:
    """The reply, or None and its fault."""
    if answer.status != "ok":
        return None, (FAILED, f"{answer.status}: {answer.detail}"[:160])
    if isinstance(prompt.constraint, Choice):
        shares = np.asarray(answer.probabilities or (), np.float64)
        if len(shares) != len(prompt.constraint.options) or not shares.sum() > 0:
            return None, (FAILED, "there is no distribution over the answers")
        return shares / shares.sum(), None
    captures = prompt.constraint.parse(answer.text or "")
    if captures is None:
        return None, (FAILED, _UNREADABLE)
    fault = prompt.fault(captures)
    return (captures, None) if fault is None else (None, fault)
