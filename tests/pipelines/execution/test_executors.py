"""Executors: every one does with pieces what the contract says, and loses none with a worker."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipelines.config import ExecutionSettings
from pipelines.errors import ConfigError, EngineError
from pipelines.execution import Executor, LocalExecutor, Piece, open_executor, run_pieces
from pipelines.execution.testing import ExecutorContract, Squares


class TestLocalExecutor(ExecutorContract):
    @pytest.fixture
    def executor(self) -> Executor:
        return LocalExecutor()

    def test_it_tells_what_it_has_done_while_it_works(self, executor, pieces, tmp_path):
        seen = []
        list(executor.map(Squares(tmp_path), pieces, seen.append))
        assert seen == [1] * 7


def test_pieces_that_fail_in_every_round_are_listed_and_the_others_kept(tmp_path):
    pieces = [Piece(f"key-{n}", n) for n in range(5)]
    with pytest.raises(EngineError) as caught:
        list(run_pieces(LocalExecutor(), Squares(tmp_path, always=2), pieces, rounds=3))
    assert [p.number for p in pieces if (tmp_path / p.key).exists()] == [0, 1, 3, 4]
    assert str(caught.value) == (
        "1 of 5 pieces failed 3 times: somebody writes: piece 2: executor local, pieces 2 "
        "(the others are kept; run again: only these are computed)"
    )
    assert caught.value.exit_code == 7
    listed = {"number": 2, "key": "key-2", "fault": "somebody writes: piece 2"}
    assert caught.value.details["pieces"] == [listed]


def test_an_unknown_executor_is_refused_by_the_nearest_name():
    with pytest.raises(ConfigError, match="did you mean ray"):
        open_executor(ExecutionSettings(executor="rya"))


class Deadly(Squares):
    """Ends its own process, as the system does with one that takes too much memory.

    `fails`: ``killed`` always, ``lost`` the first time.
    """

    def __call__(self, piece: Piece, advance: Any) -> Mapping[str, Any]:
        tried = self.folder / f"{piece.key}.tried"
        again = tried.exists()
        if piece.number == self.fails.get("killed") or (
            piece.number == self.fails.get("lost") and not again
        ):
            tried.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(piece, advance)


class Elsewhere(Squares):
    """Sees another folder in every process."""

    def probe(self) -> Mapping[str, Any]:
        return {"the folder of parts": os.getpid()}


class Doomed(Squares):
    """Ends the process that asks for its versions, unless it is this one."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.driver = os.getpid()

    def probe(self) -> Mapping[str, Any]:
        if os.getpid() != self.driver:
            os.kill(os.getpid(), signal.SIGKILL)
        return {}


def test_without_ray_the_executor_names_the_extra(monkeypatch):
    monkeypatch.delitem(sys.modules, "pipelines.execution._ray", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"execution.executor=ray.*understudy-recsys\[cluster\]"):
        open_executor(ExecutionSettings(executor="ray"))


def test_a_cluster_of_other_versions_is_refused_with_both_sides(monkeypatch):
    ray = pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    from ray._private.utils import check_version_info

    def init(**_: Any) -> None:  # as Ray's own does after it has reached the cluster
        there = {"ray_version": "2.59.0", "python_version": "3.12.4"}
        check_version_info(there, "10.0.0.7:0")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(ConfigError) as caught:
        open_executor(ExecutionSettings(executor="ray"))
    told = str(caught.value)
    here = platform.python_version()
    assert [v for v in ("2.59.0", "3.12.4", ray.__version__, here) if v not in told] == []
    assert "\n" not in told


