"""The project's agents and the statistical customer against their contracts, and one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.config import load_settings
from pipelines.errors import ConfigError
from pipelines.raters import RatingBatch
from sim.dialogue import (
    AGENTS,
    NO_PREFERENCE,
    UNMATCHED,
    Agent,
    Customer,
    Dialogue,
    DialogueWorld,
    Facet,
    Lifetimes,
    open_agent,
    open_customer,
    play,
)
from sim.dialogue.testing import (
    AgentContract,
    CustomerContract,
    reply_of,
    sample_dialogue,
    sample_question,
    sample_sale,
    sample_world,
)

STATISTICAL = (
    "random popularity oracle best base greedy dp thompson linear".split()  # noqa: SIM905
)


@pytest.mark.parametrize("agent", STATISTICAL)
class TestStatisticalAgents(AgentContract):
    @pytest.fixture(autouse=True)
    def _named(self, agent: str) -> None:
        self.agent = agent

    def make(self) -> Agent:
        return open_agent(self.agent)


class TestDeepPlanner(AgentContract):
    def make(self) -> Agent:
        return open_agent("dp", depth=2)


class TestStatisticalCustomer(CustomerContract):
    def make(self) -> Customer:
        return open_customer("statistical")


class TestUnfaithfulCustomer(CustomerContract):
    def make(self) -> Customer:
        return open_customer("statistical", unfaithful=0.3)


def test_every_statistical_agent_is_registered() -> None:
    assert set(STATISTICAL) <= set(AGENTS)


def test_unknown_agents_get_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"unknown agent.*greedy"):
        open_agent("gredy")
    with pytest.raises(ConfigError, match=r"unknown customer.*statistical"):
        open_customer("statistic")


def in_first_set(world: DialogueWorld, **options: Any) -> Dialogue:
    """A dialogue about the first choice set."""
    order = np.random.default_rng(0).permutation(len(world.sets[0]))
    return replace(sample_dialogue(world, **options), set=0, order=order)


def sold(agent: Agent, dialogue: Dialogue) -> int:
    """Product of the choice set that an agent sells."""
    return int(dialogue.order[reply_of(agent.act(dialogue)).product])


def test_popularity_prefers_rating_then_price_then_id(world: DialogueWorld) -> None:
    shelf = replace(
        world.sets[0],
        rating=np.where(np.arange(len(world.sets[0])) < 4, 4.5, np.nan).astype("f4"),
        price=np.array([np.nan, 9, 5, 5] + [1] * (len(world.sets[0]) - 4), "f4"),
    )
    agent = open_agent("popularity")
    agent.open(replace(world, sets=(shelf, *world.sets[1:])).disclosed(), 0)
    assert sold(agent, in_first_set(world)) == 2


@pytest.mark.parametrize("rater", ["words", "text"])
def test_oracle_refuses_a_member_of_the_scoring_ensemble(world: DialogueWorld, rater: str) -> None:
    agent = open_agent("oracle", rater=rater)
    with pytest.raises(ConfigError, match=f"member of the ensemble.*rater {rater}, world"):
        agent.open(replace(world, raters=("text", "words")), 0)


def test_oracle_refuses_the_model_that_made_the_scores(world: DialogueWorld) -> None:
    settings = load_settings(overrides={"engine": {"kind": "transformers", "model": "m1"}})
    agent = open_agent("oracle", settings=settings, rater="listwise")
    with pytest.raises(ConfigError, match=r"member of the ensemble.*rater m1"):
        agent.open(replace(world, raters=("ensemble", "llm", "m1")), 0)


def test_unknown_rater_of_the_oracle_gets_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"no such rater: agent oracle, rater 'wrods'.*words"):
        open_agent("oracle", rater="wrods")


class Contrary:
    """A rater of one's own: the later on the shelf the better; of one persona it knows nothing."""

    name = "contrary"

    def __init__(self, choice_set_items: Any, scale: Any) -> None:
        self._place = dict(choice_set_items.select("item_id", "position").iter_rows())
        self.scale = scale

    def rate(self, personas: Any, items: Any, histories: Any = None, *, pairs: Any) -> RatingBatch:
        assert histories is None
        ids, people = items["item_id"].to_list(), personas["persona_id"].to_list()
        probabilities = np.zeros((len(pairs), len(self.scale)))
        for row, (who, what) in enumerate(pairs.tolist()):
            probabilities[row, self._place[ids[what]]] = 1.0
            if people[who] == UNKNOWN:
                probabilities[row] = np.nan
        return RatingBatch(self.scale, probabilities, ["ok"] * len(pairs))


