"""`doctor` with vLLM configured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.pipeline
def test_doctor_loads_the_model_and_prints_nothing_but_json(
    tiny_model: Path, tmp_path: Path
) -> None:
    settings = {
        "UNDERSTUDY_ENGINE__KIND": "vllm",
        "UNDERSTUDY_ENGINE__MODEL": str(tiny_model),
        "UNDERSTUDY_SERVING__KV_CACHE_GIB": "0.125",
        "UNDERSTUDY_HOME": str(tmp_path),
    }
    words = [sys.executable, "-m", "pipelines.cli.main", "doctor", "--json"]
    done = subprocess.run(
        words, env=os.environ | settings, capture_output=True, text=True, timeout=300
    )
    rows = {row["name"]: row for row in json.loads(done.stdout)["checks"]}
    assert rows["language model"]["status"] == "ok", rows
    assert "vllm 0.32" in rows["language model"]["found"]
    assert "vllm: 0.32" in rows["engines"]["found"]
    assert rows["scale 1-10"]["found"].startswith("read as sequences")
    assert rows["smoke test"]["status"] == "warn"
