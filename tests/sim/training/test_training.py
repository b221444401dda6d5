"""Training runs: what they leave, how they go on, and what they refuse."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch as th
from pydantic import ValidationError

from pipelines.config import TrainingSettings
from pipelines.errors import ConfigError, IntegrityError, ReleaseError
from pipelines.progress import stoppable
from sim import Release, open_release
from sim.environment import World
from sim.recommenders import Audience, Recommender, open_recommender
from sim.recommenders.testing import check_recommender
from sim.training import (
    RunSettings,
    Stopped,
    Training,
    load_policy,
    policy_bytes,
    run_settings,
    train,
)
from sim.training._checkpoint import KEPT, checkpoints
from sim.training._features import Features
from sim.training._networks import ItemScores, Sizes

#: A2C learns from 256 steps at a time, PPO and TRPO from 2,048, DQN from 32.
SHORT: dict[str, dict[str, int]] = {
    "a2c": {"steps": 1024, "evaluate_every": 256, "checkpoint_every": 256},
    "ppo": {"steps": 6144, "evaluate_every": 2048, "checkpoint_every": 2048},
    "trpo": {"steps": 6144, "evaluate_every": 2048, "checkpoint_every": 2048},
    "dqn": {"steps": 960, "evaluate_every": 160, "checkpoint_every": 320},
}


def settings_for(algo: str) -> RunSettings:
    return RunSettings(algo=algo, components=4, length_limit=20, seed=4, **SHORT[algo])


def after(asked: int) -> Any:
    """A wish to stop, from the given question on."""
    questions = iter(range(10**6))
    return lambda: next(questions) >= asked


@pytest.mark.parametrize(
    "algo",
    ["a2c", "dqn", *(pytest.param(name, marks=pytest.mark.pipeline) for name in ("ppo", "trpo"))],
)
def test_a_stopped_run_goes_on_to_the_same_curve_and_the_same_policy(
    world: World, tmp_path: Path, algo: str
) -> None:
    settings = settings_for(algo)
    whole = Training(world, settings, tmp_path / "whole").run()
    with pytest.raises(Stopped) as stopped, stoppable(after(2)):
        Training(world, settings, tmp_path / "parts").run()
    assert 0 < stopped.value.steps < settings.steps
    assert not (tmp_path / "parts" / "policy.safetensors").exists()
    np.random.seed(99)  # noqa: NPY002 - another process would not share our generators either
    th.manual_seed(99)
    parts = Training(world, settings, tmp_path / "parts").run(resume=True)
    assert len(whole.curve) >= 4
    texts = [(tmp_path / name / "curve.csv").read_bytes() for name in ("whole", "parts")]
    assert texts[0] == texts[1]
    assert whole.weights == parts.weights


@pytest.mark.faults
@pytest.mark.pipeline
@pytest.mark.parametrize("algo", ["a2c", "dqn"])
def test_a_run_killed_in_the_middle_resumes_to_the_same_curve(
    home: Path, world: World, tmp_path: Path, algo: str
) -> None:
    settings = settings_for(algo)
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    code = f"""
import os, signal
from pathlib import Path
from pipelines.progress import listening
from sim.environment import World
from sim.training import RunSettings, Training
def die(_, done, total):
    if done >= 500:
        os.kill(os.getpid(), signal.SIGKILL)
world = World.open("movies@latest", home={str(home)!r})
with listening(die):
    Training(world, {settings!r}, Path({str(killed)!r})).run()
"""
    ended = subprocess.run([sys.executable, "-c", code], check=False, timeout=300)
    assert ended.returncode == -9
    kept = [c.steps for c in checkpoints(killed / "checkpoints")]
    assert kept[-1] == {"a2c": 512, "dqn": 320}[algo]
    Training(world, settings, killed).run(resume=True)
    Training(world, settings, whole).run()
    for name in ("curve.csv", "policy.safetensors"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes(), name


def test_the_same_seed_gives_the_same_policy_and_another_seed_another(
    world: World, tmp_path: Path
) -> None:
    settings = settings_for("a2c").model_copy(update={"steps": 320})
    runs = [
        Training(world, settings.model_copy(update={"seed": seed}), tmp_path / name).run().weights
        for name, seed in (("one", 0), ("again", 0), ("other", 1))
    ]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


@pytest.fixture(scope="module")
def finished(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with three checkpoints; copy what you break."""
    folder = tmp_path_factory.mktemp("training") / "run"
    Training(world, settings_for("a2c"), folder).run()
    return folder


