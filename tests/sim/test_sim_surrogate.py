"""Environments rated by a surrogate, through the stage that learns it."""

import numpy as np
import polars as pl
import pytest

from pipelines import surrogates
from pipelines.context import PipelineContext
from pipelines.errors import ConfigError
from pipelines.stages import build, stage_of
from sim.environment import RecommendationVectorEnv, World
from sim.episodes import EpisodeLog

RECIPE = surrogates.Recipe(rank=2, sweeps=4, hold_out_personas=0.34, hold_out_items=0.1)


@pytest.fixture(scope="module", autouse=True)
def small_recipe():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(surrogates, "RECIPE", RECIPE)
        yield


def taught_home(small, folder, frames):
    """A store with a release and a surrogate of its scores."""
    release = small.build(folder, replace=frames)
    overrides = {
        "runtime": {"home": str(folder)},
        "serving": {"error_budget": 0.1},
    }
    built = build(stage_of("movies.rating_surrogate"), PipelineContext(overrides))
    return release, built


@pytest.fixture(scope="module")
def taught(small, tmp_path_factory):
    return taught_home(small, tmp_path_factory.mktemp("surrogate") / "home", {})


def test_surrogate_is_a_snapshot_of_plain_files_with_its_fidelity(taught):
    _, built = taught
    snapshot = built.snapshots["movies.rating_surrogate"]
    assert snapshot.read()["file"].to_list() == ["README.md", "surrogate.json", "surrogate.npz"]
    assert not snapshot.problems()
    fidelity = built.snapshots["movies.surrogate_fidelity"].read()
    assert fidelity["kind"].n_unique() == 4
    teacher = snapshot.manifest.stats["teacher"]
    assert teacher["failed"] == fidelity_failed(taught) > 0


def fidelity_failed(taught):
    release, _ = taught
    scores = release.snapshot("preference_scores").read()
    return scores.filter(pl.col("status") != "ok").height


def test_world_refuses_kinds_of_pairs_that_do_not_beat_their_floor(taught, home, monkeypatch):
    """Its teacher gives each persona one number: the mean is exact, and nothing can beat it."""
    release, built = taught
    folder = release.home
    with pytest.raises(ConfigError, match=r"better than a mean on pairs of .*seen persona"):
        World.open("movies@latest", home=folder, rater="surrogate")
    monkeypatch.setenv("UNDERSTUDY_SURROGATE__ALLOW_BELOW_FLOOR", "true")
    world = World.open("movies@latest", home=folder, rater="surrogate")
    assert world.rater.name.startswith("surrogate:")
    assert "not shown to be better than a mean" in world.rater.note
    env = RecommendationVectorEnv(2, world=world)
    metadata = EpisodeLog.of(env).metadata
    assert metadata["warning"] == world.rater.warning
    assert not metadata["language_model"]
    env.reset(seed=0)
    _, rewards, *_ = env.step(np.array([0, 1]))
    assert ((rewards >= 1) & (rewards <= 5)).all()
    with pytest.raises(ConfigError, match=r"no such surrogate.*train_surrogate"):
        World.open("movies@latest", home=home, rater="surrogate")
    assert built.stage.datasets == ("movies.rating_surrogate", "movies.surrogate_fidelity")


def test_scores_by_a_surrogate_carry_teacher_and_fidelity(small, tmp_path):
    """Its version is part of what is built, its scale must be the one asked for."""
    release, built = taught_home(small, tmp_path / "home", {})
    teacher = release.snapshot("preference_scores").read()["rater"][0]
    overrides = {
        "runtime": {"home": str(release.home)},
        "scoring": {"rater": "surrogate", "scale": "1-5"},
    }
    scored = build(
        stage_of("movies.preference_scores"), PipelineContext(overrides), cohort="default"
    )
    snapshot = scored.snapshots["movies.preference_scores"]
    assert snapshot.read()["rater"].unique().to_list() == [f"surrogate:{teacher}"]
    facts = snapshot.manifest.stats["quality"]["facts"]
    assert facts["teacher"]["rater"] == teacher
    assert "seen persona, seen item" in facts["fidelity"]
    version = built.snapshots["movies.rating_surrogate"].version
    assert version in str(snapshot.manifest.config)
    with pytest.raises(ConfigError, match="a surrogate can't teach"):
        build(stage_of("movies.rating_surrogate"), PipelineContext(overrides))
    overrides["scoring"]["scale"] = "1-10"
    with pytest.raises(ConfigError, match="answers on 1-5"):
        build(stage_of("movies.preference_scores"), PipelineContext(overrides), cohort="default")


def test_stage_opens_the_teacher_for_a_round(taught):
    """Asked with histories, under the name of its scores; other settings of it are refused."""
    release, _ = taught
    overrides = {
        "runtime": {"home": str(release.home)},
        "surrogate": {"rounds": 1, "visited": 100},
        "serving": {"error_budget": 0.1},
        "scoring": {"scale": "1-5"},
    }
    built = build(stage_of("movies.rating_surrogate"), PipelineContext(overrides))
    kinds = built.snapshots["movies.surrogate_fidelity"].read()["kind"]
    assert "visited states" in kinds
    assert built.report.stats["teacher"]["histories"]
    overrides["scoring"]["rater"] = "random"
    with pytest.raises(ConfigError, match="open the rater random"):
        build(stage_of("movies.rating_surrogate"), PipelineContext(overrides))
