"""The brain that asks a language model (SimUSER, section 3.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, Literal, Self

import numpy as np

from pipelines.errors import ConfigError
from pipelines.llm.engines import Answer, Choice, Constraint, Engine, Message, Request, Sampling
from pipelines.llm.grammars import (
    EVIDENCE,
    FELT,
    Grammar,
    explanation,
    page_arguments,
    page_decision,
    page_judgement,
    page_reflection,
    self_questions,
)
from pipelines.llm.session import ModelSession
from pipelines.memory import EpisodicMemory, TextVectors, opinion_of, recall_many
from pipelines.prompts import (
    AGENT_PROMPT_VERSION,
    ShownItem,
    agent_messages,
    agent_prompt_digest,
    agent_system,
    memory_text,
    one_line,
    page_block,
    rating_options,
)
from pipelines.scales import SCALES
from pipelines.seeding import combine, uniform
from sim.agents._pages import Card
from sim.agents._protocol import (
    ACTIONS,
    CLICK,
    EMOTIONS,
    EXIT,
    FATIGUE,
    MOODS,
    OK,
    Bools,
    Classifications,
    ClassifyRequests,
    DecideRequests,
    Decisions,
    Entry,
    Floats,
    InterviewRequests,
    Interviews,
    Judgements,
    JudgeRequests,
    Reflections,
    ReflectRequests,
    Requests,
    Texts,
)
from sim.agents._world import TRAITS, AgentWorld
from sim.environment import Cast

#: Seeds that every server takes: 31 bits.
_SEED_BITS = 0x7FFF_FFFF
_SCALE = SCALES["1-5"]
#: Newest entries of the visit that prompts of a decision, reflection and interview quote.
_RECENT = 8
#: States that the counterfactual asks about: content and rested, then neither.
_STATES = (
    "You are fully satisfied so far, 10 of 10, and not tired at all.",
    "You are not satisfied at all so far, 0 of 10, and very tired.",
)
_STAY, _LEAVE = "stay", "leave"
#: The words of replies: in capitals a small model repeats them in its reasons.
_ACTIONS, _MOODS, _FATIGUE, _EMOTIONS = (
    tuple(name.lower() for name in names) for names in (ACTIONS, MOODS, FATIGUE, EMOTIONS)
)


@dataclass(frozen=True)
class _Row:
    """A request of a batch, and the place of its replies."""

    row: int
    messages: tuple[Message, ...]
    constraint: Constraint
    max_tokens: int
    group: str
    seed: int
    tag: Any = None


class _Filling:
    """Statuses, keys and tokens of a batch of requests while replies come in."""

    def __init__(self, n: int) -> None:
        self.status = np.full(n, OK, object)
        self.faults = np.full(n, None, object)
        self.keys = np.full(n, None, object)
        self.tokens = np.zeros(n, np.int64)

    def fail(self, row: int, status: str, fault: str) -> None:
        """The first fault of a row stands."""
        if self.status[row] == OK:
            self.status[row], self.faults[row] = status, fault

    def replies(self) -> dict[str, Any]:
        """The fields that all replies have."""
        return {
            "status": self.status,
            "faults": self.faults,
            "answer_keys": self.keys,
            "tokens": self.tokens,
        }


class ModelBrain(ModelSession):
    """Judges, decides, reflects and answers with a language model.

    One call judges a page (SimUSER, appendix C.5), a second one decides (C.10); replies are
    sentences of grammars, so that a rating stands only where an item is watched, items are named
    by position and evidence is an entry that the agent was shown. Prompts begin with what all of
    an agent's have in common. Answers go through the answer store.

    Parameters
    ----------
    settings
        Engine, serving and encoder.
    engine
        Instead of the settings' engine.
    rating
        ``text``: in the reply; ``distribution``: drawn from the model's own distribution over 1-5,
        asked for each watched item, whose mean is the expected rating.
    rounds
        2: after a first judgement, evidence for and against each item is asked for, and the page
        is judged again.
    questions
        Whether an agent asks itself one to three questions before it recalls (C.4).
    counterfactual
        Ask after each decision whether the agent would leave if it were content and rested, and if
        it were neither; agents that would leave rather in the first case are flagged. It
        changes no reply.
    persona
        Whether the persona's facts stand in the prompts.
    temperature, min_p
        Of texts: temperature, and least probability of a token as a share of the most probable
        one's. Without the latter a small model's texts wander.
    vectors
        Encoder of questions; None: the settings', opened where the release has item vectors.

    Raises
    ------
    ConfigError
        If an option is unknown, or the model's tokenizer can't encode a grammar.
    EngineError
        If the model can't be loaded.
    """

    name = "model"
    reads = True

    def __init__(
        self,
        settings: Any = None,
        *,
        engine: Engine | None = None,
        rating: Literal["text", "distribution"] = "text",
        rounds: int = 1,
        questions: bool = True,
        counterfactual: bool = False,
        persona: bool = True,
        temperature: float = 0.8,
        min_p: float = 0.1,
        vectors: TextVectors | None = None,
    ) -> None:
        if rating not in ("text", "distribution") or rounds not in (1, 2):
            raise ConfigError(
                f"rating is {rating!r} and rounds are {rounds}",
                where="brain model",
                hint="rating is text or distribution, rounds are 1 or 2",
            )
        super().__init__(settings, engine=engine)
        self._vectors = vectors
        self._options = {
            "rating": rating,
            "rounds": rounds,
            "questions": questions,
            "counterfactual": counterfactual,
            "persona": persona,
            "temperature": temperature,
            "min_p": min_p,
        }
        self._drawn = Sampling(temperature, min_p=min_p)
        self._rating, self._rounds = rating, rounds
        self._questions, self._counterfactual = questions, counterfactual
        self._persona = persona
        self.note = f"A language model, {self._engine.identity.model}, plays the agent."
        self._interview = explanation(tuple(map(str, range(1, 11))), name="agents/interview")

    def open(self, world: AgentWorld) -> Self:
        """Take in people, their histories and the vectors of items."""
        self._world = world
        self._personas = Cast.read(world.release).frame
        self._people = world.people.select("persona", *TRAITS).rows(named=True)
        self._systems: dict[int, str] = {}
        self._histories: dict[int, EpisodicMemory] = {}
        self._numbers = {item: n for n, item in enumerate(world.catalogue.ids)}
        self._titles = list(
            zip(
                world.catalogue.frame["title"].to_list(),
                world.catalogue.frame["year"].to_list(),
                strict=True,
            )
        )
        self._items = np.zeros((len(world.catalogue), 1), np.float32)
        self._recalls = "item_embeddings" in world.release
        if self._recalls:
            self._vectors = self._vectors or TextVectors.open(self._settings)
            table = world.release["item_embeddings"].polars()
            self._items = self._vectors.of_items(world.catalogue.frame.select("item_id"), table)
        return self

    def metadata(self) -> dict[str, Any]:
        """Model, prompts and options: all that replies depend on."""
        return {
            "brain": self.name,
            "language_model": True,
            "engine": asdict(self._engine.identity),
            "prompt_version": AGENT_PROMPT_VERSION,
            "prompt_sha256": agent_prompt_digest(),
            "encoder": None if self._vectors is None else self._vectors.embedder.name,
            **self._options,
        }

    # Judging ------------------------------------------------------------------------------------

    def judge(self, requests: JudgeRequests) -> Judgements:
        """Judge pages, a call for each; see :class:`sim.agents.Brain`."""
        shape, filling = requests.items.shape, _Filling(len(requests))
        cards = [requests.cards(row) for row in range(len(requests))]
        recalled = self._recalled(requests, cards, filling)
        numbers = [[int(p) + 1 for p in np.flatnonzero(asked)] for asked in requests.asked]
        found = self._judged(requests, cards, recalled, numbers, filling, 1)
        if self._rounds == 2:
            against = self._arguments(requests, cards, recalled, numbers, found, filling)
            found = self._judged(requests, cards, recalled, numbers, filling, 2, against)
        watched = np.zeros(shape, np.bool_)
        ratings, expected = np.full(shape, np.nan), np.full(shape, np.nan)
        valence = np.zeros(shape, np.int64)
        feelings, reasons = np.full(shape, None, object), np.full(shape, None, object)
        for row, values in found.items():
            for number in numbers[row]:
                at = row, number - 1
                reasons[at] = values[f"reason{number}"]
                felt = values.get(f"felt{number}")
                if felt is not None:
                    watched[at], valence[at] = True, FELT.index(felt) - 1
                    feelings[at] = values[f"feeling{number}"]
                    ratings[at] = float(values.get(f"rating{number}", "nan"))
        if self._rating == "distribution":
            self._rated(requests, cards, recalled, watched, reasons, filling, ratings, expected)
        return Judgements(
            watched=watched,
            ratings=ratings,
            expected=expected,
            valence=valence,
            feelings=feelings,
            reasons=reasons,
            **filling.replies(),
        )

    def _judged(
        self,
        requests: JudgeRequests,
        cards: Sequence[Sequence[Card]],
        recalled: Sequence[Sequence[tuple[int, str]]],
        numbers: Sequence[Sequence[int]],
        filling: _Filling,
        round_: int,
        arguments: dict[int, list[str]] | None = None,
    ) -> dict[int, dict[str, str]]:
        """Captures of :func:`page_judgement` by row."""
        rated = self._rating == "text"
        rows = []
        for row in range(len(requests)):
            if numbers[row] and filling.status[row] == OK:
                grammar = _judgement(tuple(numbers[row]), rated, requests.experienced)
                rows.append(
                    self._row(
                        requests,
                        row,
                        "judge",
                        grammar,
                        purpose=10 + round_,
                        memories=recalled[row],
                        page=_page(requests, row, cards[row]),
                        numbers=numbers[row],
                        rated=rated,
                        experienced=requests.experienced,
                        arguments=(arguments or {}).get(row, []),
                    )
                )
        return self._texts(rows, filling)

    def _arguments(
        self,
        requests: JudgeRequests,
        cards: Sequence[Sequence[Card]],
        recalled: Sequence[Sequence[tuple[int, str]]],
        numbers: Sequence[Sequence[int]],
        judged: dict[int, dict[str, str]],
        filling: _Filling,
    ) -> dict[int, list[str]]:
        """Evidence for and against each item, as lines by row."""
        rows = []
        for row, values in sorted(judged.items()):
            rows.append(
                self._row(
                    requests,
                    row,
                    "arguments",
                    _arguments_grammar(tuple(numbers[row])),
                    purpose=20,
                    memories=recalled[row],
                    page=_page(requests, row, cards[row]),
                    numbers=numbers[row],
                    watched=[n for n in numbers[row] if f"felt{n}" in values],
                )
            )
        return {
            row: [f"{n}. For: {found[f'for{n}']} Against: {found[f'against{n}']}"
                  for n in numbers[row]]
            for row, found in self._texts(rows, filling).items()
        }  # fmt: skip

    def _rated(
        self,
        requests: JudgeRequests,
        cards: Sequence[Sequence[Card]],
        recalled: Sequence[Sequence[tuple[int, str]]],
        watched: Bools,
        reasons: Any,
        filling: _Filling,
        ratings: Floats,
        expected: Floats,
    ) -> None:
        """Draw ratings of watched items from the model's distribution over 1-5."""
        options = Choice(rating_options(_SCALE, begun=self.begun))
        rows = [
            self._row(
                requests,
                row,
                "rate",
                options,
                purpose=30,
                memories=recalled[row],
                page=_page(requests, row, cards[row]),
                begun=self.begun,
                number=place + 1,
                reason=reasons[row, place],
                tag=place,
            )
            for row, place in zip(*(side.tolist() for side in np.nonzero(watched)), strict=True)
            if filling.status[row] == OK
        ]
        for asked, answer in self._answers(rows, filling):
            if answer.probabilities is None:
                filling.fail(asked.row, "invalid", "there is no distribution of ratings")
                continue
            shares = np.asarray(answer.probabilities)
            shares = shares / shares.sum()
            draw = uniform(np.uint64(requests.seeds[asked.row]), asked.tag)
            place = asked.row, asked.tag
            ratings[place] = 1 + min(4, int(np.searchsorted(shares.cumsum(), draw, side="right")))
            expected[place] = float(shares @ _SCALE.answers)

    # Recalling ----------------------------------------------------------------------------------

    def _recalled(
        self, requests: JudgeRequests, cards: Sequence[Sequence[Card]], filling: _Filling
    ) -> list[list[tuple[int, str]]]:
        """Numbers and texts of the entries that pages bring back, oldest first."""
        memories = [self._memory(requests, row) for row in range(len(requests))]
        if not self._recalls:
            return [
                [(n, memory.texts[n]) for n in range(max(0, len(memory) - 5), len(memory))]
                for memory in memories
            ]
        assert self._vectors is not None
        own: list[list[str]] = [[] for _ in memories]
        if self._questions:
            rows = [
                self._row(
                    requests, row, "ask", _ASK(), purpose=40, page=_page(requests, row, cards[row])
                )
                for row in range(len(requests))
                if requests.asked[row].any()
            ]
            # Questions are a help to memory: without them the page alone is the query.
            for row, found in self._texts(rows, filling, needed=False).items():
                own[row] = list(found.values())
        flat = self._vectors([q for questions in own for q in questions])
        queries, at = [], 0
        for row, questions in enumerate(own):
            items = requests.items[row][requests.asked[row]]
            vectors = self._items[items] if len(items) else self._items[:1] * 0
            queries.append(np.concatenate([vectors, flat[at : at + len(questions)]]))
            at += len(questions)
        recalled = recall_many(memories, queries)
        return [
            [(n, memory.texts[n]) for n in sorted(one.entries.tolist())]
            for memory, one in zip(memories, recalled, strict=True)
        ]

    def _memory(self, requests: Requests, row: int) -> EpisodicMemory:
        """The memory of one agent: its training history and what its visit added."""
        person = int(requests.people[row])
        if person not in self._histories:
            items, ratings = self._world.history.of(person)
            texts = [
                memory_text(
                    self._world.release.domain,
                    self._title(int(item)),
                    float(rating),
                    opinion_of(float(rating)),
                )
                for item, rating in zip(items, ratings, strict=True)
            ]
            self._histories[person] = EpisodicMemory.initial(items, texts, self._items)
        memory, entries = self._histories[person], requests.past.entries(row)
        if not entries:
            return memory
        texts = [entry.text for entry in entries]
        if self._recalls and self._vectors is not None:
            vectors = self._vectors(texts)
        else:
            vectors = np.zeros((len(texts), self._items.shape[1]), np.float32)
        return memory.extended(
            ["action" if e.kind == "action" else "reflection" for e in entries],
            np.array([self._numbers.get(e.item_id or "", -1) for e in entries], np.int64),
            texts,
            vectors,
        )

    def _title(self, item: int) -> str:
        title, year = self._titles[item]
        return f"{title} ({year})" if year else str(title)

    # The other questions ------------------------------------------------------------------------

    def decide(self, requests: DecideRequests) -> Decisions:
        """Decide for agents, a call for each; see :class:`sim.agents.Brain`."""
        n, filling = len(requests), _Filling(len(requests))
        actions = [_actions(requests, row) for row in range(n)]
        rows = [
            self._row(
                requests,
                row,
                "decide",
                _decision(tuple(actions[row])),
                purpose=50,
                memories=_recent(requests, row),
                actions=actions[row],
                moods=_MOODS,
                fatigue=_FATIGUE,
                emotions=_EMOTIONS,
                state="",
                formed=True,
                **self._visit(requests, row),
            )
            for row in range(n)
        ]
        flagged = self._flagged(requests) if self._counterfactual else None
        out = Decisions(
            flagged=flagged,
            actions=np.zeros(n, np.int64),
            targets=np.full(n, -1),
            moods=np.zeros(n, np.int64),
            fatigue=np.zeros(n, np.int64),
            emotions=np.zeros(n, np.int64),
            satisfaction=np.full(n, np.nan),
            reasons=np.full(n, None, object),
            **filling.replies(),
        )
        for row, found in self._texts(rows, filling).items():
            action, _, number = found["action"].partition(" ")
            out.actions[row] = _ACTIONS.index(action)
            out.targets[row] = int(number) - 1 if number else -1
            out.moods[row] = _MOODS.index(found["mood"])
            out.fatigue[row] = _FATIGUE.index(found["fatigue"])
            out.emotions[row] = _EMOTIONS.index(found["emotion"])
            out.satisfaction[row] = int(found["satisfaction"]) / 10
            out.reasons[row] = found["reason"]
        return out

    def leaving(self, requests: DecideRequests) -> Floats:
        """P(leave) if agents were content and rested, and if neither: (n, 2), NaN without one."""
        out, filling = np.full((len(requests), 2), np.nan), _Filling(len(requests))
        rows = [
            self._row(
                requests,
                row,
                "decide",
                Choice((_STAY, _LEAVE)),
                purpose=60 + case,
                memories=_recent(requests, row),
                actions=[_STAY, _LEAVE],
                state=state,
                formed=False,
                tag=case,
                **self._visit(requests, row),
            )
            for row in range(len(requests))
            for case, state in enumerate(_STATES)
        ]
        for asked, answer in self._answers(rows, filling):
            if answer.probabilities is not None:
                out[asked.row, asked.tag] = answer.probabilities[1] / sum(answer.probabilities)
        return out

    def _flagged(self, requests: DecideRequests) -> Texts:
        content, weary = self.leaving(requests).T
        asked = ~(np.isnan(content) | np.isnan(weary))
        flags: Texts = np.full(len(asked), None, object)
        flags[asked] = (content > weary)[asked]
        return flags

    def reflect(self, requests: ReflectRequests) -> Reflections:
        """Three questions and conclusions; see :class:`sim.agents.Brain`."""
        n, filling = len(requests), _Filling(len(requests))
        questions, insights = np.full((n, 3), None, object), np.full((n, 3), None, object)
        evidence = np.full((n, 3, EVIDENCE), -1, np.int64)
        rows = []
        for row in range(n):
            listed = _recent(requests, row) or self._last(requests, row)
            rows.append(
                self._row(
                    requests,
                    row,
                    "reflect",
                    _reflection(tuple(number for number, _ in listed)),
                    purpose=70,
                    memories=listed,
                    example=listed[0][0] if listed else "",
                )
            )
        for row, found in self._texts(rows, filling).items():
            for k in range(3):
                questions[row, k], insights[row, k] = found[f"question{k}"], found[f"insight{k}"]
                cited = found.get(f"evidence{k}", "")
                numbers = sorted({int(e) for e in cited.split(",") if e})
                evidence[row, k, : len(numbers)] = numbers
        return Reflections(
            questions=questions, insights=insights, evidence=evidence, **filling.replies()
        )

    def interview(self, requests: InterviewRequests) -> Interviews:
        """A reason, then a score; see :class:`sim.agents.Brain`."""
        n, filling = len(requests), _Filling(len(requests))
        scores, reasons = np.ones(n, np.int64), np.full(n, None, object)
        rows = []
        for row in range(n):
            past = requests.past
            ratings = past.ratings[row]
            rows.append(
                self._row(
                    requests,
                    row,
                    "interview",
                    self._interview,
                    purpose=80,
                    memories=_recent(requests, row),
                    views=int((past.pages[row] > 0).sum()),
                    shown=int(past.judged[row].sum()),
                    watched=int(past.watched[row].sum()),
                    ratings=[f"{r:g}" for r in ratings[~np.isnan(ratings)]],
                )
            )
        for row, found in self._texts(rows, filling).items():
            scores[row], reasons[row] = int(found["answer"]), found["reason"]
        return Interviews(scores=scores, reasons=reasons, **filling.replies())

    def classify(self, requests: ClassifyRequests) -> Classifications:
        """P(yes) of each item (SimUSER, appendix C.12); see :class:`sim.agents.Brain`."""
        filling = _Filling(len(requests))
        chance = np.full(requests.items.shape, np.nan)
        rows = []
        for row in range(len(requests)):
            cards = requests.cards(row)
            memory = self._memory(requests, row)
            queries = self._items[requests.items[row][requests.items[row] >= 0]]
            listed: list[tuple[int, str]] = []
            if self._recalls and len(queries):
                (found,) = recall_many([memory], [queries])
                listed = [(e, memory.texts[e]) for e in sorted(found.entries.tolist())]
            page = _page(requests, row, cards)
            rows += [
                self._row(
                    requests,
                    row,
                    "classify",
                    Choice(("yes", "no")),
                    purpose=90,
                    memories=listed,
                    page=page,
                    number=card.position + 1,
                    tag=card.position,
                )
                for card in cards
            ]
        for asked, answer in self._answers(rows, filling):
            if answer.probabilities is None:
                filling.fail(asked.row, "invalid", "there is no distribution of answers")
            else:
                yes, no = answer.probabilities
                chance[asked.row, asked.tag] = yes / (yes + no)
        return Classifications(probabilities=chance, **filling.replies())

    # Asking -------------------------------------------------------------------------------------

    def _row(
        self,
        requests: Requests,
        row: int,
        question: str,
        constraint: Grammar | Choice,
        *,
        purpose: int,
        tag: Any = None,
        **values: Any,
    ) -> _Row:
        person = int(requests.people[row])
        if person not in self._systems:
            known = self._people[person]
            habits = {name: known[name] for name in TRAITS} if self._world.traits else {}
            self._systems[person] = agent_system(
                self._world.release.domain,
                self._personas.row(known["persona"], named=True) if self._persona else {},
                habits,
            )
        is_grammar = isinstance(constraint, Grammar)
        return _Row(
            row,
            agent_messages(
                question,
                self._world.release.domain,
                self._systems[person],
                fault=requests.faults[row],
                **values,
            ),
            constraint.constraint if isinstance(constraint, Grammar) else constraint,
            self.longest(constraint) if isinstance(constraint, Grammar) else 1,
            f"agents/{person}",
            int(combine(requests.seeds[row], purpose)) & _SEED_BITS if is_grammar else 0,
            constraint if is_grammar else tag,
        )

    def _answers(self, rows: Sequence[_Row], filling: _Filling) -> Iterator[tuple[_Row, Answer]]:
        """Answers that can be used; the others fail their rows."""

        def sent() -> Iterator[Request]:
            # Requests of an agent follow each other: they begin alike.
            for one in sorted(rows, key=lambda r: (r.group, r.row)):
                text = not isinstance(one.constraint, Choice)
                yield Request(
                    one.messages,
                    constraint=one.constraint,
                    sampling=replace(
                        self._drawn if text else Sampling(1.0), max_tokens=one.max_tokens
                    ),
                    seed=one.seed,
                    group=one.group,
                    tag=one,
                )

        keys: dict[int, list[str]] = {}
        usable = []
        for request, key, answer in self._ask(sent()):
            one: _Row = request.tag
            keys.setdefault(one.row, []).append(key)
            filling.tokens[one.row] += answer.prompt_tokens + answer.completion_tokens
            if answer.status != OK:
                filling.fail(one.row, answer.status, f"{answer.status}: {answer.detail}"[:160])
            else:
                usable.append((one, answer))
        for row, made in keys.items():
            before = [] if filling.keys[row] is None else [filling.keys[row]]
            filling.keys[row] = ",".join([*before, *sorted(made)])
        # In an order of their own, whatever the order of arrival.
        yield from sorted(usable, key=lambda pair: (pair[0].row, repr(pair[0].messages)))

    def _texts(
        self, rows: Sequence[_Row], filling: _Filling, *, needed: bool = True
    ) -> dict[int, dict[str, str]]:
        """Captures of replies by row; without `needed` a bad reply fails nothing."""
        out = {}
        kept = filling if needed else _Filling(len(filling.status))
        for one, answer in self._answers(rows, kept):
            found = one.tag.parse(answer.text or "")
            if found is None:
                kept.fail(one.row, "invalid", "it was not in the form that was asked for")
            else:
                out[one.row] = found
        if not needed:
            filling.tokens += kept.tokens
        return out

    def _visit(self, requests: DecideRequests, row: int) -> dict[str, Any]:
        """Template values of a decision about the visit."""
        past = requests.past
        outcome = []
        for place in np.flatnonzero(past.judged[row, -1]).tolist():
            rating = past.ratings[row, -1, place]
            done = f"watched, rated {rating:g} of 5" if past.watched[row, -1, place] else "skipped"
            title = one_line(self._title(int(past.items[row, -1, place])))
            outcome.append(f"number {place + 1}, {title}: {done}")
        return {
            "views": int((past.pages[row] > 0).sum()),
            "page_number": int(requests.pages[row]),
            "pages": self._world.pages,
            "outcome": outcome,
        }

    def _last(self, requests: Requests, row: int) -> list[tuple[int, str]]:
        memory = self._memory(requests, row)
        return [(n, memory.texts[n]) for n in range(max(0, len(memory) - _RECENT), len(memory))]


