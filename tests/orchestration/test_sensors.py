"""What watches files and failed runs, and the switch for automatic runs."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.defs_state.base import set_defs_state_storage

from orchestration.assets import COHORTS, automation, check_automation
from orchestration.definitions import build_defs
from orchestration.defs.jobs import sensors
from orchestration.naming import asset_key
from pipelines.config import load_settings
from pipelines.context import PipelineContext
from pipelines.domains import DOMAINS


@pytest.fixture(autouse=True)
def _no_instance_left() -> Iterator[None]:
    """Contexts of Dagster's tests leave a closed instance behind as the current one."""
    with set_defs_state_storage(None):
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "originals"
    made.mkdir()
    (made / "ratings.csv").write_text("userId,movieId,rating,timestamp\n")
    return made


def _tick(
    defs: dg.Definitions, folder: Path, cursor: str | None
) -> tuple[str, list[str], list[str]]:
    """Cursor, keys of the requested runs and observed data versions of a tick."""
    sensor = defs.resolve_sensor_def("source_files")
    with dg.instance_for_test() as instance:
        context = dg.build_sensor_context(
            instance=instance,
            cursor=cursor,
            repository_def=defs.get_repository_def(),
            resources={"workbench": PipelineContext({"world": {"folder": str(folder)}})},
        )
        data = sensor.evaluate_tick(context)
    seen = [event.tags["dagster/data_version"] for event in data.asset_events]
    return str(data.cursor), [str(r.run_key) for r in data.run_requests or []], seen


@pytest.mark.pipeline
def test_changed_file_is_observed_and_ingested_once(tmp_path: Path, folder: Path) -> None:
    defs = build_defs(tmp_path / "home", overrides={"world": {"folder": str(folder)}})
    first, asked, seen = _tick(defs, folder, None)
    assert (asked, seen) == ([first], [first])
    assert _tick(defs, folder, first)[1:] == ([], [])
    with (folder / "ratings.csv").open("a") as file:
        file.write("1,1,4.0,0\n")
    second, asked, _ = _tick(defs, folder, first)
    assert second != first
    assert asked == [second]


def test_files_are_what_the_list_of_files_is_made_from(tmp_path: Path) -> None:
    graph = build_defs(tmp_path).resolve_asset_graph()
    originals = dg.AssetKey(["sources", "original_files"])
    assert graph.get(asset_key("raw.world_files")).parent_keys == {originals}
    assert graph.get(originals).is_observable


def test_releases_have_a_freshness_policy(tmp_path: Path) -> None:
    graph = build_defs(tmp_path).resolve_asset_graph()
    for domain in DOMAINS:
        assert graph.get(dg.AssetKey(["releases", domain])).freshness_policy, domain


def test_automatic_runs_are_behind_a_switch(tmp_path: Path) -> None:
    for on in (False, True):
        defs = build_defs(tmp_path, overrides={"runtime": {"automation": on}})
        graph = defs.resolve_asset_graph()
        keys = graph.materializable_asset_keys
        made = {key for key in keys if graph.get(key).automation_condition is not None}
        names = {sensor.name for sensor in defs.sensors or []}
        assert ("stale_assets" in names) is on
        for key in ("marts/movies_items", "movies/items", "releases/movies", "raw/steam_games"):
            assert (dg.AssetKey(key.split("/")) in made) is on, key
        # A run without its checks makes tables that a release refuses.
        expected = dg.AssetCheckKey(dg.AssetKey(["movies", "items"]), "row_drop")
        assert (graph.get(expected).automation_condition is not None) is on
        # Jobs of hours, which no release needs, are not started by a new release.
        assert not made & {asset_key("trained_policy"), asset_key("experiments.figures")}


ITEMS, SCORES, RELEASE = (
    dg.AssetKey(words.split("/"))
    for words in ("movies/items", "movies/preference_scores", "releases/movies")
)
CHECK = dg.AssetCheckKey(SCORES, "scored")


def _automatic(code_version: str) -> dg.Definitions:
    """Items, the scores of cohorts, a check of all scores, and a release of both."""
    settings = load_settings(None, {"runtime": {"automation": True}}, {})
    condition = automation(settings)

    @dg.asset(key=ITEMS, code_version=code_version, automation_condition=condition)
    def items() -> None: ...

    @dg.asset(
        key=SCORES, deps=[ITEMS], partitions_def=COHORTS["movies"], automation_condition=condition
    )
    def scores() -> None: ...

    @dg.asset(
        key=RELEASE,
        deps=[ITEMS, SCORES],
        automation_condition=automation(settings, all_cohorts=True),
    )
    def release() -> None: ...

    check = dg.AssetCheckSpec(
        "scored", asset=SCORES, blocking=True, automation_condition=check_automation(settings)
    )

    @dg.multi_asset_check(specs=[check])
    def scored() -> Iterator[dg.AssetCheckResult]:
        yield dg.AssetCheckResult(passed=True, asset_key=SCORES, check_name="scored")

    return dg.Definitions([items, scores, release], asset_checks=[scored])


