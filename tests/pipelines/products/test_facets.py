"""Products that shoppers are shown, splits, and facets, by hand on small sets."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
import pytest

from pipelines.contracts import CONTRACTS
from pipelines.personas import load_lists
from pipelines.products import (
    PRICE_VALUES,
    choice_set_items,
    facets,
    persona_splits,
    vocabularies,
)

TEXTS = {"item_id": pl.String, "title": pl.String, "brand": pl.String, "description": pl.String,
         "features": pl.List(pl.String), "price": pl.Float64}  # fmt: skip


def product(n: int, title: str = "", **fields: Any) -> dict[str, Any]:
    plain = {"item_id": f"asin:{n:010d}", "title": title or None, "brand": None,
             "description": None, "features": [], "price": None}  # fmt: skip
    return plain | fields


def rows_of(products: list[dict[str, Any]]) -> pl.DataFrame:
    frame = pl.DataFrame(products, schema=TEXTS)
    items = frame.select(category_id=pl.lit("category:A > B > C"), item_id="item_id")
    found = pl.concat(facets(items, frame))
    return CONTRACTS["products.facets"].validate(found)


def values_of(products: list[dict[str, Any]], facet: str) -> dict[int, str]:
    rows = rows_of(products).filter(pl.col("facet_id") == facet)
    return {int(item[5:]): value for item, value in rows.select("item_id", "value").iter_rows()}


# -- values of a product -------------------------------------------------------------------


def test_the_value_that_a_text_states_first_is_the_product_s() -> None:
    texts = ["Stainless-steel pot, oak lid", "Oak lid, stainless steel", "WOODEN", "woodland", ""]
    stated = values_of([product(n, text) for n, text in enumerate(texts * 2)], "material")
    assert stated == {0: "metal", 1: "wood", 2: "wood", 5: "metal", 6: "wood", 7: "wood"}


def test_title_comes_before_selling_points_and_these_before_the_description() -> None:
    products = [
        product(0, "Red bowl", features=["blue rim"], description="green"),
        product(1, "Bowl", features=["blue rim"], description="red"),
        product(2, "Bowl", description="a red one"),
        product(3, "Blue bowl"),
    ]
    assert values_of(products, "color") == {0: "red", 1: "blue", 2: "red", 3: "blue"}


@pytest.mark.parametrize("facet", vocabularies())
def test_every_word_of_a_vocabulary_states_its_own_value(facet: str) -> None:
    listed = list(vocabularies()[facet].values.items())
    # Beside another value: a facet needs two, with two products each, and has six at most.
    for first, second in zip(listed, [*listed[1:], listed[0]], strict=True):
        words = [(word, value) for value, known in (first, second) for word in known * 2]
        stated = values_of([product(n, f"pot {w}, lid") for n, (w, _) in enumerate(words)], facet)
        assert stated == {n: value for n, (_, value) in enumerate(words)}


def test_prices_are_split_into_thirds_and_equal_prices_stay_together() -> None:
    products = [product(n, price=float(p)) for n, p in enumerate([1, 2, 3, 3, 3, 3, 8, 9])]
    products.append(product(8))
    assert values_of(products, "price") == {
        0: "low", 1: "low", 2: "middle", 3: "middle", 4: "middle", 5: "middle",
        6: "high", 7: "high",
    }  # fmt: skip
    assert values_of([product(n, price=5.0) for n in range(9)], "price") == {}


def test_tastes_of_shoppers_are_values_of_facets() -> None:
    values = {f"{name}:{v}" for name, facet in vocabularies().items() for v in facet.values}
    assert set(load_lists("products").genres) <= values | {f"price:{v}" for v in PRICE_VALUES}


# -- facets that are kept ------------------------------------------------------------------


def test_a_value_needs_two_products_and_a_facet_two_values() -> None:
    colors = ["Red", "Red", "Blue", "Blue", "Green"]
    kept = values_of([product(n, f"{c} cup") for n, c in enumerate(colors)], "color")
    assert kept == {0: "red", 1: "red", 2: "blue", 3: "blue"}
    colors = ["Red", "Red", "Blue", "Green"]
    assert values_of([product(n, f"{c} cup") for n, c in enumerate(colors)], "color") == {}


def test_a_facet_needs_half_of_the_products() -> None:
    products = [product(n, title) for n, title in enumerate(["Red", "Red", "Blue", "Blue"])]
    assert len(values_of([*products, *(product(n) for n in range(4, 8))], "color")) == 4
    assert values_of([*products, *(product(n) for n in range(4, 9))], "color") == {}


def test_six_values_of_most_products_are_kept() -> None:
    brands = [f"Maker {letter}" for letter in "ABCDEFGH" for _ in range(2)] + ["Maker H"]
    kept = values_of([product(n, brand=b) for n, b in enumerate(brands)], "brand")
    # The largest, then the first by name.
    assert set(kept.values()) == {f"Maker {letter}" for letter in "ABCDEH"}
    assert Counter(kept.values())["Maker H"] == 3


def test_words_divide_the_set_and_repeat_no_other_facet() -> None:
    products = [
        product(0, "Acme folding lamp with dimmer", brand="Acme"),
        product(1, "Acme folding lamp with dimmer 2000", brand="Acme"),
        product(2, "Acme red lamp 2000", brand="Acme"),
        product(3, "Bolt red lamp", brand="Bolt"),
        product(4, "Bolt lamp", brand="Bolt"),
    ]
    words = {f for f in rows_of(products)["facet_id"] if f.startswith("word:")}
    # `dimmer` has the products of `folding`; all are lamps; `red` is a color, `acme` a brand, and
    # a number or `with` says nothing.
    assert words == {"word:dimmer"}
    assert values_of(products, "word:dimmer") == {0: "yes", 1: "yes", 2: "no", 3: "no", 4: "no"}


# -- products that are shown, and splits ---------------------------------------------------


def tree_of(sets: dict[str, str | None], products: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Links and categories in which a child's products are also its parent's."""
    schema = {"category_id": pl.String, "parent_id": pl.String, "depth": pl.Int64}
    rows, links = [], []
    for number, (name, parent) in enumerate(sets.items()):
        depth = 3
        above: str | None = name
        while above is not None:
            ids = range(number * products, (number + 1) * products)
            links += [(above, f"asin:{n:010d}") for n in ids]
            above = sets[above]
            depth += above is not None
        rows.append((name, parent, depth))
    categories = pl.DataFrame(rows, schema=schema, orient="row").sort("category_id")
    linked = pl.DataFrame(links, schema=["category_id", "item_id"], orient="row")
    return linked.sort("item_id", "category_id"), categories


