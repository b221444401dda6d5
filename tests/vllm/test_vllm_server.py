"""vLLM's own OpenAI-compatible server, asked by the openai engine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from pipelines.config import EngineSettings, ServingSettings
from pipelines.llm.engines import Choice, Engine
from pipelines.llm.engines.testing import EngineContract, question

if TYPE_CHECKING:
    from pipelines.llm.engines.openai import OpenAIEngine
    from pipelines.llm.engines.vllm import VllmEngine

pytestmark = pytest.mark.pipeline

#: Longest wait for the server to load the model (seconds).
PATIENCE = 240.0
KEY = "sk-a-key-that-no-one-may-see"


@pytest.fixture(scope="module")
def server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server's address; the real program in a process of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log.txt"
    words = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    words += ["--model", str(tiny_model), "--served-model-name", "tiny", "--api-key", KEY]
    words += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32"]
    words += ["--enforce-eager", "--block-size", "32", "--max-num-seqs", "32"]
    words += ["--kv-cache-memory-bytes", str(1 << 27), "--disable-log-stats"]
    words += ["--structured-outputs-config", '{"backend": "guidance"}']
    environment = {k: v for k, v in os.environ.items() if not k.startswith("UNDERSTUDY_")}
    # A process less to start.
    environment |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1"}
    with log.open("wb") as out:
        process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, env=environment)
    try:
        _wait(process, f"http://127.0.0.1:{port}/health", log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text(errors="replace")[-3_000:]
        try:
            if httpx.get(address, timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    pytest.fail(f"no server after {PATIENCE:.0f} s: {log.read_text(errors='replace')[-3_000:]}")


@pytest.fixture(scope="module")
def open_remote(server: str) -> Iterator[Any]:
    from pipelines.llm.engines.openai import OpenAIEngine

    opened: list[OpenAIEngine] = []

    def open_(**serving: Any) -> OpenAIEngine:
        settings = {"base_url": server, "api_key": KEY, "window": 16, "retries": 1, **serving}
        engine = OpenAIEngine.open(
            EngineSettings(kind="openai", model="tiny"), ServingSettings(**settings)
        )
        opened.append(engine)
        return engine

    yield open_
    for engine in opened:
        engine.close()


@pytest.fixture(scope="module")
def remote(open_remote: Any) -> OpenAIEngine:
    engine: OpenAIEngine = open_remote()
    return engine


class TestOpenAIEngineOnVllm(EngineContract):
    secrets = (KEY,)

    @pytest.fixture(autouse=True)
    def _engines(self, remote: Engine, open_remote: Any) -> None:
        self._shared, self._open = remote, open_remote

    def make(self) -> Engine:
        return self._shared

    def make_disposable(self) -> Engine:
        engine: Engine = self._open()
        return engine


def test_the_probe_finds_that_token_ids_are_honoured(remote: OpenAIEngine) -> None:
    facts = remote.metadata()
    assert "logprob_token_ids" in facts["distributions"], facts
    assert "vllm" in remote.identity.engine_version.lower()


def test_over_http_the_distributions_are_those_of_the_engine_in_process(
    remote: OpenAIEngine, vllm_engine: VllmEngine
) -> None:
    choices = (Choice(("1", "2", "3", "4", "5")), Choice(tuple(str(n) for n in range(1, 11))))
    story = "You loved every quiet drama and no comedy. " * 4
    requests = [question(f"{story} Item {n}?", c, group="you") for n in range(4) for c in choices]
    inside = {id(a.request): a for a in vllm_engine.submit(requests)}
    for answer in remote.submit(requests):
        known = inside[id(answer.request)]
        assert (answer.status, answer.text) == ("ok", known.text)
        assert answer.probabilities == pytest.approx(known.probabilities, abs=1e-4)
        assert answer.mass == pytest.approx(known.mass, abs=1e-4)
        if answer.request.constraint is choices[0]:
            assert answer.prompt_tokens == known.prompt_tokens
