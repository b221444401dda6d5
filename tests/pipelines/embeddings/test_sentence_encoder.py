"""The bundled encoder, for real: verified, offline, alike in NumPy and torch."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.tiny_models import save_word_encoder

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
from pipelines.instructions import portable

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


def test_a_vector_depends_neither_on_the_order_of_texts_nor_on_their_lengths(bundled):
    if not portable():
        pytest.skip("without AVX2 and FMA texts are multiplied one by one")
    text = "A space opera about robots, three bakers and one Ñandú. " * 30
    # Every rest by the twelve rows of a kernel, up to beyond the window.
    texts = [text[: 7 * n + 1] for n in range(180)]
    order = np.random.default_rng(5).permutation(len(texts))
    found = bundled.encode([texts[n] for n in order])
    np.testing.assert_array_equal(found, bundled.encode(texts)[order])
    for n in range(0, 180, 11):
        np.testing.assert_array_equal(found[order == n], bundled.encode([texts[n]]))


def test_meaning_shows_in_the_vectors(bundled):
    space, robots, cake = bundled.encode(
        [
            "A space opera about robots.",
            "Machines that live among the stars.",
            "How to bake a cake.",
        ]
    )
    assert space @ robots > space @ cake + 0.1


def test_half_precision_says_so_and_stays_close(bundled):
    half = SentenceTransformersEmbedder(dtype="bfloat16", threads=2)
    texts = ["A space opera about robots.", "She loves comedies because they make her laugh."]
    assert half.name == f"{bundled.name}+bfloat16"
    a, b = bundled.encode(texts), half.encode(texts)
    assert (a * b).sum(axis=1).min() > 0.995
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
