"""Asking about pairs: prompts, shortened until they fit, and answers with their notes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.config import ServingSettings
from pipelines.errors import AnswerError, ContractError, EngineError
from pipelines.llm.answers import AnswerStore, Tally, ask
from pipelines.llm.engines import Answer, Choice, Constraint, Engine, Message, Request, Sampling
from pipelines.llm.engines.chat import PromptMeasure
from pipelines.prompts import (
    Past,
    PromptStyle,
    compare_block,
    explain_messages,
    item_block,
    person_block,
    rating_messages,
)
from pipelines.raters.protocol import TableRater
from pipelines.scales import RatingScale, scale_named

#: Steps in which a history, then a plot, is shortened until the prompt fits (count).
_STEPS = 8


@dataclass(frozen=True, slots=True)
class Cut:
    """Length of a pair's prompt: the latest ``past`` ratings, ``words`` of the plot.

    None shows the whole plot.
    """

    past: int
    words: int | None = None


class Catalogue:
    """Items by id, for histories; ``others`` by row, where prompts show them."""

    def __init__(self, items: pl.DataFrame, others: Others | None = None) -> None:
        self._items, self._others = items, others
        self._row = {item: row for row, item in enumerate(items["item_id"].to_list())}

    def get(self, item_id: str) -> dict[str, Any] | None:
        """The item's row, or None."""
        row = self._row.get(item_id)
        return None if row is None else self._items.row(row, named=True)

    def past(self, item_id: str, rating: float, scale: RatingScale) -> Past | None:
        """A past rating of an item; None if the item is unknown."""
        item = self.get(item_id)
        if item is None or self._others is None:
            return None if item is None else Past(item, rating, scale)
        return Past(item, rating, scale, *self._others.of(self._row[item_id]))


@dataclass(frozen=True)
class Others:
    """Mean ratings by other people on the prompt's scale, NaN where unknown, and their number.

    Both of shape (items,).
    """

    mean: np.ndarray
    raters: np.ndarray

    def of(self, row: int) -> tuple[float | None, int]:
        """Mean (None if unknown) and number of an item."""
        mean = float(self.mean[row])
        return (None, 0) if math.isnan(mean) else (mean, int(self.raters[row]))


@dataclass(frozen=True)
class _About:
    """A persona, what of its history is shown, and how often it met each item."""

    row: dict[str, Any]
    shown: tuple[Past, ...]
    unknown: int
    times: Counter[str]
    texts: dict[int, str] = field(default_factory=dict)


