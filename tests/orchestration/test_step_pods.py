"""Steps on Kubernetes: each says what its pod needs, and `runtime.executor` gives it a pod."""

from __future__ import annotations

import json

import dagster as dg
import pytest
from dagster_k8s.job import get_user_defined_k8s_config

from orchestration.definitions import build_defs

TAG = "dagster-k8s/config"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> dg.JobDefinition:
    home = tmp_path_factory.mktemp("home")
    defs = build_defs(home, overrides={"runtime": {"executor": "k8s"}})
    return defs.resolve_implicit_global_asset_job_def()


def test_every_step_of_the_whole_graph_requests_cores_and_memory(job: dg.JobDefinition) -> None:
    steps = {node.name: node.definition.tags for node in job.nodes}
    # The original files are observed by a sensor, in no pod of a step.
    assert [name for name, tags in steps.items() if TAG not in tags] == ["sources__original_files"]
    # dbt holds DuckDB's 4 GiB beside its own processes; 5.3 GiB were measured with 25 M ratings.
    container = get_user_defined_k8s_config(steps["dbt_movies"]).container_config
    assert container == {
        "resources": {
            "requests": {"cpu": "4", "memory": "8192Mi"},
            "limits": {"memory": "8192Mi"},
        }
    }
    # A release only hashes files.
    small = json.loads(steps["release_books"][TAG])["container_config"]["resources"]["requests"]
    assert small == {"cpu": "1", "memory": "2048Mi"}


def test_steps_run_in_pods_and_a_run_may_change_a_request(job: dg.JobDefinition) -> None:
    def config(step: object) -> dict[str, object]:
        return {"execution": {"config": {"per_step_k8s_config": {"dbt_movies": step}}}}

    assert job.executor_def.name == "k8s"
    more = {"container_config": {"resources": {"requests": {"memory": "64Gi"}}}}
    dg.validate_run_config(job, config(more))
    with pytest.raises(dg.DagsterInvalidConfigError, match="container_cfg"):
        dg.validate_run_config(job, config({"container_cfg": {}}))
