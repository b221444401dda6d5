"""Texts of items and personas to encode."""

from __future__ import annotations

import polars as pl

#: Where a story line or description stands; the first that there is.
_PROSE = ("overview", "description")
#: People, makers and keywords: column, how its sentence begins, how many are named. More keywords
#: add little and push the prose out of the encoder's window.
_DETAILS = (
    ("directors", "Directed by ", 2),
    ("authors", "Written by ", 3),
    ("developer", "Developed by ", 1),
    ("brand", "Made by ", 1),
    ("actors", "With ", 4),
    ("keywords", "About ", 8),
    ("tags", "Tagged ", 8),
)


def item_text(items: pl.DataFrame) -> pl.Series:
    """One text per item: title, year, genres, plot or description, then people and keywords.

    The prose comes before names because encoders cut long texts at the end. Unknown features leave
    no trace. Of the columns of an `items` contract, ``title, year, genres`` must be there. Returns
    the series ``text``, in the order of the rows, without nulls.

    Examples
    --------
    >>> item_text(pl.DataFrame({"title": ["Heat"], "year": [1995], "genres": [["Crime"]]}))[0]
    'Heat (1995). Crime.'
    """
    year = pl.format(" ({})", pl.col("year").cast(pl.String))
    parts = [
        pl.concat_str("title", year.fill_null(""), pl.lit(".")),
        _joined("genres", "", 20),
    ]
    prose = [c for c in _PROSE if c in items.columns]
    if prose:
        parts.append(pl.col(prose[0]).str.strip_chars().replace("", None))
    for column, opening, most in _DETAILS:
        if column not in items.columns:
            continue
        if isinstance(items.schema[column], pl.List):
            parts.append(_joined(column, opening, most))
        else:
            parts.append(pl.format("{}{}.", pl.lit(opening), pl.col(column).replace("", None)))
    return items.select(
        pl.concat_str(parts, separator=" ", ignore_nulls=True).alias("text")
    ).to_series()


def persona_text(personas: pl.DataFrame) -> pl.Series:
    """One text per persona: its description."""
    return personas["description"].str.strip_chars().alias("text")


def _joined(column: str, opening: str, most: int) -> pl.Expr:
    listed = pl.col(column).list.head(most)
    text = pl.format("{}{}.", pl.lit(opening), listed.list.join(", "))
    return pl.when(listed.list.len() > 0).then(text)
