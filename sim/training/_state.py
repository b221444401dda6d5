"""The state of a stable-baselines3 model, so that it goes on as if it had not been stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from sim.training._adapter import SB3VecEnv

__all__ = ["model_state", "restore_model"]

#: Counters of stable-baselines3's models, as far as a model has them.
_COUNTERS = (
    "num_timesteps",
    "_n_updates",
    "_episode_num",
    "_current_progress_remaining",
    "_n_calls",
    "exploration_rate",
)


def model_state(model: Any, env: SB3VecEnv) -> dict[str, Any]:
    """Networks, optimiser, counters, observations, random generators, replay buffer, environment.

    To be taken between rollouts: what was collected and not yet learnt from is not in it.
    """
    import torch as th

    kind, keys, position, has_gauss, gauss = np.random.get_state()  # noqa: NPY002 - SB3's
    state: dict[str, Any] = {
        "policy": model.policy.state_dict(),
        "optimizer": model.policy.optimizer.state_dict(),
        "counters": {name: getattr(model, name) for name in _COUNTERS if hasattr(model, name)},
        "observation": model._last_obs,
        "episode_starts": model._last_episode_starts,
        "torch": th.get_rng_state(),
        "numpy": [kind, keys, position, has_gauss, gauss],
        "env": env.state(),
    }
    buffer = getattr(model, "replay_buffer", None)
    if buffer is not None:
        state["replay"] = buffer.stored()
    return state


def restore_model(model: Any, env: SB3VecEnv, state: dict[str, Any]) -> None:
    """Go on from a `model_state` of a model that was made with the same settings."""
    import torch as th

    model.policy.load_state_dict(state["policy"])
    model.policy.optimizer.load_state_dict(state["optimizer"])
    for name, value in state["counters"].items():
        setattr(model, name, value)
    model._last_obs = state["observation"]
    model._last_episode_starts = state["episode_starts"]
    env.restore(state["env"])
    if "replay" in state:
        model.replay_buffer.restore(state["replay"])
    # Last: making the model has drawn from these generators.
    kind, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, keys, position, has_gauss, gauss))  # noqa: NPY002
    th.set_rng_state(state["torch"])
