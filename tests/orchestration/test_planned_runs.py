"""Plans of several runs: the assets of each."""

from __future__ import annotations

import dagster as dg
import pytest

from orchestration.defs.warehouse import model_assets
from orchestration.headless import JobRun, PlannedRun, plan_runs, sources_first
from orchestration.naming import asset_key
from pipelines.errors import ConfigError

COHORTS = dg.StaticPartitionsDefinition(["a", "b"])


def _asset(name: str, *deps: str, partitions: object = None) -> dg.AssetsDefinition:
    @dg.asset(name=name, deps=list(deps), partitions_def=partitions)
    def made() -> None: ...

    return made


@pytest.fixture(scope="module")
def defs() -> dg.Definitions:
    #  personas -> vectors ---.
    #  files -> films ---------+-> scores -> release
    #  files -> books -> shop
    @dg.multi_asset(specs=[dg.AssetSpec("shop", deps=["books"]), dg.AssetSpec("shelf")])
    def shop(): ...

    assets = [
        _asset("personas", partitions=COHORTS),
        _asset("vectors", "personas"),
        _asset("files"),
        _asset("films", "files"),
        _asset("scores", "films", "vectors"),
        _asset("release", "scores"),
        _asset("books", "files"),
        shop,
    ]
    job = dg.define_asset_job
    jobs = [
        job("people", dg.AssetSelection.assets("personas", "vectors")),
        job("films", dg.AssetSelection.assets("release").upstream()),
        job("books", dg.AssetSelection.assets("files", "books", "shop", "shelf")),
    ]
    return dg.Definitions(assets=assets, jobs=jobs)


def planned(defs: dg.Definitions, *runs: JobRun) -> list[tuple[str, str, str]]:
    return [
        (run.job, run.cohort, " ".join(key.to_user_string() for key in run.steps))
        for run in plan_runs(defs, runs)
    ]


def test_a_job_alone_is_one_run_of_all_its_steps(defs: dg.Definitions) -> None:
    assert planned(defs, JobRun("films", "a")) == [
        ("films", "a", "files films personas release scores vectors")
    ]


def test_a_shared_step_is_made_by_the_first_job_alone(defs: dg.Definitions) -> None:
    assert planned(defs, JobRun("people", "a"), JobRun("films", "a"), JobRun("books", "a")) == [
        ("people", "a", "personas vectors"),
        ("films", "a", "files films release scores"),
        ("books", "a", "books shelf shop"),
    ]


def test_another_cohort_of_a_table_is_made_again(defs: dg.Definitions) -> None:
    runs = JobRun("people", "a", ("personas",)), JobRun("people", "b")
    assert planned(defs, *runs) == [
        ("people", "a", "personas"),
        ("people", "b", "personas vectors"),
    ]


def test_a_run_of_which_nothing_is_left_is_left_out(defs: dg.Definitions) -> None:
    assert len(planned(defs, JobRun("books", "a"), JobRun("books", "a"))) == 1


def test_an_unknown_asset_is_an_error_that_names_the_nearest(defs: dg.Definitions) -> None:
    with pytest.raises(ConfigError, match="did you mean films"):
        plan_runs(defs, [JobRun("films", "a", ("flims",))])


def _domain(name: str, dataset: str, model: str) -> PlannedRun:
    keys = (
        asset_key(f"raw.{dataset}"),
        dg.AssetKey(["staging", model]),
        dg.AssetKey([name, "items"]),
    )
    return PlannedRun(name, "a", tuple(sorted(keys)))


def test_a_selected_model_brings_the_models_that_dbt_builds_with_it() -> None:
    models = model_assets()["games"]
    job = dg.define_asset_job("games", dg.AssetSelection.assets(*models.keys))
    defs = dg.Definitions(assets=[models], jobs=[job], resources={"dbt": None, "workbench": None})
    [run] = plan_runs(defs, [JobRun("games", "default", ("marts/games_items",))])
    assert {*run.steps} == {*models.keys}


def test_sources_of_all_domains_are_read_before_the_first_builds_its_models() -> None:
    people = PlannedRun("personas", "a", (dg.AssetKey(["movies", "personas"]),))
    movies = _domain("movies", "tmdb_movies", "stg_tmdb__movies")
    books = _domain("books", "amazon_meta_2018", "stg_amazon__meta_2018")
    plan = sources_first([people, movies, books])
    assert [(run.job, run.models) for run in plan] == [
        ("personas", ()),
        ("ingest", ()),
        ("movies", ("amazon", "movies")),
        ("books", ("amazon", "movies")),
    ]
    assert {*plan[1].steps} == {asset_key("raw.tmdb_movies"), asset_key("raw.amazon_meta_2018")}
    assert {*plan[1].steps, *plan[2].steps, *plan[3].steps} == {*movies.steps, *books.steps}
    # A domain whose source can be read does not wait for another's.
    assert plan[1].otherwise == (movies, books)


def test_domain_alone_reads_its_sources_itself() -> None:
    movies = _domain("movies", "tmdb_movies", "stg_tmdb__movies")
    assert sources_first([movies]) == [movies]
