"""Executors: every one does with parts what the contract says, and loses none with a worker."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from pipelines.config import EngineSettings, ExecutionSettings, ServingSettings
from pipelines.errors import ConfigError, EngineError
from pipelines.execution import Executor, LocalExecutor, open_executor
from pipelines.execution.testing import ExecutorContract, Squares
from pipelines.llm.answers import AnswerStore, ask
from pipelines.llm.engines import Message, Request, load_engine
from pipelines.llm.engines.cluster import ClusterEngine


class TestLocalExecutor(ExecutorContract):
    @pytest.fixture
    def executor(self) -> Executor:
        return LocalExecutor()


def test_an_unknown_executor_is_refused_by_the_nearest_name():
    with pytest.raises(ConfigError, match="did you mean ray"):
        open_executor(ExecutionSettings(executor="rya"))


class Deadly(Squares):
    """Ends its own process at a part, as the system does with one that takes too much memory.

    The first time, or ``always``.
    """

    def __init__(self, folder: Path, at: int, *, always: bool = False) -> None:
        super().__init__(folder)
        self.at, self.always = at, always

    def __call__(self, number: int) -> int:
        tried = self.folder / f"{number}.tried"
        if number == self.at and (self.always or not tried.exists()):
            tried.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(number)


class Elsewhere(Squares):
    """Has another version in every process."""

    def versions(self) -> Mapping[str, str]:
        return {"the code": str(os.getpid())}


class Doomed(Squares):
    """Ends the process that asks for its versions, unless it is this one."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.driver = os.getpid()

    def versions(self) -> Mapping[str, str]:
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

    def init(**_: object) -> None:  # as Ray's own does after it has reached the cluster
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

    def test_a_part_whose_worker_is_killed_is_done_by_another(self, executor, tmp_path):
        assert list(executor.map(Deadly(tmp_path, 2), range(7))) == [n * n for n in range(7)]

    def test_a_part_that_kills_every_worker_ends_the_step(self, executor, tmp_path):
        with pytest.raises(EngineError, match="the workers of a part died") as caught:
            list(executor.map(Deadly(tmp_path, 2, always=True), range(7)))
        assert caught.value.exit_code == 7

    def test_a_worker_with_other_code_is_refused_before_the_first_part(self, executor, tmp_path):
        with pytest.raises(ConfigError, match=r"the code is .* here and .* on a worker"):
            list(executor.map(Elsewhere(tmp_path), range(7)))
        assert not list(tmp_path.iterdir())

    def test_a_worker_with_another_version_is_refused_with_both_sides(
        self, executor, tmp_path, monkeypatch
    ):
        monkeypatch.setattr("pipelines.__version__", "99.0")
        with pytest.raises(ConfigError, match=r"understudy is 99.0 here and \d\S+ on a worker"):
            list(executor.map(Squares(tmp_path), range(7)))
        assert not list(tmp_path.iterdir())

    def test_a_first_worker_that_dies_is_said_before_the_first_part(self, executor, tmp_path):
        with pytest.raises(EngineError, match="the first worker died"):
            list(executor.map(Doomed(tmp_path), range(7)))
        assert not list(tmp_path.iterdir())

    def test_a_part_that_no_node_can_hold_is_said_not_waited_for(
        self, executor, tmp_path, monkeypatch
    ):
        from pipelines.execution import _ray

        assert _ray._PATIENCE <= 60
        monkeypatch.setattr(_ray, "_PATIENCE", 1.0)
        monkeypatch.setattr(executor, "_cpus", 4096.0)
        with pytest.raises(EngineError, match=r"no worker started .* a part needs 4096"):
            list(executor.map(Squares(tmp_path), range(7)))

    def test_a_model_on_the_workers_gives_the_answers_that_it_gives_here(self, executor, tmp_path):
        settings, serving = EngineSettings(kind="scripted"), ServingSettings(commit_every=3)
        requests = [Request((Message("user", f"Film {n}?"),), tag=n) for n in range(10)]
        here = load_engine(settings, serving)
        engine = ClusterEngine(settings, serving, executor)
        assert engine.identity == here.identity
        with AnswerStore(tmp_path) as store:
            rows = list(ask(engine, requests, store, serving=serving))
            texts = {a.request.tag: a.text for a in here.submit(iter(requests))}
            assert {request.tag: a.text for request, _, a in rows} == texts
            assert store.stats().answers == 10


@pytest.mark.night
def test_an_address_where_no_cluster_is_is_a_setting_that_is_wrong():
    pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    settings = ExecutionSettings(executor="ray", address="127.0.0.1:9")
    with pytest.raises(ConfigError, match=r"execution.address 127.0.0.1:9"):
        open_executor(settings)


#: A driver with a cluster of its own, on parts that last longer than the test.
DRIVER = """
import pathlib, sys, time
from pipelines.config import ExecutionSettings
from pipelines.execution import open_executor

class Long:
    def __call__(self, part):
        pathlib.Path(sys.argv[1], str(part)).touch()
        time.sleep(600)
    def versions(self):
        return {}

executor = open_executor(ExecutionSettings(executor="ray"))
try:
    list(executor.map(Long(), range(4)))
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
