"""Forked workers, in which Polars can't run once its threads were started in the parent."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.errors import ConfigError
from sim import Release, open_release
from sim.environment import RecommendationEnv, World
from sim.play import play_episode

pytestmark = [
    pytest.mark.pipeline,
    pytest.mark.timeout(300),
    # The subject of these tests.
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


def forked(work: Callable[..., Any], *arguments: Any) -> Any:
    """Result of a call in a forked worker."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply_async(work, arguments).get(200)


def arrays(home: Path) -> list[Any]:
    release = open_release("movies@latest", home=home)
    vectors = release["item_embeddings"].numpy("vector").tolist()
    years = release["items"].pandas(["year"])["year"].fillna(0).tolist()
    return [vectors, years, release["items"].arrow(["title"]).to_pydict()]


def read_with_polars(home: Path) -> int:
    return open_release("movies@latest", home=home)["items"].polars().height


def rewards(world: World, options: dict[str, Any]) -> list[float]:
    env = RecommendationEnv(world=world, **options)
    env.reset(seed=3)
    return [float(env.step(action)[1]) for action in (3, 5, 3, 0)]


def rewards_of(home: Path, options: dict[str, Any]) -> list[float]:
    return rewards(World.open("movies@latest", home=home, **options), {})


@pytest.fixture(autouse=True)
def _polars_has_run(release: Release) -> None:
    release["items"].polars().sort("title")


def test_forked_worker_reads_the_same_arrays(home: Path) -> None:
    assert forked(arrays, home) == arrays(home)


@pytest.mark.parametrize("work", [read_with_polars, rewards_of])
def test_forked_worker_refuses_polars_in_one_line(
    work: Callable[..., Any], small: Any, tmp_path: Path
) -> None:
    small.build(tmp_path)  # a store that this process has opened no world of
    arguments = [tmp_path, {"retriever": "graph"}][: work.__code__.co_argcount]
    with pytest.raises(
        ConfigError, match=r"start method \"fork\".*get_context\('spawn'\)"
    ) as error:
        forked(work, *arguments)
    assert "\n" not in str(error.value)


def show(world: World) -> str:
    return str(play_episode(world, str(world.cast.ids[0]), steps=1))


def total(frame: pl.DataFrame) -> int:
    return int(frame.select(pl.col("n").sum()).item())


def test_forked_worker_is_refused_any_query(home: Path) -> None:
    """A hang before: what is computed at its first use, and frames of the user's own."""
    with pytest.raises(ConfigError, match=r'start method "fork": a query of Polars'):
        forked(show, World.open("movies@latest", home=home))
    with pytest.raises(ConfigError, match="a query of Polars"):
        forked(total, pl.DataFrame({"n": [1, 2]}))


@pytest.mark.parametrize("retriever", ["recent", "features", "embedding", "graph"])
def test_forked_worker_finds_its_parents_world(home: Path, retriever: str) -> None:
    expected = rewards_of(home, {"retriever": retriever})
    assert forked(rewards_of, home, {"retriever": retriever}) == expected


def test_forked_worker_refuses_a_rater_that_needs_polars(home: Path) -> None:
    rewards_of(home, {"rater": "mean"})
    with pytest.raises(ConfigError, match=r'start method "fork": rater mean'):
        forked(rewards_of, home, {"rater": "mean"})


@pytest.mark.parametrize("observation", ["ratings", "compact"])
def test_forked_worker_lives_in_a_given_world(home: Path, observation: str) -> None:
    world, options = World.open("movies@latest", home=home), {"observation": observation}
    receiver, sender = multiprocessing.Pipe(duplex=False)
    worker = multiprocessing.get_context("fork").Process(
        target=lambda: sender.send(rewards(world, options))
    )
    worker.start()
    assert receiver.poll(200)
    assert receiver.recv() == rewards(world, options)
    worker.join(60)


def test_error_survives_being_wrapped_in_its_own_class() -> None:
    """As gymnasium passes the error of a worker on."""
    error = ConfigError("no", where="here", hint="do that")
    assert str(ConfigError(error)) == "no: here (do that)"  # type: ignore[arg-type]
