"""The spine: one domain of thirty films, from files to a release and what is played on it.

Runs in this process, once for all tests of the file. The other domains, real files, kills, commands
and the UI are tested by `make test-pipeline`.
"""

from __future__ import annotations

import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest
from support.ways import modules_entered

from orchestration.definitions import build_defs
from orchestration.headless import RunReport, run_job
from orchestration.instance import open_instance
from pipelines.domains import DOMAINS
from pipelines.stages import PipelineContext, build, check, publish, stage_of
from pipelines.store import Release, Store
from sim import open_release
from sim.agents import AgentWorld, open_brain, visit
from sim.dialogue import Lifetimes, open_agent, open_customer, play
from sim.dialogue.testing import sample_world
from sim.environment import RecommendationEnv
from sim.recommenders import open_recommender

BUDGET = Path(__file__).with_name("architecture") / "budget.toml"
TINY: dict[str, Any] = {
    "personas": {"count": 6},
    "world": {"sample": {"films": 30, "users": 40, "ratings": 700}},
}


@dataclass(frozen=True)
class Spine:
    """A home, the reports of two equal runs on it, and what each of them left."""

    home: Path
    first: RunReport
    second: RunReport
    versions: tuple[dict[str, str], dict[str, str]]
    settings: dict[str, Any]

    @property
    def release(self) -> Release:
        return Store(self.home).release("movies@latest")


def stored_versions(home: Path) -> dict[str, str]:
    """Current version of every table, and of the release."""
    store = Store(home)
    return {
        **{dataset: store.current(dataset).version for dataset in store.datasets()},
        "release": store.release("movies@latest").version,
    }


@pytest.fixture(scope="module")
def spine(tmp_path_factory: pytest.TempPathFactory, word_encoder: Path) -> Spine:
    home = tmp_path_factory.mktemp("spine") / "home"
    settings = TINY | {"embedding": {"model": str(word_encoder)}}
    overrides = settings | {"runtime": {"home": str(home)}}
    first = run_job("movies", overrides=overrides)
    before = stored_versions(home)
    second = run_job("movies", overrides=overrides)
    return Spine(home, first, second, (before, stored_versions(home)), settings)


def stale_assets(home: Path, settings: dict[str, Any]) -> set[str]:
    """Assets behind the release of the movies that Dagster calls stale under some settings."""
    defs = build_defs(home, overrides=settings, executor=dg.in_process_executor)
    cohort = DOMAINS["movies"].cohort("default")
    with open_instance(home) as instance:
        graph = defs.resolve_job_def("movies").asset_layer.asset_graph
        resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
        return {
            key.to_user_string()
            for key in graph.materializable_asset_keys
            if resolver.get_status(key, cohort if graph.get(key).is_partitioned else None)
            is StaleStatus.STALE
        }


def test_files_become_a_release_whose_lineage_verifies(spine: Spine) -> None:
    assert spine.first.checks_failed == []
    assert spine.first.checks_passed > 50
    rows = {name: pinned.rows for name, pinned in spine.release.tables.items()}
    assert (rows["items"], rows["personas"], rows["persona_embeddings"]) == (30, 6, 6)
    assert rows["interactions"] == 700
    assert Store(spine.home).verify(spine.release, lineage=True).problems == ()


def test_rerun_reuses_every_table(spine: Spine) -> None:
    before, after = spine.versions
    assert after == before
    assert {s.name for s in spine.second.steps} == {s.name for s in spine.first.steps}


def test_changed_setting_makes_its_own_assets_stale(spine: Spine) -> None:
    assert stale_assets(spine.home, spine.settings) == set()
    stale = stale_assets(spine.home, spine.settings | {"graph": {"alpha": 0.7}})
    assert "movies/item_similarity" in stale
    assert "movies/personas" not in stale


def test_step_of_the_environment_pays_a_rating(spine: Spine) -> None:
    env = RecommendationEnv("movies@latest", home=spine.home)
    env.reset(seed=0)
    _, reward, _, _, info = env.step(3)
    assert info["rating_status"] == "ok"
    assert 0.5 <= reward <= 10


def test_agent_sees_a_page_and_leaves(spine: Spine) -> None:
    world = AgentWorld.open(open_release("movies", home=spine.home), cast="personas")
    fitted = open_recommender("random").fit(world.release)
    tables = visit(world, open_brain("statistical").open(world), fitted, range(6))
    assert tables["agents"].height == 6
    assert tables["pages"]["page"].min() == 1


def rating_to_release(home: Path, settings: dict[str, Any]) -> None:
    """Make the tables on a rating's way again, and publish; dbt's build is that of the run."""
    context = PipelineContext(settings | {"runtime": {"home": str(home)}})
    for dataset in ("raw.movielens_ratings", "movies.interactions"):
        shutil.rmtree(home / "builds" / dataset)
        assert not build(stage_of(dataset), context).reused
    check(context, "movies.interactions")
    publish(context, DOMAINS["movies"])


def release_to_reward(home: Path) -> None:
    env = RecommendationEnv("movies@latest", home=home)
    env.reset(seed=0)
    env.step(3)


@pytest.mark.pipeline
def test_ways_of_a_rating_lead_through_few_modules(spine: Spine, tmp_path: Path) -> None:
    allowed = tomllib.loads(BUDGET.read_text("utf-8"))["ways"]
    home = shutil.copytree(spine.home, tmp_path / "home", symlinks=True)
    ways = {
        "file_to_release": modules_entered(lambda: rating_to_release(home, spine.settings)),
        "release_to_reward": modules_entered(lambda: release_to_reward(home)),
    }
    counts = {name: len(modules) for name, modules in ways.items()}
    assert all(counts[name] <= allowed[name] for name in ways), (counts, ways)


def test_dialogue_ends_with_a_recommendation() -> None:
    world = sample_world(personas=20, sets=14)
    lifetimes = Lifetimes.draw(world, range(2), setting="customer", episodes=2)
    played = play(world, lifetimes, open_agent("dp"), open_customer("statistical"))
    assert played.episodes.height == 4
    assert played.episodes["regret"].min() >= 0