UNKNOWN = "persona-0071"


def test_oracle_sells_what_a_rater_of_ones_own_scores_highest(world: DialogueWorld) -> None:
    life = Lifetimes.draw(world, range(20), setting="category", episodes=3)
    agent = open_agent("oracle", rater=f"{__name__}:Contrary")
    found = play(world, life, agent, open_customer("statistical"), feedback="none").episodes
    lost = found.filter(pl.col("persona_id") == UNKNOWN)
    assert lost.height
    # What has no rating is no recommendation.
    assert set(lost["status"]) == {"failed"}
    assert lost["regret"].null_count() == lost.height
    last = {s.category_id: s.item_ids[-1] for s in world.sets}
    sold = found.filter(pl.col("status") == "ok")
    assert sold["item_id"].to_list() == [last[c] for c in sold["category_id"]]


def test_oracle_reads_likes_and_dislikes_of_the_description(world: DialogueWorld) -> None:
    shelf = world.sets[0]
    kind = next(n for n, f in enumerate(shelf.facets) if f.kind != "price")
    value = shelf.facets[kind].values[1]
    flat = replace(shelf, rating=np.full(len(shelf), 4.0, "f4"))
    for sentence, liked in (
        (f"She loves {value} things.", True),
        (f"She has no patience for {value} things.", False),
    ):
        text = (f"Ann is 40. {sentence}",) * len(world.persona_ids)
        agent = open_agent("oracle")
        agent.open(replace(world, sets=(flat, *world.sets[1:]), descriptions=text), 0)
        product = sold(agent, in_first_set(world, privileged=True))
        assert (shelf.facets[kind].of[product] == 1) == liked


def test_oracle_beats_the_baselines(world: DialogueWorld) -> None:
    life = Lifetimes.draw(world, range(40), episodes=4)
    mean = {
        name: play(world, life, open_agent(name), open_customer("statistical"), feedback="none")
        .episodes["regret"]
        .mean()
        for name in ("oracle", "random", "popularity")
    }
    assert mean["oracle"] < min(mean["random"], mean["popularity"]) - 5


def test_planner_sells_at_once_when_questions_cost_too_much(world: DialogueWorld) -> None:
    for cost in (0.0, 1000.0):
        agent = open_agent("dp", question_cost=cost)
        agent.open(world.disclosed(), 0)
        assert reply_of(agent.act(sample_dialogue(world))).ask == (cost == 0)


def test_forced_questions_are_asked_by_every_belief_agent(world: DialogueWorld) -> None:
    for name in ("base", "greedy", "dp", "thompson", "linear"):
        agent = open_agent(name)
        agent.open(world.disclosed(), 0)
        assert reply_of(agent.act(sample_dialogue(world, must_ask=1))).ask, name


