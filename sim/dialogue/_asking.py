"""Prompts to a language model that are asked once more where the reply can't be used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from pipelines.llm.engines import Answer, Choice, Constraint, Message, Request, Sampling
from pipelines.llm.grammars import Grammar
from pipelines.llm.session import ModelSession
from pipelines.prompts import DIALOGUE_PROMPT_VERSION, dialogue_prompt_digest
from pipelines.seeding import combine
from sim.dialogue._protocol import FAILED, OK

#: Seeds that every server takes: 31 bits.
_SEED_BITS = 0x7FFF_FFFF
_UNREADABLE = "it was not in the form that was asked for"

#: A status other than `OK`, and the fault in words.
Fault = tuple[int, str]


@dataclass(frozen=True)
class Prompt:
    """A prompt about one row of a batch."""

    #: Row of the batch, and the purpose of the prompt, unique within the row.
    row: int
    name: str
    #: Rendered conversation, given the fault of the last reply or None.
    messages: Callable[[str | None], tuple[Message, ...]]
    #: Grammar of the reply, or options whose distribution is read.
    constraint: Grammar | Choice
    #: Group of the request.
    group: str
    seed: int
    #: Check of a text's captures: a fault, or None.
    fault: Callable[[dict[str, str]], Fault | None] = lambda _: None


class Journal:
    """Statuses, answer keys and tokens of a batch while its replies come in."""

    def __init__(self, n: int) -> None:
        self.status = np.full(n, OK, np.int8)
        self.tokens = np.zeros(n, np.int64)
        self._keys: list[dict[str, None]] = [{} for _ in range(n)]

    def called(self, row: int, key: str, answer: Answer) -> None:
        """Count an answer, whatever its status."""
        self._keys[row][key] = None
        self.tokens[row] += answer.prompt_tokens + answer.completion_tokens

    def fields(self) -> dict[str, Any]:
        """The fields of actions, answers and replies; keys in the order of asking."""
        keys = np.array([",".join(row_keys) or None for row_keys in self._keys], object)
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

    def replies(
        self, prompts: Iterable[Prompt], journal: Journal
    ) -> dict[tuple[int, str], dict[str, str] | np.ndarray]:
        """Captures or distributions by row and name.

        A prompt whose reply can't be used is asked once more, with the fault named. After a second
        fault it has no entry, and its row takes the status of that fault.
        """
        replies: dict[tuple[int, str], dict[str, str] | np.ndarray] = {}
        waiting: list[tuple[Prompt, str | None]] = [(prompt, None) for prompt in prompts]
        for again in (False, True):
            faults: dict[tuple[int, str], Fault] = {}
            for prompt, key, answer in self._answered(waiting):
                journal.called(prompt.row, key, answer)
                reply, fault = _read(prompt, answer)
                if reply is not None:
                    replies[prompt.row, prompt.name] = reply
                else:
                    faults[prompt.row, prompt.name] = fault
            waiting = [
                (prompt, faults[prompt.row, prompt.name][1])
                for prompt, _ in waiting
                if (prompt.row, prompt.name) in faults
            ]
            if again:
                for prompt, _ in waiting:
                    journal.status[prompt.row] = faults[prompt.row, prompt.name][0]
        return replies

    def _answered(
        self, prompts: Sequence[tuple[Prompt, str | None]]
    ) -> list[tuple[Prompt, str, Answer]]:
        """Answers in the order of the prompts, whatever the order of arrival."""

        def sent() -> Iterator[Request]:
            # Requests of a group follow each other: they begin alike.
            order = sorted(range(len(prompts)), key=lambda n: (prompts[n][0].group, n))
            for n in order:
                prompt, fault = prompts[n]
                constraint: Constraint
                if isinstance(prompt.constraint, Choice):
                    constraint, seed = prompt.constraint, 0
                    sampling = Sampling(1.0, max_tokens=1)
                else:
                    constraint, seed = prompt.constraint.constraint, prompt.seed
                    sampling = replace(self._texts, max_tokens=self.longest(prompt.constraint))
                yield Request(
                    prompt.messages(fault),
                    constraint=constraint,
                    sampling=sampling,
                    seed=seed,
                    group=prompt.group,
                    tag=n,
                )

        rows = sorted(self._ask(sent()), key=lambda row: int(row[0].tag))
        return [(prompts[request.tag][0], key, answer) for request, key, answer in rows]


def seed_of(*keys: Any) -> int:
    """Seed of a request, from a hash of the keys."""
    return int(combine(*keys)) & _SEED_BITS


def _read(prompt: Prompt, answer: Answer) -> tuple[dict[str, str] | np.ndarray | None, Fault]:
    """The reply, or None and its fault."""
    if answer.status != "ok":
        return None, (FAILED, f"{answer.status}: {answer.detail}"[:160])
    if isinstance(prompt.constraint, Choice):
        shares = np.asarray(answer.probabilities or (), np.float64)
        if len(shares) != len(prompt.constraint.options) or not shares.sum() > 0:
            return None, (FAILED, "there is no distribution over the answers")
        return shares / shares.sum(), (OK, "")
    captures = prompt.constraint.parse(answer.text or "")
    if captures is None:
        return None, (FAILED, _UNREADABLE)
    fault = prompt.fault(captures)
    return (captures, (OK, "")) if fault is None else (None, fault)
