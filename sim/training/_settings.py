"""Settings of a training run."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from pipelines.config import TrainingSettings

#: Fields of the section that are not of one run: the release that is opened, and all seeds.
_BESIDE = {"domain", "release", "rater", "seeds"}


class RunSettings(TrainingSettings):
    """Settings that, with the release, determine a run.

    The section ``training`` (steps of all environments together; whole rollouts are taken, so that
    a few more may be), and these. Values out of range are a ``ValidationError``.
    """

    #: Seed of networks, actions, batches and environments.
    seed: int = Field(0, ge=0)
    #: Principal components of text vectors among the features (count).
    components: int = Field(16, ge=1)
    #: Past items that the rater is shown at most (count).
    retrieved: int = 10
    #: Perturbation of the stored rating; see :class:`sim.environment.RecommendationEnv`.
    perturbation: Literal["none", "greedy", "gaussian"] = "none"
    perturbation_strength: float = 0.0
    #: q of the reward's shaping, or None.
    reward_shaping: float | None = None

    def of_run(self) -> dict[str, Any]:
        """Values that a checkpoint and a policy state; ready for JSON."""
        return self.model_dump(exclude=_BESIDE)


def run_settings(training: TrainingSettings, *, seed: int, **changes: Any) -> RunSettings:
    """A run from the section ``training`` of the settings.

    `seed` is one of its seeds, or another; `changes` are fields of :class:`RunSettings` that win
    over the section (None leaves the section's).
    """
    given = {k: v for k, v in changes.items() if v is not None}
    return RunSettings(**training.model_dump() | given | {"seed": seed})
