"""Settings of a run in the Launchpad: the same identity and the same errors as ``--set``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from orchestration.definitions import build_defs
from orchestration.instance import open_instance
from orchestration.launchpad import RunSettings
from pipelines.cli.options import overrides_of
from pipelines.config import load_settings
from pipelines.store import Store


def _run(home: Path, config: dict[str, Any]) -> dg.ExecuteInProcessResult:
    """Materialise the cohort `pilot` of the films with a configuration of the Launchpad."""
    defs = build_defs(home, executor=dg.in_process_executor)
    with open_instance(home, "pilot") as instance:
        return defs.resolve_job_def("__ASSET_JOB").execute_in_process(
            run_config={"resources": {"workbench": {"config": config}}},
            instance=instance,
            partition_key="pilot",
            asset_selection=[dg.AssetKey(["movies", "personas"])],
            raise_on_error=False,
        )


def test_fields_end_in_the_identity_settings_of_the_command_line() -> None:
    fields = RunSettings(
        cohort_size=30, writer="model", seed=3, domain="books", rater="mean", max_pairs=90,
        max_tokens=500, max_cost=0.5, set={"graph.alpha": 0.5, "scoring.scale": "1-5"},
    )  # fmt: skip
    words = [
        "personas.count=30", "personas.writer=model", "personas.seed=3", "personas.domain=books",
        "scoring.rater=mean", "scoring.max_pairs=90", "product_scoring.max_pairs=90",
        "serving.max_tokens=500", "serving.max_cost=0.5", "graph.alpha=0.5", "scoring.scale=1-5",
    ]  # fmt: skip
    here, there = (
        load_settings(None, overrides, {})
        for overrides in (fields.overrides(), overrides_of(None, words))
    )
    assert here == there
    assert here.identity() == there.identity()


def test_launchpad_opens_with_the_settings_of_the_run_and_no_path(tmp_path: Path) -> None:
    defs = build_defs(tmp_path, overrides={"personas": {"count": 30}})
    schema = defs.resolve_job_def("movies").run_config_schema.run_config_schema_type
    resources = schema.fields["resources"].default_value
    shown = {k: v for k, v in resources["workbench"]["config"].items() if v is not None}
    assert shown == {
        "cohort_size": 30, "writer": "statistical", "seed": 7, "domain": "movies",
        "rater": "statistical",
    }  # fmt: skip
    assert resources["dbt"] == {}
    assert str(tmp_path) not in str(resources)


@pytest.mark.pipeline
def test_run_takes_its_cohort_size_and_seed_from_the_launchpad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", "")
    result = _run(tmp_path, {"cohort_size": 7, "seed": 5})
    assert result.success
    personas = Store(tmp_path).current("movies.personas")
    assert personas.rows == 7
    assert personas.manifest.config["cohorts"]["pilot"]["seed"] == 5
    (made,) = result.asset_materializations_for_node("movies_personas")
    # The location's settings say another count and seed: against those the cohort is stale.
    graph = build_defs(tmp_path).resolve_asset_graph()
    configured = graph.get(dg.AssetKey(["movies", "personas"])).code_version
    assert (made.tags or {})["dagster/code_version"] != configured


@pytest.mark.pipeline
@pytest.mark.parametrize(
    ("config", "line"),
    [
        ({"cohort_size": 0}, "personas.count takes a whole number from 1 to 10000000, not 0"),
        ({"set": {"persona.count": 5}}, "did you mean personas"),
        ({"set": {"count": 5}}, "count"),
    ],
)
def test_wrong_values_fail_the_step_in_one_line(
    config: dict[str, Any], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", "")
    result = _run(tmp_path, config)
    assert not result.success
    (failed,) = result.get_step_failure_events()
    text = str(failed.step_failure_data.user_failure_data.description)
    assert line in text
    assert "\n" not in text