@pytest.mark.night
class TestRayExecutor(ExecutorContract):
    @pytest.fixture(scope="class")
    @classmethod
    def cluster(cls) -> Iterator[Executor]:
        pytest.importorskip("ray", reason="the extra `cluster` is not installed")
        executor = open_executor(ExecutionSettings(executor="ray", cpus=1))
        yield executor
        executor.close()

    @pytest.fixture
    def executor(self, cluster: Executor) -> Executor:
        return cluster

    def test_a_piece_whose_worker_is_killed_is_done_in_the_next_round(
        self, executor, pieces, tmp_path
    ):
        done = list(run_pieces(executor, Deadly(tmp_path, lost=2), pieces, rounds=3))
        assert sorted(d.facts["square"] for d in done) == [n * n for n in range(7)]

    def test_a_piece_that_kills_every_worker_is_listed_and_the_others_finish(
        self, executor, pieces, tmp_path
    ):
        with pytest.raises(EngineError) as caught:
            list(run_pieces(executor, Deadly(tmp_path, killed=2), pieces, rounds=3))
        assert [p["number"] for p in caught.value.details["pieces"]] == [2]
        assert "1 of 7 pieces failed 3 times: its worker died" in str(caught.value)
        assert caught.value.exit_code == 7
        assert all((tmp_path / p.key).exists() for p in pieces if p.number != 2)

    def test_a_worker_that_sees_another_store_is_refused_before_the_first_piece(
        self, executor, pieces, tmp_path
    ):
        with pytest.raises(ConfigError, match=r"the folder of parts is .* here and .* on a worker"):
            list(executor.map(Elsewhere(tmp_path), pieces, lambda _: None))
        assert not list(tmp_path.iterdir())

    def test_a_worker_with_another_version_of_the_code_is_refused_with_both_sides(
        self, executor, pieces, tmp_path, monkeypatch
    ):
        monkeypatch.setattr("pipelines.__version__", "99.0")
        with pytest.raises(ConfigError, match=r"understudy is 99.0 here and \d\S+ on a worker"):
            list(executor.map(Squares(tmp_path), pieces, lambda _: None))
        assert not list(tmp_path.iterdir())

    def test_a_driver_of_another_instruction_set_is_refused_with_both_sides(
        self, executor, pieces, tmp_path, monkeypatch
    ):
        # Its keys of parts would not be those of the workers.
        monkeypatch.setenv("OPENBLAS_CORETYPE", "SkylakeX")
        told = "instruction set is native here and portable on a worker"
        with pytest.raises(ConfigError, match=told):
            list(executor.map(Squares(tmp_path), pieces, lambda _: None))
        assert not list(tmp_path.iterdir())

    def test_a_first_worker_that_dies_is_said_before_the_first_piece(
        self, executor, pieces, tmp_path
    ):
        with pytest.raises(EngineError, match="the first worker died"):
            list(executor.map(Doomed(tmp_path), pieces, lambda _: None))
        assert not list(tmp_path.iterdir())

    def test_a_piece_that_no_node_can_hold_is_said_not_waited_for(
        self, executor, pieces, tmp_path, monkeypatch
    ):
        from pipelines.execution import _ray

        assert _ray._PATIENCE <= 60
        monkeypatch.setattr(_ray, "_PATIENCE", 1.0)
        monkeypatch.setattr(executor, "_cpus", 4096.0)
        with pytest.raises(EngineError, match=r"no worker started .* a piece needs 4096"):
            list(executor.map(Squares(tmp_path), pieces, lambda _: None))


@pytest.mark.night
def test_an_address_where_no_cluster_is_is_a_setting_that_is_wrong():
    pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    settings = ExecutionSettings(executor="ray", address="127.0.0.1:9")
    with pytest.raises(ConfigError, match=r"execution.address 127.0.0.1:9"):
        open_executor(settings)


#: A driver with a cluster of its own, on pieces that last longer than the test.
DRIVER = """
import pathlib, sys, time
from pipelines.config import ExecutionSettings
from pipelines.execution import Piece, open_executor

class Long:
    def __call__(self, piece, advance):
        pathlib.Path(sys.argv[1], piece.key).touch()
        time.sleep(600)
        return {}
    def probe(self):
        return {}

executor = open_executor(ExecutionSettings(executor="ray"))
try:
    list(executor.map(Long(), [Piece(f"{n}", n) for n in range(4)], lambda _: None))
finally:
    executor.close()
"""


@pytest.mark.night
def test_ctrl_c_on_the_driver_leaves_no_process(tmp_path):
    pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    script = DRIVER.replace("sys.argv[1]", repr(str(tmp_path)))
    driver = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 300
    while not list(tmp_path.iterdir()):
        assert driver.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.2)
    own = psutil.Process(driver.pid).children(recursive=True)
    assert any("raylet" in process.name() for process in own)
    driver.send_signal(signal.SIGINT)
    _, told = driver.communicate(timeout=120)
    assert b"KeyboardInterrupt" in told
    assert driver.returncode != 0
    assert psutil.wait_procs(own, timeout=60)[1] == []
