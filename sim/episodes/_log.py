"""Episodes as they were lived, and the wrappers that write them down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorWrapper

from pipelines.errors import ConfigError
from sim.environment import RecommendationEnv, RecommendationVectorEnv

if TYPE_CHECKING:
    from gymnasium import spaces

    _VectorWrapper = VectorWrapper[Any, Any, Any, Any, Any]
else:
    # Generic since Gymnasium 1.4.
    _VectorWrapper = VectorWrapper

_Array = npt.NDArray[Any]

#: Kept keys of a step's information.
_KEPT = ("item_id", "rating", "rating_status", "expected", "repeated")


@dataclass(frozen=True)
class Episode:
    """An episode of T steps."""

    #: Persona of the episode.
    persona_id: str
    #: Seed of the reset that it began with; None where that had none.
    seed: int | None
    #: By key, of shape (T + 1, …): the last is what the last step led to.
    observations: dict[str, _Array]
    #: Actions of shape (T,) or (T, slate).
    actions: _Array
    #: Rewards of shape (T,).
    rewards: npt.NDArray[np.float64]
    #: Whether each step ended the episode, and how, of shape (T,). An episode that a reset cut off
    #: counts as truncated.
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    #: Item, rating (NaN where there is none), status, expected rating and whether the two had met
    #: before, each of shape (T,).
    infos: dict[str, _Array]

    def __len__(self) -> int:
        return len(self.rewards)


@dataclass
class EpisodeLog:
    """Episodes of one environment."""

    #: Release, rater, scale, memory and the other arguments of the environment, ready for JSON.
    metadata: dict[str, Any]
    #: Observation space of a single environment.
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    #: Its id in gymnasium's registry.
    env_id: str
    #: In the order in which they ended.
    episodes: list[Episode] = field(default_factory=list)

    @classmethod
    def of(cls, env: RecommendationEnv | RecommendationVectorEnv) -> EpisodeLog:
        """An empty log of an environment."""
        core = env.core
        options = asdict(core.options)
        arguments: dict[str, Any] = {**options, "retriever": env.world.retriever.name}
        if core.slots > 1:
            arguments |= {"slate_size": core.slots, "choice_temperature": core.temperature}
        metadata = {
            "release": env.release.ref,
            "domain": env.release.domain,
            "rater": env.rater.name,
            "language_model": env.rater.language_model,
            "note": env.rater.note,
            "scale": env.scale.name,
            "arguments": arguments,
        }
        if env.rater.warning is not None:
            metadata["warning"] = env.rater.warning
        form = "Slate" if core.slots > 1 else ""
        if isinstance(env, RecommendationVectorEnv):
            seen, done = env.single_observation_space, env.single_action_space
        else:
            seen, done = env.observation_space, env.action_space
        domain = env.release.domain.capitalize()
        return cls(metadata, seen, done, f"Understudy/{domain}{form}-v0")

    def __len__(self) -> int:
        return len(self.episodes)

    @property
    def steps(self) -> int:
        """Steps of all episodes (count)."""
        return sum(map(len, self.episodes))

    def __iter__(self) -> Iterator[Episode]:
        return iter(self.episodes)


@dataclass
class _Open:
    """An unfinished episode."""

    persona_id: str
    seed: int | None
    observations: list[Mapping[str, Any]]
    actions: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    ends: list[tuple[bool, bool]] = field(default_factory=list)
    infos: list[tuple[Any, ...]] = field(default_factory=list)

    def step(
        self, action: Any, observation: Mapping[str, Any], reward: float,
        end: tuple[bool, bool], info: tuple[Any, ...],
    ) -> None:  # fmt: skip
        self.actions.append(action)
        self.observations.append(observation)
        self.rewards.append(float(reward))
        self.ends.append(end)
        self.infos.append(info)

    def closed(self) -> Episode:
        """The whole episode; cut off if it had no end."""
        ends = np.array(self.ends, np.bool_).reshape(-1, 2)
        if not ends[-1].any():
            ends[-1, 1] = True
        item, rating, status, expected, repeated = zip(*self.infos, strict=True)
        nothing = float("nan")
        return Episode(
            self.persona_id,
            self.seed,
            {key: np.stack([o[key] for o in self.observations]) for key in self.observations[0]},
            np.array(self.actions, np.int64),
            np.array(self.rewards, np.float64),
            ends[:, 0],
            ends[:, 1],
            {
                "item_id": np.array(item, dtype=object),
                "rating": np.array([nothing if r is None else r for r in rating], np.float64),
                "rating_status": np.array(status, dtype=object),
                "expected": np.array([nothing if e is None else e for e in expected], np.float64),
                "repeated": np.array(repeated, np.bool_),
            },
        )


class EpisodeRecorder(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Writes down the episodes of a :class:`RecommendationEnv`.

    An episode enters ``log`` when it is over or cut off by a reset.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        base = env.unwrapped
        if not isinstance(base, RecommendationEnv):
            raise ConfigError("not an environment of recommendations", where=str(env))
        self.log = EpisodeLog.of(base)
        self._open: _Open | None = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; an unfinished one is cut off."""
        self.finish()
        observation, info = super().reset(seed=seed, options=options)
        self._open = _Open(info["persona_id"], seed, [observation])
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and record it unless it raises."""
        observation, reward, terminated, truncated, info = super().step(action)
        assert self._open is not None
        fields = tuple(info[key] for key in _KEPT)
        self._open.step(action, observation, float(reward), (terminated, truncated), fields)
        if terminated or truncated:
            self.finish()
        return observation, reward, terminated, truncated, info

    def finish(self) -> None:
        """Close the unfinished episode, if it has a step."""
        if self._open is not None and self._open.rewards:
            self.log.episodes.append(self._open.closed())
        self._open = None


class VectorEpisodeRecorder(_VectorWrapper):
    """Writes down the episodes of a :class:`RecommendationVectorEnv`.

    Episodes enter ``log`` in the order in which they end (of those that end at once, by
    environment).
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        base = env.unwrapped
        if not isinstance(base, RecommendationVectorEnv):
            raise ConfigError("not a vector environment of recommendations", where=str(env))
        self.log = EpisodeLog.of(base)
        self._open: list[_Open | None] = [None] * base.num_envs

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start episodes; those that go on are cut off where they are reset."""
        observations, infos = super().reset(seed=seed, options=options)
        for n in np.flatnonzero(infos["_persona_id"]).tolist():
            self._finish(n)
            one = seed[n] if isinstance(seed, list | tuple) else None if seed is None else seed + n
            self._begin(n, infos, observations, one)
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all environments, and record the steps unless they raise."""
        observations, rewards, terminated, truncated, infos = super().step(actions)
        last: Any = infos.get("final_obs", observations)
        for n, open_one in enumerate(self._open):
            assert open_one is not None
            end = bool(terminated[n]), bool(truncated[n])
            led = _row(last if any(end) else observations, n)
            fields = tuple(infos[key][n] for key in _KEPT)
            open_one.step(np.asarray(actions)[n], led, rewards[n], end, fields)
            if any(end):
                self._finish(n)
                self._begin(n, infos, observations, None)
        return observations, rewards, terminated, truncated, infos

    def finish(self) -> None:
        """Close the episodes that go on, where they have a step."""
        for n in range(len(self._open)):
            self._finish(n)

    def _begin(self, n: int, infos: Any, observations: Any, seed: int | None) -> None:
        self._open[n] = _Open(infos["persona_id"][n], seed, [_row(observations, n)])

    def _finish(self, n: int) -> None:
        found = self._open[n]
        if found is not None and found.rewards:
            self.log.episodes.append(found.closed())
        self._open[n] = None


def _row(observations: Mapping[str, _Array], n: int) -> dict[str, Any]:
    return {key: values[n] for key, values in observations.items()}
