"""The brain that asks a language model: decisions first, then the words for them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any, Literal, Self

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit

from pipelines.errors import ConfigError
from pipelines.llm.engines import Answer, Choice, Constraint, Engine, Message, Request, Sampling
from pipelines.llm.grammars import Grammar, TextLimits, prose
from pipelines.llm.session import ModelSession
from pipelines.memory import EpisodicMemory, TextVectors, recall_many
from pipelines.personas import genre_phrase
from pipelines.prompts import (
    AGENT_PROMPT_VERSION,
    ShownItem,
    agent_item,
    agent_messages,
    agent_prompt_digest,
    like_options,
    memory_text,
    rating_options,
)
from pipelines.scales import SCALES
from pipelines.seeding import combine, hash_ids, uniform
from sim.agents._assumed import assumed
from sim.agents._choice import tastes_of
from sim.agents._pages import ItemDisplay, ItemDisplays
from sim.agents._protocol import (
    EXIT,
    OK,
    Classification,
    Decision,
    Floats,
    Judgement,
    Opinion,
    Question,
    seeds_of,
)
from sim.agents._remarks import DISLIKED_TO, LIKED_FROM, fault_of, genres_named
from sim.agents._rules import VisitRules
from sim.agents._visit import Visit
from sim.agents._world import AgentWorld
from sim.environment import PersonaTable

#: Seeds that every server takes: 31 bits.
_SEED_BITS = 0x7FFF_FFFF
_SCALE = SCALES["1-5"]
#: Log odds of a yes are cut at this: a scripted or sure model gives no infinite ones.
_SURE = 6.0
#: Entries that are recalled for a page, and newest ones of the visit beside them (counts).
_RECALLED, _NEWEST = 5, 2
#: Characters of a sentence behind its opening; one that reaches the bound is cut at a clause.
_LIMITS = TextLimits((1, 1), (8, 150))
_CLAUSE = re.compile(r"(?:,| -|;| and| but| which| so) ")
#: Which question a draw is for.
_WATCH, _RATE, _SAY = range(3)


@dataclass(frozen=True)
class _Row:
    """A prompt, and the place of its answer: number of the question, and of the item in it."""

    question: int
    place: int
    messages: tuple[Message, ...]
    constraint: Constraint
    group: str
    max_tokens: int = 1
    seed: int = 0
    opening: str = ""


@dataclass
class _Filling:
    """Status, keys and tokens of a question while answers come in."""

    status: str = OK
    fault: str | None = None
    keys: list[str] = field(default_factory=list)
    tokens: int = 0

    def fail(self, status: str, fault: str) -> None:
        """The first fault stands."""
        if self.status == OK:
            self.status, self.fault = status, fault

    def fields(self) -> dict[str, Any]:
        """The fields that all replies have."""
        keys = ",".join(sorted(self.keys)) or None
        return {
            "status": self.status,
            "fault": self.fault,
            "answer_key": keys,
            "tokens": self.tokens,
        }


@dataclass(frozen=True)
class _Level:
    """How readily the model says yes for a person."""

    #: Log odds of a yes at which the intercept of watching and the middle of ratings lie.
    watch: float
    rating: float


class ModelBrain(VisitRules, ModelSession):
    """Decides with a language model's probabilities, then lets it say why.

    Every item is a question of its own: whether the person will like it, yes or no. P(watch) is
    sigmoid(logit of a yes, less the person's level); the level is set with the answers about a few
    fixed items so that the person watches the assumed share of them. The rating is drawn from the
    distribution that the same answer and the person's training ratings give. One short sentence per
    item then gives the reason of that decision. Moods, fatigue, exits and interviews follow from
    what was watched and liked (:class:`VisitRules`).

    Parameters
    ----------
    settings
        Engine, serving and encoder.
    engine
        Instead of the settings' engine.
    rating
        ``like``: from the answer yes or no; ``scale``: the model is asked for 1 to 5.
    persona
        Whether the persona's facts stand in the prompts.
    temperature, min_p
        Of texts: temperature, and least probability of a token as a share of the most probable
        one's. Without the latter a small model's texts wander.
    vectors
        Encoder of memories; None: the settings', opened where the release has item vectors.

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
        rating: Literal["like", "scale"] = "like",
        persona: bool = True,
        temperature: float = 0.5,
        min_p: float = 0.1,
        vectors: TextVectors | None = None,
    ) -> None:
        if rating not in ("like", "scale"):
            raise ConfigError(
                f"rating is {rating!r}", where="brain model", hint="rating is like or scale"
            )
        super().__init__(settings, engine=engine)
        self._vectors, self._rating, self._persona = vectors, rating, persona
        self._options = {
            "rating": rating,
            "persona": persona,
            "temperature": temperature,
            "min_p": min_p,
        }
        self._drawn = Sampling(temperature, min_p=min_p)
        self._like = Choice(like_options(begun=self.begun))
        self.note = f"A language model, {self._engine.identity.model}, plays the agent."

    def open(self, world: AgentWorld) -> Self:
        """Take in people, their histories and the vectors of items."""
        self._world = world
        self.set_rules(world, tastes_of(world))
        self._model: dict[str, Any] = assumed()["model"]
        self._openings: dict[str, str] = assumed()["openings"]
        self._personas = PersonaTable.read(world.release).frame
        self._rows = world.catalogue.frame.to_dicts()
        #: Log odds of a yes about the fixed items, by person.
        self._fixed: dict[int, Floats] = {}
        self._histories: dict[int, EpisodicMemory] = {}
        order = np.argsort(hash_ids(world.catalogue.ids), kind="stable")
        self._reference = tuple(order[: self._model["reference"]].tolist())
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
            "assumed": {"model": assumed()["model"], "rules": assumed()["statistical"]},
            **self._options,
        }

    # Deciding -----------------------------------------------------------------------------------

    def judge(self, questions: Sequence[Question]) -> list[Judgement]:
        """Watch with P(watch), rate, then say why; see :class:`sim.agents.Brain`."""
        filling, cards = [_Filling() for _ in questions], self._shown(questions)
        liking = self._liking(questions, cards, filling)
        seeds = seeds_of(questions)
        opinions: list[list[Opinion]] = []
        for question, seed, odds, done in zip(questions, seeds, liking, filling, strict=True):
            person = question.visit.person
            if done.status != OK:
                opinions.append([])
                continue
            level, places = self._level(person), np.array(question.positions, np.int64)
            chances = expit(self._model["watch_gain"] * odds - level.watch)
            watched = question.experienced | (uniform(seed, places, _WATCH) < chances)
            shares = self._rating_shares(person, odds - level.rating)
            opinions.append(
                [
                    self._opinion(*values)
                    for values in zip(
                        watched.tolist(), chances.tolist(), shares,
                        uniform(seed, places, _RATE).tolist(), strict=True,
                    )
                ]
            )  # fmt: skip
        if self._rating == "scale":
            self._asked_ratings(questions, cards, opinions, seeds, filling)
        self._say(questions, opinions, seeds, filling)
        return [
            Judgement(opinions=tuple(own), **done.fields())
            for own, done in zip(opinions, filling, strict=True)
        ]

    def classify(self, questions: Sequence[Question]) -> list[Classification]:
        """P(watch) without habits; see :class:`sim.agents.Brain`."""
        filling = [_Filling() for _ in questions]
        liking = self._liking(questions, self._shown(questions), filling)
        out = []
        for question, odds, done in zip(questions, liking, filling, strict=True):
            person = question.visit.person
            chances: tuple[float, ...] = ()
            if done.status == OK:
                at = self._level(person).watch + self._habits[person]
                chances = tuple(expit(self._model["watch_gain"] * odds - at).tolist())
            out.append(Classification(probabilities=chances, **done.fields()))
        return out

    def _liking(
        self, questions: Sequence[Question], cards: list[list[str]], filling: list[_Filling]
    ) -> list[Floats]:
        """Log odds of a yes by question and item in units of the model's spread; NaN without one.

        New people, and the first ones of the world, are asked about the fixed items too.
        """
        people = {q.visit.person for q in questions}
        if questions:
            people |= {*range(min(self._model["reference_people"], len(self._world)))}
        world = questions[0].visit.world if questions else self._world
        fixed = [
            Question("judge", Visit(world, 0, person), (0,) * 5, items=self._reference)
            for person in sorted(people - {*self._fixed})
        ]
        every = [*questions, *fixed]
        # Asked once per person, whoever plays it: no agent's calls.
        own = [*filling, *(_Filling() for _ in fixed)]
        cards = cards + self._shown(fixed, plain=True)
        memories = self._recalled(every)
        odds = [np.full(len(q.items), np.nan) for q in every]
        rows = [
            self._row(n, place, q, "like", self._like, memories=memories[n], item=card)
            for n, q in enumerate(every)
            for place, card in enumerate(cards[n])
        ]
        for row, answer in self._answers(rows, own):
            if answer.probabilities is None:
                own[row.question].fail("invalid", "there is no distribution of answers")
            else:
                yes, no = (max(p, 1e-9) for p in answer.probabilities)
                odds[row.question][row.place] = np.clip(np.log(yes / no), -_SURE, _SURE)
        for question, values in zip(fixed, odds[len(questions) :], strict=True):
            if not np.isnan(values).any():
                self._fixed[question.visit.person] = values
        for question, done in zip(questions, filling, strict=True):
            if question.visit.person not in self._fixed:
                done.fail("invalid", "the answers about the fixed items can't be used")
        return [values / self._spread() for values in odds[: len(questions)]]

    def _spread(self) -> float:
        """Spread of the log odds within people, over the fixed items and the world's first people.

        A model that says nearly the same of everything is made as decided as one that is sure.
        """
        odds = [self._fixed[p] for p in range(self._model["reference_people"]) if p in self._fixed]
        variance = np.mean([values.var() for values in odds]) if odds else 0.0
        return float(max(np.sqrt(variance), self._model["least_spread"]))

    def _level(self, person: int) -> _Level:
        """The level at which the person watches the assumed share of the fixed items."""
        odds = self._fixed[person] / self._spread()
        share = float(expit(logit(self._set["watch"]) + self._habits[person]))
        values = self._model["watch_gain"] * odds
        level = brentq(lambda at: float(expit(values - at).mean()) - share, -500.0, 500.0)
        weights = expit(values - level)
        return _Level(float(level), float((weights * odds).sum() / weights.sum()))

    def _rating_shares(self, person: int, odds: Floats) -> Floats:
        """Distributions over 1-5 of items at log odds above the usual watched one, (items, 5).

        A cumulative logit model whose cutpoints are those of the person's training ratings.
        """
        _, stars = self._world.history.of(person)
        counts = np.bincount(np.clip(np.rint(stars), 1, 5).astype(int) - 1, minlength=5)
        counts = counts + self._model["ratings_prior"] * self._world.histogram
        below = np.clip(np.cumsum(counts)[:-1] / counts.sum(), 1e-6, 1 - 1e-6)
        cumulative = expit(logit(below) - self._model["rating_gain"] * odds[:, None])
        return np.diff(cumulative, prepend=0.0, append=1.0, axis=1)

    def _opinion(self, watched: bool, chance: float, shares: Floats, draw: float) -> Opinion:
        expected = float(shares @ _SCALE.answers)
        below = int(np.searchsorted(shares.cumsum(), draw, side="right"))
        return Opinion(watched, 1 + min(4, below) if watched else None, chance, expected)

    def _asked_ratings(
        self,
        questions: Sequence[Question],
        cards: list[list[str]],
        opinions: list[list[Opinion]],
        seeds: Any,
        filling: list[_Filling],
    ) -> None:
        """Draw ratings from the model's own distribution over 1-5."""
        options = Choice(rating_options(_SCALE, begun=self.begun))
        memories = self._recalled(questions)
        rows = [
            self._row(n, place, question, "rate", options, memories=memories[n],
                      item=cards[n][place])
            for n, question in enumerate(questions)
            for place, opinion in enumerate(opinions[n])
            if opinion.watched
        ]  # fmt: skip
        for row, answer in self._answers(rows, filling):
            if answer.probabilities is None:
                filling[row.question].fail("invalid", "there is no distribution of ratings")
                continue
            shares = np.asarray(answer.probabilities) / sum(answer.probabilities)
            own, place = opinions[row.question], questions[row.question].positions[row.place]
            draw = float(uniform(seeds[row.question], place, _RATE))
            own[row.place] = self._opinion(True, own[row.place].chance or 0.0, shares, draw)

    # Saying -------------------------------------------------------------------------------------

    def _say(
        self,
        questions: Sequence[Question],
        opinions: list[list[Opinion]],
        seeds: Any,
        filling: list[_Filling],
    ) -> None:
        """One sentence on each decision; one that contradicts it is asked for once more."""
        missing = [(n, place) for n, own in enumerate(opinions) for place in range(len(own))]
        for attempt in (0, 1):
            rows = []
            for n, place in missing:
                opinion, position = opinions[n][place], questions[n].positions[place]
                tastes, side = self._tastes(questions[n], place, opinion)
                opening = self._openings[side]
                seed = int(combine(seeds[n], position, _SAY, attempt)) & _SEED_BITS
                rows.append(
                    self._row(
                        n, place, questions[n], "say", _sentence(opening), seed=seed,
                        item=self._fact(questions[n].items[place]), rating=opinion.rating,
                        tastes=tastes, opening=opening,
                    )
                )  # fmt: skip
            # A sentence is no decision: without one the decision stands.
            for row, answer in self._answers(rows, filling, needed=False):
                n, place = row.question, row.place
                opinion = opinions[n][place]
                text = _finished(row.opening, answer.text or "")
                if text is None or self._fault(questions[n], place, opinion, text):
                    continue
                opinions[n][place] = (
                    replace(opinion, feeling=text)
                    if opinion.watched
                    else replace(opinion, reason=text)
                )
            missing = [
                (n, place)
                for n, place in missing
                if opinions[n][place].reason is None and opinions[n][place].feeling is None
            ]

    def _tastes(self, question: Question, place: int, opinion: Opinion) -> tuple[str, str]:
        """Stated tastes about the item that agree with a decision, in words; and its opening."""
        side, persona = _side(opinion), self._persona_of(question.visit)
        stated = persona.get("likes" if side == "liked" else "dislikes") or ()
        domain, own = self._world.release.domain, self._rows[question.items[place]]["genres"] or ()
        named = [genre_phrase(genre, domain) for genre in own if genre in stated]
        if side == "mixed":
            named = []
        return " and ".join(named), "avoided" if side == "skipped" and named else side

    def _fault(self, question: Question, place: int, opinion: Opinion, text: str) -> str | None:
        """How a text contradicts the decision, the item or the person; None if it does not."""
        persona, names = self._persona_of(question.visit), self._world.genre_names
        genres = self._rows[question.items[place]]["genres"] or ()
        domain = self._world.release.domain
        column = {"liked": "dislikes", "mixed": ""}.get(_side(opinion), "likes")
        against = persona.get(column) or ()
        for genre in genres_named(text, names, domain):
            if genre not in genres or genre in against:
                return "a genre that is none of the item's, or speaks against the decision"
        return fault_of(
            text, rating=opinion.rating, genres=genres, known=names, gender=persona.get("gender"),
            domain=domain,
        )  # fmt: skip

    def decide(self, questions: Sequence[Question]) -> list[Decision]:
        """As the rules say; who leaves says why in the model's words."""
        decisions, filling = super().decide(questions), [_Filling() for _ in questions]
        reasons = self._reasons()
        rows = []
        for n, (question, decision, seed) in enumerate(
            zip(questions, decisions, seeds_of(questions), strict=True)
        ):
            if decision.action == EXIT:
                opening = self._openings[reasons[decision.reason or ""]]
                seen = question.visit.watched()
                rows.append(
                    self._row(
                        n, 0, question, "leave", _sentence(opening),
                        seed=int(combine(seed, _SAY)) & _SEED_BITS, opening=opening,
                        pages=len({view.page for view in question.visit.views}),
                        chosen=len(seen), ratings=[o.rating for _, o in seen],
                        fatigue=decision.fatigue,
                    )
                )  # fmt: skip
        for row, answer in self._answers(rows, filling, needed=False):
            text = _finished(row.opening, answer.text or "")
            if text is not None:
                decisions[row.question] = replace(decisions[row.question], reason=text)
        return [
            replace(decision, **done.fields())
            for decision, done in zip(decisions, filling, strict=True)
        ]

    def _reasons(self) -> dict[str, str]:
        """Names of the reasons to leave by the rules' texts."""
        return {text: name for name, text in self._decisions[EXIT].items()}

    # Recalling ----------------------------------------------------------------------------------

    def _recalled(self, questions: Sequence[Question]) -> list[list[str]]:
        """Texts of the entries that pages bring back, oldest first."""
        memories = [self._memory(question.visit) for question in questions]
        if not self._recalls:
            return [list(memory.texts[-_RECALLED:]) for memory in memories]
        queries = [
            self._items[list(question.items)] if question.items else self._items[:1] * 0
            for question in questions
        ]
        recalled = recall_many(memories, queries, _RECALLED)
        return [
            [memory.texts[n] for n in sorted({*recall.entries.tolist(), *_newest(memory)})]
            for memory, recall in zip(memories, recalled, strict=True)
        ]

    def _memory(self, visit: Visit) -> EpisodicMemory:
        """The memory of one agent: its training history and what its visit added."""
        person = visit.person
        if person not in self._histories:
            items, ratings = self._world.history.of(person)
            texts = [
                memory_text(self._world.titles[item], rating)
                for item, rating in zip(items.tolist(), ratings.tolist(), strict=True)
            ]
            self._histories[person] = EpisodicMemory.initial(items, texts, self._items)
        memory = self._histories[person]
        # Conclusions are the rules' own words: they tell a model nothing of the person's taste.
        entries = [entry for entry in visit.entries if entry.item is not None]
        if not entries:
            return memory
        items = np.array([entry.item for entry in entries], np.int64)
        return memory.extended(
            ["action"] * len(entries), items, [e.text for e in entries], self._items[items]
        )

    # Asking -------------------------------------------------------------------------------------

    def _shown(self, questions: Sequence[Question], *, plain: bool = False) -> list[list[str]]:
        """Items of questions as a prompt shows them; plain ones without texts of other people."""
        width = max((len(question.items) for question in questions), default=0)
        items = np.full((len(questions), width), -1)
        for row, question in zip(items, questions, strict=True):
            row[: len(question.items)] = question.items
        long = np.array([[q.detailed] * width for q in questions], np.bool_).reshape(items.shape)
        if not width:
            return [[] for _ in questions]
        # An experiment may show other texts than those of the world that the brain was opened on.
        world = questions[0].visit.world
        graphs = [question.visit.graph for question in questions] if world.graph else None
        users = [question.visit.user for question in questions]
        cards = ItemDisplays(world).of(items, long, users=users, memories=graphs)
        return [
            [
                self._card(item, card, plain=plain, detailed=question.detailed)
                for item, card in zip(question.items, own, strict=True)
            ]
            for question, own in zip(questions, cards, strict=True)
        ]

    def _card(self, item: int, card: ItemDisplay, *, plain: bool, detailed: bool) -> str:
        shown = ShownItem(self._rows[item], card.mean_rating, similar=card.similar)
        if not plain:
            shown = replace(
                shown,
                story=card.description if detailed else "",
                caption=card.caption,
                comment=card.comment,
                reviews=card.reviews,
            )
        return agent_item(self._world.release.domain, shown)

    def _fact(self, item: int) -> str:
        """Title, year and genres alone: a small model takes other titles for the item's."""
        return agent_item(self._world.release.domain, ShownItem(self._rows[item], None))

    def _persona_of(self, visit: Visit) -> dict[str, Any]:
        if not self._persona:
            return {}
        row = self._world.people["persona"][visit.person]
        return self._personas.row(row, named=True)

    def _row(
        self,
        number: int,
        place: int,
        question: Question,
        asked: str,
        constraint: Grammar | Choice,
        *,
        seed: int = 0,
        **values: Any,
    ) -> _Row:
        messages = agent_messages(
            asked,
            self._world.release.domain,
            self._persona_of(question.visit),
            begun=self.begun,
            **values,
        )
        group = f"agents/{question.visit.person}"
        if isinstance(constraint, Choice):
            return _Row(number, place, messages, constraint, group)
        return _Row(
            number, place, messages, constraint.constraint, group, self.longest(constraint), seed,
            values["opening"],
        )  # fmt: skip

    def _answers(
        self, rows: Sequence[_Row], filling: list[_Filling], *, needed: bool = True
    ) -> Iterator[tuple[_Row, Answer]]:
        """Usable answers, in the order of the rows; others fail their question if needed."""

        def sent() -> Iterator[Request]:
            # Prompts of an agent follow each other: they begin alike.
            for number, row in sorted(enumerate(rows), key=lambda pair: pair[1].group):
                sampling = Sampling(1.0) if isinstance(row.constraint, Choice) else self._drawn
                yield Request(
                    row.messages,
                    constraint=row.constraint,
                    sampling=replace(sampling, max_tokens=row.max_tokens),
                    seed=row.seed,
                    group=row.group,
                    tag=number,
                )

        answers: list[Answer | None] = [None] * len(rows)
        for request, key, answer in self._ask(sent()):
            done = filling[rows[request.tag].question]
            done.keys.append(key)
            done.tokens += answer.prompt_tokens + answer.completion_tokens
            answers[request.tag] = answer
        for row, found in zip(rows, answers, strict=True):
            if found is not None and found.status == OK:
                yield row, found
            elif found is not None and needed:
                filling[row.question].fail(found.status, f"{found.status}: {found.detail}"[:160])


def _newest(memory: EpisodicMemory) -> list[int]:
    """Numbers of the newest entries of the visit."""
    last = range(max(0, len(memory) - _NEWEST), len(memory))
    return [number for number in last if memory.kinds[number] == "action"]


@cache
def _sentence(opening: str) -> Grammar:
    return prose(limits=_LIMITS, name="agents/say", opening=opening)


def _side(opinion: Opinion) -> str:
    """Name of the opening of what is said about a decision."""
    if opinion.rating is None:
        return "skipped"
    if opinion.rating >= LIKED_FROM:
        return "liked"
    return "disliked" if opinion.rating <= DISLIKED_TO else "mixed"


def _finished(opening: str, text: str) -> str | None:
    """A sentence that ends where it ends; one that the grammar's bound cut ends at a clause."""
    if _sentence(opening).parse(text) is None:
        return None
    if len(text) - len(opening) <= _LIMITS.characters[1]:
        return text
    first = len(opening) + _LIMITS.characters[0]
    clauses = [match.start() for match in _CLAUSE.finditer(text, first)]
    return f"{text[: clauses[-1]]}." if clauses else None
