"""The four algorithms of SUBER's appendix F and their default settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.training._networks import Sizes

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm

    from sim.training._adapter import SB3VecEnv
    from sim.training._features import Features


#: Environments that are stepped together (count), unless the settings say otherwise.
ENVIRONMENTS = 32
#: Arguments of each algorithm that differ from stable-baselines3's defaults; ``rollout`` is the
#: number of transitions of an update, over all environments. Chosen on learning curves on
#: ml-latest-small (benchmarks/training).
ALGORITHMS: dict[str, dict[str, Any]] = {
    "a2c": {"rollout": 256, "use_rms_prop": False, "learning_rate": 0.03},
    "ppo": {"rollout": 2048, "batch_size": 256, "n_epochs": 4, "learning_rate": 0.01},
    "trpo": {"rollout": 2048, "cg_max_steps": 10, "target_kl": 0.03, "learning_rate": 0.01},
    "dqn": {
        "buffer_size": 250_000,
        "learning_starts": 1_000,
        "train_freq": 1,
        "batch_size": 256,
        "learning_rate": 0.003,
    },
}


def make_model(
    algorithm: str,
    env: SB3VecEnv,
    sizes: Sizes,
    features: Features,
    *,
    gamma: float,
    seed: int,
) -> BaseAlgorithm:
    """Make the algorithm's model over the feature networks, on the CPU.

    `seed` seeds torch, NumPy's global generator (which stable-baselines3 draws from) and, with
    consecutive numbers, the environments; `gamma` is the discount factor.
    """
    settings = dict(ALGORITHMS[algorithm])
    rollout = settings.pop("rollout", None)
    if rollout:
        settings["n_steps"] = max(rollout // env.num_envs, 2)
    common: dict[str, Any] = {"gamma": gamma, "seed": seed, "device": "cpu", **settings}
    networks: dict[str, Any] = {"sizes": sizes, "features": features}
    if algorithm == "dqn":
        from sim.training._dqn import CompactReplayBuffer, MaskedDQN
        from sim.training._policies import LowRankQPolicy

        return MaskedDQN(
            LowRankQPolicy,
            env,
            policy_kwargs=networks,
            replay_buffer_class=CompactReplayBuffer,
            **common,
        )
    from stable_baselines3 import A2C, PPO

    from sim.training._policies import FactorisedTRPO, LowRankPolicy

    kinds: dict[str, Any] = {"a2c": A2C, "ppo": PPO, "trpo": FactorisedTRPO}
    # Without an entropy bonus the entropy's gradient would be multiplied by zero.
    networks["entropy_gradient"] = settings.get("ent_coef", 0.0) > 0
    model: BaseAlgorithm = kinds[algorithm](LowRankPolicy, env, policy_kwargs=networks, **common)
    return model