class PairPrompts:
    """The prompts of a batch of pairs, which are row numbers of ``personas`` and ``items``.

    ``histories`` are past ratings of personas, oldest first: ``persona_id, item_id, rating``, and
    ``scale`` if the ratings are on others than the style's. None may be null or off its scale.
    Their items are in ``catalogue``; at most the ``most`` latest (count) are shown. ``means`` are
    the mean ratings of `items`.
    """

    def __init__(
        self,
        style: PromptStyle,
        personas: pl.DataFrame,
        items: pl.DataFrame,
        histories: pl.DataFrame | None,
        *,
        catalogue: Catalogue,
        means: Others,
        most: int,
    ) -> None:
        self._style = style
        self._personas, self._items = personas, items
        self._catalogue, self._means, self._most = catalogue, means, most
        self._past = _by_persona(histories, style)
        self._ids = items["item_id"].to_list()
        self._blocks: dict[int, str] = {}
        #: Earlier meetings of pairs (count), for those whose histories don't hold everything.
        self.viewings: dict[tuple[int, int], int] = {}
        #: Item that all others are compared with, and whether it stands first.
        self.against: tuple[dict[str, Any], bool] | None = None
        # Engines draw prompts ahead, some in a thread of their own, while answers to earlier
        # ones are taken: several personas are at hand at a time.
        self._about = lru_cache(maxsize=1024)(self._read)

    def ladder(self, person: int, item: int) -> list[Cut]:
        """Ever shorter prompts of a pair: the history is cut first, oldest ratings first."""
        count = len(self._about(person).shown)
        step = max(1, math.ceil(count / _STEPS))
        cuts = [Cut(left) for left in range(count, 0, -step)] + [Cut(0)]
        words = self._plot_words(item)
        step = max(1, math.ceil(words / _STEPS))
        return (
            cuts
            + [Cut(0, left) for left in range(words - step, 0, -step)]
            + ([Cut(0, 0)] if words else [])
        )

    def whole(self, person: int) -> Cut:
        """The whole prompt."""
        return Cut(len(self._about(person).shown))

    def group(self, person: int) -> str:
        """Group of a persona's prompts, which begin alike."""
        return str(self._about(person).row["persona_id"])

    def messages(
        self, person: int, item: int, cut: Cut, rating: float | None = None
    ) -> tuple[Message, ...]:
        """The prompt of a pair; with a rating the one that asks for its reason."""
        about, style = self._about(person), self._style
        past = about.shown[len(about.shown) - cut.past :]
        text = about.texts.get(cut.past)
        if text is None:
            text = about.texts[cut.past] = person_block(about.row, past, style)
        if self.against is None or rating is not None:
            block = self._block(item, cut.words)
        else:
            block = self._both(item, *self.against)
        met = self.viewings.get((person, item))
        viewing = 1 + (about.times[self._ids[item]] if met is None else met)
        if rating is None:
            return rating_messages(about.row, block, style, past=past, viewing=viewing, person=text)
        return explain_messages(
            about.row, block, rating, style, past=past, viewing=viewing, person=text
        )

    def note(self, person: int, item: int, cut: Cut) -> str | None:
        """Note on parts that the prompt leaves out, or None."""
        about = self._about(person)
        notes = []
        if about.unknown:
            notes.append(f"{about.unknown} past ratings are of unknown items and left out")
        if cut.past < len(about.shown):
            notes.append(
                f"history cut from {len(about.shown)} to {cut.past} ratings to fit the context"
            )
        if cut.words is not None:
            notes.append(
                f"plot cut from {self._plot_words(item)} to {cut.words} words to fit the context"
            )
        return "; ".join(notes) or None

    def _read(self, person: int) -> _About:
        row = self._personas.row(person, named=True)
        past = self._past.get(row["persona_id"], [])
        shown, unknown = [], 0
        for item_id, rating, scale in past[max(0, len(past) - self._most) :]:
            entry = self._catalogue.past(item_id, rating, scale_named(scale))
            if entry is None:
                unknown += 1
            else:
                shown.append(entry)
        return _About(row, tuple(shown), unknown, Counter(item_id for item_id, _, _ in past))

    def _block(self, item: int, words: int | None) -> str:
        block = self._blocks.get(item) if words is None else None
        if block is None:
            mean, raters = self._means.of(item)
            row = self._items.row(item, named=True)
            block = item_block(row, self._style, mean=mean, words=words, raters=raters)
            if words is None:
                self._blocks[item] = block
        return block

    def _both(self, item: int, other: dict[str, Any], other_first: bool) -> str:
        title = self._style.subject.title
        names = (title(self._items.row(item, named=True)), title(other))
        return compare_block(*(names[::-1] if other_first else names), self._style)

    def _plot_words(self, item: int) -> int:
        if self._style.layout == "ledger":
            return 0
        plot = self._style.subject.plot.text(self._items.row(item, named=True))
        return len(plot.split())


def _by_persona(
    histories: pl.DataFrame | None, style: PromptStyle
) -> dict[str, list[tuple[str, float, str]]]:
    if histories is None or not histories.height:
        return {}
    if "scale" not in histories.columns:
        histories = histories.with_columns(scale=pl.lit(style.scale.name))
    for (name,), part in histories.group_by("scale"):
        covered = scale_named(str(name)).covers(part["rating"].cast(pl.Float64).to_numpy())
        if not covered.all():
            raise ContractError(
                f"{int((~covered).sum())} past ratings are not on their scale",
                where=f"histories, scale {name}",
            )
    return {
        str(key): list(part.select("item_id", "rating", "scale").iter_rows())
        for (key,), part in histories.group_by("persona_id", maintain_order=True)
    }


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