def test_small_sets_are_shown_whole_and_of_large_ones_a_seeded_draw() -> None:
    links, categories = tree_of({"top": None, "below": "top"}, 40)
    shown = choice_set_items(links, categories, size=50, seed=13)
    CONTRACTS["products.choice_set_items"].validate(shown)
    sizes = dict(shown.group_by("category_id").len().iter_rows())
    assert sizes == {"top": 50, "below": 40}
    for _, part in shown.group_by("category_id"):
        assert part["position"].to_list() == list(range(part.height))
    # The draws of both agree: products of the upper set's draw come in the lower one's order.
    upper, lower = (shown.filter(pl.col("category_id") == c)["item_id"] for c in ("top", "below"))
    assert [i for i in upper if i in set(lower)] == [i for i in lower if i in set(upper)]
    again = choice_set_items(links.sample(fraction=1, shuffle=True, seed=1), categories,
                             size=50, seed=13)  # fmt: skip
    assert again.equals(shown)
    other = choice_set_items(links, categories, size=50, seed=14)
    assert not other.equals(shown)


def test_the_deepest_of_sets_with_equal_products_is_shown() -> None:
    sets = {"top": None, "below": "top", "deep": "below", "other": None}
    links, categories = tree_of(sets, 20)
    own = {name: set(links.filter(pl.col("category_id") == name)["item_id"]) for name in sets}
    # All products of `top` and `below` are those of `deep`.
    kept = links.filter(pl.col("item_id").is_in(own["deep"] | own["other"]))
    before = choice_set_items(links, categories, size=50, seed=13)
    shown = choice_set_items(kept, categories, size=50, seed=13)
    assert set(shown["category_id"]) == {"deep", "other"}
    assert set(before["category_id"]) == set(sets)
    # What stays is as it was: products, order and split.
    rest = before.filter(pl.col("category_id").is_in(["deep", "other"]))
    assert shown.equals(rest)
    # One product more makes another set of it, whose draw of 20 may still be the same one.
    more = links.filter(pl.col("item_id").is_in(own["deep"] | {min(own["top"] - own["below"])}))
    assert set(choice_set_items(more, categories, size=50, seed=13)["category_id"]) == {
        "top", "deep",
    }  # fmt: skip
    drawn = choice_set_items(more, categories, size=1, seed=13)
    assert drawn.group_by("item_id").len()["len"].to_list() == [1] * drawn.height


def test_no_product_is_in_both_splits() -> None:
    sets: dict[str, str | None] = {f"top {n}": None for n in range(60)}
    sets |= {f"below {n}": f"top {n % 60}" for n in range(120)}
    sets |= {f"deep {n}": f"below {n}" for n in range(60)}
    shown = choice_set_items(*tree_of(sets, 3), size=50, seed=13)
    assert shown.group_by("item_id").agg(pl.col("split").n_unique())["split"].max() == 1
    per_set = shown.unique("category_id")["split"]
    assert set(per_set) == {"train", "test"}
    assert 0.6 < (per_set == "train").mean() < 0.95  # type: ignore[operator]


def test_five_topmost_sets_leave_no_split_empty() -> None:
    def splits(names: list[str]) -> dict[str, str]:
        sets: dict[str, str | None] = dict.fromkeys(names)
        shown = choice_set_items(*tree_of(sets, 3), size=50, seed=13)
        return dict(shown.select("category_id", "split").unique().iter_rows())

    names = [f"top {n}" for n in range(60)]
    train, test = ([n for n in names if splits(names)[n] == s] for s in ("train", "test"))
    # Of four sets none may be unseen: a fifth of them is less than one.
    assert set(splits(train[:4]).values()) == {"train"}
    assert sorted(splits(train[:5]).values()) == ["test", *["train"] * 4]
    assert sorted(splits(test[:5]).values()) == [*["test"] * 4, "train"]
    # Where both have one by hash, nothing is moved.
    assert splits([*train[:4], test[0]]) == dict.fromkeys(train[:4], "train") | {test[0]: "test"}


def test_personas_are_split_by_their_ids_alone() -> None:
    ids = [f"persona:products:{n:07d}" for n in range(20_000)]
    splits = persona_splits(ids)
    shares = {s: c / len(ids) for s, c in Counter(splits).items()}
    assert shares == pytest.approx({"train": 0.7, "validation": 0.1, "test": 0.2}, abs=0.01)
    assert persona_splits(ids[::-1]).to_list() == splits.to_list()[::-1]
    assert persona_splits([]).to_list() == []
