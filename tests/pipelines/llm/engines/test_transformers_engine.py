"""Opening the transformers engine, what it says of itself, and how it fails."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.config import EngineSettings, ServingSettings
from pipelines.errors import ConfigError, EngineError
from pipelines.llm.engines import Answer, Choice, Message, Request, Sampling, load_engine
from pipelines.llm.engines.testing import question
from pipelines.llm.engines.transformers import TransformersEngine
from pipelines.llm.engines.transformers._engine import _packer
from pipelines.llm.engines.transformers._model import Model
from pipelines.llm.engines.transformers._trie import Run, triangle

STARS = Choice(("1", "2", "3", "4", "5"))


def _open(folder: Path | str, *, dtype: Any = "auto", **serving: Any) -> TransformersEngine:
    return TransformersEngine.open(
        EngineSettings(kind="transformers", model=str(folder), dtype=dtype),
        ServingSettings(**{"device": "cpu"} | serving),
    )


@pytest.fixture
def copied(tiny_model: Path, tmp_path: Path, one_thread: None) -> Path:
    """A copy of the tiny checkpoint that a test may change."""
    return Path(shutil.copytree(tiny_model, tmp_path / "my-model"))


def test_the_identity_names_versions_digests_and_precision(
    tiny_engine: TransformersEngine, tiny_model: Path
) -> None:
    import torch
    import transformers

    identity = tiny_engine.identity
    assert identity.engine == "transformers"
    assert transformers.__version__ in identity.engine_version
    assert torch.__version__ in identity.engine_version
    assert identity.model == tiny_model.name
    assert (identity.dtype, identity.quantisation) == ("float32", "none")
    assert {len(identity.weights), len(identity.tokenizer)} == {64}


def test_a_copy_elsewhere_has_the_same_digests(
    tiny_engine: TransformersEngine, copied: Path
) -> None:
    mine, theirs = _open(copied).identity, tiny_engine.identity
    assert (mine.weights, mine.tokenizer) == (theirs.weights, theirs.tokenizer)
    assert mine.model == "my-model"


def test_a_changed_weight_changes_its_digest_only(
    tiny_engine: TransformersEngine, copied: Path
) -> None:
    file = copied / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    changed, first = _open(copied).identity, tiny_engine.identity
    assert changed.weights != first.weights
    assert changed.tokenizer == first.tokenizer


def test_a_chat_template_is_part_of_the_tokenizer_and_is_used(
    tiny_engine: TransformersEngine, tiny_model: Path, tmp_path: Path
) -> None:
    template = tmp_path / "chat.jinja"
    template.write_text("{{ messages[0]['content'] }} so:")
    engine = _open(tiny_model, chat_template=template)
    assert engine.identity.tokenizer != tiny_engine.identity.tokenizer
    assert engine.identity.weights == tiny_engine.identity.weights
    assert engine.metadata()["chat_template"] == "given"
    asked = question("one film", STARS)
    as_tokens = Request(
        tokens=tuple(engine._vocabulary.tokenizer.encode("one film so:")), constraint=STARS
    )
    rendered, direct = (next(iter(engine.submit([r]))) for r in (asked, as_tokens))
    assert rendered.probabilities == pytest.approx(direct.probabilities, abs=1e-6)


def test_facts_say_how_it_runs(tiny_engine: TransformersEngine) -> None:
    facts = json.loads(json.dumps(tiny_engine.metadata()))
    assert facts["device"] == "cpu"
    assert facts["dtype"] == "float32"
    assert facts["context"] == 1024
    assert facts["packing"] == "shared beginnings once per row"
    assert facts["chat_template"] == "model"


def test_half_precision_is_loaded_and_named(tiny_model: Path, one_thread: None) -> None:
    engine = _open(tiny_model, dtype="bfloat16")
    assert engine.identity.dtype == "bfloat16"
    [answer] = engine.submit([question("Stars?", STARS)])
    assert sum(answer.probabilities or ()) == pytest.approx(1.0)


def test_users_who_begin_alike_are_computed_once(tiny_model: Path, one_thread: None) -> None:
    engine = _open(tiny_model)

    def about(n: int, lines: int) -> Request:
        history = "She liked the long film about the quiet river and the city. " * lines
        return Request(
            (Message("system", history), Message("user", f"Item {n}?")), constraint=STARS
        )

    def share(answers: list[Answer]) -> float:
        return sum(a.cached_tokens for a in answers) / sum(a.prompt_tokens for a in answers)

    # In one row: all but the first go without their 130 first tokens.
    assert share(list(engine.submit(about(n, 8) for n in range(20)))) > 0.8
    assert engine.metadata()["kept_prefix_tokens"] == 0
    # In several rows, over one prefix that is computed before; it is there for the next window.
    assert share(list(engine.submit(about(n, 45) for n in range(20)))) > 0.9
    kept = engine.metadata()["kept_prefix_tokens"]
    [later] = engine.submit([about(20, 45)])
    assert later.prompt_tokens > later.cached_tokens >= kept - 2 > 500


@pytest.mark.parametrize(
    ("folder", "error", "message"),
    [
        ("no/such/folder", ConfigError, "no such folder"),
        ("empty", ConfigError, "no config.json"),
        ("pickled", EngineError, "can't be loaded"),
        ("torn", EngineError, "can't be loaded"),
        ("unknown", EngineError, "can't be loaded"),
    ],
)
def test_what_is_no_checkpoint_is_refused(
    copied: Path, folder: str, error: type[Exception], message: str
) -> None:
    weights = copied / "model.safetensors"
    if folder == "empty":
        (copied / "config.json").unlink()
    elif folder == "pickled":
        weights.rename(copied / "pytorch_model.bin")
    elif folder == "torn":
        weights.write_bytes(weights.read_bytes()[:1000])
    elif folder == "unknown":
        config = json.loads((copied / "config.json").read_text())
        (copied / "config.json").write_text(json.dumps(config | {"model_type": "nothing"}))
    place = copied if folder != "no/such/folder" else Path("/no/such/folder")
    with pytest.raises(error, match=message) as caught:
        _open(place)
    assert "\n" not in str(caught.value)


def test_settings_that_cannot_be_had_are_refused(tiny_model: Path) -> None:
    import torch

    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="no GPU"):
            _open(tiny_model, device="cuda")
    with pytest.raises(ConfigError, match="unknown device"):
        _open(tiny_model, device="abacus")
    quantised = EngineSettings(kind="transformers", model=str(tiny_model), quantisation="awq")
    with pytest.raises(ConfigError, match="quantisation differs"):
        TransformersEngine.open(quantised, ServingSettings(device="cpu"))
    with pytest.raises(ConfigError, match="chat template"):
        _open(tiny_model, chat_template=tiny_model / "none.jinja")


def test_a_sliding_window_bounds_the_context(tmp_path: Path, tiny_model: Path) -> None:
    import torch
    from transformers import MistralConfig, MistralForCausalLM

    folder = Path(shutil.copytree(tiny_model, tmp_path / "sliding"))
    config = MistralConfig(
        vocab_size=2000,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        sliding_window=48,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        MistralForCausalLM(config).save_pretrained(folder)
    engine = _open(folder)
    assert engine.metadata()["context"] == 48
    long, short = engine.submit([question("film " * 60, STARS), question("film?", STARS)])
    assert (long.status, short.status) == ("invalid", "ok")


def test_a_model_that_cannot_be_packed_is_refused(one_thread: None) -> None:
    import torch
    from transformers import MambaConfig, MambaForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = MambaConfig(vocab_size=97, hidden_size=32, num_hidden_layers=2, state_size=4)
        recurrent = MambaForCausalLM(config).eval()
    with pytest.raises(EngineError, match=r"packed prompts|the model failed"):
        _packer(Model(recurrent, 128), ServingSettings(device="cpu"))
    assert _packer(Model(recurrent, 128), ServingSettings(prefix_reuse=False)) is None


@pytest.mark.parametrize("wrong", ["mask", "runs"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_row_that_sees_other_prompts_is_refused(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, wrong: str, one_thread: None
) -> None:
    bias = Model._bias

    def causal(model: Model, seen: Any, base: int, runs: list[Run]) -> Any:
        if wrong == "mask":
            return bias(model, triangle(len(seen)), base, [])
        return bias(model, seen, base, [Run(0, len(seen), ())])

    _open(tiny_model, dtype=dtype)
    monkeypatch.setattr(Model, "_bias", causal)
    with pytest.raises(EngineError, match="packed prompts"):
        _open(tiny_model, dtype=dtype)


@pytest.mark.pipeline
def test_a_real_model_is_packed_in_bfloat16(small_model: Path, one_thread: None) -> None:
    engine = TransformersEngine.open(
        EngineSettings(kind="transformers", model="smollm2-135m", dtype="bfloat16"),
        ServingSettings(device="cpu", models=small_model),
    )
    assert engine.metadata()["packing"] == "shared beginnings once per row"


def test_weights_that_are_not_numbers_are_row_faults(copied: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    weights = load_file(copied / "model.safetensors")
    weights["model.norm.weight"] = torch.full_like(weights["model.norm.weight"], torch.nan)
    save_file(weights, copied / "model.safetensors", metadata={"format": "pt"})
    engine = TransformersEngine.open(
        EngineSettings(kind="transformers", model=str(copied)),
        ServingSettings(device="cpu", prefix_reuse=False),
    )
    answers = list(engine.submit([question("?", STARS), question("Tell me.")]))
    assert [a.status for a in answers] == ["engine_error"] * 2
    assert all("not numbers" in a.detail for a in answers)
    with pytest.raises(EngineError, match="packed"):
        _open(copied)


@pytest.mark.faults
@pytest.mark.parametrize("memory", [True, False])
def test_a_failing_model_ends_the_run_and_says_how(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, memory: bool, one_thread: None
) -> None:
    import torch

    engine = _open(tiny_model)
    inner: Any = engine._model
    failure = (
        torch.OutOfMemoryError("CUDA out of memory. Tried\n to allocate")
        if memory
        else RuntimeError("device-side assert")
    )

    def broken(**_: Any) -> None:
        raise failure

    monkeypatch.setattr(inner.causal, "forward", broken)
    expected = "lower serving.batch_tokens" if memory else "the model failed"
    for asked in (question("?", STARS), question("Tell me.")):
        with pytest.raises(EngineError, match=expected):
            list(engine.submit([asked]))


@pytest.mark.faults
@pytest.mark.parametrize("after", [1, 2, 4])
def test_an_interrupt_anywhere_leaves_a_sound_engine(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, after: int, one_thread: None
) -> None:
    engine = _open(tiny_model, batch_tokens=256)
    story = "A quiet film about two friends and the long river. " * 8
    asked = [question(f"{story} Item {n}?", STARS) for n in range(6)]
    asked += [question(f"{story} Tell {n}.", sampling=Sampling(max_tokens=6)) for n in range(3)]
    expected = {a.request: (a.status, a.text) for a in engine.submit(asked)}
    engine.close()
    engine = _open(tiny_model, batch_tokens=256)
    inner: Any = engine._model
    forward, calls = inner.causal.forward, iter(range(100))

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        found = forward(*args, **kwargs)
        if next(calls) == after:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(inner.causal, "forward", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(engine.submit(asked))
    monkeypatch.undo()
    assert {a.request: (a.status, a.text) for a in engine.submit(asked)} == expected


def test_answers_come_before_all_requests_are_drawn(tiny_model: Path, one_thread: None) -> None:
    engine = _open(tiny_model, window=6)
    drawn = 0

    def many() -> Iterator[Request]:
        nonlocal drawn
        for n in range(60):
            drawn += 1
            yield question(f"Tell {n}", None if n % 2 else STARS, sampling=Sampling(max_tokens=3))

    seen = 0
    for _ in engine.submit(many()):
        seen += 1
        assert drawn - seen <= 6
    assert (drawn, seen) == (60, 60)


def test_the_registry_opens_it(tiny_model: Path, one_thread: None) -> None:
    engine = load_engine(
        EngineSettings(kind="transformers", model=str(tiny_model)), ServingSettings(device="cpu")
    )
    assert isinstance(engine, TransformersEngine)
