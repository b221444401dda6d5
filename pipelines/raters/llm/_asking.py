"""Asking about pairs: prompts that fit, answers with their notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pipelines.config import ServingSettings
from pipelines.errors import AnswerError, EngineError
from pipelines.llm.answers import AnswerStore, Tally, ask
from pipelines.llm.engines import Answer, Choice, Constraint, Engine, Message, Request, Sampling
from pipelines.llm.engines.chat import PromptMeasure
from pipelines.prompts import PromptStyle
from pipelines.raters.llm._prompting import Cut
from pipelines.raters.protocol import TableRater

Pairs = npt.NDArray[np.integer[Any]]

#: Answers before the share of failed ones is judged, as `ask` does.
_FIRST = 100


class Prompts(Protocol):
    """Prompts of a batch of pairs, and shorter forms of those that are too long."""

    def whole(self, person: int, /) -> Cut:
        """The whole prompt."""

    def ladder(self, person: int, item: int, /) -> list[Cut]:
        """Ever shorter prompts of a pair."""

    def group(self, person: int, /) -> str:
        """Group of the prompts that begin alike."""

    def messages(
        self, person: int, item: int, cut: Cut, rating: float | None = None, /
    ) -> Sequence[Message]:
        """The prompt of a pair."""

    def note(self, person: int, item: int, cut: Cut, /) -> str | None:
        """Note on parts that the prompt leaves out, or None."""


@dataclass(frozen=True, slots=True)
class PromptedPair:
    """The pair that a request is about.

    ``row`` is the pair's in the batch, ``person`` and ``item`` are row numbers, ``step`` counts how
    often the prompt was shortened (0: whole) and ``cut`` is what is left of it.
    """

    row: int
    person: int
    item: int
    step: int
    cut: Cut


@dataclass(frozen=True)
class Asker:
    """Asks an engine about pairs, through the answer store (:func:`pipelines.llm.answers.ask`).

    ``tokenizer`` and ``template`` are the model's, to measure prompts (None where out of reach);
    ``context`` is the longest prompt and answer together (tokens; None where unknown).
    """

    engine: Engine
    store: AnswerStore | None
    serving: ServingSettings
    tally: Tally
    tokenizer: Any
    template: str | None
    context: int | None

    def rows(
        self,
        prompts: Prompts,
        pairs: Pairs,
        constraint: Constraint,
        sampling: Sampling,
        *,
        ratings: npt.NDArray[np.float64] | None = None,
        seed: int = 0,
    ) -> Iterator[tuple[PromptedPair, str, Answer, str | None]]:
        """One row per pair (with a rating, if ratings are given), in no particular order.

        Yields the pair, the answer's key, the answer, and a note about it or None. Errors are those
        of :func:`pipelines.llm.answers.ask`.
        """
        measured = self.tokenizer is not None and self.context is not None
        # Without a tokenizer a prompt that is too long shows only as an error: it is shortened.
        allowed = self.serving.error_budget
        serving = (
            self.serving if measured else self.serving.model_copy(update={"error_budget": 1.0})
        )
        places: Iterable[PromptedPair] = self._places(prompts, pairs, ratings)
        if measured:
            places = self._fitting(prompts, places, constraint, sampling, ratings)
        answered = failed = 0
        while True:
            longer: list[PromptedPair] = []
            requests = (
                self._request(prompts, p, constraint, sampling, ratings, seed) for p in places
            )
            for request, key, answer in ask(
                self.engine,
                requests,
                self.store,
                serving=serving,
                tally=self.tally,
            ):
                place: PromptedPair = request.tag
                if _too_long(answer) and (shorter := _shorter(prompts, place)):
                    longer.append(shorter)
                    continue
                answered += 1
                if answer.status != "ok":
                    failed += 1
                if not measured and answered >= _FIRST and failed > allowed * answered:
                    raise EngineError(
                        f"{failed} of {answered} pairs failed, more than the {allowed:.0%} of "
                        "serving.error_budget",
                        where=f"{self.engine.identity.engine}:{self.engine.identity.model}",
                        hint=f"the last one: {answer.detail or answer.status}; answers so far are "
                        "stored: run again",
                        details={"tally": self.tally.to_dict()},
                    )
                yield place, key, answer, _note(prompts, place, answer)
            if not longer:
                return
            # In the order of the pairs: persona by persona.
            longer.sort(key=lambda p: (p.person, p.row))
            places = longer

    def requests(
        self, prompts: Prompts, pairs: Pairs, constraint: Constraint, sampling: Sampling
    ) -> Iterator[Request]:
        """Requests of the first round, in order."""
        places: Iterable[PromptedPair] = self._places(prompts, pairs, None)
        if self.tokenizer is not None and self.context is not None:
            places = self._fitting(prompts, places, constraint, sampling, None)
        return (self._request(prompts, p, constraint, sampling, None, 0) for p in places)

    def _places(
        self, prompts: Prompts, pairs: Pairs, ratings: npt.NDArray[np.float64] | None
    ) -> Iterator[PromptedPair]:
        for row in np.argsort(pairs[:, 0], kind="stable").tolist():
            if ratings is None or not np.isnan(ratings[row]):
                person, item = int(pairs[row, 0]), int(pairs[row, 1])
                yield PromptedPair(row, person, item, 0, prompts.whole(person))

    def _fitting(
        self,
        prompts: Prompts,
        places: Iterable[PromptedPair],
        constraint: Constraint,
        sampling: Sampling,
        ratings: npt.NDArray[np.float64] | None,
    ) -> Iterator[PromptedPair]:
        """Places whose prompts fit the context, or are as short as can be."""
        room = (
            max(len(option.encode()) for option in constraint.options)
            if isinstance(constraint, Choice)
            else sampling.max_tokens
        )
        measure = PromptMeasure(self.tokenizer, self.template, self.context or 0, room)

        def fits(place: PromptedPair, cut: Cut) -> bool:
            rating = None if ratings is None else float(ratings[place.row])
            try:
                return measure.fits(prompts.messages(place.person, place.item, cut, rating))
            except AnswerError:
                # The template refuses the messages, whatever their length: the engine reports it.
                return True

        for place in places:
            if fits(place, place.cut):
                yield place
                continue
            cuts = prompts.ladder(place.person, place.item)
            low, high = 0, len(cuts) - 1
            while low < high:
                middle = (low + high) // 2
                low, high = (low, middle) if fits(place, cuts[middle]) else (middle + 1, high)
            yield PromptedPair(place.row, place.person, place.item, low, cuts[low])

    def _request(
        self,
        prompts: Prompts,
        place: PromptedPair,
        constraint: Constraint,
        sampling: Sampling,
        ratings: npt.NDArray[np.float64] | None,
        seed: int,
    ) -> Request:
        rating = None if ratings is None else float(ratings[place.row])
        return Request(
            tuple(prompts.messages(place.person, place.item, place.cut, rating)),
            constraint=constraint,
            sampling=sampling,
            seed=seed,
            group=prompts.group(place.person),
            tag=place,
        )


def _too_long(answer: Answer) -> bool:
    """True if the prompt was refused for its length; every engine's word for it is context."""
    return answer.status == "invalid" and "context" in answer.detail


def _shorter(prompts: Prompts, place: PromptedPair) -> PromptedPair | None:
    cuts = prompts.ladder(place.person, place.item)
    if place.step + 1 >= len(cuts):
        return None
    return PromptedPair(place.row, place.person, place.item, place.step + 1, cuts[place.step + 1])


def _note(prompts: Prompts, place: PromptedPair, answer: Answer) -> str | None:
    notes = [prompts.note(place.person, place.item, place.cut)]
    if answer.status != "ok":
        notes.insert(0, answer.detail)
    return "; ".join(part for part in notes if part) or None


class ModelRater(TableRater):
    """Base of raters that ask a language model: its engine and answer store."""

    language_model = True
    style: PromptStyle
    _asker: Asker

    @property
    def engine(self) -> Engine:
        """The model that is asked."""
        return self._asker.engine

    def release(self) -> None:
        """Release the model; the answer store stays open."""
        self._asker.engine.close()

    def close(self) -> None:
        """Release the model and commit what the store still holds back."""
        try:
            self.release()
        finally:
            if self._asker.store is not None:
                self._asker.store.close()
