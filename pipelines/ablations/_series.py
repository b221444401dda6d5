"""Series of items: by collection, by title, by keyword."""

from __future__ import annotations

import re
import unicodedata

import polars as pl

from pipelines.ablations._rule import CaseRule, Suite
from pipelines.seeding import hash_ids, uniform

#: Items that make a series (count).
LEAST = 3
#: A keyword of more items than this names a subject, not a series (count).
_MOST_BY_KEYWORD = 30
#: Share of a keyword's items that one director or main actor must have worked on.
_COMMON = 2 / 3

_NUMBER = r"(?:\d{1,2}|[ivx]+|one|two|three|four|five|six|seven|eight|nine|ten)"
_PART = r"(?:parts?|chapters?|episodes?|volumes?|vol\.?|books?|bk\.?|no\.?|#)"
#: ``(The Dresden Files, #3)``, ``(Discworld Book 12)``: how publishers note a series.
_BRACKET = re.compile(rf"\(([^()]+?)[,:]?\s*(?:{_PART}\s*#?|#)\s*\d+(?:\.\d+)?[^()]*\)")
#: A number at the end: ``Rocky II``, ``Kill Bill: Vol. 1``.
_TRAILING = re.compile(rf"[\s,:-]+(?:{_PART}\s*)?(?:\d{{1,2}}|[ivx]+)\s*$")
_SPELLED = re.compile(rf"[\s,:-]+{_PART}\s+{_NUMBER}\s*$")
_SUBTITLE = re.compile(r"^(.+?)(?::\s| - )")
#: ``Harry Potter and the ...``: a name of two words at least, so that no fairy tale is a series.
_AND_THE = re.compile(r"^(\S+ \S+(?: \S+)?) and the \S")
_ALIAS = re.compile(r"\s*\([^()]*\)\s*$")
_ARTICLE = re.compile(r"^(?:the|a|an)\s+")


def stem_of(title: str) -> tuple[str, bool]:
    """Title without its series mark, and whether it had one.

    A mark is a number, a subtitle behind a colon, or what a publisher notes in brackets.

    >>> stem_of("Toy Story 2"), stem_of("The Lord of the Rings: The Two Towers")
    (('toy story', True), ('lord of the rings', True))
    >>> stem_of("Storm Front (The Dresden Files, #1)"), stem_of("Alien")
    (('dresden files', True), ('alien', False))
    >>> stem_of("Star Trek IV: The Voyage Home"), stem_of("Harry Potter and the Goblet of Fire")
    (('star trek', True), ('harry potter', True))
    """
    text = unicodedata.normalize("NFKD", title.casefold())
    text = "".join(c for c in text if not unicodedata.combining(c)).strip()
    noted = _BRACKET.search(text)
    marked = noted is not None
    text = noted[1] if noted else _ALIAS.sub("", text)
    for pattern in (_SUBTITLE, _AND_THE):
        match = pattern.match(text)
        if match and not noted:
            text, marked = match[1], True
            break
    for pattern in (_SPELLED, _TRAILING):
        shorter = pattern.sub("", text)
        if shorter and shorter != text:
            text, marked = shorter, True
    text = _ARTICLE.sub("", " ".join(re.findall(r"[a-z0-9']+", text)))
    return text, marked


def find_series(
    items: pl.DataFrame, item_stats: pl.DataFrame, suite: Suite, rule: CaseRule
) -> pl.DataFrame:
    """Rows of `ablations.<domain>_series`: the best-known series of at least three items.

    An item belongs to the series of its TMDB collection where it has one; else to that of its
    title's stem (:func:`stem_of`) if at least two of three items with different titles are marked
    as parts and most share a genre (without marks, equal titles are remakes: only the most rated of
    them is taken); else to that of a keyword that at most thirty items have, two thirds of them by
    one director or with one main actor. Series are ranked by the median number of training ratings
    of their items. The held-out item is drawn.
    """
    rated = items.join(
        item_stats.select("item_id", "train_ratings"), on="item_id", how="left"
    ).with_columns(pl.col("train_ratings").fill_null(0))
    parts, taken = [], pl.DataFrame(schema={"item_id": pl.String})
    for basis, named in (
        ("collection", _by_collection),
        ("title", _by_title),
        ("keyword", _by_keyword),
    ):
        batch = named(rated.join(taken, on="item_id", how="anti")).with_columns(basis=pl.lit(basis))
        parts.append(batch)
        taken = pl.concat([taken, batch.select("item_id")])
    # Two ways to the same name make one series: the surer one stands.
    table = pl.concat(parts).join(rated.drop("keywords", strict=False), on="item_id")
    first = table.group_by("series", maintain_order=True).agg(pl.col("basis").first())
    table = table.join(first, on=["series", "basis"], how="semi")
    best = (
        table.group_by("series")
        .agg(size=pl.len(), fame=pl.col("train_ratings").median())
        .filter(pl.col("size") >= LEAST)
        .sort(["fame", "series"], descending=[True, False])
        .head(suite.series if rule.series is None else rule.series)
    )
    table = table.join(best, on="series", how="semi").sort(
        ["series", "year", "item_id"], nulls_last=True
    )
    chance = uniform(rule.seed, hash_ids(table["series"]), hash_ids(table["item_id"]))
    return table.with_columns(chance=pl.Series(chance, dtype=pl.Float64)).select(
        "series",
        "item_id",
        "title",
        "basis",
        position=pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("series"),
        held_out=pl.col("chance") == pl.col("chance").min().over("series"),
    )


