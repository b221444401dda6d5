"""`understudy ui` on a port that can't be had."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.cli.main import app


def test_taken_port_is_reported_before_an_address(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(app, ["ui", "--port", port, "--home", str(tmp_path / "h")])
    assert result.exit_code == 2
    assert f"the UI can't listen on 127.0.0.1:{port}" in result.stderr
    assert "--port" in result.stderr
    assert "Dagster UI" not in result.output
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "h").exists()


@pytest.mark.parametrize(
    "words", [["--host", "203.0.113.7"], ["--host", "no such host"], ["--port", "70000"]]
)
def test_address_that_is_none_is_wrong_usage(words: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["ui", *words, "--home", str(tmp_path / "h")])
    assert result.exit_code == 2
    assert "Dagster UI" not in result.output
    assert result.stderr.count("\n") == 1
