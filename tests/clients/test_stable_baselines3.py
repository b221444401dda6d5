"""Stable-Baselines3 by its own helpers: environments by id, three algorithms, worker processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import small_release

sb3 = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402
from stable_baselines3.common.vec_env import SubprocVecEnv  # noqa: E402

pytestmark = [
    pytest.mark.pipeline,
    pytest.mark.timeout(900),
    # It requests images unless told otherwise, and warns where it gets none.
    pytest.mark.filterwarnings("ignore:.*render_mode", "ignore:.*render modes"),
]


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Arguments of the environment: a small release, episodes of eight steps."""
    home: Path = tmp_path_factory.mktemp("home")
    small_release.build(home)
    return {"release": "movies@latest", "home": home, "length_limit": 8, "leave_probability": 0.0}


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("DQN", {"learning_starts": 8, "buffer_size": 100, "train_freq": 1}),
        ("A2C", {"n_steps": 8}),
        ("PPO", {"n_steps": 16, "batch_size": 16, "n_epochs": 1}),
    ],
)
def test_algorithm_learns_and_its_policy_is_rewarded(
    algorithm: str, settings: dict[str, Any], options: dict[str, Any]
) -> None:
    envs = make_vec_env("Understudy/Movies-v0", n_envs=2, seed=0, env_kwargs=options)
    model = getattr(sb3, algorithm)("MultiInputPolicy", envs, seed=0, **settings).learn(64)
    assert model.num_timesteps == 64
    # Two environments share the steps, and an episode has eight.
    assert [info["l"] for info in model.ep_info_buffer] == [8] * 8
    mean, _ = evaluate_policy(model, envs, n_eval_episodes=2)
    assert 8 * 1 <= mean <= 8 * 10


def test_images_are_not_rendered_and_it_is_said(options: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match="'rgb_array' is not supported by RecommendationEnv"):
        envs = make_vec_env("Understudy/Movies-v0", n_envs=1, env_kwargs=options)
    assert envs.render_mode is None


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes_live_as_one_process(method: str, options: dict[str, Any]) -> None:
    def rewards(**more: Any) -> list[list[float]]:
        # A worker that is spawned imports what the main script does, here pytest, or the id names.
        name = "understudy:Understudy/Movies-v0"
        envs = make_vec_env(name, n_envs=2, seed=0, env_kwargs=options, **more)
        envs.reset()
        steps = [envs.step([3, 5])[1].tolist() for _ in range(3)]
        envs.close()
        return steps

    one = rewards()
    workers = {"vec_env_cls": SubprocVecEnv, "vec_env_kwargs": {"start_method": method}}
    assert rewards(**workers) == one
