"""Logged episodes, written to Parquet and Minari and read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import orjson
import polars as pl
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.errors import ConfigError, StoreError
from pipelines.store import files
from sim import Release
from sim.environment import RecommendationEnv, RecommendationVectorEnv, SlateVectorEnv, World
from sim.episodes import (
    EpisodeLog,
    EpisodeRecorder,
    VectorEpisodeRecorder,
    collect,
    write_minari,
    write_parquet,
)


@pytest.fixture(scope="module")
def world(release: Release) -> World:
    return World.open(release)


@pytest.fixture(scope="module")
def log(world: World) -> EpisodeLog:
    return collect(RecommendationVectorEnv(4, world=world, leave_probability=0.2), 9, seed=5)


def test_what_is_recorded_is_what_was_lived(world: World) -> None:
    env = EpisodeRecorder(RecommendationEnv(world=world, leave_probability=0.2))
    lived: list[list[Any]] = []
    for seed in range(3):
        observation, info = env.reset(seed=seed)
        story: list[Any] = [(observation, info["persona_id"])]
        over = False
        while not over:
            story.append(env.step(len(story)))
            over = story[-1][2] or story[-1][3]
        lived.append(story)
    assert len(env.log) == 3
    for seed, (episode, story) in enumerate(zip(env.log, lived, strict=True)):
        (first, persona), *steps = story
        assert (episode.seed, episode.persona_id, len(episode)) == (seed, persona, len(steps))
        assert episode.actions.tolist() == list(range(1, len(steps) + 1))
        assert episode.rewards.tolist() == [s[1] for s in steps]
        assert episode.infos["item_id"].tolist() == [s[4]["item_id"] for s in steps]
        for key, values in episode.observations.items():
            assert np.array_equal(
                values, np.stack([o[key] for o in [first, *(s[0] for s in steps)]])
            )
        assert episode.terminated.tolist() == [False] * (len(steps) - 1) + [True]


def test_an_episode_cut_off_by_a_reset_is_truncated(world: World) -> None:
    env = EpisodeRecorder(RecommendationEnv(world=world, leave_probability=0.0))
    env.reset(seed=0)
    env.reset(seed=1)
    env.step(3)
    env.reset(seed=2)
    assert [(e.seed, len(e), bool(e.truncated[-1])) for e in env.log] == [(1, 1, True)]


def test_the_vector_form_records_the_same_episodes(world: World) -> None:
    actions = np.random.default_rng(0).integers(24, size=(80, 3))
    many = VectorEpisodeRecorder(RecommendationVectorEnv(3, world=world, leave_probability=0.2))
    many.reset(seed=20)
    for action in actions:
        many.step(action)
    many.finish()
    alone = []
    for n in range(3):
        env = EpisodeRecorder(RecommendationEnv(world=world, leave_probability=0.2))
        env.reset(seed=20 + n)
        for action in actions[:, n]:
            *_, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        env.finish()
        alone += env.log.episodes
    key = lambda e: (e.persona_id, e.actions.tolist())  # noqa: E731
    for one, other in zip(sorted(many.log, key=key), sorted(alone, key=key), strict=True):
        assert key(one) == key(other)
        assert np.array_equal(one.rewards, other.rewards)
        assert all(np.array_equal(v, other.observations[k]) for k, v in one.observations.items())


@pytest.mark.parametrize("policy", ["random", "popular"])
def test_as_many_episodes_are_collected_as_wanted_and_again_the_same(
    policy: Any, world: World
) -> None:
    def logs(envs: int) -> EpisodeLog:
        env = RecommendationVectorEnv(envs, world=world, leave_probability=0.2)
        return collect(env, 7, policy=policy, seed=3)

    first, again = logs(4), logs(4)
    assert len(first) == 7
    for one, other in zip(first, again, strict=True):
        assert one.actions.tolist() == other.actions.tolist()
        assert not one.infos["repeated"].any()
    assert len(logs(12)) == 7
    if policy == "popular":
        rank = world.catalogue.popularity
        assert all(e.actions.tolist() == rank[: len(e)].tolist() for e in first)


def test_parquet_holds_a_row_per_step(log: EpisodeLog, tmp_path: Path) -> None:
    path = write_parquet(log, tmp_path / "deep" / "episodes.parquet")
    rows = pl.read_parquet(path)
    assert rows.height == log.steps
    assert rows["episode"].n_unique() == len(log)
    for number, episode in enumerate(log):
        part = rows.filter(pl.col("episode") == number)
        assert part["step"].to_list() == list(range(len(episode)))
        assert part["action"].to_list() == episode.actions.tolist()
        assert part["reward"].to_list() == episode.rewards.tolist()
        assert part["rating"].to_list() == episode.infos["rating"].tolist()
        assert part["item_id"].to_list() == episode.infos["item_id"].tolist()
        assert set(part["persona_id"]) == {episode.persona_id}
        assert part["truncated"].to_list() == episode.truncated.tolist()
    facts = orjson.loads(pq.read_schema(path).metadata[b"understudy"])
    assert facts["language_model"] is False
    assert facts["release"].startswith("movies@")
    assert facts["arguments"]["leave_probability"] == 0.2
    assert [f.name for f in path.parent.iterdir()] == ["episodes.parquet"]


def test_a_failed_rating_is_null_in_parquet(release: Release, tmp_path: Path) -> None:
    env = EpisodeRecorder(RecommendationEnv(release, rater="replay", on_unrated="truncate"))
    env.reset(seed=0, options={"persona_id": "persona:default:1"})
    env.step(env.unwrapped.catalogue.row("ml:3"))
    rows = pl.read_parquet(write_parquet(env.log, tmp_path / "one.parquet"))
    assert rows.select("rating", "rating_status", "reward").rows() == [(None, "invalid", 0.0)]


def test_slates_are_lists_in_parquet(world: World, tmp_path: Path) -> None:
    envs = VectorEpisodeRecorder(SlateVectorEnv(2, world=world, slate_size=3, length_limit=4))
    envs.reset(seed=0)
    for _ in range(4):
        envs.step(np.array([[1, 2, 3], [4, 5, 6]]))
    rows = pl.read_parquet(write_parquet(envs.log, tmp_path / "slates.parquet"))
    assert rows["action"].to_list()[0] in ([1, 2, 3], [4, 5, 6])


@pytest.mark.parametrize("observation", ["recent", "ratings", "compact"])
def test_minari_reads_back_every_episode(
    observation: Any, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minari = pytest.importorskip("minari")
    env = RecommendationVectorEnv(3, world=world, leave_probability=0.2, observation=observation)
    lived = collect(env, 5, seed=1)
    folder = write_minari(lived, tmp_path, "understudy/movies-random-v0", algorithm="random")
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset = minari.load_dataset("understudy/movies-random-v0")
    assert (dataset.total_episodes, dataset.total_steps) == (5, lived.steps)
    assert dataset.action_space == env.single_action_space
    for found, episode in zip(dataset.iterate_episodes(), lived, strict=True):
        assert found.actions.tolist() == episode.actions.tolist()
        assert found.rewards.tolist() == episode.rewards.tolist()
        assert found.terminations.tolist() == episode.terminated.tolist()
        assert found.truncations.tolist() == episode.truncated.tolist()
        assert found.observations.keys() == episode.observations.keys()
        for key, values in episode.observations.items():
            assert np.array_equal(found.observations[key], values), key
        np.testing.assert_array_equal(found.infos["rating"][1:], episode.infos["rating"])
        assert found.infos["item_id"][1:].tolist() == episode.infos["item_id"].tolist()


def test_minari_takes_a_relative_folder(
    log: EpisodeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minari = pytest.importorskip("minari")
    monkeypatch.chdir(tmp_path)
    write_minari(log, "datasets", "movies-v0")
    written = minari.MinariDataset(tmp_path / "datasets" / "movies-v0" / "data")
    assert written.total_steps == log.steps


def test_minari_names_the_environment_with_its_exact_release(
    log: EpisodeLog, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minari = pytest.importorskip("minari")
    folder = write_minari(log, tmp_path, "movies-v0")
    dataset = minari.MinariDataset(folder / "data")
    assert dataset.env_spec.kwargs["release"] == log.metadata["release"]
    assert dataset.env_spec.kwargs["leave_probability"] == 0.2
    monkeypatch.setenv("UNDERSTUDY_HOME", str(home))
    env = dataset.recover_environment()
    assert env.observation_space == log.observation_space
    assert isinstance(env.unwrapped, RecommendationEnv)


def test_nothing_is_overwritten_and_nothing_is_an_error(
    log: EpisodeLog, world: World, tmp_path: Path
) -> None:
    path = write_parquet(log, tmp_path / "a.parquet")
    with pytest.raises(ConfigError, match="already exists"):
        write_parquet(log, path)
    write_minari(log, tmp_path, "b-v0")
    with pytest.raises(ConfigError, match="already exists"):
        write_minari(log, tmp_path, "b-v0")
    with pytest.raises(ConfigError, match="not the id"):
        write_minari(log, tmp_path, "../b")
    env = EpisodeRecorder(RecommendationEnv(world=world))
    with pytest.raises(ConfigError, match="no finished episode"):
        write_parquet(env.log, tmp_path / "c.parquet")
    with pytest.raises(ConfigError, match="not an environment of recommendations"):
        EpisodeRecorder(gymnasium.make("CartPole-v1"))


def test_a_write_that_fails_leaves_nothing(
    log: EpisodeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "sync_folder", full)
    with pytest.raises(StoreError, match="No space left"):
        write_parquet(log, tmp_path / "a.parquet")
    with pytest.raises(StoreError, match="No space left"):
        write_minari(log, tmp_path, "b-v0")
    assert list(tmp_path.iterdir()) == []


def test_the_command_plays_and_writes(home: Path, tmp_path: Path) -> None:
    words = ["episodes", "--home", str(home), "--episodes", "12", "--seed", "4", "--json"]
    files = ["--parquet", str(tmp_path / "e.parquet"), "--minari", str(tmp_path / "sets")]
    result = CliRunner().invoke(app, [*words, *files])
    assert result.exit_code == 0, result.output
    payload = orjson.loads(result.stdout)
    rows = pl.read_parquet(payload["parquet"])
    assert (payload["episodes"], payload["steps"]) == (12, rows.height)
    assert payload["mean_reward"] == pytest.approx(rows["reward"].mean())
    assert payload["minari"].endswith("sets/understudy/movies-random-v0")
    assert payload["language_model"] is False
    # Without a file it says the same, and writes nothing.
    again = orjson.loads(CliRunner().invoke(app, words).stdout)
    assert {**again, "parquet": payload["parquet"], "minari": payload["minari"]} == payload


def test_episodes_are_as_long_as_the_leave_probability_says(world: World) -> None:
    env = RecommendationVectorEnv(50, world=world, observation="compact", leave_probability=0.1)
    lengths = [len(episode) for episode in collect(env, 600, seed=0)]
    # Geometric: mean 10, standard deviation 9.5; four standard errors. Taking those that end
    # first would give short ones.
    assert abs(np.mean(lengths) - 10) < 4 * 9.5 / np.sqrt(600)
