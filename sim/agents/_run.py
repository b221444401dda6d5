"""A run: agents in shards, each stored whole when its visits are done, and joined at the end."""

from __future__ import annotations

import hashlib
import io
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl

from pipelines.errors import ConfigError, IntegrityError
from pipelines.paths import home_path
from pipelines.progress import advance
from pipelines.store.files import LocalFiles, storage_errors, sync_folder
from pipelines.store.locks import RunLock
from sim.agents._log import TABLES, frames_of
from sim.agents._pages import page_lists
from sim.agents._protocol import Brain
from sim.agents._visit import visits_of
from sim.agents._world import AgentWorld
from sim.recommenders import Recommender

#: Bumped whenever the same release and settings give other visits.
CODE_VERSION = "6"
#: Agents that are played and stored together (count).
SHARD = 4_096
#: Rows of a row group of the joined tables: the bytes don't depend on the size of shards.
_GROUP = 131_072


@dataclass(frozen=True)
class Simulation:
    """A finished run."""

    #: Folder of its tables, as Parquet files by short name.
    folder: Path
    #: Determinants of its rows; JSON-ready.
    identity: dict[str, Any]

    @classmethod
    def open(cls, folder: Path | str) -> Simulation:
        """Open the run of a folder.

        Raises ConfigError if there is no finished run.
        """
        path = Path(folder)
        data = LocalFiles(path).read(path / "run.json")
        if data is None or not all((path / f"{name}.parquet").exists() for name in TABLES):
            raise ConfigError(
                "no finished run of agents", where=str(path), hint="run understudy agents run"
            )
        return cls(path, _read(data, path))

    def table(self, name: str) -> pl.LazyFrame:
        """``agents``, ``views``, ``pages`` or ``memories``, unread."""
        return pl.scan_parquet(self.folder / f"{name}.parquet")

    def batches(self, name: str) -> Iterator[pl.DataFrame]:
        """The rows of a table in batches, in its order."""
        import pyarrow.parquet as pq

        file = pq.ParquetFile(self.folder / f"{name}.parquet")
        for batch in file.iter_batches(_GROUP):
            frame = pl.from_arrow(batch)
            assert isinstance(frame, pl.DataFrame)
            yield frame


def run_identity(
    world: AgentWorld, brain: Brain, recommender: Recommender, *, agents: int, seed: int
) -> dict[str, Any]:
    """Inputs and settings that determine the rows of a run; JSON-ready."""
    identity = {
        "version": CODE_VERSION,
        "release": world.release.ref,
        "cast": world.cast,
        "people": len(world),
        "pages": world.pages,
        "per_page": world.per_page,
        "traits": world.traits,
        "graph": world.graph,
        "brain": brain.name,
        "note": brain.note,
        "brain_metadata": brain.metadata(),
        "recommender": recommender.name,
        "recommender_note": recommender.note,
        "agents": agents,
        "seed": seed,
    }
    if world.matched:
        identity["matches"] = world.release["matched_personas"].version
    if world.texts is not None:
        identity["texts"] = world.texts.digest
    whole: dict[str, Any] = orjson.loads(orjson.dumps(identity, option=orjson.OPT_SERIALIZE_NUMPY))
    return whole


def visit(
    world: AgentWorld,
    brain: Brain,
    recommender: Recommender,
    agents: Any,
    *,
    seed: int = 0,
    first: int = 0,
) -> dict[str, pl.DataFrame]:
    """Tables of the visits of some agents, in memory.

    Parameters
    ----------
    world, brain, recommender
        Opened and fitted on the same release.
    agents
        Numbers of agents, in any order. Agent n plays person n; where there are fewer people,
        they are played again by further agents with other seeds.
    seed
        Of the run.
    first
        Added to the numbers of agents in the tables, for several runs in one table.
    """
    numbers = np.unique(np.asarray(agents, np.int64))
    people = numbers % len(world)
    lists = page_lists(world, recommender, people)
    visits = visits_of(world, brain, lists, agents=numbers, people=people, seed=seed)
    return frames_of(visits, world, brain=brain.name, recommender=recommender.name, first=first)


