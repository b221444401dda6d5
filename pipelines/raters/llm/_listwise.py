"""The rater that asks a language model about a whole choice set at once (BIEL, figure 10a)."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache, lru_cache
from typing import Any

import numpy as np
import polars as pl

from pipelines.config import ServingSettings
from pipelines.errors import ConfigError, ContractError
from pipelines.llm.answers import AnswerStore, Tally
from pipelines.llm.engines import Engine, Message, Request, Sampling
from pipelines.llm.grammars import Grammar, rated_list, vocabulary
from pipelines.prompts import (
    RATING_PROMPT_VERSION,
    PromptStyle,
    choice_set_block,
    list_messages,
    list_prompt_digest,
)
from pipelines.raters.llm._asking import Asker, Cut, ModelRater, Pairs
from pipelines.raters.protocol import OK, Floats, Ints, RatingBatch
from pipelines.raters.statistical.products import SPREAD, ChoiceSets, around, positions
from pipelines.scales import RatingScale

#: Words of each product's description, whole and in the steps in which a prompt is shortened.
_WORDS = (60, 30, 15, 0)
_CUTS = [Cut(0, words) for words in _WORDS]
#: Reading replies compiles a grammar, which takes longer than a batch of them.
_grammar = cache(rated_list)


class ListwiseRater(ModelRater):
    """Reads a persona's ratings of all products of a choice set from one reply of a model.

    The reply is a JSON object under a grammar that names every product once, with whole numbers of
    the scale. A number is one draw of a model: the distribution around it is normal, of 4 points of
    100 (a model's scores deviate by 4.1 over three replicates: BIEL, section 4). A product in
    several sets has the mean of its distributions in each, and a rating only if all of them were
    answered. A reply that failed, was cut or breaks the grammar rates no product of its set.

    Prompts begin with the set; those of a set are asked together, so that engines compute it
    once. A prompt that is longer than the context loses words of the descriptions (see the notes).

    Parameters
    ----------
    engine, scale, store, serving, system, system_role, tokenizer, chat_template, name
        As of :class:`pipelines.raters.LLMRater`; the scale is of digits.
    choice_set_items
        Table of that name; ``position``, where it has the column, is the order on the shelf.
    catalogue
        Products of the sets, rows of ``items``.
    seed, temperature
        Of the reply.

    Examples
    --------
    >>> from pipelines.llm.engines.scripted import ScriptedEngine
    >>> from pipelines.scales import SCALES
    >>> items = pl.DataFrame({"item_id": ["asin:A", "asin:B"], "title": ["Oak desk", "Tin desk"]})
    >>> sets = items.select("item_id", category_id=pl.lit("category:Desks"))
    >>> engine = ScriptedEngine(lambda request: '{"1":80,"2":30}')
    >>> rater = ListwiseRater(engine, SCALES["0-100"], choice_set_items=sets, catalogue=items)
    >>> personas = pl.DataFrame({"persona_id": ["persona:a:0"], "description": ["Likes oak."]})
    >>> rater.name, rater.rate(personas, items).expected.round(3).tolist()
    ('listwise:scripted', [80.0, 30.0])
    """

    needs = ("choice_set_items",)

    def __init__(
        self,
        engine: Engine,
        scale: RatingScale,
        *,
        choice_set_items: pl.DataFrame,
        catalogue: pl.DataFrame,
        store: AnswerStore | None = None,
        serving: ServingSettings | None = None,
        system: str | None = None,
        system_role: bool = True,
        seed: int = 0,
        temperature: float = 1.0,
        tokenizer: Any = None,
        chat_template: str | None = None,
        name: str | None = None,
    ) -> None:
        if scale.words or scale.step != 1:
            raise ConfigError(
                "a whole choice set is rated in whole numbers",
                where=f"scale {scale.name}",
                hint="product_scoring.scale=0-100",
            )
        self.scale = scale
        self.style = PromptStyle("products", scale, 0, system, False, system_role)
        self.tally = Tally()
        self._seed, self._temperature = seed, temperature
        self._sets = ChoiceSets.read(choice_set_items)
        order = ["category_id", *(c for c in ("position",) if c in choice_set_items.columns)]
        ordered = choice_set_items.sort(*order, "item_id")
        row = positions(ordered["item_id"], catalogue["item_id"])
        if (row < 0).any():
            raise ContractError(
                f"{int((row < 0).sum())} products of choice sets are not among the items",
                where="products.choice_set_items",
            )
        ends = np.cumsum(self._sets.sizes.astype(np.int64))[:-1]
        #: Products of each set in their order on the shelf: rows of the catalogue, and of the sets.
        self._shelves = np.split(row, ends)
        self._members = np.split(positions(ordered["item_id"], self._sets.items), ends)
        self._catalogue = catalogue
        self.name = name or f"listwise:{engine.identity.model or engine.identity.engine}"
        self._asker = Asker(
            engine,
            store,
            serving or ServingSettings(),
            self.tally,
            tokenizer,
            chat_template,
            engine.metadata().get("context"),
        )
        self._lock = threading.Lock()

    def replicate(self, number: int) -> ListwiseRater:
        """The rater with other draws of the model's replies; number 0 is the rater itself."""
        other = copy.copy(self)
        other._seed = self._seed + number
        return other

    def rate_pairs(
        self, personas: pl.DataFrame, items: pl.DataFrame, past: pl.DataFrame | None, pairs: Ints
    ) -> RatingBatch:
        """Distributions around a model's numbers.

        Every set that a product is in is asked about as a whole, whichever of its products are
        among the pairs. A product in no set is `invalid`, with a note.

        Raises EngineError if the engine died or failed too often: answers until then are stored.
        """
        del past
        who, what = pairs.T
        entry, code = self._asked(who, items, what)
        codes, answer = np.unique(code, return_inverse=True)
        status = np.full(len(codes), "engine_error", dtype=object)
        keys, notes = np.full((2, len(codes)), None, dtype=object)
        rated: dict[int, Floats] = {}
        for row, key, state, note, ratings in self._answers(personas, codes):
            status[row], keys[row], notes[row] = state, key, note
            if ratings is not None:
                rated[row] = ratings
        return self._batch(items, what, entry, answer, codes, status, keys, notes, rated)

    def requests(
        self,
        personas: pl.DataFrame,
        items: pl.DataFrame,
        histories: pl.DataFrame | None = None,  # noqa: ARG002 (as of the other model's rater)
        *,
        pairs: Pairs | None = None,
    ) -> Iterator[Request]:
        """Requests of :meth:`rate` in order, before any is repeated shorter."""
        who, what = self.pairs_of(personas, items, pairs).T
        codes = np.unique(self._asked(who, items, what)[1])
        for grammar, sampling, set_pairs, _ in self._by_size(codes):
            yield from self._asker.requests(
                _SetPrompts(self, personas), set_pairs, grammar.constraint, sampling
            )

    def metadata(self) -> dict[str, Any]:
        """Model, prompt and calls; nothing is fitted."""
        system = "default" if self.style.system is None else "custom"
        return self.described(
            by_hand={"spread": SPREAD, "temperature": self._temperature, "system": system},
            choice_sets=len(self._sets.categories),
            engine=asdict(self._asker.engine.identity),
            prompt_version=RATING_PROMPT_VERSION,
            prompt_sha256=list_prompt_digest(),
            calls=self.tally.to_dict(),
        )

    def shelf(self, number: int, words: int) -> str:
        """Text of a set (its number), with descriptions of so many words."""
        path = str(self._sets.categories[number]).removeprefix("category:")
        rows = self._catalogue[self._shelves[number].tolist()]
        return choice_set_block(path, rows.to_dicts(), self.style, words)

    def category(self, number: int) -> str:
        """Id of a set."""
        return str(self._sets.categories[number])

    def size(self, number: int) -> int:
        """Products of a set (count)."""
        return len(self._shelves[number])

    def _asked(self, who: Ints, items: pl.DataFrame, what: Ints) -> tuple[Ints, Ints]:
        """Row and code (set and persona) of every set of every pair's product."""
        place = positions(items["item_id"], self._sets.items)[what]
        in_sets = np.flatnonzero(place >= 0)
        of = self._sets.of[place[in_sets]]
        entry = np.repeat(in_sets, np.diff(of.indptr))
        return entry, of.indices.astype(np.int64) << 32 | who[entry]

    def _by_size(self, codes: Ints) -> Iterator[tuple[Grammar, Sampling, Pairs, Ints]]:
        """Grammar, sampling, pairs of set and persona, and their rows, by size of the sets."""
        sets, people = codes >> 32, codes & 0xFFFFFFFF
        sizes = self._sets.sizes[sets].astype(np.int64)
        tokenizer = self._asker.tokenizer
        vocab = None if tokenizer is None else vocabulary(tokenizer)
        low, high = round(self.scale.low), round(self.scale.high)
        for size in np.unique(sizes).tolist():
            rows = np.flatnonzero(sizes == size)
            grammar = _grammar(size, low, high)
            grammar.check(vocab)
            sampling = Sampling(temperature=self._temperature, max_tokens=grammar.longest(vocab))
            yield grammar, sampling, np.stack([sets[rows], people[rows]], axis=1), rows

    def _answers(
        self, personas: pl.DataFrame, codes: Ints
    ) -> Iterator[tuple[int, str, str, str | None, Floats | None]]:
        """Row, key, status, note and ratings in the order of the shelf, of each set and persona."""
        prompts = _SetPrompts(self, personas)
        with self._lock:
            for grammar, sampling, set_pairs, rows in self._by_size(codes):
                for place, key, answer, note in self._asker.rows(
                    prompts, set_pairs, grammar.constraint, sampling, seed=self._seed
                ):
                    row, state = int(rows[place.row]), str(answer.status)
                    read = grammar.parse(answer.text or "") if state == OK else None
                    if state == OK and read is None:
                        state, note = "invalid", "the reply breaks the grammar"
                    ratings = None if read is None else np.array([float(v) for v in read.values()])
                    yield row, key, state, note, ratings

    def _batch(
        self,
        items: pl.DataFrame,
        what: Ints,
        entry: Ints,
        answer: Ints,
        codes: Ints,
        status: np.ndarray,
        keys: np.ndarray,
        notes: np.ndarray,
        rated: dict[int, Floats],
    ) -> RatingBatch:
        """Ratings of pairs from those of the sets that their products are in."""
        size, width = len(what), len(self.scale)
        place = positions(items["item_id"], self._sets.items)[what]
        total, count = np.zeros((size, width)), np.zeros(size)
        state = np.full(size, OK, dtype=object)
        said: list[list[str]] = [[] for _ in range(size)]
        used: list[list[str]] = [[] for _ in range(size)]
        state[place < 0] = "invalid"
        for row in np.flatnonzero(place < 0).tolist():
            said[row].append("the product is in no choice set")
        low, high = self.scale.low, self.scale.high
        by_answer = entry[np.argsort(answer, kind="stable")]
        ends = np.append(0, np.cumsum(np.bincount(answer, minlength=len(codes))))
        for number in range(len(codes)):
            rows = by_answer[ends[number] : ends[number + 1]]
            for row in rows.tolist():
                used[row] += [keys[number]] if keys[number] else []
                said[row] += [notes[number]] if notes[number] else []
            ratings = rated.get(number)
            if ratings is None:
                state[rows] = np.where(state[rows] == OK, status[number], state[rows])
                continue
            members = self._members[int(codes[number] >> 32)]
            order = np.argsort(members)
            at = order[np.searchsorted(members[order], place[rows])]
            points = 100.0 * (ratings[at] - low) / (high - low)
            total[rows] += around(points, self.scale)
            count[rows] += 1
        ok = state == OK
        total[~ok] = np.nan
        total[ok] /= count[ok, None]
        return RatingBatch(
            self.scale,
            total,
            state.tolist(),
            ["+".join(row_keys) or None for row_keys in used],
            ["; ".join(dict.fromkeys(row_notes)) or None for row_notes in said],
            prompt_version=RATING_PROMPT_VERSION,
        )


class _SetPrompts:
    """Prompts of choice sets (first) and personas (second)."""

    def __init__(self, rater: ListwiseRater, personas: pl.DataFrame) -> None:
        self._rater, self._personas = rater, personas
        self._shelf = lru_cache(maxsize=64)(rater.shelf)

    def whole(self, number: int) -> Cut:  # noqa: ARG002 (protocol)
        return _CUTS[0]

    def ladder(self, number: int, person: int) -> list[Cut]:  # noqa: ARG002 (protocol)
        return _CUTS

    def group(self, number: int) -> str:
        return self._rater.category(number)

    def messages(
        self, number: int, person: int, cut: Cut, rating: float | None = None
    ) -> tuple[Message, ...]:
        del rating
        shelf = self._shelf(number, cut.words or 0)
        row = self._personas.row(person, named=True)
        return list_messages(row, shelf, self._rater.size(number), self._rater.style)

    def note(self, number: int, person: int, cut: Cut) -> str | None:  # noqa: ARG002 (protocol)
        if cut == _CUTS[0]:
            return None
        return f"descriptions cut to {cut.words} words each to fit the context"
