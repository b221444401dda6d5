"""The job `train_policy`: a policy as an asset, apart from everything that makes a release."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest
from support import small_release

from orchestration.definitions import build_defs

KEY = dg.AssetKey(["training", "trained_policy"])
SMALL = {
    "algo": "a2c", "steps": 512, "seeds": [0, 1, 2], "length_limit": 20,
    "evaluate_every": 256,
}  # fmt: skip


def materialize(home: Path, **changes: Any) -> dg.ExecuteInProcessResult:
    defs = build_defs(
        home, executor=dg.in_process_executor, overrides={"training": {**SMALL, **changes}}
    )
    return defs.resolve_job_def("train_policy").execute_in_process(raise_on_error=False)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("train") / "home"
    small_release.build(folder)
    return folder


@pytest.fixture(scope="module")
def first(home: Path) -> dg.ExecuteInProcessResult:
    return materialize(home)


def metadata_of(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    (event,) = result.asset_materializations_for_node("trained_policy")
    return {key: value.value for key, value in event.metadata.items()}


def test_the_asset_carries_metrics_and_pictures(first: dg.ExecuteInProcessResult) -> None:
    assert first.success
    shown = metadata_of(first)
    for row in ("random", "popular", "mean-rating", "content", "a2c"):
        assert f"| {row} |" in shown["figures"]
    assert "no language model was used" in shown["figures"]
    assert shown["language_model"] is False
    assert 1 <= shown["average_reward"] <= 10
    for picture in ("reward", "ranking", "genres"):
        assert "data:image/png" in shown[picture]


@pytest.mark.pipeline
def test_an_equal_run_is_not_repeated_and_other_settings_are_another_version(
    first: dg.ExecuteInProcessResult, home: Path
) -> None:
    again = metadata_of(materialize(home, checkpoint_every=100))
    assert again["reused"] is True
    assert again["version"] == metadata_of(first)["version"]
    other = metadata_of(materialize(home, seeds=[7]))
    assert other["reused"] is False
    assert other["version"] != again["version"]


@pytest.mark.pipeline
def test_pinned_release_is_read_however_many_follow(tmp_path: Path) -> None:
    frames = small_release.frames()
    first = small_release.build(tmp_path)
    one = metadata_of(materialize(tmp_path, seeds=[0]))
    others = frames["movies.personas"].with_columns(age=pl.col("age") + 1)
    second = small_release.build(tmp_path, replace={"movies.personas": others})
    pinned, latest = (
        metadata_of(materialize(tmp_path, seeds=[0], release=wanted))
        for wanted in (f"movies@{first.version}", "latest")
    )
    assert pinned["reused"] is True
    assert pinned["version"] == one["version"]
    for shown, release in ((pinned, first), (latest, second)):
        assert shown["inputs"] == {"movies": release.version}
        assert shown["release"] == f"movies@{release.version}"
        assert shown["tables"] == {name: t.version for name, t in release.tables.items()}
        assert shown["lineage"]["movies.personas"] == release.tables["personas"].version
    assert pinned["tables"]["personas"] != latest["tables"]["personas"]


@pytest.mark.parametrize(
    ("release", "line"),
    [
        ("books@latest", "not a release of the movies"),
        ("movies@0123456789abcdef", "0123456789abcdef"),
    ],
)
def test_pin_that_fits_no_release_fails_in_one_line(home: Path, release: str, line: str) -> None:
    result = materialize(home, release=release)
    (failure,) = [e for e in result.all_events if e.is_step_failure]
    text = str(failure.step_failure_data.user_failure_data.description)
    assert line in text
    assert "\n" not in text


@pytest.mark.parametrize("domain", ["movies", "books"])
def test_policy_is_stale_when_its_domain_has_another_release(tmp_path: Path, domain: str) -> None:
    graph = build_defs(tmp_path, overrides={"training": {"domain": domain}}).resolve_asset_graph()
    assert graph.get(KEY).parent_keys == {dg.AssetKey(["releases", domain])}
    above = dg.AssetSelection.assets(KEY).upstream().resolve(graph)
    # Made again, personas change the release, and the release the policy.
    assert dg.AssetKey([domain, "personas"]) in above
    assert dg.AssetKey(["sources", "world_files"]) in above


@pytest.mark.parametrize("changes", [{"steps": 512}, {"release": "0123456789abcdef"}])
def test_other_settings_are_another_version(tmp_path: Path, changes: dict[str, Any]) -> None:
    first, other = (
        build_defs(tmp_path, overrides={"training": training}).resolve_asset_graph().get(KEY)
        for training in ({}, changes)
    )
    assert first.code_version != other.code_version


def test_without_a_release_the_job_fails_in_one_line(tmp_path: Path) -> None:
    result = materialize(tmp_path / "empty")
    assert not result.success
    (failure,) = [e for e in result.all_events if e.is_step_failure]
    assert "movies" in str(failure.step_failure_data.user_failure_data)


@pytest.mark.pipeline
def test_loading_the_definitions_loads_neither_torch_nor_the_algorithms() -> None:
    code = (
        "import sys\nfrom orchestration.definitions import build_defs\nbuild_defs()\n"
        "print([m for m in ('torch', 'stable_baselines3', 'sb3_contrib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
