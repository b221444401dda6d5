"""The movie environment: one persona, one recommended film per step."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from pipelines.errors import AnswerError, ConfigError
from sim._release import Release, open_release
from sim.environment._catalogue import Cast, Catalogue
from sim.environment._raters import Rated, StepRater, open_rater
from sim.environment._text import persona_lines, step_line

if TYPE_CHECKING:
    from typing import TypeAlias

__all__ = ["MoviesEnv", "Observation"]

Observation: TypeAlias = "dict[str, Any]"

_OPTIONS = ("persona_id",)


class MoviesEnv(gymnasium.Env[Observation, np.int64]):
    """Recommend films, one at a time, to a persona that rates each and leaves at some point.

    ## Description
    Each episode belongs to one persona of a published release. At every step the agent
    recommends one film; the persona's rating distribution for it comes from a rater, and the
    rating is drawn from that distribution. What the persona has rated in this episode is its
    memory; it is empty again after a reset.

    The setting is that of SUBER (Corecco et al., 2024, section 3), with a distribution where
    SUBER has one generated number.

    ## Action Space
    `Discrete(n_items)`: the row of the film in `env.catalogue` (ordered by `item_id`).
    Anything else is a `ConfigError` and leaves the episode as it was. A film may be recommended
    again; the step's `info["repeated"]` then says so.

    ## Observation Space
    A flat `Dict`:

    | key              | space                                     | meaning                     |
    |------------------|-------------------------------------------|-----------------------------|
    | `persona`        | `Discrete(n_personas)`                    | row in `env.cast`           |
    | `age`            | `Box(0, 120, (1,), float32)`              | years                       |
    | `gender`         | `Discrete(3)`                             | 0 other, 1 female, 2 male   |
    | `recent_items`   | `Box(-1, n_items - 1, (k,), int64)`       | last films, newest first;   |
    |                  |                                           | -1 where there is none      |
    | `recent_ratings` | `Box(-1, highest, (k,), float32)`         | their ratings; -1 likewise  |
    | `seen`           | `MultiBinary(n_items)`                    | 1 for films rated so far    |

    ## Rewards
    The rating, on the scale of the rater (`env.scale`, such as 1-10). A step whose rating failed
    has none: see `on_unrated`.

    ## Starting State
    A persona drawn uniformly, or the one that `reset(options={"persona_id": …})` names, with an
    empty memory.

    ## Episode End
    - Terminated: the persona leaves, with probability `leave_probability` after every step, so
      that the length is geometric (SUBER's code: 0.025, on average 40 steps).
    - Truncated: `length_limit` steps were taken, or a step got no rating and `on_unrated` is
      `"truncate"`.

    ## Arguments
    - `release`: a `sim.Release`, or a reference such as `"movies@latest"`.
    - `home`: the store's folder for a reference.
    - `rater`: `"embedded"` (no language model), `"replay"` (the release's `preference_scores`),
      or a `StepRater` that was opened before, to share it between environments.
    - `length_limit`: longest episode (steps).
    - `leave_probability`: per step, from 0 to 1.
    - `history_length`: k of the observation.
    - `on_unrated`: when a rating failed, `"abort"` raises `AnswerError` and `"truncate"` ends
      the episode with reward 0.0, `info["rating"]` `None` and the reason in
      `info["rating_status"]`. It is never turned into a rating.
    - `explain`: fill `info["drivers"]` with what moved the expected rating, where the rater can
      tell; doubles the cost of a step.
    - `render_mode`: `"ansi"` gives readable lines, or `None`.

    Everything random comes from `self.np_random`: the same seed and actions give the same
    trajectory.

    ## Version History
    - v0: first version; the interface may still change.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"], "render_fps": 1}  # type: ignore[misc]

    def __init__(
        self,
        release: Release | Path | str = "latest",
        *,
        home: Path | str | None = None,
        rater: Literal["embedded", "replay"] | StepRater = "embedded",
        length_limit: int = 200,
        leave_probability: float = 0.025,
        history_length: int = 10,
        on_unrated: Literal["abort", "truncate"] = "abort",
        explain: bool = False,
        render_mode: Literal["ansi"] | None = None,
    ) -> None:
        _within("length_limit", length_limit, 1, None)
        _within("leave_probability", leave_probability, 0, 1)
        _within("history_length", history_length, 1, None)
        _one_of("on_unrated", on_unrated, ("abort", "truncate"))
        _one_of("render_mode", render_mode, (None, "ansi"))
        self.release = release if isinstance(release, Release) else open_release(release, home=home)
        self.release.require("items", "personas")
        self.catalogue = Catalogue.read(self.release)
        self.cast = Cast.read(self.release)
        self.rater: StepRater = (
            open_rater(rater, self.release, self.catalogue, self.cast)
            if isinstance(rater, str)
            else rater
        )
        self.scale = self.rater.scale
        self.length_limit = length_limit
        self.leave_probability = leave_probability
        self.history_length = history_length
        self.on_unrated = on_unrated
        self.explain = explain
        self.render_mode = render_mode

        items, answers = len(self.catalogue), self.scale.answers
        self.action_space = spaces.Discrete(items)
        self.observation_space = spaces.Dict(
            {
                "persona": spaces.Discrete(len(self.cast)),
                "age": spaces.Box(0, 120, (1,), np.float32),
                "gender": spaces.Discrete(len(Cast.GENDERS)),
                "recent_items": spaces.Box(-1, items - 1, (history_length,), np.int64),
                "recent_ratings": spaces.Box(-1, float(answers[-1]), (history_length,), np.float32),
                "seen": spaces.MultiBinary(items),
            }
        )
        self._persona: int | None = None
        self._forget()

    def _forget(self) -> None:
        self._items: list[int] = []
        self._ratings: list[float] = []
        self._seen = np.zeros(len(self.catalogue), np.int8)
        self._steps = 0
        self._frame = ""

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode.

        Parameters
        ----------
        seed
            Seed of the environment's generator; ``None`` goes on with the present one.
        options
            ``persona_id`` chooses the persona.

        Raises
        ------
        ConfigError
            If an option is unknown.
        ReleaseError
            If there is no such persona.
        """
        super().reset(seed=seed)
        for key in options or {}:
            if key not in _OPTIONS:
                near = difflib.get_close_matches(str(key), _OPTIONS, n=1, cutoff=0.4)
                raise ConfigError(
                    f"unknown option {key!r}",
                    where="reset(options=…)",
                    hint=f"did you mean {near[0]}?" if near else f"known: {', '.join(_OPTIONS)}",
                )
        # Drawn even when it is not needed, so that the rest of a seeded episode is the same.
        drawn = int(self.np_random.integers(len(self.cast)))
        wanted = (options or {}).get("persona_id")
        self._persona = drawn if wanted is None else self.cast.index(str(wanted))
        self._forget()
        persona = self.cast.describe(self._persona)
        self._frame = "\n".join(persona_lines(persona))
        info = {
            "persona_id": persona["persona_id"],
            "description": persona["description"],
            "release": self.release.ref,
            "rater": self.rater.name,
            "scale": self.scale.name,
            "memory": "episode",
        }
        return self._observe(), info

    def step(self, action: np.int64 | int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Recommend one film.

        Returns
        -------
        tuple
            Observation, reward, terminated, truncated, and info: ``item_id``, ``rating``
            (``None`` if there is none), ``rating_status`` (``ok`` or why there is no rating),
            ``expected`` (mean of the distribution), ``repeated``, ``step`` (from 1), ``drivers``
            (what moved the expected rating; empty without ``explain``).

        Raises
        ------
        ConfigError
            If the action is not an item, or the environment was not reset.
        AnswerError
            If the rating failed and ``on_unrated`` is ``"abort"``.
        """
        if self._persona is None:
            raise ConfigError("reset() comes before step()", where="MoviesEnv")
        if not self.action_space.contains(action):
            raise ConfigError(
                f"the action {action!r} is not an item",
                where="MoviesEnv.step",
                hint=f"an integer from 0 to {len(self.catalogue) - 1}",
            )
        item = int(action)
        rated = self.rater.rate(self._persona, item, self._items, self._ratings)
        if rated.status != "ok" and self.on_unrated == "abort":
            raise AnswerError(
                f"no rating ({rated.status})",
                where=f"{self.cast.ids[self._persona]} for {self.catalogue.ids[item]}",
                hint='on_unrated="truncate" ends the episode instead',
            )
        drivers: dict[str, float] = {}
        if self.explain and rated.status == "ok":
            drivers = self.rater.explain(self._persona, item, self._items, self._ratings)
        # Both are always drawn, so that one failed rating does not shift the rest of a seed.
        draw, leave = self.np_random.random(2)
        rating = self._sample(rated, float(draw))
        repeated = bool(self._seen[item])
        self._steps += 1
        if rating is not None:
            self._items.append(item)
            self._ratings.append(rating)
            self._seen[item] = 1
        terminated = bool(leave < self.leave_probability) and rating is not None
        truncated = self._steps >= self.length_limit or rating is None
        info = {
            "item_id": self.catalogue.ids[item],
            "rating": rating,
            "rating_status": rated.status,
            "expected": rated.expected,
            "repeated": repeated,
            "step": self._steps,
            "drivers": drivers,
        }
        if self.render_mode == "ansi":
            self._frame = step_line(self.catalogue.describe(item), info, self.scale)
        reward = 0.0 if rating is None else rating
        return self._observe(), reward, terminated, truncated, info

    def _sample(self, rated: Rated, draw: float) -> float | None:
        if rated.status != "ok" or rated.probabilities is None:
            return None
        cumulative = np.cumsum(rated.probabilities)
        answer = int(np.searchsorted(cumulative, draw * cumulative[-1], side="right"))
        return float(self.scale.answers[min(answer, len(cumulative) - 1)])

    def _observe(self) -> Observation:
        persona = self._persona
        assert persona is not None
        k = self.history_length
        items = np.full(k, -1, np.int64)
        ratings = np.full(k, -1, np.float32)
        recent = self._items[-k:][::-1]
        items[: len(recent)] = recent
        ratings[: len(recent)] = self._ratings[-k:][::-1]
        return {
            "persona": np.int64(persona),
            "age": self.cast.ages[persona : persona + 1].copy(),
            "gender": self.cast.genders[persona],
            "recent_items": items,
            "recent_ratings": ratings,
            "seen": self._seen.copy(),
        }

    def expected(self) -> npt.NDArray[np.float64]:
        """Expected rating of every item by the present persona now, of shape (n_items,).

        What an agent can't see: for oracles and reports. NaN where there is no rating.

        Raises
        ------
        ConfigError
            If the environment was not reset.
        """
        if self._persona is None:
            raise ConfigError("reset() comes before expected()", where="MoviesEnv")
        return self.rater.expected(self._persona, self._items, self._ratings)

    def render(self) -> str | None:
        """The last step (or, after a reset, the persona) as text; ``None`` without a mode."""
        return self._frame if self.render_mode == "ansi" else None


def _within(name: str, value: float, low: float, high: float | None) -> None:
    if not low <= value <= (value if high is None else high):
        limits = f"at least {low}" if high is None else f"from {low} to {high}"
        raise ConfigError(f"{name} is {value}", where="MoviesEnv", hint=limits)


def _one_of(name: str, value: object, known: tuple[object, ...]) -> None:
    if value not in known:
        shown = ", ".join(repr(k) for k in known)
        raise ConfigError(f"{name} is {value!r}", where="MoviesEnv", hint=f"one of {shown}")
