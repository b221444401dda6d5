"""Forms of the environment for many users at once, and for several items at a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from pipelines.errors import ConfigError
from pipelines.retrieval import Retriever
from sim._release import Release
from sim.environment._core import Core, Outcome
from sim.environment._env import RecommendationEnv
from sim.environment._options import (
    MemoryKind,
    ObservationKind,
    Options,
    Perturbation,
    Unrated,
    check_arguments,
    check_keys,
    seeds_of,
    supported_render_mode,
)
from sim.environment._views import WorldViews, observation_space, observe
from sim.environment._world import World

if TYPE_CHECKING:
    from pipelines.llm.engines import Engine
    from pipelines.raters import BoundRater, Rater


_Arrays = dict[str, npt.NDArray[Any]]

_OPTIONS = ("persona_id", "personas", "reset_mask")


class RecommendationVectorEnv(
    WorldViews, VectorEnv[_Arrays, npt.NDArray[np.int64], npt.NDArray[Any]]
):
    """Many independent :class:`RecommendationEnv`, stepped together without a loop over users.

    Spaces, rewards, episode ends and arguments are those of :class:`RecommendationEnv`, with a
    leading axis of `num_envs`. Environment ``i`` of ``reset(seed=s)`` lives exactly the
    trajectory of a single environment with ``reset(seed=s + i)``: all of its randomness is its
    own generator's, and its arithmetic does not depend on the others.

    Episodes that end are started again in the same step (``AutoresetMode.SAME_STEP``): the
    observation is then the new episode's first. The last one of the old is in
    ``infos["final_obs"]``, batched like an observation, and its step's information in
    ``infos["final_info"]``; in both, rows are valid where ``infos["_final_obs"]`` is true.
    All other keys of ``infos`` are about the step that was taken, for all environments, each
    with its mask ``_key``; ``persona_id`` is about episodes that began, ``action_mask``, of shape
    (num_envs, n_items), about the next step.

    Parameters
    ----------
    num_envs
        Environments (count).
    release, home, domain, rater, retriever, retrieved, memory, perturbation, \
