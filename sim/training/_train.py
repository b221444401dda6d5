"""A training run: from settings to a policy, with checkpoints, curve and logs."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from pipelines.errors import ConfigError, IntegrityError
from pipelines.progress import advance, stopping
from pipelines.renames import current_name
from sim.metrics import evaluate
from sim.recommenders import Audience
from sim.training._algorithms import ENVIRONMENTS, make_model
from sim.training._checkpoint import (
    Checkpoint,
    checkpoints,
    load,
    model_state,
    restore_model,
    save,
    write,
)
from sim.training._features import Features
from sim.training._networks import ItemScores, Sizes
from sim.training._policy_file import PolicyRecommender, id_hash, policy_bytes
from sim.training._settings import RunSettings

if TYPE_CHECKING:
    from sim.environment import World


class Stopped(Exception):  # noqa: N818 - a result, not an error
    """The run stopped on request, after writing a checkpoint."""

    def __init__(self, steps: int, path: Path) -> None:
        self.steps, self.path = steps, path
        super().__init__(steps, path)


@dataclass(frozen=True)
class Trained:
    """Result of a run.

    ``folder`` holds ``policy.safetensors`` (its bytes are ``weights``), ``curve.csv``,
    ``checkpoints/`` and ``tensorboard/``; ``curve`` has one row per evaluation.
    """

    folder: Path
    policy: PolicyRecommender
    weights: bytes
    curve: list[dict[str, float]]


class Training:
    """A training run in a folder, which is created if missing.

    `audience`: personas that the policy is evaluated on; default from the settings.
    """

    def __init__(
        self, world: World, settings: RunSettings, folder: Path, audience: Audience | None = None
    ) -> None:
        limit = min(settings.length_limit, len(world.catalogue))
        sizes = {"envs": settings.envs or ENVIRONMENTS, "length_limit": limit}
        self.settings = settings.model_copy(update=sizes)
        self.world, self.folder = world, folder
        self.audience = audience or Audience(
            world, users=settings.users, seed=0, retrieved=settings.retrieved
        )
        self.curve: list[dict[str, float]] = []
        self._saved = 0

    @property
    def metadata(self) -> dict[str, Any]:
        """Settings, release, rater, item and persona sets of the run."""
        world = self.world
        return {
            "settings": self.settings.of_run(),
            "algo": self.settings.algo,
            "seed": self.settings.seed,
            "release": world.release.ref,
            "rater": world.rater.name,
            "language_model": world.rater.language_model,
            "items": id_hash(world.catalogue.ids),
            "personas": id_hash(world.cast.ids),
        }

    def run(
        self,
        *,
        resume: bool = False,
        checkpoint: Path | None = None,
    ) -> Trained:
        """Train to the end.

        Parameters
        ----------
        resume
            Continue from the folder's latest checkpoint (from the start without one).
        checkpoint
            Continue from this one instead.

        Raises
        ------
        ConfigError
            If the folder holds a run and `resume` is false, or the run of other settings.
        IntegrityError
            If the checkpoint is damaged; the hint names the one before it.
        ReleaseError
            If it is of another item set.
        AnswerError, EngineError
            If the rater fails; the latest checkpoint remains.
        Stopped
            If :func:`pipelines.progress.stopping` was true between rollouts; a checkpoint is
            written first.
        """
        from stable_baselines3.common.logger import configure
        from threadpoolctl import threadpool_limits

        start = self._found(resume, checkpoint)
        # Batches are small: one thread is as fast as two on an idle machine and far faster on a
        # busy one, where threads that wait for each other spin; and sums keep their order.
        limits = threadpool_limits(1)
        threads = _torch_threads(1)
        model, env = self._model()
        try:
            if start is not None:
                self._restore(model, env, start)
            model.set_logger(configure(str(self.folder / "tensorboard"), ["tensorboard"]))
            callback = _callback(self, env)
            left = self.settings.steps - model.num_timesteps
            fresh = start is None
            if left > 0:
                model.learn(
                    self.settings.steps if fresh else left,
                    callback=callback,
                    reset_num_timesteps=fresh,
                )
            self.record(model, env)
            self.save(model, env)
            advance("training", self.settings.steps, self.settings.steps)
            return self._finished(model)
        finally:
            env.close()
            _torch_threads(threads)
            limits.restore_original_limits()

    def record(self, model: Any, env: Any) -> None:
        """Evaluate unless this step was evaluated, and write the curve."""
        steps = int(model.num_timesteps)
        if self.curve and self.curve[-1]["steps"] >= steps:
            return
        played = self.audience.play(self._policy(model))
        figures = {name: f.value for name, f in evaluate([played], resamples=2).items()}
        row = {"steps": steps, **env.tally(), **figures}
        self.curve.append(row)
        for name, value in row.items():
            if name != "steps" and value == value:  # not NaN
                model.logger.record(f"evaluation/{name}", value)
        model.logger.dump(steps)
        self._write_curve()

    def save(self, model: Any, env: Any) -> Path:
        """Write a checkpoint."""
        steps = int(model.num_timesteps)
        state = {"model": model_state(model, env), "curve": self.curve}
        path = save(self.folder / "checkpoints", steps, state, self.metadata)
        self._saved = steps
        return path

    def due(self, steps: int) -> tuple[bool, bool]:
        """True if an evaluation and a checkpoint are due."""
        last = self.curve[-1]["steps"] if self.curve else -1
        every = self.settings.evaluate_every
        return (
            last < 0 or steps // every > int(last) // every,
            steps // self.settings.checkpoint_every > self._saved // self.settings.checkpoint_every,
        )

    def _found(self, resume: bool, path: Path | None) -> Checkpoint | None:
        stored = checkpoints(self.folder / "checkpoints")
        if path is not None:
            chosen = [c for c in checkpoints(path.parent) if c.path.name == path.name]
            if not chosen:
                raise IntegrityError(
                    "no such checkpoint, or an unfinished one",
                    where=str(path),
                    hint=f"there is {stored[-1].path}" if stored else "there is none",
                )
            return chosen[0]
        if not resume:
            if stored or (self.folder / "policy.safetensors").exists():
                raise ConfigError(
                    "the folder holds a run",
                    where=str(self.folder),
                    hint="--resume continues it, --out takes another folder",
                )
            return None
        return stored[-1] if stored else None

    def _model(self) -> tuple[Any, Any]:
        from sim.environment import RecommendationVectorEnv
        from sim.training._adapter import SB3VecEnv

        settings, world = self.settings, self.world
        env = SB3VecEnv(
            RecommendationVectorEnv(
                settings.envs or 1,
                world=world,
                observation="compact",
                length_limit=settings.length_limit,
                history_length=settings.length_limit,
                leave_probability=settings.leave_probability,
                retrieved=settings.retrieved,
                # Perturbation and shaping are for the learner only.
                perturbation=settings.perturbation,
                perturbation_strength=settings.perturbation_strength,
                reward_shaping=settings.reward_shaping,
            ),
            scaled=settings.scale_reward,
        )
        features = Features.read(world, settings.components)
        sizes = Sizes.of(features, world.rater.scale)
        model = make_model(
            settings.algo, env, sizes, features, gamma=settings.gamma, seed=settings.seed
        )
        return model, env

    def _restore(self, model: Any, env: Any, checkpoint: Checkpoint) -> None:
        _same_run(checkpoint, self.metadata)
        state = load(checkpoint)
        restore_model(model, env, state["model"])
        self.curve = [dict(row) for row in state["curve"]]
        self._saved = checkpoint.steps
        self._write_curve()

    def _policy(self, model: Any) -> PolicyRecommender:
        network = getattr(model.policy, "actor", None)
        if network is None:
            network = model.policy.q_net.scores
        # A policy recommends what its caller does not mask: without the items that training masks.
        weights, network = network.state_dict(), ItemScores(network.sizes)
        network.load_state_dict(weights)
        return PolicyRecommender(network, {**self.metadata, "steps": int(model.num_timesteps)})

    def _write_curve(self) -> None:
        text = io.StringIO()
        if self.curve:
            writer = csv.DictWriter(text, list(self.curve[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.curve)
        write(self.folder / "curve.csv", text.getvalue().encode())

    def _finished(self, model: Any) -> Trained:
        policy = self._policy(model)
        weights = policy_bytes(policy.network, policy.metadata)
        write(self.folder / "policy.safetensors", weights)
        metadata = orjson.dumps(policy.metadata, option=orjson.OPT_INDENT_2)
        write(self.folder / "run.json", metadata)
        return Trained(self.folder, policy, weights, list(self.curve))


def _torch_threads(count: int) -> int:
    """Set the number of torch's threads and return the previous one."""
    import torch as th

    before = th.get_num_threads()
    th.set_num_threads(count)
    return before


