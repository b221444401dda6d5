"""The vector form of the environment: many dialogues, one call of the customers per step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from pipelines.errors import ConfigError
from sim._release import Release
from sim.dialogue._book import Book, Ints
from sim.dialogue._env import ACTIONS, DialogueViews, Observation, draw_lifetime
from sim.dialogue._lifetimes import Cell, Setting
from sim.dialogue._protocol import MAX_QUESTIONS, Customer, Feedback
from sim.dialogue._sessions import Rules
from sim.environment import check_arguments, check_keys, seeds_of, supported_render_mode


class DialogueVectorEnv(
    DialogueViews, VectorEnv[Observation, npt.NDArray[np.int64], npt.NDArray[Any]]
):
    """Many independent :class:`DialogueEnv`, stepped together without a loop over customers.

    Spaces, rewards, episode ends and arguments are those of :class:`DialogueEnv`, with a leading
    axis of `num_envs` (count). Environment ``i`` of ``reset(seed=s)`` lives exactly the trajectory
    of a single environment with ``reset(seed=s + i)``. Lifetimes that end are started again in the
    same step (``AutoresetMode.SAME_STEP``), as in ``sim.environment.RecommendationVectorEnv``.
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "render_modes": [],
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        release: Release | Path | str = "products@latest",
        *,
        home: Path | str | None = None,
        book: Book | None = None,
        customer: str | Customer = "statistical",
        setting: Setting = "customer",
        cell: Cell = "unseen/seen",
        episodes: int = 1,
        feedback: Feedback = "stars",
        max_questions: int = MAX_QUESTIONS,
        question_cost: float = 0.0,
        render_mode: str | None = None,
        **unknown: Any,
    ) -> None:
        check_arguments(type(self), unknown)
        self.render_mode = supported_render_mode(self, render_mode)
        if num_envs < 1:
            raise ConfigError(f"num_envs is {num_envs}", where="environment", hint="at least 1")
        rules = Rules(setting, cell, episodes, feedback, max_questions, question_cost)
        self._open(release, home, book, customer, rules, num_envs)
        self.num_envs = num_envs
        self.single_observation_space = self._space()
        self.single_action_space = spaces.Discrete(ACTIONS)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._all = np.arange(num_envs)
        self._generators: list[np.random.Generator] = []

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[Observation, dict[str, Any]]:
        """Start a lifetime in every environment.

        Environment i is seeded ``seed + i``, or by the i-th of a sequence; ``None`` goes on with
        the present generators. The option ``lifetime`` is a lifetime's seed for each environment,
        of shape (num_envs,); any other is a ConfigError.
        """
        given = dict(options or {})
        check_keys(given, ("lifetime",))
        seeds = seeds_of(seed, self.num_envs)
        fresh = not self._generators
        self._generators = [
            seeding.np_random(env_seed)[0] if fresh or env_seed is not None else self._generators[n]
            for n, env_seed in enumerate(seeds)
        ]
        self._np_random = self._generators[0]
        infos: dict[str, Any] = {}
        self._begin(self._all, infos, given.get("lifetime"))
        self._put(infos, "action_mask", self._masks(self._all))
        return self._observations(self._all), infos

    def step(
        self, actions: npt.ArrayLike
    ) -> tuple[
        Observation,
        npt.NDArray[np.float64],
        npt.NDArray[np.bool_],
        npt.NDArray[np.bool_],
        dict[str, Any],
    ]:
        """One action in every environment; infos as of :meth:`DialogueEnv.step`, with masks."""
        given = np.asarray(actions)
        if not self._generators:
            raise ConfigError("call reset() before step()", where=type(self).__name__)
        if given.shape != (self.num_envs,) or not np.issubdtype(given.dtype, np.integer):
            raise ConfigError(
                f"actions of shape {given.shape} and type {given.dtype} are not valid actions",
                where=f"{type(self).__name__}.step",
                hint=f"whole numbers from 0 to {ACTIONS - 1}, of shape {(self.num_envs,)}",
            )
        bad = np.flatnonzero((given < 0) | (given >= ACTIONS))
        if len(bad):
            raise ConfigError(
                f"the action {given[bad[0]]} of environment {bad[0]} is out of range",
                where=f"{type(self).__name__}.step",
                hint=f"an integer from 0 to {ACTIONS - 1}",
            )
        step = self._advance(self._all, given.astype(np.int64))
        infos: dict[str, Any] = {}
        for name, (values, mask) in step.infos.items():
            self._put(infos, name, values, mask)
        observations = self._observations(self._all)
        over = step.terminated
        if over.any():
            infos["final_info"], infos["_final_info"] = dict(infos), over
            infos["final_obs"], infos["_final_obs"] = observations, over
            self._begin(np.flatnonzero(over), infos)
            self._put(infos, "action_mask", self._masks(self._all))
            observations = self._observations(self._all)
        truncated = np.zeros(self.num_envs, np.bool_)
        return observations, step.reward, over, truncated, infos

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Actions that make sense now, of shape (num_envs, 80)."""
        return self.sessions.allowed(self._all)

    def _begin(self, rows: Ints, infos: dict[str, Any], lifetimes: Any = None) -> None:
        if lifetimes is None:
            numbers = np.array([draw_lifetime(self._generators[n]) for n in rows.tolist()])
        else:
            numbers = np.asarray(lifetimes, np.int64)
            if numbers.shape != (self.num_envs,):
                raise ConfigError(
                    f"lifetimes of shape {numbers.shape}",
                    where="reset(options=…)",
                    hint=f"seeds of shape {(self.num_envs,)}",
                )
        self.sessions.begin(rows, numbers)
        mask = np.zeros(self.num_envs, np.bool_)
        mask[rows] = True
        seeds = np.where(mask, self.sessions.seed, 0)
        names = np.full(self.num_envs, None, dtype=object)
        names[rows] = [self.book.sets[s].name for s in self.sessions.now(rows)]
        self._put(infos, "lifetime", seeds, mask)
        self._put(infos, "category", names, mask)

    def _put(
        self,
        infos: dict[str, Any],
        name: str,
        values: npt.NDArray[Any],
        mask: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        infos[name] = values
        infos[f"_{name}"] = np.ones(self.num_envs, np.bool_) if mask is None else mask
