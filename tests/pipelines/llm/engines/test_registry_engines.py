"""Engines by name, and the light import of the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.config import EngineSettings, ServingSettings
from pipelines.errors import ConfigError, EngineError
from pipelines.llm.engines import load_engine
from pipelines.llm.engines.checkpoints import find_checkpoint
from pipelines.llm.engines.scripted import ScriptedEngine
from pipelines.seams import ENGINES


def test_kind_is_registered_or_refused_with_the_known_ones() -> None:
    assert ENGINES["scripted"] is ScriptedEngine
    with pytest.raises(ValueError, match=r"one of transformers, .* or module:Class"):
        EngineSettings(kind="transformer")
    place = "pipelines.llm.engines.scripted:ScriptedEngine"
    engine = load_engine(EngineSettings(kind=place), ServingSettings())
    assert engine.identity.engine == "scripted"


def test_no_engine_configured_is_said_plainly() -> None:
    with pytest.raises(ConfigError, match=r"engine\.kind is none"):
        load_engine(EngineSettings(), ServingSettings())


@pytest.mark.parametrize("kind", ["transformers", "vllm", "openai"])
def test_an_engine_without_a_model_is_refused_before_anything_is_imported(kind: str) -> None:
    with pytest.raises(ConfigError, match=r"needs a model: engine\.model"):
        load_engine(EngineSettings(kind=kind), ServingSettings())  # type: ignore[arg-type]


@pytest.mark.pipeline
def test_importing_engines_loads_no_model_library() -> None:
    code = (
        "import sys; from pipelines.llm import engines; "
        "from pipelines.llm.engines import chat, scripted, testing, tokens, transformers; "
        "heavy = {'torch', 'transformers', 'llguidance', 'guidance', 'vllm', 'openai'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_folder_is_named_by_its_own_name(tiny_model: Path) -> None:
    found = find_checkpoint(str(tiny_model))
    assert (found.folder, found.name) == (tiny_model, tiny_model.name)


def test_a_name_that_is_not_cached_ends_in_our_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(EngineError, match="neither a folder nor available"):
        find_checkpoint("no-such-maker/no-such-model")


def test_digests_depend_on_names_and_bytes_only(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        place = tmp_path / folder
        place.mkdir()
        (place / "config.json").write_text("{}")
        (place / "tokenizer.json").write_text("{}")
        (place / "model.safetensors").write_bytes(b"weights")
    one, other = find_checkpoint(str(tmp_path / "a")), find_checkpoint(str(tmp_path / "b"))
    assert one.weights_digest() == other.weights_digest()
    assert one.tokenizer_digest() == other.tokenizer_digest()
    assert one.tokenizer_digest("template") != other.tokenizer_digest()
    (tmp_path / "b" / "README.md").write_text("text")
    assert one.weights_digest() == other.weights_digest()
    (tmp_path / "b" / "generation_config.json").write_text('{"eos_token_id": 7}')
    assert one.weights_digest() != other.weights_digest()
    (tmp_path / "a" / "model.safetensors").unlink()
    with pytest.raises(EngineError, match=r"no \.safetensors file"):
        one.weights_digest()
