"""What a manifest says of how choice sets came about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from pipelines.config import ProductsSettings
from pipelines.products._cut import Cut
from pipelines.products._match import PathMatch, PathMiss
from pipelines.products._names import SEPARATOR
from pipelines.products._paths import Routed

__all__ = ["choice_facts"]

#: Paths without a match that are listed, those of most products first.
_SHOWN_MISSES = 20


def choice_facts(
    frame: pl.DataFrame,
    asked: pl.DataFrame,
    routed: Mapping[str, Routed],
    products: Mapping[str, int],
    waived: Mapping[str, list[str]],
    cut: Cut,
    settings: ProductsSettings,
) -> dict[str, Any]:
    """Facts of one run, JSON-ready.

    Parameters
    ----------
    frame
        Every product: ``file``, whether ``drawn``, and the first essential field it ``lacks``.
    asked
        Those that were drawn and lack nothing, with their match (``node``) and ``leaf``.
    routed
        What each distinct path led to.
    products
        Products of each distinct path (count).
    waived
        By file, the fields that were not asked of it.
    cut
        What was cut.
    settings
        The settings.
    """
    drawn = frame.filter("drawn")
    matched = asked.filter(pl.col("node").is_not_null())
    lost = matched.filter(pl.col("leaf").is_null()).height
    return {
        "read": frame.height,
        "drawn": drawn.height,
        "not_drawn": frame.height - drawn.height,
        "dropped_without": dict(
            drawn.drop_nulls("lacks").group_by("lacks").len().sort("lacks").iter_rows()
        ),
        "demands_not_made": waived,
        "asked": asked.height,
        "matched": matched.height,
        "match_rate": _share(matched.height, asked.height),
        "matched_by": _counts(matched, "heuristic"),
        "paths_from": _counts(asked, "path_from"),
        "matched_from": _counts(matched, "path_from"),
        "bridged": matched.filter(pl.col("bridged") > 0).height,
        "distinct_paths": len(routed),
        "distinct_paths_matched": sum(isinstance(r.outcome, PathMatch) for r in routed.values()),
        "matched_outside_choice_sets": lost,
        "in_choice_sets": matched.height - lost,
        "categories_met": cut.candidates,
        "categories": len(cut),
        "cut_levels": settings.cut_levels,
        "min_category_size": settings.min_category_size,
        "by_file": _by_file(frame, asked),
        "misses": _misses(routed, products),
    }


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


def _counts(frame: pl.DataFrame, column: str) -> dict[str, int]:
    return dict(frame.group_by(column).len().sort(column).iter_rows())


def _by_file(frame: pl.DataFrame, asked: pl.DataFrame) -> list[dict[str, Any]]:
    read = frame.group_by("file").agg(read=pl.len(), drawn=pl.col("drawn").sum())
    told = asked.group_by("file").agg(
        asked=pl.len(),
        matched=pl.col("node").is_not_null().sum(),
        in_choice_sets=pl.col("leaf").is_not_null().sum(),
    )
    return (
        read.join(told, on="file", how="left")
        .with_columns(pl.col("file").cast(pl.String), pl.exclude("file").fill_null(0))
        .with_columns(match_rate=(pl.col("matched") / pl.col("asked").clip(1)).round(4))
        .sort("file")
        .to_dicts()
    )


def _misses(routed: Mapping[str, Routed], products: Mapping[str, int]) -> list[dict[str, Any]]:
    missed: dict[tuple[str, ...], tuple[int, PathMiss]] = {}
    for text, one in routed.items():
        if isinstance(one.outcome, PathMiss):
            # Products of several files may have the same department.
            before = missed.get(one.path, (0, one.outcome))[0]
            missed[one.path] = (before + products[text], one.outcome)
    return [
        {
            "path": SEPARATOR.join(path) or "(no path)",
            "products": count,
            "level": miss.level,
            "matched_levels": miss.matched,
        }
        for path, (count, miss) in sorted(missed.items(), key=lambda m: (-m[1][0], m[0]))
    ][:_SHOWN_MISSES]
