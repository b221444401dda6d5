"""Generated books, and conformance tests for agents and customers."""

from __future__ import annotations

import numpy as np

from sim.dialogue._book import SPLITS, Book, ChoiceSet, Facet

__all__ = ["sample_book"]

_KINDS = {
    "material": ("wood", "metal", "plastic", "cotton", "glass"),
    "colour": ("black", "white", "red", "blue", "green"),
    "size": ("small", "medium", "large"),
    "audience": ("adults", "children", "pets"),
    "room": ("kitchen", "garden", "office", "bathroom"),
    "style": ("modern", "classic", "rustic"),
    "scent": ("lavender", "citrus", "none"),
    "care": ("machine washable", "hand wash"),
    "power": ("battery", "mains", "solar"),
    "origin": ("local", "imported"),
}
_PRICES = ("low", "medium", "high")


def sample_book(
    seed: int = 0,
    *,
    sets: int = 14,
    products: int = 18,
    personas: int = 60,
    facets: int = 6,
    dimensions: int = 8,
    unseen: float = 0.2,
    noise: float = 4.0,
) -> Book:
    """A generated book whose customers have tastes for facet values.

    A persona likes one value of every kind and is indifferent to some kinds; its score of a
    product is the weighted share of liked values plus a taste for the text vectors and noise.

    Parameters
    ----------
    seed
        Of all draws.
    sets, products, personas, facets
        Counts; facets beyond the named vocabularies are words of the set with two values.
    dimensions
        Of the text vectors.
    unseen
        Share of sets, the last ones, that agents have no scores of. Personas are split 70/10/20.
    noise
        Standard deviation of what nothing explains (points).
    """
    rng = np.random.default_rng(seed)
    kinds = ["price", *_KINDS]
    kinds += [f"word {n}" for n in range(max(0, facets - len(kinds)))]
    values = {"price": _PRICES} | _KINDS
    vocabularies = [values.get(kind, ("with", "without")) for kind in kinds]
    liked = np.stack([rng.integers(len(v), size=personas) for v in vocabularies], axis=1)
    weight = rng.gamma(1.0, 1.0, (personas, len(kinds)))
    taste = rng.normal(size=(personas, dimensions)).astype(np.float32)
    made = []
    for number in range(sets):
        rest = rng.permutation(np.arange(1, len(kinds)))[: max(facets - 1, 0)]
        chosen = np.concatenate([[0], rest])[:facets]
        price = np.round(rng.lognormal(3.0, 0.7, products), 2)
        thirds = np.searchsorted(np.quantile(price, [1 / 3, 2 / 3]), price)
        own, match = [], np.zeros((personas, products))
        for kind in chosen:
            width = min(len(vocabularies[kind]), products // 2)
            of = thirds if kind == 0 else rng.permutation(np.arange(products) % width)
            name = kinds[kind]
            own.append(
                Facet(
                    facet_id=f"{name}:{number}",
                    kind=name,
                    question=f"Which {name} do you prefer?",
                    values=vocabularies[kind][:width],
                    of=of.astype(np.int8),
                )
            )
            match += weight[:, kind, None] * (liked[:, kind, None] % width == of[None, :])
        share = match / weight[:, chosen].sum(axis=1, keepdims=True)
        vectors = rng.normal(size=(products, dimensions)).astype(np.float32)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        y = 25 + 65 * share + 4 * taste @ vectors.T + rng.normal(0, noise, share.shape)
        rating = np.round(rng.uniform(2, 5, products), 1).astype(np.float32)
        rating[rng.random(products) < 0.1] = np.nan
        price[rng.random(products) < 0.1] = np.nan
        titles = tuple(
            " ".join(f.values[int(f.of[p])] for f in own[1:4]) + f" thing {number}-{p}"
            for p in range(products)
        )
        made.append(
            ChoiceSet(
                category_id=f"C{number:03d}",
                name=f"Things {number}",
                path=f"Home > Things {number}",
                item_ids=tuple(f"P{number:03d}-{p:02d}" for p in range(products)),
                titles=titles,
                texts=titles,
                price=price.astype(np.float32),
                rating=rating,
                vectors=vectors,
                facets=tuple(own),
                y=np.clip(y, 0, 100).astype(np.float32),
                seen=number < sets - round(unseen * sets),
            )
        )
    cut = np.searchsorted([0.7, 0.8], (np.arange(personas) + 0.5) / personas)
    favourites = [
        [vocabulary[k] for vocabulary, k in zip(vocabularies, row, strict=True)] for row in liked
    ]
    return Book(
        sets=tuple(made),
        persona_ids=tuple(f"persona-{n:04d}" for n in range(personas)),
        descriptions=tuple(f"I like {', '.join(row)}." for row in favourites),
        attributes=tuple(
            {"age": str(int(age)), "income": str(rng.choice(["low", "medium", "high"]))}
            for age in rng.integers(18, 80, personas)
        ),
        splits=cut.astype(np.int8),
        raters=("sample",),
        metadata={"seed": seed, "splits": SPLITS},
    )
