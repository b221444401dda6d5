"""Generated books, and conformance tests for agents and customers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields, replace
from typing import Any

import numpy as np
import orjson

from pipelines.seeding import combine
from sim.dialogue._book import SPLITS, Book, ChoiceSet, Facet, Ints
from sim.dialogue._lifetimes import Lifetimes, product_order
from sim.dialogue._protocol import (
    FAILED,
    LEAKED,
    NO_PREFERENCE,
    OK,
    UNMATCHED,
    Actions,
    Agent,
    Answers,
    Customer,
    Outcomes,
    Questions,
    Sales,
    Views,
)

__all__ = [
    "AgentContract",
    "CustomerContract",
    "sample_book",
    "sample_questions",
    "sample_sales",
    "sample_views",
]

_KINDS = {
    "material": ("wood", "metal", "plastic", "cotton", "glass"),
    "colour": ("black", "white", "red", "blue", "green"),
    "size": ("small", "medium", "large"),
    "audience": ("adults", "children", "pets"),
    "room": ("kitchen", "garden", "office", "bathroom"),
    "style": ("modern", "classic", "rustic"),
    "scent": ("lavender", "citrus", "none"),
    "care": ("machine washable", "hand wash"),
    "power": ("battery", "mains", "solar"),
    "origin": ("local", "imported"),
}
_PRICES = ("low", "medium", "high")


def sample_book(
    seed: int = 0,
    *,
    sets: int = 14,
    products: int = 18,
    personas: int = 60,
    facets: int = 6,
    dimensions: int = 8,
    unseen: float = 0.2,
    noise: float = 4.0,
) -> Book:
    """A generated book whose customers have tastes for facet values.

    A persona likes one value of every kind and is indifferent to some kinds; its score of a
    product is the weighted share of liked values plus a taste for the text vectors and noise.

    Parameters
    ----------
    seed
        Of all draws.
    sets, products, personas, facets
        Counts; facets beyond the named vocabularies have two to five values.
    dimensions
        Of the text vectors.
    unseen
        Share of sets, the last ones, that agents have no scores of. Personas are split 70/10/20.
    noise
        Standard deviation of what nothing explains (points).
    """
    rng = np.random.default_rng(seed)
    kinds = ["price", *_KINDS]
    kinds += [f"word {n}" for n in range(max(0, facets - len(kinds)))]
    words = {kind: tuple("abcdef"[: 2 + n % 4]) for n, kind in enumerate(kinds)}
    vocabularies = [(words | _KINDS | {"price": _PRICES})[kind] for kind in kinds]
    liked = np.stack([rng.integers(len(v), size=personas) for v in vocabularies], axis=1)
    weight = rng.gamma(1.0, 1.0, (personas, len(kinds)))
    taste = rng.normal(size=(personas, dimensions)).astype(np.float32)
    choice_sets = []
    for number in range(sets):
        drawn = rng.permutation(np.arange(1, len(kinds)))[: max(facets - 1, 0)]
        chosen = np.concatenate([[0], drawn])[:facets]
        price = np.round(rng.lognormal(3.0, 0.7, products), 2)
        thirds = np.searchsorted(np.quantile(price, [1 / 3, 2 / 3]), price)
        set_facets, match = [], np.zeros((personas, products))
        for kind in chosen:
            width = min(len(vocabularies[kind]), products // 2)
            of = thirds if kind == 0 else rng.permutation(np.arange(products) % width)
            name = kinds[kind]
            set_facets.append(
                Facet(
                    facet_id=f"{name}:{number}",
                    kind=name,
                    question=f"Which {name} do you prefer?",
                    values=vocabularies[kind][:width],
                    of=of.astype(np.int8),
                )
            )
            match += weight[:, kind, None] * (liked[:, kind, None] % width == of[None, :])
        share = match / weight[:, chosen].sum(axis=1, keepdims=True)
        vectors = rng.normal(size=(products, dimensions)).astype(np.float32)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        y = 25 + 65 * share + 4 * taste @ vectors.T + rng.normal(0, noise, share.shape)
        rating = np.round(rng.uniform(2, 5, products), 1).astype(np.float32)
        rating[rng.random(products) < 0.1] = np.nan
        price[rng.random(products) < 0.1] = np.nan
        titles = tuple(
            " ".join(f.values[int(f.of[p])] for f in set_facets[1:4]) + f" thing {number}-{p}"
            for p in range(products)
        )
        choice_sets.append(
            ChoiceSet(
                category_id=f"C{number:03d}",
                name=f"Things {number}",
                path=f"Home > Things {number}",
                item_ids=tuple(f"P{number:03d}-{p:02d}" for p in range(products)),
                titles=titles,
                texts=titles,
                price=price.astype(np.float32),
                rating=rating,
                vectors=vectors,
                facets=tuple(set_facets),
                y=np.clip(y, 0, 100).astype(np.float32),
                seen=number < sets - round(unseen * sets),
            )
        )
    cut = np.searchsorted([0.7, 0.8], (np.arange(personas) + 0.5) / personas)
    favourites = [
        [vocabulary[k] for vocabulary, k in zip(vocabularies, row, strict=True)] for row in liked
    ]
    return Book(
        sets=tuple(choice_sets),
        persona_ids=tuple(f"persona-{n:04d}" for n in range(personas)),
        descriptions=tuple(f"I like {', '.join(row)}." for row in favourites),
        attributes=tuple(
            {"age": str(int(age)), "income": str(rng.choice(["low", "medium", "high"]))}
            for age in rng.integers(18, 80, personas)
        ),
        splits=cut.astype(np.int8),
        raters=("sample",),
        metadata={"seed": seed, "splits": SPLITS},
    )


def sample_views(
    book: Book,
    *,
    turn: int = 0,
    rows: int = 6,
    seed: int = 0,
    max_questions: int = 20,
    privileged: bool = False,
) -> Views:
    """Dialogues of different lifetimes after `turn` questions, about the first facets.

    Answers are the first value, the second, and so on; the customers are test personas.
    """
    life = Lifetimes.draw(book, range(rows), episodes=1)
    sets = life.sets[:, 0]
    facets = np.full((rows, max_questions), -1)
    answers = np.full((rows, max_questions), UNMATCHED, np.int8)
    for row, number in enumerate(sets.tolist()):
        for n, facet in enumerate(book.sets[number].facets[:turn]):
            facets[row, n] = n
            answers[row, n] = n % len(facet.values)
    transcripts = [
        [
            (f.question, f.values[n % len(f.values)])
            for n, f in enumerate(book.sets[s].facets[:turn])
        ]
        for s in sets.tolist()
    ]
    return Views(
        lifetime=np.arange(rows),
        episode=np.zeros(rows, np.int64),
        turn=np.full(rows, turn),
        seeds=combine(seed, life.seeds, turn),
        set=sets,
        customer=np.zeros(rows, np.int64),
        order=product_order(book, life.seeds, 0, sets),
        facets=facets,
        answers=answers,
        questions_left=np.full(rows, max_questions - turn),
        must_ask=np.zeros(rows, np.bool_),
        transcript=lambda row: transcripts[row],
        past=lambda _: [],
        persona=life.personas[:, 0] if privileged else None,
    )


def sample_questions(book: Book, *, text: str | None = None, rows: int = 6) -> Questions:
    """One question per lifetime: about the first facet, or in words."""
    life = Lifetimes.draw(book, range(rows), episodes=1)
    return Questions(
        lifetime=np.arange(rows),
        episode=np.zeros(rows, np.int64),
        turn=np.zeros(rows, np.int64),
        seeds=combine(life.seeds, 0),
        set=life.sets[:, 0],
        persona=life.personas[:, 0],
        facet=np.full(rows, 0 if text is None else -1),
        text=None if text is None else np.array([text] * rows, object),
        transcript=lambda _: [],
    )


def sample_sales(book: Book, *, rows: int = 6) -> Sales:
    """Sales of the first product of the set."""
    life = Lifetimes.draw(book, range(rows), episodes=1)
    return Sales(
        lifetime=np.arange(rows),
        episode=np.zeros(rows, np.int64),
        seeds=combine(life.seeds, 1),
        set=life.sets[:, 0],
        persona=life.personas[:, 0],
        product=np.zeros(rows, np.int64),
        y=book.scores(life.sets[:, 0], life.personas[:, 0]),
        transcript=lambda _: [],
    )


def _taken(batch: Any, rows: Ints) -> Any:
    """Some rows of a batch."""
    changed: dict[str, Any] = {}
    for name in (f.name for f in fields(batch)):
        value = getattr(batch, name)
        if isinstance(value, np.ndarray):
            changed[name] = value[rows]
        elif callable(value):
            changed[name] = lambda row, value=value: value(int(rows[row]))
    return replace(batch, **changed)


def _plain(batch: Any) -> list[list[str]]:
    """Columns of a batch as texts: not a number equals itself."""
    values = (getattr(batch, f.name) for f in fields(batch))
    return [[repr(v) for v in column.tolist()] for column in values if column is not None]


class AgentContract(ABC):
    """Behaviour required of every :class:`sim.dialogue.Agent`."""

    #: Turns at which it is asked (questions so far).
    turns: tuple[int, ...] = (0, 2)

    @abstractmethod
    def make(self) -> Agent:
        """The agent under test, not opened."""

    def opened(self, book: Book, seed: int = 3) -> Agent:
        """The agent, opened as a run opens it."""
        agent = self.make()
        agent.open(book if agent.privileged else book.disclosed(), seed)
        return agent

    def views(self, book: Book, **options: Any) -> Views:
        """Sample views; of privileged agents with personas."""
        return sample_views(book, privileged=self.make().privileged, **options)

    def outcomes(self, views: Views) -> Outcomes:
        """The first product was sold, at a regret of 15 points."""
        regret = np.full(len(views), 15.0, np.float32)
        return Outcomes(views, product=views.order[:, 0], regret=regret)

    def test_it_says_what_it_is(self) -> None:
        """A name for tables, and settings that can be stored."""
        agent = self.make()
        assert isinstance(agent, Agent)
        assert agent.name
        assert isinstance(agent.privileged, bool)
        assert orjson.dumps(agent.metadata())

    def test_actions_are_possible_ones(self, book: Book) -> None:
        """A facet of the set or a question in words; a product of the dialogue."""
        agent = self.opened(book)
        for turn in self.turns:
            views = self.views(book, turn=turn)
            actions: Actions = agent.act(views)
            ok = np.ones(len(views), np.bool_) if actions.status is None else actions.status == OK
            for row in np.flatnonzero(ok).tolist():
                shelf = book.sets[int(views.set[row])]
                if actions.ask[row]:
                    said = actions.text is not None and actions.text[row]
                    assert 0 <= actions.facet[row] < len(shelf.facets) or said
                else:
                    assert 0 <= actions.product[row] < len(shelf)
            for p in (actions.confidences, actions.distribution):
                values = np.zeros(0) if p is None else p[~np.isnan(p)]
                assert ((values >= -1e-6) & (values <= 1 + 1e-6)).all()

    def test_it_sells_when_no_question_is_left(self, book: Book) -> None:
        """With none left every row recommends or has failed."""
        views = replace(self.views(book), questions_left=np.zeros(6, np.int64))
        actions = self.opened(book).act(views)
        ok = np.ones(6, np.bool_) if actions.status is None else actions.status == OK
        assert not actions.ask[ok].any()

    def test_actions_do_not_depend_on_the_batch(self, book: Book) -> None:
        """A row alone gets what it gets among others, in any order; asking again changes none."""
        agent = self.opened(book)
        for turn in self.turns:
            views = self.views(book, turn=turn)
            batch = _plain(agent.act(views))
            back = _plain(agent.act(_taken(views, np.arange(6)[::-1])))
            alone = _plain(agent.act(_taken(views, np.array([4]))))
            assert batch == [column[::-1] for column in back]
            assert [column[4:5] for column in batch] == alone

    def test_relabelled_products_give_relabelled_recommendations(self, book: Book) -> None:
        """The numbers of the products in the dialogue do not matter."""
        agent = self.opened(book)
        if agent.metadata().get("reads_order") or agent.name == "random":
            return
        views = replace(self.views(book, turn=2), questions_left=np.zeros(6, np.int64))
        turned = views.order.copy()
        for row, size in enumerate(book.sizes[views.set].tolist()):
            turned[row, :size] = views.order[row, :size][::-1]
        first, second = agent.act(views), agent.act(replace(views, order=turned))
        at = np.arange(6)
        assert (views.order[at, first.product] == turned[at, second.product]).all()

    def test_wiped_lifetimes_are_as_new(self, book: Book) -> None:
        """After `wipe` an agent acts as one that learned nothing; others keep what they have."""
        fresh, agent = self.opened(book), self.opened(book)
        views = self.views(book, turn=1)
        agent.learn(self.outcomes(views))
        agent.wipe(views.lifetime)
        assert _plain(agent.act(views)) == _plain(fresh.act(views))

    def test_learning_is_by_lifetime(self, book: Book) -> None:
        """Lifetimes learn independently of each other."""
        fresh, agent = self.opened(book), self.opened(book)
        views = self.views(book, turn=1)
        half = np.arange(3)
        agent.learn(self.outcomes(_taken(views, half)))
        others = _taken(views, np.arange(3, 6))
        assert _plain(agent.act(others)) == _plain(fresh.act(others))


class CustomerContract(ABC):
    """Behaviour required of every :class:`sim.dialogue.Customer`."""

    @abstractmethod
    def make(self) -> Customer:
        """The customer under test, not opened."""

    def opened(self, book: Book, seed: int = 3) -> Customer:
        """The customer, opened."""
        customer = self.make()
        customer.open(book, seed)
        return customer

    def test_it_says_what_it_is(self) -> None:
        """A name for tables, and settings that can be stored."""
        customer = self.make()
        assert isinstance(customer, Customer)
        assert customer.name
        assert orjson.dumps(customer.metadata())

    def test_answers_are_values_of_the_facet(self, book: Book) -> None:
        """A value of the matched facet, no preference or unmatched; or a known status."""
        customer = self.opened(book)
        for text in (None, "Which price do you prefer?", "qwerty?"):
            questions = sample_questions(book, text=text)
            answers: Answers = customer.answer(questions)
            assert len(answers.facet) == len(answers.value) == len(questions)
            status = np.zeros(6, np.int8) if answers.status is None else answers.status
            assert set(status.tolist()) <= {OK, FAILED, LEAKED}
            for row in np.flatnonzero(status == OK).tolist():
                facet, value = int(answers.facet[row]), int(answers.value[row])
                if facet < 0:
                    assert value == UNMATCHED
                    assert answers.text is not None
                    assert answers.text[row]
                else:
                    widths = book.sets[int(questions.set[row])].widths
                    assert value in (NO_PREFERENCE, *range(int(widths[facet])), UNMATCHED)

    def test_the_same_question_gets_the_same_answer(self, book: Book) -> None:
        """In any batch and order, and of another instance with the same seed."""
        questions = sample_questions(book)
        batch = _plain(self.opened(book).answer(questions))
        back = _plain(self.opened(book).answer(_taken(questions, np.arange(6)[::-1])))
        alone = _plain(self.opened(book).answer(_taken(questions, np.array([4]))))
        assert batch == [column[::-1] for column in back]
        assert [column[4:5] for column in batch] == alone

    def test_feedback_names_no_product(self, book: Book) -> None:
        """Words for each sale, without titles and ids; or a status other than ok."""
        sales = sample_sales(book)
        feedback = self.opened(book).feedback(sales)
        for row, text in enumerate(feedback.text.tolist()):
            if feedback.status is not None and feedback.status[row] != OK:
                continue
            shelf = book.sets[int(sales.set[row])]
            assert text
            assert not any(name in text for name in (*shelf.titles, *shelf.item_ids))