def simulate(
    world: AgentWorld,
    brain: Brain,
    recommender: Recommender,
    *,
    agents: int,
    folder: Path | str,
    seed: int = 0,
    first: int = 0,
    shard: int = SHARD,
) -> Simulation:
    """Play the visits of agents and write their tables into a folder.

    A shard is stored when its visits are done; a run that was killed goes on with the first shard
    that is not stored. Of equal arguments the files are equal to the last byte, whatever the size
    of the shards. A finished run is returned as it is.

    Parameters
    ----------
    world, brain, recommender, seed, first
        As of :func:`visit`.
    agents
        Agents (count); their numbers are those from 0 on.
    folder
        Of this run alone.
    shard
        Agents that are played together (count): bounds the memory.

    Raises
    ------
    ConfigError
        If a count is below 1, or the folder holds another run.
    LockedError
        If another process is writing to the folder.
    StoreError
        If a file can't be written.
    """
    for name, value, least in (("agents", agents, 1), ("shard", shard, 1), ("seed", seed, 0)):
        if value < least:
            raise ConfigError(f"{name} is {value}", where="agents", hint=f"at least {least}")
    home = Path(folder)
    files, shards = LocalFiles(home), home / "shards"
    identity = run_identity(world, brain, recommender, agents=agents, seed=seed) | {"first": first}
    with RunLock(home / "_locks" / "run.lock"):
        _claim(files, home, identity)
        if (home / "agents.parquet").exists():
            return Simulation(home, identity)
        folders = []
        for start in range(0, agents, shard):
            end = min(start + shard, agents)
            part = shards / f"{start:09d}-{end:09d}"
            folders.append(part)
            # Written last: with it the shard is whole.
            if not (part / "agents.parquet").exists():
                tables = visit(
                    world, brain, recommender, np.arange(start, end), seed=seed, first=first
                )
                for name in reversed(TABLES):
                    files.put(part / f"{name}.parquet", _bytes(tables[name]))
            advance("visits", end, agents)
        for name in reversed(TABLES):
            _join(home, name, folders)
        with storage_errors(shards):
            shutil.rmtree(shards)
            shutil.rmtree(files.staging_root, ignore_errors=True)
    return Simulation(home, identity)


def default_folder(
    home: Path | str,
    world: AgentWorld,
    brain: Brain,
    recommender: Recommender,
    *,
    agents: int,
    seed: int,
) -> Path:
    """Folder of a run below a home, by all that decides its rows."""
    identity = run_identity(world, brain, recommender, agents=agents, seed=seed)
    data = orjson.dumps(identity, option=orjson.OPT_SORT_KEYS)
    return home_path(home) / "simulations" / hashlib.sha256(data).hexdigest()[:16]


def _claim(files: LocalFiles, home: Path, identity: dict[str, Any]) -> None:
    """Note what runs here, or refuse a folder that holds something else."""
    path = home / "run.json"
    data = files.read(path)
    if data is not None:
        stored = _read(data, home)
        differs = sorted(k for k in {*stored, *identity} if stored.get(k) != identity.get(k))
        if differs:
            raise ConfigError(
                f"the folder holds another run (different {', '.join(differs)})",
                where=str(home),
                hint="choose another folder",
            )
        return
    foreign = [name for name in files.names(home) if not name.startswith("_")]
    if foreign:
        raise ConfigError(
            f"the folder is not empty ({foreign[0]})", where=str(home), hint="choose another folder"
        )
    options = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2
    files.put(path, orjson.dumps(identity, option=options))


def _read(data: bytes, home: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise IntegrityError("run.json can't be read", where=str(home)) from error
    return record


def _bytes(frame: pl.DataFrame) -> bytes:
    data = io.BytesIO()
    frame.write_parquet(data, compression="zstd")
    return data.getvalue()


def _join(home: Path, name: str, folders: list[Path]) -> None:
    """Join a table of all shards in row groups of a fixed size."""
    import pyarrow.parquet as pq

    from pipelines.contracts import CONTRACTS

    schema = CONTRACTS[f"simulations.{name}"].arrow_schema()
    target, staged = home / f"{name}.parquet", home / "_staging" / f"{name}.parquet"
    with storage_errors(target):
        staged.parent.mkdir(parents=True, exist_ok=True)
        with pq.ParquetWriter(staged, schema, compression="zstd") as writer:
            for group in _groups(folders, name):
                writer.write_table(group.to_arrow().cast(schema), row_group_size=_GROUP)
        sync_folder(staged)
        staged.replace(target)
        sync_folder(home)


def _groups(folders: list[Path], name: str) -> Iterator[pl.DataFrame]:
    rest: pl.DataFrame | None = None
    for folder in folders:
        part = pl.read_parquet(folder / f"{name}.parquet")
        rest = part if rest is None else pl.concat([rest, part])
        while rest.height >= _GROUP:
            yield rest[:_GROUP]
            rest = rest[_GROUP:]
    if rest is not None:
        yield rest.rechunk()
