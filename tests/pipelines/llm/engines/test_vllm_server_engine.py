"""The server that a run starts: out of its own environment, healthy first, and gone afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from pipelines.config import EngineSettings, ServingSettings
from pipelines.errors import ConfigError, EngineError
from pipelines.llm.engines import Choice, Engine, Sampling, load_engine
from pipelines.llm.engines.testing import EngineContract, question

TESTS = Path(__file__).parents[3]

#: A server over the real tiny checkpoint with vLLM's interface, in the place of vLLM's program.
SERVER = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
Path({pid!r}).write_text(str(os.getpid()))
from support.llm_api import KINDS
from support.llm_server import LlmServer
options = dict(zip(sys.argv[3::2], sys.argv[4::2]))
with LlmServer(Path(options["--model"]), KINDS["vllm"], name="model", port=int(options["--port"])):
    time.sleep(600)
"""


def _environment(folder: Path, program: str) -> Path:
    """A Python that runs the given program instead of vLLM's."""
    script = folder / "server.py"
    script.write_text(program.format(tests=str(TESTS), pid=str(folder / "pid")))
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n')
    python.chmod(0o755)
    return python


@pytest.fixture
def environment(tmp_path: Path) -> Callable[[str], Path]:
    return lambda program: _environment(tmp_path, program)


@pytest.mark.pipeline
class TestVllmServer(EngineContract):
    engine: ClassVar[Engine]
    folder: ClassVar[Path]
    model: ClassVar[Path]

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _serve(cls, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        cls.folder, cls.model = tmp_path_factory.mktemp("server"), tiny_model
        cls.engine = cls._open()
        yield
        cls.engine.close()

    @classmethod
    def _open(cls) -> Engine:
        settings = EngineSettings(kind="vllm_server", model=str(cls.model))
        return load_engine(settings, _serving(_environment(cls.folder, SERVER), window=24))

    def make(self) -> Engine:
        return self.engine

    def make_disposable(self) -> Engine:
        return self._open()


def _serving(python: Path, **fields: float) -> ServingSettings:
    return ServingSettings(vllm_python=python, **fields)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie waits for its parent only.
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def _ends(pid: int, within: float = 20.0) -> bool:
    end = time.monotonic() + within
    while time.monotonic() < end:
        if not _alive(pid):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.pipeline
def test_answers_are_those_of_the_checkpoint_and_the_server_ends_with_the_engine(
    environment: Callable[[str], Path], tiny_model: Path, tmp_path: Path
) -> None:
    settings = EngineSettings(kind="vllm_server", model=str(tiny_model))
    asked = [
        question("How many?", Choice(("1", "2", "3"))),
        question("Go on.", sampling=Sampling(temperature=0.0, max_tokens=8)),
    ]
    engine = load_engine(settings, _serving(environment(SERVER)))
    try:
        served = {a.request: a for a in engine.submit(asked)}
        own = EngineSettings(kind="transformers", model=str(tiny_model))
        plain = load_engine(own, ServingSettings(device="cpu"))
        for answer in plain.submit(asked):
            other = served[answer.request]
            assert (other.status, other.text) == (answer.status, answer.text)
            if answer.probabilities:
                assert other.probabilities == pytest.approx(answer.probabilities, abs=1e-4)
        # The checkpoint is known here, unlike that of a server which others run.
        assert engine.identity.weights == plain.identity.weights
        assert (engine.identity.model, engine.identity.dtype) == (tiny_model.name, "float32")
        assert engine.metadata()["base_url"] is None
        plain.close()
    finally:
        engine.close()
    assert _ends(int((tmp_path / "pid").read_text()))


@pytest.mark.pipeline
def test_a_killed_run_leaves_no_server(
    environment: Callable[[str], Path], tiny_model: Path, tmp_path: Path
) -> None:
    run = textwrap.dedent(f"""
        import os, signal
        from pathlib import Path
        from pipelines.config import EngineSettings, ServingSettings
        from pipelines.llm.engines import load_engine
        load_engine(
            EngineSettings(kind="vllm_server", model={str(tiny_model)!r}),
            ServingSettings(vllm_python=Path({str(environment(SERVER))!r})),
        )
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    done = subprocess.run([sys.executable, "-c", run], check=False, timeout=300)
    assert done.returncode == -signal.SIGKILL
    assert _ends(int((tmp_path / "pid").read_text()))


@pytest.mark.pipeline
def test_a_server_that_ends_is_an_error_with_the_end_of_its_log(
    environment: Callable[[str], Path], tiny_model: Path
) -> None:
    python = environment("raise SystemExit('no kernels for this machine')")
    settings = EngineSettings(kind="vllm_server", model=str(tiny_model))
    with pytest.raises(EngineError, match=r"vLLM's server ended.*no kernels for this machine"):
        load_engine(settings, _serving(python))


@pytest.mark.pipeline
def test_a_server_that_is_never_ready_is_stopped(
    environment: Callable[[str], Path], tiny_model: Path, tmp_path: Path
) -> None:
    program = "import os, time\nopen({pid!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    settings = EngineSettings(kind="vllm_server", model=str(tiny_model))
    with pytest.raises(EngineError, match=r"not ready in 5 s"):
        load_engine(settings, _serving(environment(program), start_seconds=5.0))
    assert _ends(int((tmp_path / "pid").read_text()))


def test_without_an_environment_the_error_says_how_to_make_it(
    tiny_model: Path, tmp_path: Path
) -> None:
    settings = EngineSettings(kind="vllm_server", model=str(tiny_model))
    with pytest.raises(ConfigError, match=r"no environment with vLLM.*make vllm"):
        load_engine(settings, _serving(tmp_path / "python"))


def test_nothing_is_started_for_a_model_that_is_not_here(tmp_path: Path) -> None:
    settings = EngineSettings(kind="vllm_server", model="not-here")
    with pytest.raises(ConfigError, match="no checkpoint of this name"):
        load_engine(settings, _serving(tmp_path / "python"))
