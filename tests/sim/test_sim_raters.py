"""Raters of environments: models through any engine, stored answers, faults in the middle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.errors import AnswerError, ConfigError, EngineError
from pipelines.llm.engines.scripted import ScriptedEngine
from pipelines.raters import SCALES, LLMRater, RandomRater
from sim import Release
from sim.environment import RecommendationEnv, RecommendationVectorEnv, World

FIVE = {"1": 0.1, "2": 0.0, "3": 0.0, "4": 0.2, "5": 0.7}


class Flaky:
    """A rule that fails at some of its calls, counted from 0."""

    def __init__(self, fault: Callable[[], Any], at: set[int]) -> None:
        self.calls, self._fault, self._at = 0, fault, at

    def __call__(self, request: Any) -> Any:
        self.calls += 1
        return self._fault() if self.calls - 1 in self._at else {"10": 0.9, "9": 0.1}


def unreadable() -> Any:
    raise AnswerError("no answer of the scale", where="reply")


def dead() -> Any:
    raise EngineError("the server went away", where="scripted")


def late() -> Any:
    raise TimeoutError("no answer after 60 s")


def env_of(release: Release, rule: Any, **more: Any) -> RecommendationEnv:
    return RecommendationEnv(release, rater=ScriptedEngine(rule), leave_probability=0.0, **more)


def test_an_engine_can_rate(release: Release) -> None:
    env = env_of(release, lambda request: {"7": 1.0})
    _, info = env.reset(seed=0)
    assert info["rater"] == "llm:scripted"
    assert env.rater.language_model
    assert env.step(3)[1] == 7.0


def test_a_model_is_told_the_persona_and_what_the_retriever_picked(release: Release) -> None:
    prompts: list[str] = []

    def rule(request: Any) -> dict[str, float]:
        prompts.append("\n".join(m.content for m in request.messages))
        return {"9": 1.0}

    env = env_of(release, rule, retriever="embedding", retrieved=2)
    env.reset(seed=0, options={"persona_id": "persona:default:1"})
    for action in (1, 2, 3, 4, 5, 4):
        past, _ = env.core.past(np.zeros(1, np.int64), np.array([action]))
        env.step(action)
        past_titles = env.catalogue.frame["title"].gather(past[past >= 0]).to_list()
        others = set(env.catalogue.frame["title"]) - {
            *past_titles,
            env.catalogue.frame["title"][action],
        }
        assert all(f"{title}" in prompts[-1] for title in past_titles)
        # "Film 1" is the beginning of "Film 12": only whole titles count.
        assert not any(f"{title} (" in prompts[-1] for title in others)
    assert "Ben lives in a town by the river" in prompts[-1]
    assert "1st" in prompts[-2]
    assert "2nd" in prompts[-1]


def test_the_engine_of_the_releases_settings_rates(small: ModuleType, tmp_path: Path) -> None:
    settings = {"scoring": {"scale": "1-5"}, "engine": {"kind": "scripted"}}
    small.build(tmp_path, settings=settings)
    env = RecommendationEnv("movies", home=tmp_path, rater="llm")
    assert env.scale.name == "1-5"
    assert env.rater.name == "llm:scripted"
    env.reset(seed=0)
    assert env.step(0)[4]["rating_status"] == "ok"


def test_without_an_engine_a_model_is_a_named_error(release: Release) -> None:
    with pytest.raises(ConfigError, match=r"engine.kind"):
        RecommendationEnv(release, rater="llm")


@pytest.mark.parametrize("fault", [unreadable, dead, late])
def test_a_failed_rating_is_asked_for_once_more(fault: Any, release: Release) -> None:
    rule = Flaky(fault, {2})
    env = env_of(release, rule)
    well = env_of(release, Flaky(fault, set()))
    env.reset(seed=1)
    well.reset(seed=1)
    for action in range(6):
        found, expected = env.step(action), well.step(action)
        np.testing.assert_equal(found[4], expected[4])
        assert found[4]["rating_status"] == "ok"
    assert rule.calls == 7


@pytest.mark.parametrize(
    ("fault", "status", "message"),
    [
        (unreadable, "invalid", "no answer of the scale"),
        (dead, "engine_error", "the server went away"),
        (late, "engine_error", "no answer after 60 s"),
    ],
)
def test_failing_twice_aborts_naming_the_pair_and_changes_nothing(
    fault: Any, status: str, message: str, release: Release
) -> None:
    env = env_of(release, Flaky(fault, {3, 4}))
    well = env_of(release, Flaky(fault, set()))
    for one in (env, well):
        one.reset(seed=1, options={"persona_id": "persona:default:4"})
        for action in range(3):
            one.step(action)
    item = env.catalogue.ids[9]
    with pytest.raises(AnswerError, match=rf"{status}.*{message}.*persona:default:4 for {item}"):
        env.step(9)
    # The episode can go on as if nothing had been asked.
    for action in (9, 10):
        found, expected = env.step(action), well.step(action)
        np.testing.assert_equal(found[1:], expected[1:])
        assert found[0].keys() == expected[0].keys()
        assert all(np.array_equal(found[0][k], expected[0][k]) for k in found[0])


@pytest.mark.parametrize(("fault", "status"), [(unreadable, "invalid"), (dead, "engine_error")])
def test_failing_twice_truncates_if_asked_to(fault: Any, status: str, release: Release) -> None:
    env = env_of(release, Flaky(fault, {1, 2}), on_unrated="truncate")
    env.reset(seed=1)
    env.step(0)
    observation, reward, terminated, truncated, info = env.step(5)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert (info["rating"], info["expected"], info["rating_status"]) == (None, None, status)
    assert observation["seen"].tolist() == [1] + [0] * 23


def test_many_users_are_one_call_and_only_the_failed_ones_are_asked_again(
    release: Release,
) -> None:
    batches: list[int] = []

    class Counted(ScriptedEngine):
        def submit(self, requests: Any) -> Any:
            asked = list(requests)
            batches.append(len(asked))
            return super().submit(asked)

    envs = RecommendationVectorEnv(
        8, release, rater=Counted(Flaky(unreadable, {8, 9})), leave_probability=0.0,
        on_unrated="truncate",
    )  # fmt: skip
    envs.reset(seed=0)
    envs.step(np.arange(8))
    assert batches == [8]
    infos = envs.step(np.arange(8))[4]
    # The two that failed were asked about once more, and answered.
    assert batches == [8, 8, 2]
    assert infos["rating_status"].tolist() == ["ok"] * 8


def test_users_that_fail_end_and_the_others_go_on(release: Release) -> None:
    def rule(request: Any) -> Any:
        asked = request.messages[-2].content
        return unreadable() if "Title: Film 5" in asked else {"8": 1.0}

    envs = RecommendationVectorEnv(
        3, release, rater=ScriptedEngine(rule), leave_probability=0.0, on_unrated="truncate"
    )
    envs.reset(seed=0)
    titles = envs.catalogue.frame["title"].to_list()
    fifth = titles.index("Film 5")
    actions = np.array([0, fifth, 1])
    observations, rewards, _, truncated, infos = envs.step(actions)
    assert rewards.tolist() == [8.0, 0.0, 8.0]
    assert truncated.tolist() == [False, True, False]
    assert infos["rating_status"].tolist() == ["ok", "invalid", "ok"]
    assert infos["_rating"].tolist() == [True, False, True]
    assert np.isnan(infos["rating"][1])
    # The ended one has begun anew with an empty memory.
    assert observations["seen"].sum(axis=1).tolist() == [1, 0, 1]


def test_a_vector_environment_aborts_naming_every_pair(release: Release) -> None:
    envs = RecommendationVectorEnv(3, release, rater=ScriptedEngine(lambda request: dead()))
    envs.reset(seed=0, options={"persona_id": "persona:default:2"})
    with pytest.raises(AnswerError, match=r"persona:default:2 for ml:\d+ and 2 more") as found:
        envs.step(np.array([0, 1, 2]))
    assert len(found.value.details["pairs"]) == 3


def test_a_rater_object_can_rate_and_be_shared(release: Release) -> None:
    env = RecommendationEnv(release, rater=RandomRater(SCALES["1-5"]))
    env.reset(seed=0)
    assert env.step(1)[4]["expected"] == 3.0
    other = RecommendationEnv(release, rater=env.rater)
    assert other.rater is env.rater
    with pytest.raises(ConfigError, match="neither a rater nor an engine"):
        RecommendationEnv(release, rater=7)  # type: ignore[arg-type]


def test_a_model_and_the_frames_it_rates_from_agree(release: Release) -> None:
    """The environment's live question is the question of the scoring stage."""
    asked: list[tuple[Any, ...]] = []

    def rule(request: Any) -> dict[str, float]:
        asked.append(request.messages)
        return {"5": 1.0}

    personas, items = (release[t].polars().sort(f"{t[:-1]}_id") for t in ("personas", "items"))
    rater = LLMRater(ScriptedEngine(rule), SCALES["1-10"], catalogue=items)
    env = RecommendationEnv(release, rater=rater, leave_probability=0.0)
    env.reset(seed=0, options={"persona_id": "persona:default:3"})
    env.step(2)
    env.step(7)
    history = pl.DataFrame(
        {"persona_id": ["persona:default:3"], "item_id": [items["item_id"][2]], "rating": [5.0]}
    )
    rater.rate(personas[3], items[7], history)
    assert asked[1] == asked[2]


def test_a_rater_that_gives_too_little_is_an_engine_fault(release: Release) -> None:
    class Short(RandomRater):
        def rate(self, *asked: Any, **more: Any) -> Any:
            more["pairs"] = more["pairs"][:0]
            return super().rate(*asked, **more)

    world = World.open(release, rater=Short(SCALES["1-5"]))
    env = RecommendationEnv(world=world)
    env.reset(seed=0)
    with pytest.raises(AnswerError, match="engine_error, 0 ratings for 1 pairs"):
        env.step(0)
