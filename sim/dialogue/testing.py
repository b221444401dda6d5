"""Generated worlds, and conformance tests for agents and customers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, TypeVar

import numpy as np
import orjson

from sim.dialogue._lifetimes import Lifetimes, product_order
from sim.dialogue._protocol import (
    NO_PREFERENCE,
    OK,
    STATUSES,
    UNMATCHED,
    Action,
    Agent,
    Answer,
    Customer,
    Dialogue,
    Outcome,
    Question,
    Sale,
    Turn,
)
from sim.dialogue._shop import run_dialogues
from sim.dialogue._world import SPLITS, ChoiceSet, DialogueWorld, Facet

__all__ = [
    "AgentContract",
    "CustomerContract",
    "reply_of",
    "sample_dialogue",
    "sample_question",
    "sample_sale",
    "sample_world",
]

T = TypeVar("T")

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


def sample_world(
    seed: int = 0,
    *,
    sets: int = 14,
    products: int = 18,
    personas: int = 60,
    facets: int = 6,
    dimensions: int = 8,
    unseen: float = 0.2,
    noise: float = 4.0,
) -> DialogueWorld:
    """A generated world whose customers have tastes for facet values.

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
    return DialogueWorld(
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


def reply_of(coroutine: Coroutine[Any, Any, T]) -> T:
    """Result of a coroutine of an agent or a customer."""
    return run_dialogues([coroutine])[0]


def sample_dialogue(
    world: DialogueWorld,
    row: int = 0,
    *,
    turns: int = 0,
    privileged: bool = False,
    **options: Any,
) -> Dialogue:
    """Dialogue of lifetime `row` after some questions, about the first facets.

    Answers are the first value, the second, and so on; the customers are test personas. Options
    are further fields.
    """
    life = Lifetimes.draw(world, [row], episodes=1)
    number = int(life.sets[0, 0])
    shelf = world.sets[number]
    answers = [
        Answer(facet=n, value=n % len(facet.values)) for n, facet in enumerate(shelf.facets[:turns])
    ]
    past = [Turn.of(shelf, Action(ask=True, facet=a.facet), a) for a in answers]
    order = product_order(world, row, 0, number)
    persona = int(life.personas[0, 0]) if privileged else None
    fields: dict[str, Any] = {"order": order, "lifetime": row, "turns": past, "persona": persona}
    return Dialogue(**{"set": number, "customer": 0} | fields | options)


def sample_question(world: DialogueWorld, row: int = 0, *, text: str | None = None) -> Question:
    """The first question of lifetime `row`: about the first facet, or in words."""
    life = Lifetimes.draw(world, [row], episodes=1)
    facet = 0 if text is None else -1
    return Question(sample_dialogue(world, row), int(life.personas[0, 0]), facet, text)


def sample_sale(world: DialogueWorld, row: int = 0, *, product: int = 0) -> Sale:
    """Sale of a product of the set, by its number there."""
    dialogue = sample_dialogue(world, row)
    persona = int(Lifetimes.draw(world, [row], episodes=1).personas[0, 0])
    return Sale(dialogue, persona, product, world.sets[dialogue.set].y[persona])


class AgentContract(ABC):
    """Behaviour required of every :class:`sim.dialogue.Agent`."""

    #: Turns at which it is asked (questions so far), and lifetimes.
    turns: tuple[int, ...] = (0, 2)
    rows: tuple[int, ...] = (0, 1, 2, 3)

    @abstractmethod
    def make(self) -> Agent:
        """The agent under test, not opened."""

    def opened(self, world: DialogueWorld, seed: int = 3) -> Agent:
        """The agent, opened as a run opens it."""
        agent = self.make()
        agent.open(world if agent.privileged else world.disclosed(), seed)
        return agent

    def dialogue(self, world: DialogueWorld, row: int = 0, **options: Any) -> Dialogue:
        """A sample dialogue; of privileged agents with a persona."""
        return sample_dialogue(world, row, privileged=self.make().privileged, **options)

    def test_it_says_what_it_is(self) -> None:
        """A name for tables, and settings that can be stored."""
        agent = self.make()
        assert isinstance(agent, Agent)
        assert agent.name
        assert isinstance(agent.privileged, bool)
        assert orjson.dumps(agent.metadata())

    def test_actions_are_possible_ones(self, world: DialogueWorld) -> None:
        """A facet of the set or a question in words; a product of the dialogue."""
        agent = self.opened(world)
        for row in self.rows:
            for turns in self.turns:
                dialogue = self.dialogue(world, row, turns=turns)
                action: Action = reply_of(agent.act(dialogue))
                shelf = world.sets[dialogue.set]
                if action.status == OK and action.ask:
                    assert 0 <= action.facet < len(shelf.facets) or action.text
                elif action.status == OK:
                    assert 0 <= action.product < len(shelf)
                for p in (action.confidences, action.distribution):
                    values = np.zeros(0) if p is None else np.asarray(p)
                    assert ((values >= -1e-6) & (values <= 1 + 1e-6)).all()

    def test_it_sells_when_no_question_is_left(self, world: DialogueWorld) -> None:
        """With none left it recommends or has failed."""
        agent = self.opened(world)
        for row in self.rows:
            action = reply_of(agent.act(self.dialogue(world, row).last_turn()))
            assert not action.ask or action.status != OK

    def test_equal_dialogues_get_equal_actions(self, world: DialogueWorld) -> None:
        """Alone and with others, asked once or again."""
        agent = self.opened(world)
        dialogues = [self.dialogue(world, row, turns=self.turns[-1]) for row in self.rows]
        together = run_dialogues(agent.act(dialogue) for dialogue in dialogues)
        alone = [reply_of(agent.act(dialogue)) for dialogue in dialogues]
        assert [repr(action) for action in together] == [repr(action) for action in alone]

    def test_relabelled_products_give_relabelled_recommendations(
        self, world: DialogueWorld
    ) -> None:
        """The numbers of the products in the dialogue do not matter."""
        agent = self.opened(world)
        if agent.metadata().get("reads_order") or agent.name == "random":
            return
        first = self.dialogue(world, turns=2, max_questions=2)
        second = self.dialogue(world, turns=2, max_questions=2, order=first.order[::-1])
        sold = [d.order[reply_of(agent.act(d)).product] for d in (first, second)]
        assert sold[0] == sold[1]

    def test_what_it_learns_is_in_the_memory(self, world: DialogueWorld) -> None:
        """An agent acts as a new one where the memory of the lifetime is empty."""
        fresh, agent = self.opened(world), self.opened(world)
        learned = self.dialogue(world, turns=1)
        agent.learn(Outcome(learned, int(learned.order[0]), regret=15.0))
        blank = self.dialogue(world, turns=1)
        assert repr(reply_of(agent.act(blank))) == repr(reply_of(fresh.act(blank)))


class CustomerContract(ABC):
    """Behaviour required of every :class:`sim.dialogue.Customer`."""

    @abstractmethod
    def make(self) -> Customer:
        """The customer under test, not opened."""

    def opened(self, world: DialogueWorld, seed: int = 3) -> Customer:
        """The customer, opened."""
        customer = self.make()
        customer.open(world, seed)
        return customer

    def test_it_says_what_it_is(self) -> None:
        """A name for tables, and settings that can be stored."""
        customer = self.make()
        assert isinstance(customer, Customer)
        assert customer.name
        assert orjson.dumps(customer.metadata())

    def test_answers_are_values_of_the_facet(self, world: DialogueWorld) -> None:
        """A value of the matched facet, no preference or unmatched; or a known status."""
        customer = self.opened(world)
        for text in (None, "Which price do you prefer?", "qwerty?"):
            question = sample_question(world, text=text)
            answer: Answer = reply_of(customer.answer(question))
            assert answer.status in STATUSES
            if answer.status != OK:
                continue
            if answer.facet < 0:
                assert answer.value == UNMATCHED
                assert answer.text
            else:
                widths = world.sets[question.dialogue.set].widths
                values = (NO_PREFERENCE, UNMATCHED, *range(int(widths[answer.facet])))
                assert answer.value in values

    def test_the_same_question_gets_the_same_answer(self, world: DialogueWorld) -> None:
        """Alone and with others, and of another instance with the same seed."""
        questions = [sample_question(world, row) for row in range(4)]
        customer, other = self.opened(world), self.opened(world)
        together = run_dialogues(customer.answer(question) for question in questions)
        assert together == [reply_of(other.answer(question)) for question in questions]

    def test_feedback_names_no_product(self, world: DialogueWorld) -> None:
        """Words for each sale, without titles and ids; or a status other than ok."""
        sale = sample_sale(world)
        comment = reply_of(self.opened(world).feedback(sale))
        assert comment.status in STATUSES
        if comment.status == OK:
            shelf = world.sets[sale.dialogue.set]
            assert comment.text
            assert not any(name in comment.text for name in (*shelf.titles, *shelf.item_ids))