# Grammars that many agents share.
_judgement = cache(
    lambda numbers, rated, watched: page_judgement(numbers, rated=rated, watched=watched)
)
_arguments_grammar = cache(page_arguments)
_decision = cache(lambda actions: page_decision(_MOODS, _FATIGUE, _EMOTIONS, actions))
_reflection = page_reflection
_ASK = cache(self_questions)


def _actions(requests: DecideRequests, row: int) -> list[str]:
    """Possible actions in words: ``click 2`` for each position that may be clicked."""
    out = [a for code, a in enumerate(_ACTIONS) if code != CLICK and requests.allowed[row, code]]
    if requests.allowed[row, CLICK]:
        out += [
            f"{_ACTIONS[CLICK]} {p + 1}" for p in np.flatnonzero(requests.clickable[row]).tolist()
        ]
    return out or [_ACTIONS[EXIT]]


def _recent(requests: Requests, row: int) -> list[tuple[int, str]]:
    """The newest entries of the visit."""
    entries: list[Entry] = requests.past.entries(row)
    return [(entry.number, entry.text) for entry in entries[-_RECENT:]]


def _page(requests: Requests, row: int, cards: Sequence[Card]) -> str:
    return page_block(
        int(requests.pages[row]),
        [
            ShownItem(
                card.position + 1,
                card.title,
                card.mean_rating,
                card.description,
                card.caption,
                card.similar,
                card.comment,
                card.reviews,
            )
            for card in cards
        ],
    )
