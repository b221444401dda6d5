"""The environment of dialogues: spaces, rewards, masks, lifetimes and its vector form."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import sim
from pipelines.errors import ConfigError, ReleaseError
from sim.dialogue import DialogueEnv, DialogueVectorEnv, DialogueWorld, Lifetimes
from sim.dialogue.testing import sample_world

SELL = 30


@pytest.fixture(scope="module")
def world() -> DialogueWorld:
    return sample_world()


def make(world: DialogueWorld, **options: Any) -> DialogueEnv:
    env = gymnasium.make("Understudy/Dialogue-v0", world=world, **options).unwrapped
    assert isinstance(env, DialogueEnv)
    return env


@pytest.mark.parametrize("options", [{}, {"episodes": 3, "feedback": "regret"}])
def test_passes_the_checkers_of_gymnasium_and_stable_baselines(
    world: DialogueWorld, options: Any
) -> None:
    env = make(world, render_mode="ansi", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env)
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*(one-hot|normalized|symmetric).*")
        checker.check_env(env)


def test_observation_holds_answers_facets_of_products_turns_and_feedback(
    world: DialogueWorld,
) -> None:
    env = make(world, episodes=2, feedback="stars", max_questions=4)
    first, info = env.reset(seed=3, options={"lifetime": 5})
    drawn = Lifetimes.draw(world, [5], episodes=2)
    shelf = world.sets[drawn.sets[0, 0]]
    assert info["category"] == shelf.name
    assert set(first["answers"]) == {-3}
    assert first["turns_left"] == [4]
    assert first["feedback"] == [-1]
    table = first["products"].reshape(50, 30)
    assert (table[len(shelf) :] == -2).all()
    assert (table[:, len(shelf.facets) :] == -2).all()
    # The order is shuffled, so that the products are the same ones as a whole.
    own = np.stack([f.of for f in shelf.facets], axis=1)
    shown = table[: len(shelf), : len(shelf.facets)]
    assert sorted(map(tuple, shown.tolist())) == sorted(map(tuple, own.tolist()))
    after, reward, over, _, told = env.step(2)
    assert reward == 0
    assert not over
    assert after["turns_left"] == [3]
    value = after["answers"][2]
    said = f"prefer {shelf.facets[2].values[value]}." if value >= 0 else "no preference"
    assert said in told["answer"]
    sold, reward, over, _, told = env.step(SELL)
    y = shelf.y[drawn.personas[0, 0]]
    product = shelf.item_ids.index(told["item_id"])
    assert reward == pytest.approx((y[product] - y.max()) / 100)
    assert sold["feedback"] == [np.floor(5 * y[product] / y.max() + 0.5)]
    assert not over
    assert set(sold["answers"]) == {-3}
    assert env.step(SELL)[2]


def test_questions_cost_what_is_asked_for(world: DialogueWorld) -> None:
    env = make(world, question_cost=2.0)
    env.reset(seed=0)
    assert env.step(0)[1] == pytest.approx(-0.02)


def test_mask_leaves_out_missing_asked_and_late_facets(world: DialogueWorld) -> None:
    env = make(world, max_questions=2)
    _, info = env.reset(seed=0)
    shelf = next(s for s in world.sets if s.name == info["category"])
    mask = env.action_masks()
    assert mask[:30].tolist() == [f < len(shelf.facets) for f in range(30)]
    assert mask[30:].tolist() == [p < len(shelf) for p in range(50)]
    info = env.step(1)[4]
    assert not env.action_masks()[1]
    assert np.array_equal(info["action_mask"], env.action_masks())
    env.step(0)
    assert not env.action_masks()[:30].any()


def test_repeated_question_gets_the_same_answer(world: DialogueWorld) -> None:
    env = make(world)
    env.reset(seed=0)
    first = env.step(1)[4]
    again = env.step(1)[4]
    assert (first["repeated"], again["repeated"]) == (False, True)
    assert first["answer"] == again["answer"]
    assert again["questions"] == 2


def test_actions_outside_the_mask_waste_questions_and_then_sell_nothing(
    world: DialogueWorld,
) -> None:
    env = make(world, max_questions=1)
    env.reset(seed=0)
    before = {k: v.copy() for k, v in env.reset(options={"lifetime": 1})[0].items()}
    after, reward, over, _, info = env.step(29)
    assert (info["status"], reward, over) == ("wasted", 0, False)
    assert np.array_equal(before["answers"], after["answers"])
    assert after["turns_left"] == [0]
    _, reward, over, _, info = env.step(79)
    drawn = Lifetimes.draw(world, [1], episodes=1)
    best = world.sets[drawn.sets[0, 0]].y[drawn.personas[0, 0]].max()
    assert (info["status"], over) == ("unsold", True)
    assert reward == pytest.approx(-best / 100)
    assert "item_id" not in info


def test_actions_out_of_range_and_steps_after_the_end_are_errors(world: DialogueWorld) -> None:
    env = make(world)
    with pytest.raises(ConfigError, match="reset"):
        env.step(SELL)
    env.reset(seed=0)
    for action in (80, -1, 1.5, "0"):
        with pytest.raises(ConfigError, match="from 0 to 79"):
            env.step(action)
    env.step(SELL)
    with pytest.raises(ConfigError, match="reset"):
        env.step(SELL)


def test_vector_form_lives_the_trajectories_of_single_environments(world: DialogueWorld) -> None:
    options: dict[str, Any] = {
        "world": world,
        "episodes": 2,
        "feedback": "text",
        "max_questions": 3,
    }
    many = gymnasium.make_vec(
        "Understudy/Dialogue-v0", num_envs=4, vectorization_mode="vector_entry_point", **options
    )
    assert isinstance(many, DialogueVectorEnv)
    single = [make(**options) for _ in range(4)]
    batch, _ = many.reset(seed=10)
    for n, env in enumerate(single):
        alone, _ = env.reset(seed=10 + n)
        assert all(np.array_equal(batch[k][n], alone[k]) for k in alone)
    rng = np.random.default_rng(0)
    for _ in range(25):
        actions = rng.integers(0, 45, 4)
        batch, rewards, over, _, infos = many.step(actions)
        assert many.observation_space.contains(batch)
        for n, env in enumerate(single):
            alone, reward, done, _, info = env.step(int(actions[n]))
            assert (rewards[n], over[n], infos["status"][n]) == (reward, done, info["status"])
            if done:
                final = infos["final_obs"]
                assert all(np.array_equal(final[k][n], alone[k]) for k in alone)
                alone, _ = env.reset()
            assert all(np.array_equal(batch[k][n], alone[k]) for k in alone)
            assert np.array_equal(many.action_masks()[n], env.action_masks())


def test_arguments_are_refused_with_the_nearest_name(world: DialogueWorld) -> None:
    with pytest.raises(ConfigError, match="did you mean feedback"):
        gymnasium.make("Understudy/Dialogue-v0", world=world, feedbck="stars")
    with pytest.raises(ConfigError, match="did you mean stars"):
        make(world, feedback="star")
    with pytest.raises(ConfigError, match="episodes is 0"):
        make(world, episodes=0)
    with pytest.raises(ConfigError, match="the cell unseen/unseen has 3"):
        make(world, cell="unseen/unseen", episodes=4).reset(seed=0)


def test_sets_that_do_not_fit_the_spaces_are_refused() -> None:
    with pytest.raises(ReleaseError, match="51 products, dialogues allow 50"):
        make(sample_world(products=51))


@pytest.mark.pipeline
def test_maskable_ppo_learns_that_expensive_questions_do_not_pay(world: DialogueWorld) -> None:
    contrib = pytest.importorskip("sb3_contrib")
    env = make(world, question_cost=20.0)
    model = contrib.MaskablePPO(
        "MultiInputPolicy", env, n_steps=512, batch_size=128, learning_rate=1e-3, seed=0,
        device="cpu",
    )  # fmt: skip

    def questions() -> float:
        asked = []
        for lifetime in range(100):
            observation, _ = env.reset(options={"lifetime": lifetime})
            over = False
            while not over:
                action, _ = model.predict(observation, action_masks=env.action_masks())
                observation, _, over, _, info = env.step(int(action))
            asked.append(info["questions"])
        return float(np.mean(asked))

    before = questions()
    model.learn(4_096)
    assert before > 0.2
    assert questions() < before / 4


def test_registered_with_its_vector_form() -> None:
    entry = sim.ENVIRONMENTS["Understudy/Dialogue-v0"]
    assert entry.kwargs == {"release": "products@latest"}