perturbation_strength, reward_shaping, observation, length_limit, leave_probability, \
history_length, on_unrated, watched
        As of :class:`RecommendationEnv`.
    world
        An opened :class:`World`, to share it between environments, in place of `release`,
        `home`, `domain`, `rater` and `retriever`.

    Raises
    ------
    ConfigError
        If an argument is out of range or unknown.
    ReleaseError
        If there is no such release, or it lacks a table that is needed.

    Examples
    --------
    >>> envs = RecommendationVectorEnv(64, "movies@latest")              # doctest: +SKIP
    >>> observations, infos = envs.reset(seed=0)                         # doctest: +SKIP
    >>> observations["recent_items"].shape                               # doctest: +SKIP
    (64, 10)
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "render_modes": [],
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    #: Items shown at a step; the slate form has more.
    _slots = 1

    def __init__(
        self,
        num_envs: int = 1,
        release: Release | Path | str = "latest",
        *,
        home: Path | str | None = None,
        domain: str | None = None,
        rater: str | Rater | Engine | BoundRater = "statistical",
        retriever: str | Retriever = "recent",
        retrieved: int = 10,
        memory: MemoryKind = "episode",
        perturbation: Perturbation = "none",
        perturbation_strength: float = 0.0,
        reward_shaping: float | None = None,
        observation: ObservationKind = "recent",
        length_limit: int = 200,
        leave_probability: float = 0.025,
        history_length: int = 10,
        on_unrated: Unrated = "abort",
        watched: int = 0,
        world: World | None = None,
        slots: int = 1,
        temperature: float = 1.0,
        render_mode: str | None = None,
        **unknown: Any,
    ) -> None:
        check_arguments(type(self), unknown)
        self.render_mode = supported_render_mode(self, render_mode)
        if num_envs < 1:
            raise ConfigError(f"num_envs is {num_envs}", where="environment", hint="at least 1")
        options = Options(
            length_limit=length_limit,
            leave_probability=leave_probability,
            history_length=history_length,
            observation=observation,
            retrieved=retrieved,
            memory=memory,
            perturbation=perturbation,
            perturbation_strength=perturbation_strength,
            reward_shaping=reward_shaping,
            on_unrated=on_unrated,
            watched=watched,
        )
        self.world = world or World.open(
            release, home=home, domain=domain, rater=rater, retriever=retriever
        )
        self.core = Core(self.world, options, num_envs, slots=slots, temperature=temperature)
        self.num_envs = num_envs
        items = len(self.world.catalogue)
        self.single_observation_space = observation_space(self.core)
        self.single_action_space = self._action_space(items)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._ids = np.array(self.world.catalogue.ids, dtype=object)
        self._personas = np.array(self.world.cast.ids, dtype=object)
        self._everyone = np.ones(num_envs, np.bool_)
        self._started = False

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[_Arrays, dict[str, Any]]:
        """Start an episode in every environment.

        Parameters
        ----------
        seed
            Environment i is seeded ``seed + i``, or by the i-th of a sequence; ``None`` goes on
            with the present generators.
        options
            ``personas``: persona numbers, of shape (num_envs,); ``persona_id``: an id for all, or
            one each; ``reset_mask``: which environments to reset, of shape (num_envs,). Any other
            option is a ConfigError.
        """
        given = dict(options or {})
        check_keys(given, _OPTIONS)
        rows = np.flatnonzero(self._mask(given.get("reset_mask")))
        personas = self._wanted(given)
        seeds = seeds_of(seed, self.num_envs)
        for row in rows.tolist():
            if seeds[row] is not None or not self._started:
                generator, number = seeding.np_random(seeds[row])
                self.core.seed(row, generator)
                if row == 0:
                    self._np_random, self._np_random_seed = generator, number
        self._started = True
        self.core.begin(rows, None if personas is None else personas[rows])
        infos: dict[str, Any] = {}
        self._began(infos, rows)
        constant = {
            "release": self.release.ref,
            "rater": self.rater.name,
            "scale": self.scale.name,
            "memory": self.core.options.memory,
        }
        for key, value in constant.items():
            infos[key] = np.full(self.num_envs, value, dtype=object)
            infos[f"_{key}"] = infos["_persona_id"]
        self._mask_infos(infos)
        return observe(self.core), infos

    def step(
        self, actions: npt.ArrayLike
    ) -> tuple[_Arrays, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], dict[str, Any]]:
        """Recommend one item (or slate) to each persona.

        Raises
        ------
        ConfigError
            If an action is not an item, naming the environment, or there was no reset.
        AnswerError
            If a rating failed and `on_unrated` is ``"abort"``; nothing has changed then.
        """
        if not self._started:
            raise ConfigError("call reset() before step()", where=type(self).__name__)
        outcome = self.core.step(self._checked(actions))
        infos = self._infos(outcome)
        over = outcome.terminated | outcome.truncated
        ended = np.flatnonzero(over)
        observations = observe(self.core)
        if len(ended):
            infos["final_info"], infos["_final_info"] = dict(infos), over
            infos["final_obs"], infos["_final_obs"] = observations, over
            self._mask_infos(infos["final_info"])
            self.core.begin(ended)
            self._began(infos, ended)
            begun = observe(self.core, ended)
            observations = {key: values.copy() for key, values in observations.items()}
            for key, values in begun.items():
                observations[key][ended] = values
        self._mask_infos(infos)
        return observations, outcome.reward, outcome.terminated, outcome.truncated, infos

    def state(self) -> dict[str, Any]:
        """State that determines all further steps: nested dicts, lists, arrays, numbers, texts."""
        return self.core.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a :meth:`state` of an environment with the same arguments."""
        self.core.restore(state)
        self._started = True

    def observe(self) -> _Arrays:
        """The present observations."""
        return observe(self.core)

    def expected(self, env: int) -> npt.NDArray[np.float64]:
        """Expected rating of every item by one environment's persona now, of shape (n_items,).

        Agents can't see it: for oracles and reports. NaN where there is no rating.
        """
        if not self._started:
            raise ConfigError("call reset() before expected()", where=type(self).__name__)
        return self.core.expected(env)

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Items that are new to each persona now, of shape (num_envs, n_items)."""
        return self._masks()

    def _mask_infos(self, infos: dict[str, Any]) -> None:
        if self.core.seen is not None:
            infos["action_mask"], infos["_action_mask"] = self._masks(), self._everyone

    def _mask(self, mask: Any) -> npt.NDArray[np.bool_]:
        if mask is None:
            return self._everyone
        mask = np.asarray(mask)
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
            raise ConfigError(
                "reset_mask says which environments to reset",
                where="reset(options=…)",
                hint=f"booleans of shape ({self.num_envs},), at least one true",
            )
        if not self._started and not mask.all():
            raise ConfigError("the first reset is of all environments", where="reset(options=…)")
        return np.asarray(mask, np.bool_)

    def _wanted(self, options: dict[str, Any]) -> npt.NDArray[np.int64] | None:
        if "personas" in options:
            personas = np.asarray(options["personas"])
            valid = personas.shape == (self.num_envs,) and np.issubdtype(personas.dtype, np.integer)
            if not valid or not ((personas >= 0) & (personas < len(self.cast))).all():
                raise ConfigError(
                    "personas are numbers of the cast",
                    where="reset(options=…)",
                    hint=f"{self.num_envs} whole numbers from 0 to {len(self.cast) - 1}",
                )
            return personas.astype(np.int64)
        ids = options.get("persona_id")
        if ids is None:
            return None
        ids = [ids] * self.num_envs if isinstance(ids, str) else list(ids)
        if len(ids) != self.num_envs:
            raise ConfigError(
                f"{len(ids)} persona ids for {self.num_envs} environments", where="reset(options=…)"
            )
        return np.array([self.cast.index(str(i)) for i in ids], np.int64)

    def _checked(self, actions: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Actions of shape (num_envs, slots)."""
        given = np.asarray(actions)
        shape = (self.num_envs,) if self._slots == 1 else (self.num_envs, self.core.slots)
        highest = len(self.catalogue) - 1
        if given.shape != shape or not np.issubdtype(given.dtype, np.integer):
            raise ConfigError(
                f"actions of shape {given.shape} and type {given.dtype} are not items",
                where=f"{type(self).__name__}.step",
                hint=f"whole numbers from 0 to {highest}, of shape {shape}",
            )
        bad = (given < 0) | (given > highest)
        if bad.any():
            row = int(np.argwhere(bad)[0][0])
            raise ConfigError(
                f"the action {given[row]!s} of environment {row} is not an item",
                where=f"{type(self).__name__}.step",
                hint=f"an integer from 0 to {highest}",
            )
        return given.astype(np.int64).reshape(self.num_envs, -1)

    def _infos(self, outcome: Outcome) -> dict[str, Any]:
        infos: dict[str, Any] = {
            "item_id": self._ids[outcome.item],
            "rating": outcome.rating,
            "rating_status": outcome.status,
            "expected": outcome.expected,
            "repeated": outcome.times > 0,
            "step": outcome.steps,
        }
        if self._slots > 1:
            infos["place"] = outcome.place
        for key in tuple(infos):
            infos[f"_{key}"] = self._everyone
        unrated = outcome.status != "ok"
        if unrated.any():
            infos["_rating"] = infos["_expected"] = ~unrated
        return infos

    def _began(self, infos: dict[str, Any], rows: npt.NDArray[np.int64]) -> None:
        ids = np.full(self.num_envs, None, dtype=object)
        ids[rows] = self._personas[self.core.persona[rows]]
        mask = np.zeros(self.num_envs, np.bool_)
        mask[rows] = True
        infos["persona_id"], infos["_persona_id"] = ids, mask


class SlateEnv(RecommendationEnv):
    """Show a slate of items; the persona takes one of them and rates it.

    Registered as `Understudy/MoviesSlate-v0`, `…/BooksSlate-v0` and `…/GamesSlate-v0`.

    ## Description
    As `RecommendationEnv`, but at every step the agent shows `slate_size` items. The persona
    takes one: item i with probability proportional to exp(eᵢ / τ), eᵢ the expected rating of its
    distribution and τ the `choice_temperature` (the multinomial logit of McFadden, "Conditional
    logit analysis of qualitative choice behavior", 1974, with the expected rating as utility).
    A small τ takes the best, a large one any. It always takes one; an item that is shown twice
    counts once. Only the item that was taken is rated, remembered and rewarded.

    ## Action Space
    `MultiDiscrete([n_items] * slate_size)`: rows of the shown items in `env.catalogue`.

    ## Observation Space
    As `RecommendationEnv`.

    ## Rewards
    The rating of the item that was taken; as `RecommendationEnv`.

    ## Starting State
    As `RecommendationEnv`.

    ## Episode End
    As `RecommendationEnv`; a slate is unrated as soon as one of its items is.

    ## Arguments
    - `slate_size`: items shown at a step, at least 2.
    - `choice_temperature`: τ, in units of the scale, above 0.

    All others as `RecommendationEnv`. `info["place"]` says which place of the slate was taken.

    ## Version History
    - v0: first version; the interface may still change.
    """

    def __init__(
        self,
        release: Release | Path | str = "latest",
        *,
        slate_size: int = 5,
        choice_temperature: float = 1.0,
        **arguments: Any,
    ) -> None:
        _check_slate(slate_size, choice_temperature)
        self._slots, self._temperature = slate_size, choice_temperature
        super().__init__(release, **arguments)

    def _build(self, options: Options) -> None:
        self.core = Core(self.world, options, 1, slots=self._slots, temperature=self._temperature)

    def _action_space(self, items: int) -> spaces.Space[Any]:
        return spaces.MultiDiscrete([items] * self._slots)

    def _shown(self, action: Any) -> npt.NDArray[np.int64]:
        shown = np.asarray(action)
        valid = shown.shape == (self._slots,) and np.issubdtype(shown.dtype, np.integer)
        if not valid or not ((shown >= 0) & (shown < len(self.catalogue))).all():
            raise ConfigError(
                f"the action {action!r} is not a slate of items",
                where=f"{type(self).__name__}.step",
                hint=f"{self._slots} integers from 0 to {len(self.catalogue) - 1}",
            )
        return shown.astype(np.int64)[None]


class SlateVectorEnv(RecommendationVectorEnv):
    """Many independent :class:`SlateEnv`, stepped together as :class:`RecommendationVectorEnv`."""

    _slots = 2

    def __init__(
        self,
        num_envs: int = 1,
        release: Release | Path | str = "latest",
        *,
        slate_size: int = 5,
        choice_temperature: float = 1.0,
        **arguments: Any,
    ) -> None:
        _check_slate(slate_size, choice_temperature)
        self._slots = slate_size
        super().__init__(
            num_envs, release, slots=slate_size, temperature=choice_temperature, **arguments
        )

    def _action_space(self, items: int) -> spaces.Space[Any]:
        return spaces.MultiDiscrete([items] * self._slots)


def _check_slate(size: int, temperature: float) -> None:
    """Refuse a size below 2 or a temperature that is not above 0."""
    if size < 2:
        raise ConfigError(f"slate_size is {size}", where="environment", hint="at least 2")
    if not 0 < temperature < float("inf"):
        raise ConfigError(
            f"choice_temperature is {temperature}", where="environment", hint="above 0"
        )
