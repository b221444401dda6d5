"""The small release with two series of films, so that every test of a suite has cases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.ablations import CaseRule
from pipelines.config import Settings, load_settings
from pipelines.store import Release

__all__ = ["RULE", "Opened", "build_with_series", "settings_of"]

#: 32 personas of genres and 8 raters, few items each; two series of three users; 12 people.
RULE = CaseRule(
    liked=2, disliked=2, everything=3, users=3, fillers=3, people=12, past=5, draws=3,
    least_ratings=1,
)  # fmt: skip

#: Opens the suite of films, of a home if one is given.
Opened = Callable[..., Any]


def settings_of(home: Path, **overrides: Any) -> Settings:
    """Settings for a home."""
    return load_settings(overrides={"runtime": {"home": str(home)}, **overrides})


def build_with_series(home: Path, **options: Any) -> Release:
    """The small release whose films 1 to 4 and 7 to 9 are collections."""
    from support import small_release

    items = small_release.frames()["movies.items"]
    of = {"ml:1": "Chase Collection", "ml:7": "Laugh Collection"}
    series = {f"ml:{n}": of["ml:1"] for n in range(1, 5)}
    series |= {f"ml:{n}": of["ml:7"] for n in range(7, 10)}
    items = items.with_columns(
        collection=pl.col("item_id").replace_strict(series, default=None, return_dtype=pl.String),
        # "Film 1", "Film 2", ... would be a series by its titles.
        title=pl.format("The {} story", pl.col("item_id").str.slice(3)),
    )
    return small_release.build(home, replace={"movies.items": items}, **options)