@pytest.mark.pipeline
def test_automatic_release_follows_scores_and_their_checks() -> None:
    with dg.instance_for_test() as instance:
        defs, cursor = _automatic("1"), None
        instance.add_dynamic_partitions("movies_cohorts", ["default", "imported"])

        def make(key: dg.AssetKey | dg.AssetCheckKey, cohort: str | None = None) -> None:
            checks = key if isinstance(key, dg.AssetCheckKey) else None
            chosen = dg.AssetSelection.checks(checks) if checks else dg.AssetSelection.assets(key)
            job = dg.define_asset_job(
                "make", chosen if checks else chosen.without_checks()
            ).resolve(asset_graph=defs.resolve_asset_graph())
            assert job.execute_in_process(instance=instance, partition_key=cohort).success

        def tick() -> set[tuple[str, str | None]]:
            nonlocal cursor
            found = dg.evaluate_automation_conditions(defs, instance, cursor=cursor)
            cursor = found.cursor
            checks = {
                (result.key.to_user_string(), None)
                for result in found.results
                if isinstance(result.key, dg.AssetCheckKey) and not result.true_subset.is_empty
            }
            return checks | {
                (key.to_user_string(), cohort)
                for key in (ITEMS, SCORES, RELEASE)
                for cohort in found.get_requested_partitions(key)
            }

        make(ITEMS)
        make(SCORES, "default")
        make(CHECK)
        make(RELEASE)
        assert tick() == set()
        # The cohort `imported` stays missing and stops nothing.
        instance.add_dynamic_partitions("movies_cohorts", ["new"])
        assert tick() == {("movies/preference_scores", "new")}
        make(SCORES, "new")
        # In one run, in which the check comes first and stops the release if it fails.
        end = {("movies/preference_scores:scored", None), ("releases/movies", None)}
        assert tick() == end
        make(CHECK)
        make(RELEASE)
        assert tick() == set()
        # A setting: not the release together with the items, for the scores are of old ones.
        defs = _automatic("2")
        assert tick() == {("movies/items", None)}
        make(ITEMS)
        every = ("default", "imported", "new")
        assert tick() == {("movies/preference_scores", cohort) for cohort in every}
        for cohort in every:
            make(SCORES, cohort)
        assert tick() == end


class _Received(http.server.BaseHTTPRequestHandler):
    posts: list[dict[str, object]]
    status = 200

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.posts.append(json.loads(self.rfile.read(length)))
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def webhook() -> Iterator[tuple[str, type[_Received]]]:
    handler = type("Handler", (_Received,), {"posts": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/hooks/very-secret", handler
        server.shutdown()


@dg.op
def broken() -> None:
    raise dg.Failure("raw.steam_games: line 7 is no JSON (mend the file)")


@dg.job
def failing() -> None:
    broken()


def _fail(address: str | None) -> dg.SkipReason | object:
    given = {"UNDERSTUDY_RUNTIME__FAILURE_WEBHOOK": address} if address else {}
    (hook,) = [s for s in sensors(load_settings(None, {}, given)) if s.name == "failure_webhook"]
    assert hook.default_status == (
        dg.DefaultSensorStatus.RUNNING if address else dg.DefaultSensorStatus.STOPPED
    )
    with dg.instance_for_test() as instance:
        result = failing.execute_in_process(instance=instance, raise_on_error=False)
        context = dg.build_run_status_sensor_context(
            sensor_name=hook.name,
            dagster_instance=instance,
            dagster_run=result.dagster_run,
            dagster_event=next(e for e in result.all_events if e.is_job_failure),
        )
        return hook(context.for_run_failure())


@pytest.mark.pipeline
def test_failed_run_is_posted_with_its_error(webhook: tuple[str, type[_Received]]) -> None:
    address, handler = webhook
    _fail(address)
    (post,) = handler.posts
    assert post["job"] == "failing"
    assert post["steps"] == ["broken"]
    assert post["errors"] == ["raw.steam_games: line 7 is no JSON (mend the file)"]


@pytest.mark.pipeline
def test_address_of_the_hook_is_never_logged(
    webhook: tuple[str, type[_Received]],
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    address, handler = webhook
    handler.status = 500
    _fail(address)
    _fail("http://127.0.0.1:1/very-secret")
    said = "".join(capfd.readouterr()) + caplog.text
    assert "the webhook answered 500" in said
    assert "the webhook can't be reached: ConnectError" in said
    assert "very-secret" not in said


@pytest.mark.pipeline
def test_hook_is_off_without_an_address() -> None:
    assert isinstance(_fail(None), dg.SkipReason)