#: Settings that may differ when a run is resumed: they do not change its curve so far.
_FREE = ("steps", "checkpoint_every")


def _same_run(checkpoint: Checkpoint, metadata: dict[str, Any]) -> None:
    """Refuse to resume another run, naming the difference."""
    from pipelines.errors import ReleaseError

    saved = checkpoint.metadata
    for key, what in (("items", "item set"), ("personas", "personas")):
        if saved.get(key) != metadata[key]:
            raise ReleaseError(
                f"the checkpoint belongs to another {what} ({saved.get('release')}, "
                f"here {metadata['release']})",
                where=str(checkpoint.path),
                hint=f"--release {saved.get('release')}",
            )
    for key in ("release", "rater"):
        if current_name(str(saved.get(key))) != metadata[key]:
            raise ConfigError(
                f"the checkpoint is of the {key} {saved.get(key)}, not of {metadata[key]}",
                where=str(checkpoint.path),
                hint=f"--{key} {saved.get(key)}",
            )
    before, now = saved.get("settings", {}), metadata["settings"]
    for name, value in now.items():
        if name not in _FREE and before.get(name) != value:
            raise ConfigError(
                f"the checkpoint was trained with {name} {before.get(name)}, not {value}",
                where=str(checkpoint.path),
                hint="--out takes another folder",
            )


def _callback(training: Training, env: Any) -> Any:
    from stable_baselines3.common.callbacks import BaseCallback

    class BetweenRollouts(BaseCallback):
        """Evaluate, save and stop between rollouts."""

        def _on_rollout_start(self) -> None:
            steps = int(self.model.num_timesteps)
            evaluate, checkpoint = training.due(steps)
            if evaluate:
                training.record(self.model, env)
            if stopping():
                raise Stopped(steps, training.save(self.model, env))
            if checkpoint:
                training.save(self.model, env)
            advance("training", min(steps, training.settings.steps), training.settings.steps)

        def _on_step(self) -> bool:
            return True

    return BetweenRollouts()
