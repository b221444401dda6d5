"""Memory, perturbation and shaping, worked by hand and as laws."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.scales import SCALES
from sim import Release
from sim.environment import RecommendationEnv, RecommendationVectorEnv, World
from sim.environment._core import Draws, Memory
from sim.environment.noise import perturb, shape

TEN, FIVE, NINE = SCALES["1-10"], SCALES["1-5"], SCALES["0-9"]


@pytest.fixture(scope="module")
def world(release: Release) -> World:
    return World.open(release)


class Diary:
    """A memory, kept naively."""

    def __init__(self) -> None:
        self.entries: dict[int, tuple[float, int, int]] = {}
        self.clock = 0

    def meet(self, item: int) -> tuple[int, int]:
        self.clock += 1
        _, times, last = self.entries.get(item, (0.0, 0, self.clock))
        return times, self.clock - last

    def add(self, item: int, rating: float) -> None:
        times = self.entries.pop(item, (0.0, 0, 0))[1]
        self.entries[item] = (rating, times + 1, self.clock)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3), st.booleans()), max_size=90))
def test_a_memory_is_a_diary_with_one_entry_per_item(story: list[tuple[int, int, bool]]) -> None:
    memory, diaries = Memory(2), (Diary(), Diary())
    rows = np.arange(2)
    for first, second, rated in story:
        items = np.array([first, second])
        memory.clock += 1
        met = memory.earlier(items)
        singly = [diary.meet(item) for diary, item in zip(diaries, items.tolist(), strict=True)]
        assert list(zip(met.times.tolist(), met.since.tolist(), strict=True)) == singly
        # The second row is rated now and then only.
        some = rows if rated else rows[:1]
        ratings = np.array([float(first), float(second)])
        part = type(met)(met.times[some], met.since[some], met.place[some])
        memory.add(some, items[some], ratings[some], part)
        for row in some.tolist():
            diaries[row].add(int(items[row]), float(ratings[row]))
        for row, diary in enumerate(diaries):
            n = int(memory.length[row])
            assert memory.items[row, :n].tolist() == list(diary.entries)
            assert memory.ratings[row, :n].tolist() == [e[0] for e in diary.entries.values()]
            assert (memory.items[row, n:] == -1).all()
    newest, ratings = memory.newest(3)
    for row, diary in enumerate(diaries):
        last = list(diary.entries)[::-1][:3]
        assert newest[row].tolist() == last + [-1] * (3 - len(last))
        assert ratings[row, len(last) :].tolist() == [-1.0] * (3 - len(last))


def test_a_memory_put_aside_comes_back_as_it_was() -> None:
    memory = Memory(1)
    row = np.zeros(1, np.int64)
    for item in (4, 2, 4):
        memory.clock += 1
        memory.add(row, np.array([item]), np.array([3.0]), memory.earlier(np.array([item])))
    memory.keep(0, 7)
    memory.clear(row)
    assert memory.width == 0
    memory.recall(0, 7)
    memory.clock += 1
    met = memory.earlier(np.array([4]))
    assert (met.times.tolist(), met.since.tolist()) == ([2], [1])
    memory.clear(row)
    memory.recall(0, 8)
    assert memory.width == 0
    memory.forget_all(0)
    memory.recall(0, 7)
    assert memory.width == 0


def test_streams_are_their_generators_call_by_call() -> None:
    draws = Draws(3, ahead=7)
    for stream in range(3):
        draws.seed(stream, np.random.default_rng(stream))
    rng = np.random.default_rng(99)
    got: list[list[float]] = [[], [], []]
    for _ in range(60):
        some = np.flatnonzero(rng.random(3) < 0.6)
        for stream, values in zip(some, draws.take(some, int(rng.integers(1, 5))), strict=True):
            got[stream] += values.tolist()
    for stream, values in enumerate(got):
        assert values == np.random.default_rng(stream).random(len(values)).tolist()


def test_the_memory_is_wiped_at_every_reset_or_lasts_and_info_says_which(world: World) -> None:
    who = {"persona_id": "persona:default:2"}
    other = {"persona_id": "persona:default:5"}
    wiped = RecommendationEnv(world=world, leave_probability=0.0)
    _, info = wiped.reset(seed=0, options=who)
    assert info["memory"] == "episode"
    wiped.step(3)
    assert wiped.reset(options=who)[0]["seen"].sum() == 0
    lasting = RecommendationEnv(world=world, leave_probability=0.0, memory="persistent")
    _, info = lasting.reset(seed=0, options=who)
    assert info["memory"] == "persistent"
    ratings = [lasting.step(item)[4]["rating"] for item in (3, 8)]
    assert lasting.reset(options=other)[0]["seen"].sum() == 0
    lasting.step(11)
    observation, _ = lasting.reset(options=who)
    assert np.flatnonzero(observation["seen"]).tolist() == [3, 8]
    assert observation["recent_items"].tolist()[:3] == [8, 3, -1]
    assert observation["recent_ratings"].tolist()[:2] == ratings[::-1]
    assert lasting.step(8)[4]["repeated"]
    # A seed starts everything afresh.
    assert lasting.reset(seed=0, options=who)[0]["seen"].sum() == 0


def test_what_lasts_moves_the_ratings_of_later_episodes(world: World) -> None:
    who = {"persona_id": "persona:default:2"}
    env = RecommendationEnv(world=world, leave_probability=0.0, memory="persistent")
    env.reset(seed=0, options=who)
    before = env.expected()
    for item in range(6):
        env.step(item)
    env.reset(options=who)
    assert not np.allclose(env.expected(), before)


def test_the_ratings_observation_holds_what_is_remembered(world: World) -> None:
    env = RecommendationEnv(world=world, observation="ratings", leave_probability=0.0)
    env.reset(seed=0)
    first, second = (env.step(item)[4]["rating"] for item in (5, 9))
    observation = env.step(5)[0]
    again = env.core.memory.ratings[0, 1]
    expected = np.zeros(24, np.float32)
    expected[[5, 9]] = again, second
    assert observation["ratings"].tolist() == expected.tolist()
    assert np.flatnonzero(observation["seen"]).tolist() == [5, 9]
    assert first in TEN.answers


def test_greedy_noise_moves_by_one_as_often_as_it_says() -> None:
    draw = (np.arange(10_000) + 0.5) / 10_000
    moved = perturb(np.full(10_000, 5.0), draw, "greedy", 0.3, TEN)
    # q/2 each way, to the draw: these are quantiles, not samples.
    assert Counter(moved.tolist()) == {4.0: 1500, 5.0: 7000, 6.0: 1500}
    assert perturb(np.array([10.0, 1.0]), np.array([0.99, 0.01]), "greedy", 0.3, TEN).tolist() == [
        10.0,
        1.0,
    ]


def test_gaussian_noise_is_rounded_and_stays_on_the_scale() -> None:
    # Quantiles of the normal distribution: -1.2816, 0, +1.2816.
    draw = np.array([0.1, 0.5, 0.9])
    assert perturb(np.full(3, 5.0), draw, "gaussian", 1.0, TEN).tolist() == [4.0, 5.0, 6.0]
    assert perturb(np.full(3, 5.0), draw, "gaussian", 3.0, TEN).tolist() == [1.0, 5.0, 9.0]
    assert perturb(np.full(3, 9.0), draw, "gaussian", 3.0, TEN).tolist() == [5.0, 9.0, 10.0]
    assert perturb(np.full(3, 0.0), draw, "gaussian", 2.0, NINE).tolist() == [0.0, 0.0, 3.0]
    assert perturb(np.array([5.0]), np.zeros(1), "gaussian", 1.0, TEN).tolist() == [1.0]


@given(
    rating=st.integers(0, 9),
    draw=st.floats(0, 1, exclude_max=True),
    kind=st.sampled_from(["none", "greedy", "gaussian"]),
    strength=st.floats(0, 1),
    scale=st.sampled_from([TEN, FIVE, NINE]),
)
def test_noise_gives_an_answer_of_the_scale_and_none_at_strength_0(
    rating: int, draw: float, kind: str, strength: float, scale: Any
) -> None:
    start = scale.answers[[min(rating, len(scale) - 1)]]
    moved = perturb(start, np.array([draw]), kind, strength, scale)
    assert moved[0] in scale.answers
    if strength == 0 and not (kind == "gaussian" and draw in (0.0,)):
        assert moved[0] == start[0]
    if kind == "greedy":
        assert abs(moved[0] - start[0]) <= 1


def test_shaping_by_hand() -> None:
    # 10·0.5^(1/1) = 5; 10·0.5^(1/4) = 8.41; 10·0.5^(4/2) = 2.5; 3·0.1^(9/1) is below the lowest.
    ratings = np.array([10.0, 10.0, 10.0, 3.0])
    times, since = np.array([1, 1, 4, 9]), np.array([1, 4, 2, 1])
    assert shape(ratings, times, since, 0.5, 1.0).tolist()[:3] == [5.0, 8.0, 2.0]
    assert shape(ratings, times, since, 0.1, 1.0).tolist()[3] == 1.0


@given(
    rating=st.integers(1, 10), times=st.integers(1, 50), since=st.integers(1, 50),
    q=st.floats(0, 1),
)  # fmt: skip
def test_shaping_never_raises_a_rating_and_forgets_with_time(
    rating: int, times: int, since: int, q: float
) -> None:
    def one(n: int, dt: int) -> float:
        return float(shape(np.array([float(rating)]), np.array([n]), np.array([dt]), q, 1.0)[0])

    assert 1.0 <= one(times, since) <= rating
    assert one(times, since) <= one(times, since + 1)
    assert one(times + 1, since) <= one(times, since)
    assert one(0, 0) == rating


def test_shaping_touches_the_reward_alone(world: World) -> None:
    plain = RecommendationEnv(world=world, leave_probability=0.0)
    shaped = RecommendationEnv(world=world, leave_probability=0.0, reward_shaping=0.5)
    for env in (plain, shaped):
        env.reset(seed=6)
    meetings: dict[int, list[int]] = {}
    for at, item in enumerate([1, 2, 1, 1, 3, 2, 1]):
        one, other = plain.step(item), shaped.step(item)
        np.testing.assert_equal(one[4], other[4])
        assert all(np.array_equal(one[0][key], other[0][key]) for key in one[0])
        before = meetings.setdefault(item, [])
        r = one[1]
        wanted = max(1, np.floor(r * 0.5 ** (len(before) / (at - before[-1])))) if before else r
        assert other[1] == wanted
        before.append(at)


def test_what_is_remembered_and_rewarded_is_the_perturbed_rating(world: World) -> None:
    plain = RecommendationEnv(world=world, leave_probability=0.0, retriever="none", retrieved=0)
    noisy = RecommendationEnv(
        world=world, leave_probability=0.0, perturbation="greedy", perturbation_strength=1.0,
        retrieved=0,
    )  # fmt: skip
    for env in (plain, noisy):
        env.reset(seed=2)
    for item in range(20):
        one, other = plain.step(item), noisy.step(item)
        # Without retrieval, the two persons differ by the noise alone.
        assert one[4]["expected"] == other[4]["expected"]
        edge = one[1] in (1.0, 10.0)
        assert abs(one[1] - other[1]) == 1.0 or edge
        assert other[1] == other[4]["rating"] == other[0]["recent_ratings"][0]


def test_the_noise_is_seeded_by_the_environments_generator(world: World) -> None:
    def ratings(seed: int) -> list[float]:
        env = RecommendationEnv(
            world=world, leave_probability=0.0, perturbation="gaussian", perturbation_strength=2.0
        )
        env.reset(seed=seed)
        return [env.step(item)[1] for item in range(24)]

    assert ratings(3) == ratings(3)
    assert ratings(3) != ratings(4)


def test_a_state_goes_on_to_the_same_end(world: World) -> None:
    more = {"memory": "persistent", "observation": "ratings", "reward_shaping": 0.9}
    first = RecommendationVectorEnv(4, world=world, **more)
    first.reset(seed=1)
    actions = np.random.default_rng(0).integers(24, size=(300, 4))
    for action in actions[:150]:
        first.step(action)
    state = first.state()
    second = RecommendationVectorEnv(4, world=world, **more)
    second.restore(state)
    assert all(np.array_equal(v, second.observe()[k]) for k, v in first.observe().items())
    for action in actions[150:]:
        one, other = first.step(action), second.step(action)
        assert all(np.array_equal(one[0][k], other[0][k]) for k in one[0])
        for a, b in zip(one[1:4], other[1:4], strict=True):
            assert np.array_equal(a, b)
