"""Logged episodes as files: plain Parquet, and Minari's format."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from pipelines.errors import ConfigError
from pipelines.extras import missing_package
from pipelines.progress import add
from pipelines.store.files import placed
from sim.episodes._log import EpisodeLog

if TYPE_CHECKING:
    from pipelines.exports import Export

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
    from sim.episodes._collect import collect

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
