"""Episodes written down, and exported to Parquet and to Minari.

>>> from sim.environment import RecommendationVectorEnv                  # doctest: +SKIP
>>> log = collect(RecommendationVectorEnv(16, "movies@latest"), 100)     # doctest: +SKIP
>>> write_parquet(log, "episodes.parquet")                               # doctest: +SKIP
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import gymnasium
import numpy as np
import numpy.typing as npt
import orjson
from gymnasium.vector import VectorWrapper

from pipelines.errors import ConfigError
from pipelines.extras import missing_package
from pipelines.progress import add
from pipelines.store.files import placed
from sim.environment import RecommendationEnv, RecommendationVectorEnv

if TYPE_CHECKING:
    from gymnasium import spaces

    from pipelines.exports import Export

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


CollectPolicy = Literal["random", "popular"]

#: Seeds of the policy are kept apart from those of the environments.
_STREAM = 1


def collect(
    env: RecommendationVectorEnv, episodes: int, *, policy: CollectPolicy = "random", seed: int = 0
) -> EpisodeLog:
    """Play until some episodes are over.

    Those are taken that begin first, so that short ones are not preferred. The policy ``random``
    plays any item that the persona has not rated, nor the user that it is matched to in training;
    ``popular`` plays the most rated of those. Items are met again where all have been. Environment
    i gets the seed ``seed + i``.
    """
    recorder = VectorEpisodeRecorder(env)
    rng = np.random.default_rng([seed, _STREAM])
    recorder.reset(seed=seed)
    began = env.num_envs
    # The first episodes in the order in which they begin, by environment among equals.
    number = np.arange(began)
    wanted: list[int] = []
    rank = env.catalogue.popularity
    while sum(w < episodes for w in wanted) < episodes:
        _, _, terminated, truncated, _ = recorder.step(_actions(env, policy, rng, rank))
        for row in np.flatnonzero(terminated | truncated).tolist():
            wanted.append(int(number[row]))
            number[row] = began
            began += 1
    order = sorted((w, place) for place, w in enumerate(wanted) if w < episodes)
    recorder.log.episodes = [recorder.log.episodes[place] for _, place in order]
    return recorder.log


def _actions(
    env: RecommendationVectorEnv,
    policy: CollectPolicy,
    rng: np.random.Generator,
    rank: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    items = len(env.catalogue)
    met = env.core.memory.items[:, : env.core.memory.width]
    seen = np.zeros((env.num_envs, items + 1), np.bool_)
    # Padding is -1: the last column, which is cut off.
    np.put_along_axis(seen, met, True, axis=1)
    np.put_along_axis(seen, env.world.known[env.core.persona], True, axis=1)
    fresh = ~seen[:, :items]
    fresh |= ~fresh.any(axis=1, keepdims=True)
    if policy == "popular":
        return np.asarray(rank[fresh[:, rank].argmax(axis=1)], np.int64)
    return np.asarray((rng.random(fresh.shape) * fresh).argmax(axis=1), np.int64)


#: (namespace/)*name-vN, as Minari takes it.
_DATASET_ID = re.compile(r"(?:[-_\w]+/)*[-_\w]+-v\d+")


def write_parquet(log: EpisodeLog, path: Path | str) -> Path:
    """Write one row per step; the file is there whole or not at all.

    Columns: ``episode`` and ``step`` (from 0), ``seed`` (null where the reset had none),
    ``persona_id``, ``action`` (item number; of a slate a list), ``item_id`` (what was met),
    ``rating`` (null where there is none), ``rating_status``, ``expected``, ``repeated``,
    ``reward``, ``terminated``, ``truncated``. What the environment was is in the file's metadata
    under ``understudy`` (JSON). Observations are not in it: they follow from these rows.

    Raises
    ------
    ConfigError
        If there is no episode, or something is at the path.
    StoreError
        If it can't be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = _fresh(log, path)
    lengths = np.array([len(episode) for episode in log])
    episode = np.repeat(np.arange(len(log)), lengths)
    whole = {key: np.concatenate([e.infos[key] for e in log]) for key in log.episodes[0].infos}
    actions = np.concatenate([e.actions for e in log])
    seeds = pa.array([e.seed for e in log], pa.int64())
    columns: dict[str, Any] = {
        "episode": episode,
        "step": np.concatenate([np.arange(n) for n in lengths]),
        "seed": seeds.take(pa.array(episode)),
        "persona_id": pa.array([e.persona_id for e in log]).take(pa.array(episode)),
        "action": actions if actions.ndim == 1 else pa.array(actions.tolist()),
        "item_id": pa.array(whole["item_id"], pa.string()),
        "rating": pa.array(whole["rating"], from_pandas=True),
        "rating_status": pa.array(whole["rating_status"], pa.string()),
        "expected": pa.array(whole["expected"], from_pandas=True),
        "repeated": whole["repeated"],
        "reward": np.concatenate([e.rewards for e in log]),
        "terminated": np.concatenate([e.terminated for e in log]),
        "truncated": np.concatenate([e.truncated for e in log]),
    }
    table = pa.table(columns).replace_schema_metadata({"understudy": orjson.dumps(log.metadata)})
    with placed(target, "episodes") as staged:
        pq.write_table(table, staged, compression="zstd")
    return target