def exact(world: DialogueWorld) -> DialogueWorld:
    """The world with one facet that names each product of a set of six."""
    sets = []
    for shelf in world.sets:
        n = 6
        halves = [np.arange(n) // 3, np.arange(n) % 3]
        facets = tuple(
            Facet(
                f"f{i}",
                f"kind {i}",
                f"Which kind {i}?",
                ("a", "b", "c")[: of.max() + 1],
                of.astype("i1"),
            )
            for i, of in enumerate(halves)
        )
        first, second = np.divmod(np.arange(len(world.persona_ids)) % n, 3)
        y = 10.0 + 50 * (halves[0] == first[:, None]) + 30 * (halves[1] == second[:, None])
        sets.append(
            replace(
                shelf,
                item_ids=shelf.item_ids[:n],
                titles=shelf.titles[:n],
                texts=shelf.texts[:n],
                price=shelf.price[:n],
                rating=shelf.rating[:n],
                vectors=shelf.vectors[:n],
                facets=facets,
                y=y.astype(np.float32),
            )
        )
    return replace(world, sets=tuple(sets))


def test_separating_facets_and_exact_answers_leave_no_regret(world: DialogueWorld) -> None:
    known = exact(world)
    life = Lifetimes.draw(known, range(12), cell="seen/seen", episodes=4)
    for agent in (open_agent("base", tau=0.0), open_agent("dp", tau=0.0)):
        customer = open_customer("statistical", tau=0.0)
        found = play(known, life, agent, customer, feedback="none")
        assert found.episodes["regret"].to_list() == [0.0] * 48


def pairs_of_traits(world: DialogueWorld) -> DialogueWorld:
    """The world with two products, loved by customers whose traits are equal or differ.

    Two further products per trait are liked a little by those who have it, so that each facet's
    answer is the trait.
    """
    n = len(world.persona_ids)
    a, b = np.arange(n) % 2, np.arange(n) // 2 % 2
    y = np.stack([100 * (a == b), 100 * (a != b), *(40 * (t == v) for t in (a, b) for v in (0, 1))])
    facets = tuple(
        Facet(name, name, f"Which {name}?", ("no", "yes"), np.array(of, np.int8))
        for name, of in (("first", [-1, -1, 0, 1, -1, -1]), ("second", [-1, -1, -1, -1, 0, 1]))
    )
    shelf = world.sets[0]
    few = {k: getattr(shelf, k)[:6] for k in ("item_ids", "titles", "texts", "price", "rating")}
    own = [
        replace(s, facets=facets, vectors=shelf.vectors[:6], y=y.T.astype("f4"), **few)
        for s in world.sets
    ]
    return replace(world, sets=tuple(own), splits=np.zeros(n, np.int8))


@pytest.mark.parametrize(("depth", "questions", "regrets"), [(1, 0, {0.0, 100.0}), (2, 2, {0.0})])
def test_planner_of_depth_two_finds_out_whether_two_traits_are_equal(
    world: DialogueWorld, depth: int, questions: int, regrets: set[float]
) -> None:
    known = pairs_of_traits(world)
    life = Lifetimes.draw(known, range(12), cell="seen/seen", episodes=3)
    agent = open_agent("dp", depth=depth, tau=0.0)
    customer = open_customer("statistical", tau=0.0)
    found = play(known, life, agent, customer, feedback="none", memory=False).episodes
    assert set(found["questions"]) == {questions}
    assert set(found["regret"]) == regrets


def test_customers_answer_free_questions_by_words(world: DialogueWorld) -> None:
    customer = open_customer("statistical")
    customer.open(world, 0)
    facet = reply_of(customer.answer(sample_question(world)))
    text = "Do you want a low or a high PRICE?"
    # The first facet of a sample world is the price.
    assert reply_of(customer.answer(sample_question(world, text=text))) == facet


def test_customers_answer_from_stated_attributes(world: DialogueWorld) -> None:
    customer = open_customer("statistical")
    customer.open(world, 0)
    question = sample_question(world, text="What is your age, may I ask?")
    found = reply_of(customer.answer(question))
    assert found.value == UNMATCHED
    assert found.text == f"My age is {world.attributes[question.persona]['age']}."


def test_unmatched_questions_are_matched_by_embedding_above_the_threshold(
    world: DialogueWorld,
) -> None:
    def encode(texts: Any) -> Any:
        return np.array([[1.0, 0.0] if "price" in t or "spend" in t else [0.0, 1.0] for t in texts])

    question = sample_question(world, text="How much would you like to spend?")
    for options, facet in (({"encode": encode}, 0), ({}, -1)):
        customer = open_customer("statistical", **options)
        customer.open(world, 0)
        assert reply_of(customer.answer(question)).facet == facet


def test_unfaithful_customers_change_that_share_of_answers() -> None:
    world = sample_world(personas=400, sets=6)
    faithful, other = (open_customer("statistical", tau=0.0, unfaithful=u) for u in (0.0, 0.3))
    for customer in (faithful, other):
        customer.open(world, 0)
    differ = [
        (faithful._answers(n) != other._answers(n)).mean()  # type: ignore[attr-defined]
        for n in range(6)
    ]
    assert np.mean(differ) == pytest.approx(0.3, abs=0.02)


def test_answers_have_the_models_frequencies() -> None:
    world = sample_world(personas=3000, sets=1, unseen=0.0)
    customer = open_customer("statistical")
    customer.open(world, 1)
    p = customer.model.probabilities(world.sets[0], world.sets[0].y)[:, :4]  # type: ignore[attr-defined]
    drawn = customer._answers(0)[:, 0]  # type: ignore[attr-defined]
    shares = [(drawn == v).mean() for v in (0, 1, 2, NO_PREFERENCE)]
    np.testing.assert_allclose(shares, p.mean(axis=0), atol=0.03)


def test_feedback_has_the_tone_of_the_regret_and_one_missed_facet(world: DialogueWorld) -> None:
    customer = open_customer("statistical")
    customer.open(world, 0)
    for row in range(4):
        sale = sample_sale(world, row)
        best, worst = (replace(sale, product=int(n)) for n in (sale.y.argmax(), sale.y.argmin()))
        assert reply_of(customer.feedback(best)).text == "This is exactly what I was looking for."
        text = reply_of(customer.feedback(worst)).text or ""
        assert text.startswith("I am disappointed, this is not for me. I would have preferred")
        assert text.count(".") == 2
