"""Embedding tables: texts, reuse, the contract, encoders that misbehave."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.contracts import CONTRACTS
from pipelines.embeddings import Embedder, embed_table, item_text, persona_text
from pipelines.embeddings.testing import EmbedderContract
from pipelines.errors import ContractError, EngineError
from pipelines.progress import advance, listening


@dataclass
class Hashing:
    """An encoder of letter pairs: no model, but a true encoder, which also counts its work."""

    name: str = "letters@00000001"
    dimension: int = 16
    encoded: list[str] = field(default_factory=list)

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.encoded += texts
        out = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for n, text in enumerate(texts):
            for a, b in zip(f" {text}", f"{text} ", strict=True):
                digest = hashlib.sha256(f"{a}{b}".encode()).digest()
                out[n, digest[0] % self.dimension] += 1
        advance("embedding", len(texts), len(texts))
        return out / np.linalg.norm(out, axis=1, keepdims=True)


class TestHashing(EmbedderContract):
    def make(self) -> Embedder:
        return Hashing()


def people(*texts: str) -> pl.DataFrame:
    ids = [f"persona:a:{n}" for n in range(len(texts))]
    return pl.DataFrame(
        {"persona_id": ids, "description": list(texts)}, schema_overrides={"description": pl.String}
    )


def table(frame, embedder, previous=None, **more):
    return embed_table(
        frame, "persona_id", persona_text(frame), embedder, previous=previous, **more
    )


def test_the_table_keeps_its_contract_and_is_sorted():
    frame = people("one", "two", "three").reverse()
    found = table(frame, Hashing())
    assert CONTRACTS["movies.persona_embeddings"].validate(found).equals(found)
    assert found["persona_id"].is_sorted()
    assert found["text_sha256"][0] == hashlib.sha256(b"one").hexdigest()
    np.testing.assert_array_equal(found["vector"][1].to_numpy(), Hashing().encode(["two"])[0])


def test_only_new_texts_are_encoded_and_old_vectors_kept_to_the_bit():
    first = table(people("one", "two"), Hashing())
    embedder = Hashing()
    second = table(people("two", "one", "three", "three"), embedder, first)
    assert embedder.encoded == ["three"], "equal texts are encoded once"
    assert second["vector"][0].equals(first["vector"][1])
    assert second["vector"][1].equals(first["vector"][0])
    assert second["vector"][2].equals(second["vector"][3])


def test_vectors_of_another_model_are_not_reused():
    first = table(people("one"), Hashing())
    embedder = Hashing(name="letters@00000002")
    assert table(people("one"), embedder, first)["model"].to_list() == ["letters@00000002"]
    assert embedder.encoded == ["one"]


@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=12), st.integers(0, 12))
def test_reuse_gives_what_encoding_everything_gives(letters, cut):
    frame = people(*letters)
    whole = table(frame, Hashing())
    before = table(frame.head(cut), Hashing()) if cut and frame.head(cut).height else None
    assert table(frame, Hashing(), before).equals(whole)


def test_nothing_to_embed_and_missing_texts_are_errors():
    with pytest.raises(ContractError, match="nothing to embed"):
        table(people(), Hashing())
    with pytest.raises(ContractError, match="2 rows have no text") as caught:
        table(people("one", " ", ""), Hashing())
    assert caught.value.details["rows"] == [{"persona_id": f"persona:a:{n}"} for n in (1, 2)]


@pytest.mark.parametrize("fault", ["length", "nan", "shape"])
def test_an_encoder_that_returns_no_unit_vectors_stops_the_run(fault):
    class Broken(Hashing):
        def encode(self, texts):
            found = super().encode(texts)
            return {"length": found * 2, "nan": found * np.nan, "shape": found[:, :3]}[fault]

    with pytest.raises(EngineError, match="letters@"):
        table(people("one", "two"), Broken())


def test_progress_counts_new_texts():
    seen = []
    with listening(lambda _, done, of: seen.append((done, of))):
        table(people("one", "one", "two"), Hashing())
    assert seen == [(2, 2)]


def test_a_stopped_run_goes_on_with_the_next_part(tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.embeddings._PART", 4)
    frame = people(*(f"person {'x' * n}" for n in range(10)))
    whole, stopped, again = Hashing(), Hashing(), Hashing()

    def stop(_, done, of):
        if done == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), listening(stop):
        table(frame, stopped, folder=tmp_path)
    seen = []
    with listening(lambda _, *at: seen.append(at)):
        found = table(frame, again, folder=tmp_path)
    assert found.equals(table(frame, whole))
    # The first part was finished; the second was stopped before it was kept.
    assert sorted(again.encoded) == sorted(whole.encoded[4:])
    assert seen == [(4, 10), (8, 10), (10, 10)]


def test_damaged_parts_and_those_of_another_model_are_encoded_again(tmp_path):
    frame = people("one", "two")
    table(frame, Hashing(), folder=tmp_path)
    [part] = tmp_path.glob("*.npy")
    other = Hashing(name="letters@00000002")
    table(frame, other, folder=tmp_path)
    part.write_bytes(part.read_bytes()[:-7])
    again = Hashing()
    found = table(frame, again, folder=tmp_path)
    assert len(other.encoded) == len(again.encoded) == 2
    assert found.equals(table(frame, Hashing()))


def test_item_text_has_the_plot_before_the_names_and_no_gaps():
    items = pl.DataFrame(
        {
            "title": ["Heat", "Lost Reel", "Duel"],
            "year": [1995, None, 1971],
            "genres": [["Crime", "Thriller"], [], ["Action"]],
            "overview": ["A thief meets a detective.", None, "  "],
            "directors": [["Michael Mann"], [], []],
            "actors": [["A", "B", "C", "D", "E"], [], ["F"]],
            "keywords": [["heist"], [], []],
        },
        schema_overrides={
            n: pl.List(pl.String) for n in ("genres", "directors", "actors", "keywords")
        },
    )
    assert item_text(items).to_list() == [
        "Heat (1995). Crime, Thriller. A thief meets a detective. Directed by Michael Mann. "
        "With A, B, C, D. About heist.",
        "Lost Reel.",
        "Duel (1971). Action. With F.",
    ]
    assert item_text(items.drop("overview", "directors", "actors", "keywords")).null_count() == 0
