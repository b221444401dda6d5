"""Settings of a training run."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from pipelines.errors import ConfigError
from pipelines.hints import nearest

if TYPE_CHECKING:
    from pipelines.config import TrainingSettings

#: Names of the algorithms; `_algorithms` defines them and loads torch.
NAMES = ("a2c", "ppo", "trpo", "dqn")


@dataclass(frozen=True)
class RunSettings:
    """Settings that, with the release, determine a run.

    The fields of :class:`pipelines.config.TrainingSettings` (steps of all environments together;
    whole rollouts are taken, so that a few more may be), and these:
    """

    algo: str = "a2c"
    steps: int = 200_000
    #: Seed of networks, actions, batches and environments.
    seed: int = 0
    envs: int | None = None
    gamma: float = 0.0
    components: int = 16
    length_limit: int = 200
    leave_probability: float = 0.025
    retriever: str = "recent"
    retrieved: int = 10
    #: Perturbation of the stored rating; see :class:`sim.environment.RecommendationEnv`.
    perturbation: str = "none"
    perturbation_strength: float = 0.0
    #: q of the reward's shaping, or None.
    reward_shaping: float | None = None
    scale_reward: bool = True
    evaluate_every: int = 20_000
    checkpoint_every: int = 50_000
    users: int | None = None

    def __post_init__(self) -> None:
        if self.algo not in NAMES:
            hint = nearest(self.algo, NAMES, cutoff=0.7)
            raise ConfigError("unknown algorithm", where=repr(self.algo), hint=hint)
        for name, low in (
            ("steps", 1), ("envs", 1), ("components", 1), ("evaluate_every", 1),
            ("checkpoint_every", 1), ("users", 2), ("length_limit", 1), ("seed", 0),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < low:
                raise ConfigError(f"{name} is {value}", where="training", hint=f"at least {low}")
        if not 0 <= self.gamma <= 1:
            raise ConfigError(f"gamma is {self.gamma}", where="training", hint="from 0 to 1")


def run_settings(training: TrainingSettings, *, seed: int, **changes: Any) -> RunSettings:
    """A run from the section ``training`` of the settings.

    `seed` is one of its seeds, or another; `changes` are fields of :class:`RunSettings` that win
    over the section (None leaves the section's).
    """
    names = {f.name for f in fields(RunSettings)}
    given = {k: v for k, v in training.model_dump().items() if k in names}
    given |= {k: v for k, v in changes.items() if v is not None}
    return RunSettings(**{**given, "seed": seed})