def copy(finished: Path, tmp_path: Path) -> Path:
    import shutil

    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_the_latest_checkpoints_are_kept(finished: Path) -> None:
    assert [c.steps for c in checkpoints(finished / "checkpoints")] == [512, 768, 1024]
    assert KEPT == 3
    left = sorted(p.name for p in (finished / "checkpoints").iterdir())
    assert left == [f"step-{s:010d}.{e}" for s in (512, 768, 1024) for e in ("json", "pt")]


def test_tensorboard_gets_the_curve(finished: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(finished / "tensorboard")).Reload()
    logged = {e.step: e.value for e in events.Scalars("evaluation/average_reward")}
    rows = pl.read_csv(finished / "curve.csv").select("steps", "average_reward").rows()
    assert logged == pytest.approx(dict(rows), rel=1e-6)


@pytest.mark.faults
@pytest.mark.parametrize("how", ["cut", "changed", "missing"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_offered(
    world: World, finished: Path, tmp_path: Path, how: str
) -> None:
    folder = copy(finished, tmp_path)
    before, last = checkpoints(folder / "checkpoints")[-2:]
    data = bytearray(last.path.read_bytes())
    last.path.unlink()
    if how == "cut":
        last.path.write_bytes(data[: len(data) // 2])
    elif how == "changed":
        data[len(data) // 2] ^= 1
        last.path.write_bytes(data)
    longer = settings_for("a2c").model_copy(update={"steps": 1280})
    with pytest.raises(IntegrityError, match="damaged") as error:
        Training(world, longer, folder).run(resume=True)
    assert str(last.path) in str(error.value)
    assert f"--checkpoint {before.path}" in str(error.value)
    # The suggested remedy works, and leads to where an undamaged run leads.
    mended = Training(world, longer, folder).run(resume=True, checkpoint=before.path)
    whole = Training(world, longer, copy(finished, tmp_path / "other")).run(resume=True)
    assert mended.weights == whole.weights
    curves = [(run.folder / "curve.csv").read_text() for run in (mended, whole)]
    assert curves[0] == curves[1]


@pytest.mark.faults
def test_a_checkpoint_whose_facts_were_never_written_is_none(
    world: World, finished: Path, tmp_path: Path
) -> None:
    folder = copy(finished, tmp_path)
    last = checkpoints(folder / "checkpoints")[-1]
    last.path.with_suffix(".json").unlink()
    assert [c.steps for c in checkpoints(folder / "checkpoints")] == [512, 768]
    with pytest.raises(IntegrityError, match="unfinished"):
        Training(world, settings_for("a2c"), folder).run(resume=True, checkpoint=last.path)
    assert Training(world, settings_for("a2c"), folder).run(resume=True).curve[-1]["steps"] == 1024


def test_a_folder_with_a_run_is_not_written_over(world: World, finished: Path) -> None:
    with pytest.raises(ConfigError, match="--resume"):
        Training(world, settings_for("a2c"), finished).run()


@pytest.mark.parametrize("change", [{"components": 2}, {"seed": 5}, {"algo": "dqn"}, {"envs": 2}])
def test_going_on_with_other_settings_is_refused(
    world: World, finished: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    folder = copy(finished, tmp_path)
    with pytest.raises(ConfigError, match=f"trained with {next(iter(change))}"):
        Training(world, settings_for("a2c").model_copy(update=change), folder).run(resume=True)


@pytest.fixture(scope="module")
def other(small: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A release with an item less."""
    home = tmp_path_factory.mktemp("other") / "home"
    frames = small.frames()
    fewer = {
        name: frame.filter(pl.col("item_id") != "ml:24")
        for name, frame in frames.items()
        if "item_id" in frame.columns
    }
    small.build(home, replace=fewer)
    return World.open(open_release("movies", home=home))


def test_a_checkpoint_of_another_item_set_is_refused(
    other: World, finished: Path, tmp_path: Path
) -> None:
    with pytest.raises(ReleaseError, match="another item set"):
        Training(other, settings_for("a2c"), copy(finished, tmp_path)).run(resume=True)


def test_a_policy_trained_on_another_item_set_is_refused(
    other: World, world: World, finished: Path
) -> None:
    policy = load_policy(finished / "policy.safetensors")
    assert policy.fit(world.release) is policy
    with pytest.raises(ReleaseError, match=r"other items: 24 of .*, here 23") as error:
        policy.fit(other.release)
    assert policy.metadata["release"] in str(error.value)


@pytest.mark.faults
@pytest.mark.parametrize("length", [0, 4, 100, 2000])
def test_a_policy_cut_short_is_refused(finished: Path, tmp_path: Path, length: int) -> None:
    broken = tmp_path / "policy.safetensors"
    broken.write_bytes((finished / "policy.safetensors").read_bytes()[:length])
    with pytest.raises(IntegrityError, match=r"policy\.safetensors"):
        load_policy(broken)


def untrained(world: World) -> ItemScores:
    """A network with random weights."""
    features = Features.read(world, components=4)
    sizes = Sizes.of(features, world.rater.scale)
    network = ItemScores(sizes, features.items, features.personas)
    with th.no_grad():
        for parameter in network.parameters():
            parameter.normal_(generator=th.Generator().manual_seed(1))
    return network


def test_policy_with_random_weights_conforms(release: Release, world: World) -> None:
    metadata = Training(world, settings_for("trpo"), Path("nowhere")).metadata
    policy = policy_bytes(untrained(world), {**metadata, "steps": 0})
    check_recommender(lambda view: load_policy(policy).fit(view), release)


def test_a_policy_recommends_by_the_ratings_so_far(world: World) -> None:
    metadata = {**Training(world, settings_for("trpo"), Path("nowhere")).metadata, "steps": 0}
    network = untrained(world)
    network.by_history.data *= 100
    policy = load_policy(policy_bytes(network, metadata))
    lists = [policy.recommend([0], 5, seen=[[3, 7]], ratings=[r]) for r in ([1, 10], [10, 1])]
    assert lists[0].tolist() != lists[1].tolist()


@pytest.mark.pipeline
def test_training_prefers_what_is_rated_well(world: World, tmp_path: Path) -> None:
    # Six personas and 24 films, of which each likes a quarter to a half. 40 draws of all ratings:
    # the standard error of a mean is about 0.04.
    settings = RunSettings(algo="a2c", steps=24_000, length_limit=20, evaluate_every=24_000)
    policy = Training(world, settings, tmp_path / "run").run().policy
    audience = Audience(world)

    def reward(who: Recommender) -> float:
        return float(np.mean([audience.play(who, seed=s).ratings for s in range(40)]))

    orders = [open_recommender("random", seed=s).fit(world.release) for s in range(40)]
    chance = np.mean([audience.play(r, seed=n).ratings for n, r in enumerate(orders)])
    assert reward(policy) > chance + 0.3


def test_the_report_has_baselines_as_rows_and_says_what_it_was_measured_on(
    world: World, tmp_path: Path
) -> None:
    settings = settings_for("a2c").model_copy(update={"steps": 160})
    report = train(world, settings, [0, 1, 2], tmp_path / "run")
    assert list(report.rows) == [
        *("random", "popular", "mean-rating", "content", "best common list", "a2c", "oracle")
    ]
    text = report.study.markdown(release="movies@1")
    assert "no language model was used" in text
    assert "means over 3 seeds" in text
    assert "(95 %, Student's t)" in text
    assert text.count(" ±") > 7
    payload = report.as_json()
    assert payload["language_model"] is False
    assert [len(run["curve"]) for run in payload["runs"]] == [2, 2, 2]
    for name in ("report.json", "report.md", "reward.png", "ranking.png", "genres.png"):
        assert (tmp_path / "run" / name).stat().st_size > 0
    assert (tmp_path / "run" / "reward.png").read_bytes().startswith(b"\x89PNG")


def test_everybody_meets_the_same_draws_and_one_evaluation_is_like_the_next(world: World) -> None:
    audience = Audience(world)
    popular = open_recommender("popular").fit(world.release)
    one, two = (audience.play(popular, seed=3) for _ in range(2))
    assert np.array_equal(one.ratings, two.ratings)
    assert not np.array_equal(one.ratings, audience.play(popular, seed=4).ratings)
    assert one.items.shape == (6, 10)
    assert one.complete.all()


def test_a_failed_rating_is_never_a_rating(release: Release) -> None:
    world = World.open(release, rater="replay")
    played = Audience(world).play(open_recommender("random", seed=1).fit(release))
    # persona:default:1 has no score for two of the 24 films; the others gave digit + 1, always.
    for user in (0, 2, 3):
        assert set(played.ratings[user].tolist()) == {user + 1.0}
    unrated = np.isnan(played.ratings[1])
    assert set(played.ratings[1][~unrated].tolist()) <= {2.0}


def test_settings_of_the_section_become_a_run_and_options_win() -> None:
    run = run_settings(TrainingSettings(algo="ppo", users=8), seed=9, steps=50, algo=None)
    assert (run.algo, run.users, run.seed, run.steps) == ("ppo", 8, 9, 50)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"algo": "a2cc"}, "'a2c', 'ppo'"), ({"steps": 0}, "steps"), ({"gamma": 2}, "gamma")],
)
def test_bad_settings_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        RunSettings(**change)
