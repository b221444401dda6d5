"""Facets of choice sets: properties that a shopper can be asked about.

A facet is a question with a few values, such as ``material`` with ``wood`` and ``metal``. Each
product of a set has one value of it or none. There are four kinds: thirds of the set's prices,
brands, packaged vocabularies (``data/facets.yaml``), and words that a part of the set's texts has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import polars as pl

from pipelines.packaged import packaged_yaml
from pipelines.products._choice_sets import row_keys

#: Bounds of a facet's values, of the products with each, and of the facets of a set (counts).
MIN_VALUES, MAX_VALUES, MIN_PRODUCTS, MAX_FACETS = 2, 6, 2, 30
#: Least share of a set's products that have a value of a facet.
MIN_COVERAGE = 0.5
#: Values of the facet ``price``: thirds of the set's prices.
PRICE_VALUES = ("low", "middle", "high")
#: Values of a word's facet: whether a product's text has it.
WORD_VALUES = ("no", "yes")
_PRICE_QUESTION = "Should its price be low, middle or high for such a product?"
_BRAND_QUESTION = "Which brand should it be?"
_WORD_QUESTION = 'Are you looking for one that is described with the word "{}"?'
#: Order in which facets of a set are kept while there is room.
_KINDS = ("price", "brand", "vocabulary", "word")
#: Characters of a description that are read: what follows is about delivery and the maker.
_DESCRIPTION = 1_000
#: Letters of a word that can be asked about, at least.
_LETTERS = 4
#: Choice sets whose words are counted at a time.
_BLOCK = 128


#: Words of questions that name no facet.
_COMMON_WORDS = """
a an and any are at be by can could do does for from have how i in is it kind like looking me more
most need of on one or prefer preference should some something that the there thing this to type
want what when where which who will with would you your
"""
_COMMON = frozenset(_COMMON_WORDS.split())
_WORD = re.compile(r"[^\W_]+")


def content_words(text: str) -> set[str]:
    """Words of a text without common ones, in the singular where it ends in *s*.

    >>> sorted(content_words("Which colours do you like for lamps?"))
    ['colour', 'lamp']
    """
    tokens = (w.casefold() for w in _WORD.findall(text))
    return {w.removesuffix("s") if len(w) > 3 else w for w in tokens} - _COMMON


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A facet that texts state: its ``question``, and the words that state each value."""

    question: str
    values: Mapping[str, tuple[str, ...]]


@cache
def vocabularies() -> Mapping[str, Vocabulary]:
    """The packaged vocabularies by facet.

    >>> vocabularies()["material"].values["leather"]
    ('leather', 'suede', 'faux leather', 'leatherette')
    """
    return {
        name: Vocabulary(
            facet["question"], {value: tuple(words) for value, words in facet["values"].items()}
        )
        for name, facet in packaged_yaml("pipelines.products", "facets.yaml").items()
    }


def _first_stated(plain: pl.Series, facet: str) -> pl.Series:
    """The value of a packaged facet that each text states first; null where it states none."""
    values = vocabularies()[facet].values
    by_word = {f" {word} ": value for value, words in values.items() for word in words}
    matches = plain.str.extract_many(list(by_word), leftmost=True).list.first()
    return matches.replace_strict(by_word, default=None, return_dtype=pl.String).alias(facet)


def _plain(text: pl.Expr) -> pl.Expr:
    """Lower-case letters and digits between single spaces, one at each end."""
    low = text.str.to_lowercase().str.replace_all(r"['\u2019]", "")
    return (" " + low.str.replace_all(r"[^\p{L}\p{N}]+", " ") + " ").str.replace_all("  +", " ")


