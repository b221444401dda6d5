"""The environment: one persona, one recommendation per step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from pipelines.errors import ConfigError
from pipelines.retrieval import Retriever
from sim._release import Release
from sim.environment._core import Core
from sim.environment._options import (
    MemoryKind,
    ObservationKind,
    Options,
    Perturbation,
    Unrated,
    check_arguments,
    check_keys,
    supported_render_mode,
)
from sim.environment._views import WorldViews, observation_space, observe
from sim.environment._world import World
from sim.environment.text import persona_lines, step_line

if TYPE_CHECKING:
    from typing import TypeAlias

    from pipelines.llm.engines import Engine
    from pipelines.raters import BoundRater, Rater


Observation: TypeAlias = "dict[str, Any]"

_OPTIONS = ("persona_id",)
_ONE = np.zeros(1, np.int64)


class RecommendationEnv(WorldViews, gymnasium.Env[Observation, Any]):
    """Recommend items, one at a time, to a persona that rates each and leaves at some point.

    Registered as `Understudy/Movies-v0`, `…/Books-v0` and `…/Games-v0`; the vector form is
    `RecommendationVectorEnv`, the form that shows several items at a step `SlateEnv`.

    ## Description
    Each episode belongs to one persona of a published release. At every step the agent
    recommends one item; the persona's rating distribution for it comes from a rater, given
    the persona, the item and what a retriever picks from the persona's memory; the rating is
    drawn from that distribution. The memory holds one entry per item that the persona met: the
    newest rating, how often they met and when last.

    The setting is that of SUBER (Corecco et al., 2024, section 3), with a distribution where
    SUBER has one generated number.

    ## Action Space
    `Discrete(n_items)`: the row of the item in `env.catalogue` (ordered by `item_id`).
    Anything else is a `ConfigError` and leaves the episode as it was. An item may be recommended
    again; the step's `info["repeated"]` then says so. `info["action_mask"]` and `action_masks()`
    are true for items that `seen` does not mark, of shape (n_items,); a slate's mask has one such
    part for each of its places. `observation="compact"` leaves it out of the `info`.

    ## Observation Space
    A flat `Dict`. Always there:

    | key              | space                                     | meaning                     |
    |------------------|-------------------------------------------|-----------------------------|
    | `persona`        | `Discrete(n_personas)`                    | row in `env.cast`           |
    | `age`            | `Box(0, 120, (1,), float32)`              | years; 0 where unknown      |
    | `gender`         | `Discrete(3)`                             | 0 other, 1 female, 2 male   |

    With `observation="recent"` or `"compact"`:

    | key              | space                                     | meaning                     |
    |------------------|-------------------------------------------|-----------------------------|
    | `recent_items`   | `Box(-1, n_items - 1, (k,), int64)`       | last items, newest first;   |
    |                  |                                           | -1 where there is none      |
    | `recent_ratings` | `Box(-1, highest, (k,), float32)`         | their ratings; -1 likewise  |

    With `observation="ratings"`:

    | key              | space                                     | meaning                     |
    |------------------|-------------------------------------------|-----------------------------|
    | `ratings`        | `Box(0, highest, (n_items,), float32)`    | remembered ratings; 0 where |
    |                  |                                           | there is none (see `seen`)  |

    With `observation="recent"` or `"ratings"`:

    | key              | space                                     | meaning                     |
    |------------------|-------------------------------------------|-----------------------------|
    | `seen`           | `MultiBinary(n_items)`                    | 1 for remembered items, and |
    |                  |                                           | for training items of the   |
    |                  |                                           | user a persona is matched to|

    The persona's text is in the `info` of a reset (`description`), and in the observation of
    `PersonaText(env)`; `info["traits"]` has its row of `persona_traits`: tiers of activity,
    conformity and diversity, and pickiness (`None` without the table `training_traits`).

    ## Rewards
    The rating, on the scale of the rater (`env.scale`, such as 1-10), after `reward_shaping`. A
    step whose rating failed has none: see `on_unrated`.

    ## Starting State
    A persona drawn uniformly, or the one that `reset(options={"persona_id": …})` names. Its
    memory is empty, holds `watched` items, or is as its last episode left it with
    `memory="persistent"`.

    ## Episode End
    - Terminated: the persona leaves, with probability `leave_probability` after every step, so
      that the length is geometric (SUBER's code: 0.025, on average 40 steps).
    - Truncated: `length_limit` steps were taken, or a step got no rating and `on_unrated` is
      `"truncate"`.

    ## Arguments
    - `release`: a `sim.Release`, or a reference such as `"movies@latest"`.
    - `home`: the store's folder for a reference.
    - `domain`: what the release's items must be, such as `"movies"`; `None` takes any. The
      registered ids set it.
    - `rater`: `"statistical"` (no language model), `"replay"` (the release's `preference_scores`),
      `"llm"` (the engine that the release's settings name); or an object: an engine, a
      `pipelines.raters.Rater`, or the `rater` of another environment, to share it.
    - `retriever`: how past items are selected for the rater: `"none"`, `"recent"`, `"features"`,
      `"embedding"`, `"graph"`, or a `pipelines.retrieval.Retriever`.
    - `retrieved`: how many of them at most.
    - `memory`: `"episode"` is wiped at every reset (as SUBER does); `"persistent"` keeps each
      persona's memory until the environment is reset with a seed. `info["memory"]` says which.
    - `perturbation`: of the rating, before it is remembered and rewarded: `"none"`, `"greedy"`
      (one up or one down with probability q/2 each) or `"gaussian"` (σ), rounded and kept on
      the scale.
    - `perturbation_strength`: q or σ.
    - `reward_shaping`: q of r ← max(lowest, ⌊r·q^(n/Δt)⌋) with n the times this persona met this
      item before and Δt the steps since; of the reward alone. `None` leaves it.
    - `observation`: `"recent"`, `"ratings"` or `"compact"`, see above.
    - `length_limit`: longest episode (steps).
    - `leave_probability`: per step, from 0 to 1.
    - `history_length`: k of the observation.
    - `on_unrated`: a rating that failed is asked for once more. If it fails again, `"abort"`
      raises `AnswerError` and `"truncate"` ends the episode with reward 0.0, `info["rating"]`
      `None` and the reason in `info["rating_status"]`. It is never turned into a rating.
    - `watched`: items that the persona watched and rated before the episode (count), drawn by the
      exposure of its planned pairs, as people choose what they watch: they are in its memory. A
      persona without planned pairs starts with none, as does one whose memory lasts.
    - `explain`: fill `info["drivers"]` with what moved the expected rating, where the rater can
      tell.
    - `world`: an opened `World`, in place of `release`, `home`, `domain`, `rater` and
      `retriever`, to share it between environments.
    - `render_mode`: `"ansi"` gives readable lines; any other is ignored with a warning.

    All randomness comes from `self.np_random`: the same seed and actions give the same
    trajectory, alone and in the vector form. Numbers are drawn from it some hundred at a time.

    ## Version History
    - v0: first version; the interface may still change.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"], "render_fps": 1}  # type: ignore[misc]

    #: Items shown at a step; the slate form has more.
    _slots = 1

    def __init__(
        self,
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
        explain: bool = False,
        world: World | None = None,
        render_mode: str | None = None,
        **unknown: Any,
    ) -> None:
        check_arguments(type(self), unknown)
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
        self._build(options)
        self.explain = explain
        self.render_mode = supported_render_mode(self, render_mode)
        self.observation_space = observation_space(self.core)
        self.action_space = self._action_space(len(self.world.catalogue))
        self._frame = ""

    def _build(self, options: Options) -> None:
        self.core = Core(self.world, options, 1)

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode.

        Parameters
        ----------
        seed
            Seed of the environment's generator; also empties every memory. ``None`` goes on with
            the present generator.
        options
            ``persona_id`` chooses the persona (ReleaseError if there is no such one); any other
            option is a ConfigError.
        """
        given = dict(options or {})
        check_keys(given, _OPTIONS)
        persona_id = given.get("persona_id")
        personas = None if persona_id is None else np.array([self.cast.index(str(persona_id))])
        super().reset(seed=seed)
        # The generator may also have been set from outside.
        if seed is not None or self.core.draws.generator(0) is not self.np_random:
            self.core.seed(0, self.np_random)
        self.core.begin(_ONE, personas)
        number, traits = int(self.core.persona[0]), self.world.traits
        persona = self.cast.describe(number)
        self._frame = "\n".join(persona_lines(persona))
        info = {
            "persona_id": persona["persona_id"],
            "description": persona["description"],
            "release": self.release.ref,
            "rater": self.rater.name,
            "scale": self.scale.name,
            "memory": self.core.options.memory,
            "traits": None if traits is None else traits.row(number, named=True),
            **self._mask_info(),
        }
        return self._observe(), info

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Recommend one item.

        Returns
        -------
        tuple
            Observation, reward, terminated, truncated, and info: ``item_id``, ``rating`` (as it
            is remembered; ``None`` if there is none), ``rating_status`` (``ok`` or why there is
            no rating), ``expected`` (mean of the distribution), ``repeated``, ``step`` (from 1),
            ``drivers`` (what moved the expected rating; empty without ``explain``),
            ``action_mask`` (items that are new to the persona).

        Raises
        ------
        ConfigError
            If the action is not an item, or the environment was not reset.
        AnswerError
            If the rating failed and ``on_unrated`` is ``"abort"``; nothing has changed then.
        """
        if self.core.persona[0] < 0:
            raise ConfigError("call reset() before step()", where=type(self).__name__)
        shown = self._shown(action)
        # With several items shown, the met one is only known afterwards.
        before = self._before(shown) if self.explain else {}
        outcome = self.core.step(shown)
        item, status = int(outcome.item[0]), str(outcome.status[0])
        rated = status == "ok"
        info = {
            "item_id": self.catalogue.ids[item],
            "rating": float(outcome.rating[0]) if rated else None,
            "rating_status": status,
            "expected": float(outcome.expected[0]) if rated else None,
            "repeated": bool(outcome.times[0]),
            "step": int(outcome.steps[0]),
            "drivers": before.get(item, {}) if rated else {},
            **self._mask_info(),
        }
        if self._slots > 1:
            info["place"] = int(outcome.place[0])
        if self.render_mode == "ansi":
            self._frame = step_line(self.catalogue.describe(item), info, self.scale)
        return (
            self._observe(),
            float(outcome.reward[0]),
            bool(outcome.terminated[0]),
            bool(outcome.truncated[0]),
            info,
        )

    def _shown(self, action: Any) -> npt.NDArray[np.int64]:
        # `contains` asks in more ways than a number needs.
        plain = type(action) in (int, np.int64) and 0 <= action < len(self.catalogue)
        if not plain and not self.action_space.contains(action):
            raise ConfigError(
                f"the action {action!r} is not an item",
                where=f"{type(self).__name__}.step",
                hint=f"an integer from 0 to {len(self.catalogue) - 1}",
            )
        return np.array([[action]], np.int64)

    def _before(self, shown: npt.NDArray[np.int64]) -> dict[int, dict[str, float]]:
        """Effects on the expected rating of each shown item, by item."""
        effects = {}
        for item in shown[0].tolist():
            past, ratings = self.core.past(_ONE, np.array([item]))
            effects[item] = self.rater.explain(int(self.core.persona[0]), item, past[0], ratings[0])
        return effects

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Items that are new to the persona, see `Action Space` (sb3-contrib's name)."""
        masks: npt.NDArray[np.bool_] = self._masks()[0]
        return masks

    def _mask_info(self) -> dict[str, npt.NDArray[np.bool_]]:
        return {} if self.core.seen is None else {"action_mask": self.action_masks()}

    def _observe(self) -> Observation:
        observation: Observation = {key: values[0] for key, values in observe(self.core).items()}
        return observation

    def expected(self) -> npt.NDArray[np.float64]:
        """Expected rating of every item by the present persona now, of shape (n_items,).

        For oracles and reports: an agent can't see it. NaN where there is no rating; ConfigError
        before the first reset.
        """
        if self.core.persona[0] < 0:
            raise ConfigError("call reset() before expected()", where=type(self).__name__)
        return self.core.expected(0)

    def state(self) -> dict[str, Any]:
        """State that determines all further steps: nested dicts, lists, arrays, numbers, texts."""
        return self.core.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a :meth:`state` of an environment with the same arguments."""
        self.core.restore(state)
        # The generator that goes on is the environment's.
        self._np_random = self.core.draws.generator(0)

    def render(self) -> str | None:
        """The last step (or, after a reset, the persona) as text; ``None`` without a mode."""
        return self._frame if self.render_mode == "ansi" else None


#: Characters that texts are made of besides those that the personas use.
_LEAST = frozenset("abcdefghijklmnopqrstuvwxyz ")


class PersonaText(
    gymnasium.ObservationWrapper[Observation, Any, Observation],
    gymnasium.utils.RecordConstructorArgs,
):
    """Adds ``text``: who the persona is, in words, for policies that read.

    A ``Text`` space is not for Stable-Baselines3's standard policies; they take the environment
    without this wrapper.

    Examples
    --------
    >>> env = PersonaText(gymnasium.make("Understudy/Movies-v0"))       # doctest: +SKIP
    >>> env.reset(seed=0)[0]["text"]                                     # doctest: +SKIP
    'Ada, 20, female, student (persona:default:0)…'
    """

    def __init__(self, env: gymnasium.Env[Observation, Any]) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self)
        gymnasium.ObservationWrapper.__init__(self, env)
        base = env.unwrapped
        assert isinstance(base, RecommendationEnv)
        self._base = base
        cast = base.cast
        self._texts = ["\n".join(persona_lines(row)) for row in cast.frame.iter_rows(named=True)]
        inner = env.observation_space
        assert isinstance(inner, spaces.Dict)
        text = spaces.Text(
            max_length=max(len(text) for text in self._texts),
            min_length=1,
            charset=frozenset().union(_LEAST, *self._texts),
        )
        self.observation_space = spaces.Dict({**inner.spaces, "text": text})

    def observation(self, observation: Observation) -> Observation:
        """The observation with the persona's text."""
        return {**observation, "text": self._texts[int(observation["persona"])]}