def write_minari(
    log: EpisodeLog,
    root: Path | str,
    dataset_id: str,
    *,
    algorithm: str = "unknown",
    author: str = "understudy",
) -> Path:
    """Write a Minari dataset; it is there whole or not at all.

    With ``MINARI_DATASETS_PATH`` set to `root`, ``minari.load_dataset(dataset_id)`` reads it;
    anywhere else ``minari.MinariDataset(folder / "data")``. Episodes are Parquet files of
    Minari's layout, with observations, actions, rewards and the step's information. The stored
    environment names the exact release, so that ``recover_environment()`` finds the same items
    and personas where that release is in the store.

    ``root`` is the folder of datasets, made if it is not there; an id is such as
    ``understudy/movies-random-v0``. ``algorithm`` and ``author`` are noted in the dataset.

    Returns
    -------
    The dataset's folder, ``root / dataset_id``.

    Raises
    ------
    ConfigError
        If there is no episode, the id is malformed, the dataset is there already, or Minari is
        not installed.
    StoreError
        If it can't be written.
    """
    try:
        from minari.data_collector.episode_buffer import EpisodeBuffer
        from minari.dataset.minari_storage import MinariStorage
    except ModuleNotFoundError as error:
        raise missing_package(error, where="write_minari", extra="train") from error
    if not _DATASET_ID.fullmatch(dataset_id):
        raise ConfigError(
            "not the id of a dataset", where=repr(dataset_id), hint="such as movies/random-v0"
        )
    import minari

    target = _fresh(log, Path(root) / dataset_id)
    with placed(target, "episodes") as staged, warnings.catch_warnings():
        # The environment may not be registered with what it was made of here: see below.
        warnings.simplefilter("ignore")
        staged.mkdir()
        storage = MinariStorage.new(
            (staged / "data").absolute(),  # Minari 0.5 joins a relative path with itself
            observation_space=log.observation_space,
            action_space=log.action_space,
            env_spec=_spec(log),
            data_format="parquet",
        )
        storage.update_metadata(
            {
                "dataset_id": dataset_id,
                "minari_version": minari.__version__,
                "algorithm_name": algorithm,
                "author": {author},
                "description": orjson.dumps(log.metadata).decode(),
            }
        )
        storage.update_episodes(
            EpisodeBuffer(
                id=number,
                seed=episode.seed,
                options={"persona_id": episode.persona_id},
                observations=episode.observations,
                actions=episode.actions,
                rewards=episode.rewards.tolist(),
                terminations=episode.terminated.tolist(),
                truncations=episode.truncated.tolist(),
                infos=_padded(episode.infos),
            )
            for number, episode in enumerate(log)
        )
    return target


def export_episodes(export: Export) -> None:
    """Write the format ``minari`` of a release: episodes of random choices.

    ``data/understudy/<domain>-random-v0`` is the data set; set ``MINARI_DATASETS_PATH`` to the
    folder ``data``.
    """
    from sim._release import Release
    from sim.environment import RecommendationVectorEnv

    options = export.options
    env = RecommendationVectorEnv(
        min(16, options.episodes),
        Release(export.release),
        length_limit=options.steps,
        on_unrated="truncate",
        observation="recent",
    )
    log = collect(env, options.episodes, policy="random", seed=options.seed)
    name = f"understudy/{env.release.domain}-random-v0"
    write_minari(log, export.folder / "data", name, algorithm="random")
    add(log.steps)


def _padded(infos: dict[str, Any]) -> dict[str, Any]:
    """Information as Minari has it: that of the reset first, here nothing."""
    blank: dict[str, Any] = {"rating": np.nan, "expected": np.nan, "repeated": False}
    # Lists: of arrays of one axis Minari 0.5 can't read back what it wrote.
    return {key: [blank.get(key, ""), *values.tolist()] for key, values in infos.items()}


def _spec(log: EpisodeLog) -> Any:
    """The registered environment with its exact release and arguments."""
    import gymnasium

    if log.env_id not in gymnasium.registry:
        return None
    registered = gymnasium.spec(log.env_id)
    arguments = {**log.metadata["arguments"], "release": log.metadata["release"]}
    # An engine is no plain value: a language model's environment is recovered with the
    # statistical rater and is named in the description.
    return replace(registered, kwargs={**registered.kwargs, **arguments})


def _fresh(log: EpisodeLog, path: Path | str) -> Path:
    target = Path(path)
    if not len(log):
        raise ConfigError("there is no finished episode to write", where=str(target))
    if target.exists():
        raise ConfigError("already exists", where=str(target), hint="choose another name")
    return target
