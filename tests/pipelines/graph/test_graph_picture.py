"""The picture of a query: a small PNG whatever is in it."""

from __future__ import annotations

import io

import numpy as np
import polars as pl
import pytest

from pipelines.errors import ContractError
from pipelines.graph import GraphMemory, neighbourhood_picture, sample_item

NAMES = ["head", "head_type", "relation", "tail", "tail_type"]


def world(title: str = "Film", films: int = 14) -> tuple[pl.DataFrame, pl.DataFrame]:
    rows = []
    for user in range(1, 9):
        for film in range(1, films):
            if (user * film) % 3:
                u, m = f"u:{user}", f"ml:{film}"
                rows += [(u, "User", "rated", m, "Movie"), (m, "Movie", "rated-by", u, "User")]
                rows.append((u, "User", "viewed", m, "Movie"))
    for film in range(1, films):
        for relation, node, kind in (
            ("belongs-to", f"genre:{film % 3}", "Genre"),
            ("features", f"actor:{film % 4}", "Actor"),
            ("directed-by", f"director:{film % 5}", "Director"),
            ("released-in", f"year:{film % 6}", "ReleaseYear"),
        ):  # fmt: skip
            rows.append((f"ml:{film}", "Movie", relation, node, kind))
    for user in range(1, 9):
        rows.append((f"u:{user}", "User", "has-age", f"age:{user % 2}", "Age"))
        rows.append((f"u:{user}", "User", "has-occupation", f"job:{user % 3}", "Occupation"))
    items = pl.DataFrame(
        {"item_id": [f"ml:{n}" for n in range(1, films + 1)],
         "title": [f"{title} {n}" for n in range(1, films + 1)], "year": [1990] * films}
    )  # fmt: skip
    return pl.DataFrame(rows, schema=NAMES, orient="row"), items


def vectors(items: pl.DataFrame) -> pl.DataFrame:
    raw = np.random.default_rng(3).normal(size=(items.height, 4)).astype(np.float32)
    return items.select("item_id").with_columns(
        vector=pl.Series(raw / np.linalg.norm(raw, axis=1, keepdims=True)).cast(pl.List(pl.Float32))
    )


def colours(image: bytes) -> np.ndarray:
    from matplotlib.image import imread

    return np.asarray(imread(io.BytesIO(image), format="png"))


def blank(array: np.ndarray) -> float:
    return float((array[..., :3] > 0.99).all(axis=2).mean())


def test_it_is_a_small_png_with_something_on_it():
    triples, items = world()
    memory = GraphMemory.from_tables(triples, items, embeddings=vectors(items))
    image = neighbourhood_picture(memory, "ml:1", user="u:1")
    assert image.startswith(b"\x89PNG")
    assert len(image) < 80_000
    array = colours(image)
    assert array.shape[1] > 400
    assert 0.2 < blank(array) < 0.95
    assert len(np.unique((array[..., :3] * 255).astype(int).reshape(-1, 3), axis=0)) > 20


@pytest.mark.parametrize(
    "title",
    ["$x^2$ \\frac{", "a" * 300, "very many words in one title " * 20, "new\nline\x00\ttab",
     "漢字 🎬", "<b>&amp;</b>", "100% $", "\\"],
)  # fmt: skip
def test_any_title_can_be_drawn(title):
    triples, items = world(title)
    memory = GraphMemory.from_tables(triples, items)
    image = neighbourhood_picture(memory, "ml:1", k=40)
    assert image.startswith(b"\x89PNG")
    assert len(image) < 80_000


def test_an_unknown_item_is_named():
    triples, items = world()
    with pytest.raises(ContractError, match="no item 'ml:99'"):
        neighbourhood_picture(GraphMemory.from_tables(triples, items), "ml:99")


def test_the_sample_item_is_the_one_with_the_most_raters_and_then_the_lower_id():
    rows = [(m, "Movie", "rated-by", f"u:{u}", "User") for m, us in
            {"ml:9": [1, 2], "ml:10": [1, 3], "ml:2": [1]}.items() for u in us]  # fmt: skip
    rows += [("ml:2", "Movie", "belongs-to", f"genre:{n}", "Genre") for n in range(5)]
    triples = pl.DataFrame(rows, schema=NAMES, orient="row")
    items = pl.DataFrame({"item_id": ["ml:9", "ml:10", "ml:2"]})
    assert sample_item(triples, items) == "ml:10"
    assert sample_item(triples.filter(relation="belongs-to"), items) == "ml:10"
