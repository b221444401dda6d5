"""Encoders for real: the bundled one, verified, offline, alike in NumPy and torch; and others."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.tiny_models import save_tiny_encoder, save_word_encoder

from pipelines.config import EmbeddingSettings, RuntimeSettings
from pipelines.embeddings import (
    BUNDLED,
    BUNDLED_SHA256,
    BundledEmbedder,
    Embedder,
    SentenceTransformersEmbedder,
    bundled_model_folder,
    load_embedder,
    verified,
)
from pipelines.embeddings.testing import EmbedderContract
from pipelines.errors import EngineError, IntegrityError

pytestmark = pytest.mark.pipeline


@pytest.fixture(scope="module")
def bundled() -> BundledEmbedder:
    return BundledEmbedder(threads=2)


class TestBundled(EmbedderContract):
    @pytest.fixture(autouse=True)
    def _load(self, bundled):
        self.bundled = bundled

    def make(self) -> Embedder:
        return self.bundled


def test_settings_choose_the_bundled_weights_by_name(bundled):
    chosen = load_embedder(EmbeddingSettings(), RuntimeSettings(threads=2))
    assert chosen.name == bundled.name == f"{BUNDLED}@{BUNDLED_SHA256[:16]}"
    assert isinstance(chosen, BundledEmbedder)
    assert chosen.dimension == 384


def test_vectors_are_those_of_sentence_transformers(bundled):
    texts = [*EmbedderContract.texts, "ÉCOLE ñandú — 3,000 €; don't", "tab\tnew\nline", "[SEP] x"]
    other = SentenceTransformersEmbedder(threads=1)
    assert other.name == bundled.name
    np.testing.assert_allclose(bundled.encode(texts), other.encode(texts), atol=1e-6)


def test_a_vector_depends_on_its_text_alone(bundled):
    texts = EmbedderContract.texts
    together = bundled.encode(texts)
    alone = [BundledEmbedder(threads=1).encode([text])[0] for text in texts]
    assert together.tobytes() == np.stack(alone).tobytes()


def test_meaning_shows_in_the_vectors(bundled):
    space, robots, cake = bundled.encode(
        [
            "A space opera about robots.",
            "Machines that live among the stars.",
            "How to bake a cake.",
        ]
    )
    assert space @ robots > space @ cake + 0.1


class TestSentenceTransformers(EmbedderContract):
    @pytest.fixture(autouse=True)
    def _load(self, tiny):
        self.tiny = tiny

    def make(self) -> Embedder:
        return SentenceTransformersEmbedder(str(self.tiny), threads=1)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny_encoder(folder)
    return folder / "encoder"


def test_texts_of_like_length_share_a_batch_and_keep_their_rows(tiny, monkeypatch):
    texts = ["a film " * n for n in (1, 40, 2, 41, 3, 42)]
    encoder = SentenceTransformersEmbedder(str(tiny), batch=3, threads=1)
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    batches, encode = [], encoder._model.encode

    def noting(batch, **options):
        batches.append([text.count("film") for text in batch])
        return encode(batch, **options)

    monkeypatch.setattr(encoder._model, "encode", noting)
    np.testing.assert_allclose(encoder.encode(texts), alone, atol=1e-6)
    assert batches == [[42, 41, 40], [3, 2, 1]]


@pytest.mark.parametrize("able", [True, False])
def test_half_precision_says_so_and_stays_close_where_there_are_instructions(
    bundled, monkeypatch, able
):
    monkeypatch.setattr("pipelines.embeddings.computes_bfloat16", lambda: able)
    half = SentenceTransformersEmbedder(dtype="bfloat16", threads=2)
    texts = ["A space opera about robots.", "She loves comedies because they make her laugh."]
    assert half.name == bundled.name + ("+bfloat16" if able else "")
    a, b = bundled.encode(texts), half.encode(texts)
    assert (a * b).sum(axis=1).min() > (0.995 if able else 1 - 1e-6)
    np.testing.assert_allclose(np.linalg.norm(b, axis=1), 1.0, atol=1e-5)


def test_a_folder_is_a_model_named_after_its_weights(bundled, tmp_path):
    copy = tmp_path / "my-encoder"
    shutil.copytree(bundled_model_folder(), copy)
    mine = SentenceTransformersEmbedder(str(copy), threads=2)
    assert mine.name.startswith("my-encoder@")
    assert str(tmp_path) not in mine.name, "a version must not hang on a path"
    np.testing.assert_allclose(mine.encode(["film"]), bundled.encode(["film"]), atol=1e-6)


def test_weights_that_changed_under_a_path_are_loaded_anew(tmp_path):
    folder = tmp_path / "encoder"
    save_word_encoder(folder)
    first = SentenceTransformersEmbedder(str(folder))
    assert SentenceTransformersEmbedder(str(folder)).name == first.name
    (weights,) = folder.rglob("model.safetensors")
    tensors = load_file(weights)
    other = tmp_path / "other.safetensors"
    save_file({name: 2 * tensor for name, tensor in tensors.items()}, other)
    other.replace(weights)
    assert SentenceTransformersEmbedder(str(folder)).name != first.name


def test_a_model_that_is_not_there_is_our_error(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(EngineError, match="can't be loaded"):
        SentenceTransformersEmbedder(str(tmp_path / "empty"))


@pytest.mark.faults
def test_other_weights_under_the_bundled_name_are_refused(tmp_path):
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"not what was pinned")
    with pytest.raises(IntegrityError, match="not the pinned ones"):
        verified(weights, BUNDLED_SHA256)


def test_the_bundled_encoder_asks_no_network_even_if_allowed():
    code = """
import socket
def refuse(self, address): raise SystemExit(f"network asked for: {address}")
socket.socket.connect = refuse
from pipelines.embeddings import BundledEmbedder
import sys
print(BundledEmbedder(threads=1).encode(["a"]).shape)
assert "torch" not in sys.modules, "the bundled encoder loads torch"
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "(1, 384)" in done.stdout
