"""The four algorithms of appendix F, with stable-baselines3's own settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sim.training._networks import Sizes

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm

    from sim.training._adapter import SB3VecEnv

__all__ = ["ALGORITHMS", "Algorithm", "algorithm_named", "make_model"]


@dataclass(frozen=True)
class Algorithm:
    """What is particular to one algorithm.

    Attributes
    ----------
    name
        As on the command line.
    envs
        Environments that are stepped together by default (count).
    history
        Whether its actor sees past ratings (appendix F).
    settings
        What is given beside stable-baselines3's defaults and gamma.
    """

    name: str
    envs: int
    history: bool
    settings: dict[str, Any]


#: A2C learns from 5 steps of every environment at once: 16 of them (Mnih et al. 2016) give batches
#: of 80. PPO and TRPO learn from 2,048 steps; 8 environments with 256 steps each give as many
#: as the default of one environment with 2,048. DQN takes one gradient step per 4 steps of its
#: environments, whatever their number: 4 keep one gradient step per 16 transitions.
ALGORITHMS: dict[str, Algorithm] = {
    a.name: a
    for a in (
        Algorithm("a2c", 16, history=False, settings={}),
        Algorithm("ppo", 8, history=False, settings={"rollout": 2048}),
        Algorithm("trpo", 8, history=True, settings={"rollout": 2048}),
        Algorithm("dqn", 4, history=True, settings={"buffer_size": 250_000}),
    )
}


def algorithm_named(name: str) -> Algorithm:
    """The algorithm of that name; `RunSettings` has refused all others."""
    return ALGORITHMS[name]


def make_model(
    algorithm: Algorithm, env: SB3VecEnv, sizes: Sizes, *, gamma: float, seed: int
) -> BaseAlgorithm:
    """The algorithm's model over the low-rank networks, on the CPU.

    Parameters
    ----------
    algorithm, env, sizes
        What to train, on what, with networks of which sizes.
    gamma
        Discount factor (appendix F: 0.975).
    seed
        Seeds torch, NumPy's global generator (which stable-baselines3 draws from) and, with
        consecutive numbers, the environments.
    """
    settings = dict(algorithm.settings)
    rollout = settings.pop("rollout", None)
    if rollout:
        settings["n_steps"] = max(rollout // env.num_envs, 2)
    common: dict[str, Any] = {"gamma": gamma, "seed": seed, "device": "cpu", **settings}
    if algorithm.name == "dqn":
        from sim.training._dqn import MaskedDQN
        from sim.training._policies import LowRankQPolicy
        from sim.training._replay import CompactReplayBuffer

        return MaskedDQN(
            LowRankQPolicy,
            env,
            policy_kwargs={"sizes": sizes},
            replay_buffer_class=CompactReplayBuffer,
            **common,
        )
    from sb3_contrib import TRPO
    from stable_baselines3 import A2C, PPO

    from sim.training._policies import LowRankPolicy

    kinds: dict[str, Any] = {"a2c": A2C, "ppo": PPO, "trpo": TRPO}
    # None of the three has an entropy bonus by default: its gradient would be thrown away.
    networks = {"sizes": sizes, "history": algorithm.history, "entropy_gradient": False}
    model: BaseAlgorithm = kinds[algorithm.name](
        LowRankPolicy, env, policy_kwargs=networks, **common
    )
    return model
