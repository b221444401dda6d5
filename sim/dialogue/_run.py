"""Lifetimes played in blocks: all dialogues of a block move turn by turn."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import orjson
import polars as pl

from pipelines.errors import ConfigError
from pipelines.hints import nearest
from pipelines.progress import advance
from pipelines.seeding import combine
from sim._results import ResultCache
from sim.dialogue._book import MIN_BEST, Book, Floats, Ints
from sim.dialogue._feedback import stars_of
from sim.dialogue._lifetimes import Lifetimes, product_order
from sim.dialogue._protocol import (
    CONFIDENCES,
    FAILED,
    FEEDBACK,
    MAX_QUESTIONS,
    OK,
    STATED,
    STATUSES,
    UNMATCHED,
    Actions,
    Agent,
    Answers,
    Customer,
    Feedback,
    Outcomes,
    PastEpisode,
    Questions,
    Sales,
    Views,
)

#: Bumped whenever the same book and settings give other episodes.
CODE_VERSION = "3"
#: Lifetimes that are played and stored together (count).
BLOCK = 2_048

#: Roles that seeds are of.
_AGENT, _CUSTOMER, _COMMENT = 201, 202, 203
#: Turns that an episode can fail at.
_FAULTS = ("none", "agent", "answer", "feedback")

#: Answer of a customer without a preference.
_INDIFFERENT = "I have no preference."


@dataclass(frozen=True)
class Options:
    """Settings of a run that its rows depend on."""

    #: Form of feedback; whether the agent keeps past episodes.
    feedback: Feedback = "text"
    memory: bool = True
    #: Questions of an episode at most.
    max_questions: int = MAX_QUESTIONS
    #: Questions that are asked without stopping (planning protocol, section 5.2).
    must_ask: int = 0
    #: Episodes, from 1, in which a recommendation is probed after each question.
    probes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.feedback not in FEEDBACK:
            hint = nearest(self.feedback, FEEDBACK)
            raise ConfigError("unknown feedback", where=repr(self.feedback), hint=hint)
        if not 0 <= self.must_ask <= self.max_questions <= 100:
            raise ConfigError(
                "questions must be from 0 to 100, forced ones no more than allowed",
                where=f"max_questions = {self.max_questions}, must_ask = {self.must_ask}",
            )


@dataclass(frozen=True)
class Played:
    """Tables of a run."""

    #: Key of the configuration (hex); the column ``run``.
    run: str
    #: Determinants of the rows other than the lifetimes' seeds, JSON-ready.
    identity: dict[str, Any]
    #: Tables ``dialogue.episodes`` and ``dialogue.turns``; ``turns`` is None if not kept.
    episodes: pl.DataFrame
    turns: pl.DataFrame | None
    #: Blocks that were read from the cache (count).
    reused: int = 0


def play(
    book: Book,
    lifetimes: Lifetimes,
    agent: Agent,
    customer: Customer,
    *,
    feedback: Feedback = "text",
    memory: bool = True,
    max_questions: int = MAX_QUESTIONS,
    must_ask: int = 0,
    probes: Sequence[int] = (),
    seed: int = 0,
    keep_turns: bool = True,
    cache: ResultCache | None = None,
    block: int = BLOCK,
) -> Played:
    """Play lifetimes and return their episodes and turns, ordered by their keys.

    Draws depend on (lifetime's seed, episode, turn, role) alone, so that neither the size of blocks
    nor their order changes a row.

    Parameters
    ----------
    book, lifetimes
        Customers and choice sets; the episodes to play.
    agent, customer
        Not opened yet; they are opened if a block must be played. An agent that is not
        `privileged` gets ``book.disclosed()``.
    feedback, memory, max_questions, must_ask, probes
        See :class:`Options`.
    seed
        Of the agent and the customer, besides the lifetimes'.
    keep_turns
        Whether to return and store the turns.
    cache
        Finished blocks are read from it and written to it; None keeps none.
    block
        Lifetimes of a block (count).

    Raises
    ------
    ConfigError
        If the form of feedback is unknown or a limit is out of range.
    """
    options = Options(feedback, memory, max_questions, must_ask, tuple(sorted(set(probes))))
    identity = {
        "code_version": CODE_VERSION,
        "book": book.identity,
        "agent": agent.metadata() | {"name": agent.name},
        "customer": customer.metadata() | {"name": customer.name},
        "setting": lifetimes.setting,
        "cell": lifetimes.cell,
        "episodes": lifetimes.episodes,
        "seed": seed,
        "feedback": feedback,
        "memory": memory,
        "max_questions": max_questions,
        "must_ask": must_ask,
        "probes": options.probes,
        # Left out where it is the usual one, so that earlier results keep their keys.
        **({} if lifetimes.min_best == MIN_BEST else {"min_best": lifetimes.min_best}),
    }
    run = _key(identity)
    opened = False
    reused = 0
    frames: list[tuple[pl.DataFrame, pl.DataFrame | None]] = []
    for start in range(0, len(lifetimes), block):
        rows = np.arange(start, min(start + block, len(lifetimes)))
        key = _key([run, keep_turns, lifetimes.seeds[rows].tolist()])
        stored = _stored(cache, key, keep_turns=keep_turns)
        if stored is None:
            if not opened:
                agent.open(book if agent.privileged else book.disclosed(), seed)
                customer.open(book, seed)
                opened = True
            played_block = _Block(book, lifetimes, rows, agent, customer, options, seed, run)
            stored = played_block.play(keep_turns=keep_turns)
            if cache is not None:
                if stored[1] is not None:
                    cache.put("turns", key, stored[1])
                cache.put("episodes", key, stored[0])  # written last: it stands for the block
        else:
            reused += 1
        frames.append(stored)
        advance("dialogues", int(rows[-1]) + 1, len(lifetimes))
    turns = [t for _, t in frames if t is not None]
    ordered = bool((np.diff(lifetimes.seeds) > 0).all())
    return Played(
        run=run,
        identity=identity,
        episodes=_joined("episodes", [e for e, _ in frames], ordered=ordered),
        turns=_joined("turns", turns, ordered=ordered) if keep_turns else None,
        reused=reused,
    )


def _joined(table: str, frames: list[pl.DataFrame], *, ordered: bool) -> pl.DataFrame:
    """Frames that are each in the order of the contract's key, as one in that order."""
    joined = pl.concat(frames, rechunk=False)
    return joined if ordered else _sorted(table, joined)


def _sorted(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    from pipelines.contracts import CONTRACTS

    return frame.sort(CONTRACTS[f"dialogue.{table}"].key)


def _stored(
    cache: ResultCache | None, key: str, *, keep_turns: bool
) -> tuple[pl.DataFrame, pl.DataFrame | None] | None:
    episodes = None if cache is None else cache.frame("episodes", key)
    if cache is None or episodes is None:
        return None
    turns = cache.frame("turns", key) if keep_turns else None
    return None if keep_turns and turns is None else (episodes, turns)


def _key(value: Any) -> str:
    data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY)
    return hashlib.blake2b(data, digest_size=16).hexdigest()


@dataclass
class _Episode:
    """State of one episode of a block: arrays with one row per lifetime."""

    number: int
    set: Ints
    persona: Ints
    customer: Ints
    order: Ints
    y: Floats
    #: Facet and answer of each question, of shape (n, most questions).
    facets: Ints
    answers: Any
    #: Words of questions and answers where they are not those of the facet and value.
    questions: Any
    replies: Any
    #: By turn, of shape (n, most questions + 1): product that the agent would sell, or -1.
    product: Ints
    #: By turn: expected regret, six confidences and six stated ones, of shape (n, most questions
    #: + 1, 13).
    belief: Floats
    agent_keys: Any
    customer_keys: Any
    turn: Ints
    sold: Ints
    status: Any
    tokens: Ints
    forgotten: Ints
    comment: Any
    comment_key: Any
    stars: Ints
    #: Speaker at fault where the status is not `ok`: an index of `_FAULTS`.
    fault: Any
    #: By turn, in episodes with probes: product, belief and key of the probed recommendation.
    probe: Ints | None = None
    probe_belief: Floats | None = None
    probe_keys: Any = None

    @classmethod
    def start(cls, number: int, most: int, **given: Any) -> _Episode:
        """An episode without a turn."""
        n = len(given["set"])
        return cls(
            number=number,
            facets=np.full((n, most), -1),
            answers=np.full((n, most), UNMATCHED, np.int8),
            questions=np.full((n, most), None, object),
            replies=np.full((n, most), None, object),
            product=np.full((n, most + 1), -1),
            belief=np.full((n, most + 1, 13), np.nan, np.float32),
            agent_keys=np.full((n, most + 1), None, object),
            customer_keys=np.full((n, most), None, object),
            turn=np.zeros(n, np.int64),
            sold=np.full(n, -1),
            status=np.full(n, OK, np.int8),
            tokens=np.zeros(n, np.int64),
            forgotten=np.zeros(n, np.int64),
            comment=np.full(n, None, object),
            comment_key=np.full(n, None, object),
            stars=np.full(n, -1),
            fault=np.zeros(n, np.int8),
            **given,
        )

    @cached_property
    def best(self) -> Floats:
        """Best score, of shape (n,)."""
        return np.asarray(np.nanmax(self.y, axis=1), np.float32)

    def score(self, products: Ints) -> Floats:
        """Score of products of shape (n,) or (n, turns); NaN for -1."""
        at = products.reshape(len(self.y), -1)
        scores = np.take_along_axis(self.y, np.maximum(at, 0), axis=1)
        return np.where(at >= 0, scores, np.nan).reshape(products.shape).astype(np.float32)

    def rank(self, products: Ints) -> Ints:
        """One more than the number of better products; 0 for -1."""
        scores = self.score(products)
        wide = scores.reshape(len(self.y), -1, 1)
        better = (self.y[:, None, :] > wide).sum(axis=2).reshape(products.shape)
        return np.where(products >= 0, better + 1, 0)


@dataclass
class _Block:
    """Lifetimes that are played together."""

    book: Book
    lifetimes: Lifetimes
    rows: Ints
    agent: Agent
    customer: Customer
    options: Options
    seed: int
    run: str
    past: list[_Episode] = field(default_factory=list)

    def play(self, *, keep_turns: bool) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Tables of all episodes."""
        episodes, turns = [], []
        self.agent.wipe(self.rows)
        for number in range(self.lifetimes.episodes):
            episode = self._start(number)
            self._talk(episode)
            self._comment(episode)
            episodes.append(self._episodes(episode))
            if keep_turns:
                turns.append(self._turns(episode))
            self.past.append(episode)
        self.agent.wipe(self.rows)
        turn_table = _sorted("turns", pl.concat(turns)) if keep_turns else None
        return _sorted("episodes", pl.concat(episodes)), turn_table

    def _start(self, number: int) -> _Episode:
        sets = self.lifetimes.sets[self.rows, number]
        personas = self.lifetimes.personas[self.rows, number]
        return _Episode.start(
            number,
            self.options.max_questions,
            set=sets,
            persona=personas,
            customer=self.lifetimes.customers[self.rows, number],
            order=product_order(self.book, self.lifetimes.seeds[self.rows], number, sets),
            y=self.book.scores(sets, personas),
        )

    def _talk(self, e: _Episode) -> None:
        """Turns until every dialogue has ended."""
        active = np.arange(len(self.rows))
        for turn in range(self.options.max_questions + 1):
            if not len(active):
                return
            views = self._views(e, active, turn)
            if e.number + 1 in self.options.probes and turn:
                self._probe(e, active, turn, views)
            actions = self.agent.act(views)
            self._check(actions, views)
            wrong = self._wrong(actions, views)
            status = np.zeros(len(active), np.int8) if actions.status is None else actions.status
            status = np.where((status == OK) & wrong, FAILED, status)
            self._note(e, active, turn, actions)
            e.status[active] = status
            e.fault[active[status != OK]] = _FAULTS.index("agent")
            ok = status == OK
            sell = ok & ~actions.ask
            e.sold[active[sell]] = self._canonical(e, active[sell], actions.product[sell])
            asks = np.flatnonzero(ok & actions.ask)
            active = active[asks]
            if len(active):
                text = None if actions.text is None else actions.text[asks]
                active = self._ask(e, active, turn, actions.facet[asks], text)

    def _check(self, actions: Actions, views: Views) -> None:
        for name in ("ask", "facet", "product"):
            if len(getattr(actions, name)) != len(views):
                raise ConfigError(
                    f"{len(getattr(actions, name))} values of {name} for {len(views)} dialogues",
                    where=f"agent {self.agent.name}",
                    hint="return one action per row of the views",
                )

    def _wrong(self, actions: Actions, views: Views) -> Any:
        """Actions that are not possible: beyond the facets, products or questions there are."""
        widths = np.array([len(s.facets) for s in self.book.sets])[views.set]
        sizes = self.book.sizes[views.set]
        said = np.zeros(len(views), np.bool_)
        if actions.text is not None:
            said = np.array([bool(t) for t in actions.text.tolist()], np.bool_)
        question = (views.questions_left > 0) & (actions.facet < widths)
        question &= (actions.facet >= 0) | ((actions.facet == -1) & said)
        product = (actions.product >= 0) & (actions.product < sizes)
        return ~np.where(actions.ask, question, product)

    def _note(self, e: _Episode, active: Ints, turn: int, actions: Actions) -> None:
        """Product, belief, key, tokens and left-out episodes of the agent at this turn."""
        e.product[active, turn] = self._canonical(e, active, actions.product)
        if actions.expected_regret is not None:
            e.belief[active, turn, 0] = actions.expected_regret
        if actions.confidences is not None:
            e.belief[active, turn, 1:7] = actions.confidences
        if actions.stated is not None:
            e.belief[active, turn, 7:] = actions.stated
        if actions.answer_key is not None:
            e.agent_keys[active, turn] = actions.answer_key
        if actions.tokens is not None:
            e.tokens[active] += actions.tokens
        if actions.forgotten is not None:
            e.forgotten[active] = np.maximum(e.forgotten[active], actions.forgotten)

    def _probe(self, e: _Episode, active: Ints, turn: int, views: Views) -> None:
        """Note what would be sold now; the agent keeps nothing of it."""
        none = np.zeros(len(active), np.int64)
        last_views = replace(views, questions_left=none, must_ask=none.astype(np.bool_))
        actions = self.agent.act(last_views)
        ok = ~actions.ask & ~self._wrong(actions, last_views)
        if actions.status is not None:
            ok &= actions.status == OK
        if e.probe is None:
            e.probe = np.full(e.product.shape, -1)
            e.probe_belief = np.full(e.belief.shape, np.nan, np.float32)
            e.probe_keys = np.full(e.product.shape, None, object)
        assert e.probe_belief is not None
        e.probe[active[ok], turn] = self._canonical(e, active[ok], actions.product[ok])
        if actions.expected_regret is not None:
            e.probe_belief[active, turn, 0] = actions.expected_regret
        if actions.confidences is not None:
            e.probe_belief[active, turn, 1:7] = actions.confidences
        if actions.stated is not None:
            e.probe_belief[active, turn, 7:] = actions.stated
        if actions.answer_key is not None:
            e.probe_keys[active, turn] = actions.answer_key
        if actions.tokens is not None:
            e.tokens[active] += actions.tokens

    def _ask(self, e: _Episode, active: Ints, turn: int, facet: Ints, text: Any) -> Ints:
        """Put questions to the customers; returns the dialogues that go on."""
        answers = self.customer.answer(
            Questions(
                lifetime=self.rows[active],
                episode=np.full(len(active), e.number),
                turn=np.full(len(active), turn),
                seeds=self._seeds(active, e.number, turn, _CUSTOMER),
                set=e.set[active],
                persona=e.persona[active],
                facet=facet,
                text=text,
                transcript=lambda row: self._transcript(e, int(active[row])),
            )
        )
        self._answered(e, active, turn, text, answers)
        return np.asarray(active[e.status[active] == OK], np.int64)

    def _answered(self, e: _Episode, active: Ints, turn: int, text: Any, a: Answers) -> None:
        e.facets[active, turn] = a.facet
        e.answers[active, turn] = a.value
        if text is not None:
            e.questions[active, turn] = text
        if a.text is not None:
            e.replies[active, turn] = a.text
        if a.answer_key is not None:
            e.customer_keys[active, turn] = a.answer_key
        if a.status is not None:
            e.status[active] = a.status
            e.fault[active[a.status != OK]] = _FAULTS.index("answer")
        if a.tokens is not None:
            e.tokens[active] += a.tokens
        e.turn[active] = turn + 1

    def _comment(self, e: _Episode) -> None:
        """Feedback of the customers, and what the agent learns of it."""
        done = np.flatnonzero(e.status == OK)
        score, best = e.score(e.sold)[done], e.best[done]
        e.stars[done] = stars_of(score, best)
        form = self.options.feedback
        if form == "text" and len(done):
            replies = self.customer.feedback(
                Sales(
                    lifetime=self.rows[done],
                    episode=np.full(len(done), e.number),
                    seeds=self._seeds(done, e.number, 0, _COMMENT),
                    set=e.set[done],
                    persona=e.persona[done],
                    product=e.sold[done],
                    y=e.y[done],
                    transcript=lambda row: self._transcript(e, int(done[row])),
                )
            )
            e.comment[done] = replies.text
            if replies.answer_key is not None:
                e.comment_key[done] = replies.answer_key
            if replies.tokens is not None:
                e.tokens[done] += replies.tokens
            if replies.status is not None:
                e.status[done] = replies.status
                e.fault[done[replies.status != OK]] = _FAULTS.index("feedback")
        elif form == "regret":
            e.comment[done] = [f"Regret: {r:.1f} points." for r in (best - score).tolist()]
        elif form == "stars":
            e.comment[done] = [f"{s} of 5 stars." for s in e.stars[done].tolist()]
        if not self.options.memory:
            self.agent.wipe(self.rows)
            return
        ok = np.flatnonzero(e.status == OK)
        if len(ok):
            self.agent.learn(
                Outcomes(
                    views=self._views(e, ok, None),
                    product=e.sold[ok],
                    regret=e.best[ok] - e.score(e.sold)[ok] if form == "regret" else None,
                    stars=e.stars[ok] if form == "stars" else None,
                    text=e.comment[ok] if form == "text" else None,
                )
            )

    def _views(self, e: _Episode, active: Ints, turn: int | None) -> Views:
        """Dialogues at a turn; None: at their last."""
        turns = e.turn[active] if turn is None else np.full(len(active), turn)
        return Views(
            lifetime=self.rows[active],
            episode=np.full(len(active), e.number),
            turn=turns,
            seeds=self._seeds(active, e.number, turns, _AGENT),
            set=e.set[active],
            customer=e.customer[active],
            order=e.order[active],
            facets=e.facets[active],
            answers=e.answers[active],
            questions_left=self.options.max_questions - turns,
            must_ask=turns < self.options.must_ask,
            transcript=lambda row: self._transcript(e, int(active[row])),
            past=lambda row: self._memories(int(active[row])),
            persona=e.persona[active] if self.agent.privileged else None,
        )

    def _seeds(self, active: Ints, episode: int, turn: Any, role: int) -> Any:
        seeds = self.lifetimes.seeds[self.rows[active]]
        return combine(self.seed, seeds, episode, turn, role)

    def _canonical(self, e: _Episode, active: Ints, products: Ints) -> Ints:
        """Products of the choice set by their numbers in the dialogue; -1 where out of range."""
        inside = (products >= 0) & (products < self.book.sizes[e.set[active]])
        canonical = e.order[active, np.where(inside, products, 0)]
        return np.where(inside, canonical, -1)

    def _transcript(self, e: _Episode, row: int) -> list[tuple[str, str]]:
        """Questions and answers of a dialogue as texts."""
        shelf = self.book.sets[int(e.set[row])]
        turns = []
        for n in range(int(e.turn[row])):
            facet, value = int(e.facets[row, n]), int(e.answers[row, n])
            question, reply = e.questions[row, n], e.replies[row, n]
            if question is None:
                question = shelf.facets[facet].question
            if reply is None:
                reply = _INDIFFERENT if value < 0 else _prefers(shelf.facets[facet].values[value])
            turns.append((question, reply))
        return turns

    def _memories(self, row: int) -> list[PastEpisode]:
        """Finished episodes of a lifetime; none with memory off."""
        if not self.options.memory:
            return []
        return [
            PastEpisode(
                episode=e.number,
                category=self.book.sets[int(e.set[row])].name,
                customer=f"customer {int(e.customer[row]) + 1}",
                turns=self._transcript(e, row),
                sold=self.book.sets[int(e.set[row])].titles[int(e.sold[row])]
                if e.status[row] == OK
                else None,
                feedback=(e.comment[row] or "") if e.status[row] == OK else "",
            )
            for e in self.past
        ]

    # --- tables ---

    def _episodes(self, e: _Episode) -> pl.DataFrame:
        ok = e.status == OK
        sold = np.where(ok, e.sold, -1)
        score, names = e.score(sold), self._names
        mean = np.nanmean(e.y, axis=1, dtype=np.float64)
        n = len(self.rows)
        taken = np.arange(e.facets.shape[1]) < e.turn[:, None]
        return _typed(
            "episodes",
            {
                "run": pl.repeat(self.run, n, eager=True),
                "agent": pl.repeat(self.agent.name, n, eager=True),
                "customer": pl.repeat(self.customer.name, n, eager=True),
                "setting": pl.repeat(self.lifetimes.setting, n, eager=True),
                "feedback": pl.repeat(self.options.feedback, n, eager=True),
                "memory": pl.repeat(self.options.memory, n, eager=True),
                "seed": self.lifetimes.seeds[self.rows],
                "episode": np.full(n, e.number + 1),
                "persona_id": names.personas.gather(e.persona),
                "category_id": names.categories.gather(e.set),
                "cell": pl.repeat(self.lifetimes.cell, n, eager=True),
                "questions": e.turn,
                "repeated": _repeated(e),
                "unmatched": (taken & (e.answers == UNMATCHED)).sum(axis=1),
                "item_id": names.item(e.set, sold),
                "rank": _known(e.rank(sold), sold >= 0),
                "score": _rounded(score),
                "best": _rounded(e.best),
                "regret": _rounded(e.best - score),
                "random_regret": _rounded(e.best - mean),
                "stars": _known(e.stars, ok),
                "status": pl.Series(STATUSES).gather(e.status),
                "language_model": pl.repeat(
                    self.agent.metadata().get("language_model"), n, dtype=pl.String, eager=True
                ),
                "tokens": e.tokens,
                "forgotten": e.forgotten,
            },
        )

    def _turns(self, e: _Episode) -> pl.DataFrame:
        """Questions, answers, probes, recommendations and feedback."""
        names, most = self._names, e.facets.shape[1]
        row, turn = np.nonzero(np.arange(most) < e.turn[:, None])
        at = row, turn
        facet = names.facet(e.set[row], e.facets[at])
        question = _words(names.questions.gather(facet), e.questions[at])
        value = names.value(facet, e.answers[at])
        said = names.answers.gather(value).fill_null(_INDIFFERENT)
        heard = e.status[row].copy()
        heard[(e.fault[row] != _FAULTS.index("answer")) | (turn + 1 < e.turn[row])] = OK
        parts = [
            self._part(e, row, turn, "ask", question, e.product[at], e.belief[at], e.agent_keys[at])
            | {"facet_id": names.facet_ids.gather(facet)},
            self._part(
                e, row, turn, "answer", _words(said, e.replies[at]), keys=e.customer_keys[at]
            )
            | {
                "facet_id": names.facet_ids.gather(facet),
                "value": names.values.gather(value),
                "status": heard,
            },
        ]
        if e.probe is not None and e.probe_belief is not None:
            row, turn = np.nonzero(e.probe >= 0)
            at = row, turn
            parts.append(
                self._part(
                    e, row, turn, "probe", None, e.probe[at], e.probe_belief[at], e.probe_keys[at]
                )
            )
        row = np.flatnonzero(e.fault != _FAULTS.index("answer"))
        at = row, e.turn[row]
        mine = np.where(e.fault[row] == _FAULTS.index("agent"), e.status[row], OK)
        last = self._part(e, row, e.turn[row], "recommend", None, e.sold[row], e.belief[at])
        parts.append(last | {"status": mine, "answer_key": _texts(e.agent_keys[at])})
        row = np.flatnonzero([text is not None for text in e.comment.tolist()])
        text = _texts(e.comment[row])
        last = self._part(e, row, e.turn[row], "feedback", text, keys=e.comment_key[row])
        parts.append(last | {"status": e.status[row]})
        return pl.concat([_typed("turns", self._finished(part)) for part in parts])

    def _part(
        self,
        e: _Episode,
        row: Ints,
        turn: Ints,
        kind: str,
        text: pl.Series | None,
        product: Ints | None = None,
        belief: Floats | None = None,
        keys: Any = None,
    ) -> dict[str, Any]:
        """Columns of the turns of one kind; `row` are rows of the block."""
        n = len(row)
        columns: dict[str, Any] = {
            "seed": self.lifetimes.seeds[self.rows[row]],
            "episode": np.full(n, e.number + 1),
            "turn": turn,
            "role": "customer" if kind in ("answer", "feedback") else "agent",
            "kind": kind,
            "status": np.zeros(n, np.int8),
        }
        if text is not None:
            columns["text"] = text
        if keys is not None:
            columns["answer_key"] = _texts(keys)
        if product is not None:
            scores = e.y[row, np.maximum(product, 0)]
            rank = 1 + (e.y[row] > scores[:, None]).sum(axis=1)
            columns["item_id"] = self._names.item(e.set[row], product)
            columns["regret"] = _rounded(np.where(product >= 0, e.best[row] - scores, np.nan))
            columns["rank"] = _known(rank, product >= 0)
        if belief is not None:
            names = ("expected_regret", *CONFIDENCES, *STATED)
            for name, values in zip(names, belief.T, strict=True):
                columns[name] = _rounded(np.clip(values, 0, 100 if "expected" in name else 1))
        return columns

    def _finished(self, part: dict[str, Any]) -> dict[str, Any]:
        n = len(part["seed"])
        status = pl.Series(STATUSES).gather(part["status"])
        constant = {name: pl.repeat(part[name], n, eager=True) for name in ("role", "kind")}
        return part | constant | {"run": pl.repeat(self.run, n, eager=True), "status": status}

    @cached_property
    def _names(self) -> _Names:
        return _Names.of(self.book)


@dataclass(frozen=True)
class _Names:
    """Ids and texts of a book as series, and the places of its sets in them."""

    personas: pl.Series
    categories: pl.Series
    items: pl.Series
    questions: pl.Series
    facet_ids: pl.Series
    values: pl.Series
    answers: pl.Series
    item_start: Ints
    facet_start: Ints
    value_start: Ints

    @classmethod
    def of(cls, book: Book) -> _Names:
        facets = [f for s in book.sets for f in s.facets]
        values = [v for f in facets for v in f.values]
        widths = np.array([len(f.values) for f in facets], np.int64)
        counts = np.array([len(s.facets) for s in book.sets], np.int64)
        return cls(
            personas=_series(book.persona_ids),
            categories=_series(s.category_id for s in book.sets),
            items=_series(i for s in book.sets for i in s.item_ids),
            questions=_series(f.question for f in facets),
            facet_ids=_series(f.facet_id for f in facets),
            values=_series(values),
            answers=_series(map(_prefers, values)),
            item_start=np.cumsum(book.sizes) - book.sizes,
            facet_start=np.cumsum(counts) - counts,
            value_start=np.cumsum(widths) - widths,
        )

    def item(self, sets: Ints, products: Ints) -> pl.Series:
        """Item ids; null for -1."""
        return self.items.gather(_known(self.item_start[sets] + products, products >= 0))

    def facet(self, sets: Ints, facets: Ints) -> pl.Series:
        """Numbers of facets in the book; null for -1."""
        return _known(self.facet_start[sets] + facets, facets >= 0)

    def value(self, facet: pl.Series, answers: Any) -> pl.Series:
        """Numbers of values in the book; null without a value."""
        start = pl.Series(self.value_start).gather(facet)
        return start + _known(answers, answers >= 0)


def _series(texts: Iterable[str]) -> pl.Series:
    return pl.Series(list(texts), dtype=pl.String)


def _prefers(value: str) -> str:
    """Words of a customer that prefers a value.

    >>> _prefers("blue"), _prefers("no")
    ('I prefer blue.', 'No.')
    """
    return f"{value.capitalize()}." if value in ("yes", "no") else f"I prefer {value}."


def _texts(values: Any) -> pl.Series:
    return pl.Series(values.tolist(), dtype=pl.String)


def _words(usual: pl.Series, generated: Any) -> pl.Series:
    """Own words where there are any, else the usual ones."""
    if not any(text is not None for text in generated.tolist()):
        return usual
    return _texts(generated).rename("").zip_with(_texts(generated).is_not_null(), usual.rename(""))


def _known(values: Any, mask: Any) -> pl.Series:
    """Whole numbers, null where they are not known."""
    return pl.Series(np.where(mask, values, -1).astype(np.int64)).replace(-1, None)


def _rounded(values: Any) -> pl.Series:
    return pl.Series(np.round(values.astype(np.float64), 4)).fill_nan(None)


def _repeated(e: _Episode) -> Ints:
    """Questions of each episode that were asked before in it: the same facet, or the same words."""
    counts = np.zeros(len(e.turn), np.int64)
    for turn in range(1, int(e.turn.max(initial=0))):
        same = (e.facets[:, :turn] == e.facets[:, [turn]]) & (e.facets[:, [turn]] >= 0)
        counts += same.any(axis=1) & (turn < e.turn)
    free = (e.facets < 0) & (np.arange(e.facets.shape[1]) < e.turn[:, None])
    for row in np.flatnonzero(free.sum(axis=1) > 1).tolist():
        words = [" ".join(str(q).casefold().split()) for q in e.questions[row, free[row]].tolist()]
        counts[row] += len(words) - len(set(words))
    return counts


def _typed(table: str, columns: dict[str, Any]) -> pl.DataFrame:
    """A frame in the contract's order and types; missing columns are null."""
    from pipelines.contracts import CONTRACTS

    schema = CONTRACTS[f"dialogue.{table}"].polars_schema()
    frame = pl.DataFrame({name: columns[name] for name in schema if name in columns})
    return frame.select(
        (pl.col(name) if name in columns else pl.lit(None)).cast(kind).alias(name)
        for name, kind in schema.items()
    )