def facets(items: pl.DataFrame, products: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Rows of ``products.facets``, in order, some sets at a time.

    A facet is kept if it has two to six values with two products or more each, and at least half of
    the set's products have one of them. Of more values, those of most products are kept, and the
    other products have none. A set keeps 30 facets at most: price, brand and vocabularies, then the
    words that divide it most evenly. Of words with the same products, the first is kept.

    ``items`` is ``products.choice_set_items``; ``products`` has ``item_id, title, brand,
    description, features, price`` of every product in a set.
    """
    products = products.select("item_id", "brand", "price", text=_plain(_text()))
    texts = products["text"]
    stated = products.select(
        "item_id", "brand", "price", *(_first_stated(texts, name) for name in vocabularies())
    )
    words = products.select("item_id", word=pl.col("text").str.strip_chars().str.split(" ")).select(
        "item_id",
        # Codes instead of texts: what follows joins and groups by them.
        pl.col("word").list.unique().cast(pl.List(pl.Categorical)),
    )
    links = items.select("category_id", "item_id").sort("category_id", "item_id")
    sets = links["category_id"].unique(maintain_order=True)
    for first in range(0, len(sets), _BLOCK):
        block = links.filter(
            pl.col("category_id").is_between(
                pl.lit(sets[first]), pl.lit(sets[min(first + _BLOCK, len(sets)) - 1])
            )
        )
        yield _of_sets(block, stated, words)


def _text() -> pl.Expr:
    parts = (
        pl.col("title"),
        pl.col("features").list.join(" "),
        pl.col("description").str.slice(0, _DESCRIPTION),
    )
    return pl.concat_str(*parts, separator=" ", ignore_nulls=True)


def _of_sets(links: pl.DataFrame, stated: pl.DataFrame, words: pl.DataFrame) -> pl.DataFrame:
    of_set = links.join(stated, on="item_id", how="left", maintain_order="left").with_columns(
        set_size=pl.len().over("category_id"), price=_price_third()
    )
    candidates = _kept(
        of_set.unpivot(
            on=["price", "brand", *vocabularies()],
            index=["category_id", "item_id", "set_size"],
            variable_name="facet_id",
        ).drop_nulls("value")
    )
    return (
        pl.concat([candidates, _words(of_set, words)])
        .with_columns(_kind())
        .filter(_room())
        .with_columns(_question())
        .select("category_id", "facet_id", "kind", "question", "value", "item_id")
        .sort("category_id", "facet_id", "item_id")
    )


def _price_third() -> pl.Expr:
    """The third of its set's prices that a price is in; equal prices are in the same one."""
    price = pl.col("price")
    share = (price.rank("average") - 0.5) / price.count()
    third = (share * len(PRICE_VALUES)).floor().cast(pl.Int64)
    names = dict(enumerate(PRICE_VALUES))
    return third.over("category_id").replace_strict(names, default=None, return_dtype=pl.String)


def _kept(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows ``category_id, facet_id, value, item_id, evenness`` of the facets to keep."""
    facet = ["category_id", "facet_id"]
    values = (
        rows.group_by(*facet, "value")
        .agg(products=pl.len())
        .filter(pl.col("products") >= MIN_PRODUCTS)
        .sort(*facet, "products", "value", descending=[False, False, True, False])
        .group_by(facet, maintain_order=True)
        .head(MAX_VALUES)
    )
    return (
        rows.join(values, on=[*facet, "value"])
        .filter(
            (pl.col("value").n_unique().over(facet) >= MIN_VALUES)
            & (pl.len().over(facet) >= MIN_COVERAGE * pl.col("set_size"))
        )
        .select(*facet, "value", "item_id", evenness=pl.lit(0, pl.Int64))
    )


def _words(of_set: pl.DataFrame, words: pl.DataFrame) -> pl.DataFrame:
    """Rows of words' facets, the most even divisions of each set first."""
    met = (
        of_set.select("category_id", "item_id", "set_size")
        .with_columns(key=pl.Series(row_keys(of_set["item_id"], 0)))
        .join(words, on="item_id")
        .explode("word")
    )
    counted = (
        met.group_by("category_id", "word")
        # The sum of products' keys identifies a set of products.
        .agg(pl.len().alias("products"), pl.col("set_size").first(), members=pl.col("key").sum())
        .filter(pl.col("products").is_between(MIN_PRODUCTS, pl.col("set_size") - MIN_PRODUCTS))
        .with_columns(word=pl.col("word").cast(pl.String))
        .filter(
            (pl.col("word").str.len_chars() >= _LETTERS)
            & pl.col("word").str.contains(r"^\p{L}+$")
            & ~pl.col("word").is_in(_other_words())
        )
        .join(_brand_words(of_set), on=["category_id", "word"], how="anti")
        .with_columns(evenness=(2 * pl.col("products").cast(pl.Int64) - pl.col("set_size")).abs())
        .sort("category_id", "evenness", "word")
        .unique(["category_id", "members"], keep="first", maintain_order=True)
        .group_by("category_id", maintain_order=True)
        .head(MAX_FACETS)
    )
    having = met.with_columns(pl.col("word").cast(pl.String)).join(
        counted, on=["category_id", "word"], how="semi"
    )
    return (
        counted.select("category_id", "word", "evenness")
        .join(of_set.select("category_id", "item_id"), on="category_id")
        .join(
            having.select("category_id", "word", "item_id", value=pl.lit(WORD_VALUES[1])),
            on=["category_id", "word", "item_id"],
            how="left",
        )
        .select(
            "category_id",
            pl.format("word:{}", "word").alias("facet_id"),
            pl.col("value").fill_null(WORD_VALUES[0]),
            "item_id",
            "evenness",
        )
    )


@cache
def _other_words() -> list[str]:
    """Words that say nothing, or that a vocabulary asks about."""
    # Here: it loads scikit-learn and a part of SciPy, and every process imports this module.
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    stated = (
        part
        for facet in vocabularies().values()
        for words in facet.values.values()
        for word in words
        for part in word.split()
    )
    return sorted({*ENGLISH_STOP_WORDS, *stated})


def _brand_words(of_set: pl.DataFrame) -> pl.DataFrame:
    return (
        of_set.select("category_id", word=_plain(pl.col("brand")).str.strip_chars().str.split(" "))
        .explode("word")
        .drop_nulls()
        .unique()
    )


def _kind() -> pl.Expr:
    facet = pl.col("facet_id")
    return (
        pl.when(facet.str.starts_with("word:"))
        .then(pl.lit("word"))
        .when(facet.is_in(("price", "brand")))
        .then(facet)
        .otherwise(pl.lit("vocabulary"))
        .cast(pl.Enum(_KINDS))
        .alias("kind")
    )


def _room() -> pl.Expr:
    """True for a facet among those that its set keeps."""
    order = pl.struct("kind", "evenness", "facet_id").rank("dense").over("category_id")
    return order <= MAX_FACETS


def _question() -> tuple[pl.Expr, ...]:
    questions = {name: facet.question for name, facet in vocabularies().items()}
    questions |= {"price": _PRICE_QUESTION, "brand": _BRAND_QUESTION}
    word = pl.format(_WORD_QUESTION, pl.col("facet_id").str.strip_prefix("word:"))
    return (
        pl.col("kind").cast(pl.String),
        pl.col("facet_id")
        .replace_strict(questions, default=None, return_dtype=pl.String)
        .fill_null(word)
        .alias("question"),
    )
