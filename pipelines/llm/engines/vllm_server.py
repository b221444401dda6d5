"""The engine ``vllm_server``: vLLM's own server, started out of its own environment for one run.

vLLM pins other versions than the rest of the pipeline. The server runs in an environment of its own
and is spoken to over HTTP on this machine, so that a run in the pipeline's environment is served by
vLLM. It ends with the process that started it, however that ends.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from pipelines.config import EngineSettings, ServingSettings
from pipelines.errors import ConfigError, EngineError
from pipelines.llm.engines._protocol import Answer, Request
from pipelines.llm.engines.checkpoints import Checkpoint, find_checkpoint
from pipelines.llm.engines.openai import OpenAIEngine

__all__ = ["VllmServerEngine"]

_NAME = "model"
#: Between two looks at a server that is starting (seconds); from the end of its input to its end.
_PAUSE, _GRACE = 0.5, 10

#: Runs the server in a process group of its own and ends the group when its own input ends: the
#: pipe is closed with the run's process, also by SIGKILL.
_SUPERVISOR = f"""
import os, signal, subprocess, sys, threading
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
def watch():
    os.read(0, 1)
    server.terminate()
    try:
        server.wait({_GRACE})
    finally:
        os.killpg(0, signal.SIGKILL)
threading.Thread(target=watch, daemon=True).start()
sys.exit(server.wait())
"""


class VllmServerEngine:
    """Serves requests by a vLLM server that it starts and stops.

    ``engine.model`` names a checkpoint as for the engine ``vllm``; of ``serving`` are used
    ``vllm_python``, ``start_seconds`` and what both ``vllm`` and ``openai`` take.

    Raises
    ------
    ConfigError
        If there is no environment with vLLM, or no such checkpoint.
    EngineError
        If the server ends or is not healthy in time; the end of its log is quoted.
    """

    def __init__(self, engine: EngineSettings, serving: ServingSettings) -> None:
        checkpoint = find_checkpoint(engine.model, engine.revision, serving.models, serving.home)
        if engine.dtype == "auto":
            engine = engine.model_copy(update={"dtype": "bfloat16" if _gpu() else "float32"})
        python = _environment(serving)
        self._log = Path(tempfile.mkdtemp(prefix="understudy-vllm-")) / "server.log"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        key = secrets.token_urlsafe(24)
        command = [str(python), *_arguments(checkpoint, engine, serving, port)]
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SUPERVISOR, *command],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=_variables(key),
            )
        try:
            self._wait(f"http://127.0.0.1:{port}/health", serving.start_seconds)
            self._remote = OpenAIEngine.open(
                engine.model_copy(update={"model": _NAME}),
                serving.model_copy(
                    update={
                        "base_url": f"http://127.0.0.1:{port}/v1",
                        "api_key": SecretStr(key),
                        "tokenizer": None,
                    }
                ),
            )
        except BaseException:
            self._stop()
            raise
        self.identity = replace(
            self._remote.identity,
            model=checkpoint.name,
            weights=checkpoint.weights_digest(),
            tokenizer=checkpoint.tokenizer_digest(_template(serving)),
        )

    @classmethod
    def open(cls, engine: EngineSettings, serving: ServingSettings) -> VllmServerEngine:
        """Start the server and connect to it."""
        return cls(engine, serving)

    def submit(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """One answer per request, in completion order; see :meth:`Engine.submit`."""
        return self._remote.submit(requests)

    def metadata(self) -> dict[str, Any]:
        """As of the engine `openai`; the address is this run's alone and left out."""
        return {**self._remote.metadata(), "device": "local vLLM server", "base_url": None}

    def close(self) -> None:
        """Close the connections and stop the server."""
        try:
            self._remote.close()
        finally:
            self._stop()

    def _wait(self, address: str, patience: float) -> None:
        import httpx

        end = time.monotonic() + patience
        while self._process.poll() is None and time.monotonic() < end:
            with suppress(httpx.TransportError):
                if httpx.get(address, timeout=5).status_code == httpx.codes.OK:
                    return
            time.sleep(_PAUSE)
        ended = self._process.poll() is not None
        lines = self._log.read_text(errors="replace").strip().splitlines() or ["(nothing)"]
        raise EngineError(
            "vLLM's server ended" if ended else f"vLLM's server is not ready in {patience:g} s",
            where=f"{self._log}: {lines[-1][-200:]}",
            hint="its log says more" if ended else "see its log, or raise serving.start_seconds",
        )

    def _stop(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(2 * _GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _environment(serving: ServingSettings) -> Path:
    """The Python that has vLLM."""
    python = (serving.vllm_python or Path(".venv-vllm/bin/python")).expanduser().absolute()
    if not python.is_file():
        raise ConfigError(
            "there is no environment with vLLM",
            where=f"engine.kind is vllm_server: no {python}",
            hint="make vllm, or set serving.vllm_python; on a GPU see docs/engines.md",
        )
    return python


def _gpu() -> bool:
    return Path("/dev/nvidiactl").exists()


def _arguments(
    checkpoint: Checkpoint, engine: EngineSettings, serving: ServingSettings, port: int
) -> list[str]:
    places = min(serving.window, 1024)
    words = ["-m", "vllm.entrypoints.openai.api_server", "--model", str(checkpoint.folder)]
    words += ["--served-model-name", _NAME, "--host", "127.0.0.1", "--port", str(port)]
    words += ["--dtype", engine.dtype, "--max-num-seqs", str(places), "--seed", "0"]
    words += ["--max-num-batched-tokens", str(max(serving.batch_tokens, places))]
    words += ["--tensor-parallel-size", str(serving.tensor_parallel)]
    words += ["--pipeline-parallel-size", str(serving.pipeline_parallel)]
    words += ["--data-parallel-size", str(serving.data_parallel)]
    words += ["--structured-outputs-config", '{"backend": "guidance"}', "--disable-log-stats"]
    if engine.quantisation != "none":
        words += ["--quantization", engine.quantisation]
    if serving.max_context is not None:
        words += ["--max-model-len", str(serving.max_context)]
    if serving.chat_template is not None:
        words += ["--chat-template", str(serving.chat_template)]
    if not _gpu():
        # As in process: no compiler, and blocks short enough for the beginnings to be shared.
        cache = int((serving.kv_cache_gib or 1.0) * (1 << 30))
        words += ["--enforce-eager", "--block-size", "32", "--kv-cache-memory-bytes", str(cache)]
    else:
        words += ["--gpu-memory-utilization", str(serving.gpu_memory)]
    return words


def _variables(key: str) -> dict[str, str]:
    """The environment without settings and secrets of the run; the key is not on a command line."""
    passed = {k: v for k, v in os.environ.items() if not k.startswith(("UNDERSTUDY_", "OPENAI_"))}
    return passed | {
        "VLLM_API_KEY": key,
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "HF_HUB_OFFLINE": "1",
    }


def _template(serving: ServingSettings) -> str | None:
    template = serving.chat_template
    return None if template is None else template.read_text("utf-8")