_NONE = pl.DataFrame(schema={"series": pl.String, "item_id": pl.String})


def _by_collection(items: pl.DataFrame) -> pl.DataFrame:
    if "collection" not in items.columns:
        return _NONE
    name = pl.col("collection").str.to_lowercase().str.replace(r"\s+collection$", "")
    return (
        items.filter(pl.col("collection").is_not_null())
        .select(series=name, item_id="item_id")
        .filter(pl.len().over("series") >= LEAST)
    )


def _by_title(items: pl.DataFrame) -> pl.DataFrame:
    stems = [stem_of(title) for title in items["title"]]
    table = items.select("item_id", "title", "genres", "train_ratings").with_columns(
        series=pl.Series([s for s, _ in stems], dtype=pl.String),
        marked=pl.Series([m for _, m in stems], dtype=pl.Boolean),
    )
    table = table.filter(pl.col("series").str.len_chars() > 2)
    # Of equal unmarked titles the best known stands for the first part.
    table = table.sort(["train_ratings", "item_id"], descending=[True, False]).filter(
        pl.col("marked") | (pl.int_range(pl.len()).over("series", "marked") == 0)
    )
    sure = table.group_by("series").agg(
        size=pl.col("title").n_unique(), marks=pl.col("marked").sum()
    )
    table = table.join(
        sure.filter((pl.col("size") >= LEAST) & (pl.col("marks") >= 2)), on="series", how="semi"
    )
    return table.join(_with_a_genre(table), on="series", how="semi").select("series", "item_id")


def _with_a_genre(table: pl.DataFrame) -> pl.DataFrame:
    """Series whose items share a genre for the most part; items without genres say nothing."""
    sizes = table.filter(pl.col("genres").list.len() > 0).group_by("series").agg(size=pl.len())
    shared = (
        table.explode("genres")
        .drop_nulls("genres")
        .group_by("series", "genres")
        .agg(items=pl.col("item_id").n_unique())
        .group_by("series")
        .agg(pl.col("items").max())
    )
    most = sizes.join(shared, on="series", how="left")
    apart = most.filter(pl.col("items").fill_null(0) < _COMMON * pl.col("size"))
    return table.select("series").unique().join(apart, on="series", how="anti")


def _by_keyword(items: pl.DataFrame) -> pl.DataFrame:
    if "keywords" not in items.columns:
        return _NONE
    table = (
        items.with_columns(
            person=pl.concat_list("directors", pl.col("actors").list.head(2)).list.unique()
        )
        .select("item_id", "person", series="keywords")
        .explode("series")
        .drop_nulls("series")
        .unique(["series", "item_id"])
    )
    size = pl.len().over("series")
    table = table.filter((size >= LEAST) & (size <= _MOST_BY_KEYWORD))
    sizes = table.group_by("series").agg(size=pl.len())
    common = (
        table.explode("person")
        .drop_nulls("person")
        .group_by("series", "person")
        .agg(items=pl.col("item_id").n_unique())
        .group_by("series")
        .agg(pl.col("items").max())
        .join(sizes, on="series")
        .filter((pl.col("items") >= LEAST) & (pl.col("items") >= _COMMON * pl.col("size")))
    )
    table = table.join(common, on="series", how="semi")
    # An item of two such keywords belongs to the smaller group.
    table = table.with_columns(size=pl.len().over("series")).sort("size", "series", "item_id")
    table = table.unique("item_id", keep="first", maintain_order=True)
    return table.filter(pl.len().over("series") >= LEAST).select("series", "item_id")
