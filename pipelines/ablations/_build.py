"""The case tables: how each is made, and checks of what a contract can't express."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from pipelines.ablations._cases import human_cases, series_cases
from pipelines.ablations._rule import CaseRule, Suite, suite_named
from pipelines.ablations._series import find_series
from pipelines.ablations._sets import item_sets, suite_personas
from pipelines.personas import HANDMADE_VERSION
from pipelines.raters import source_scale
from pipelines.store import CheckRecord, Snapshot

#: Bumped whenever the same tables and rule give other cases.
CODE_VERSION = f"2+{HANDMADE_VERSION}"

#: Case tables in the order in which they are made, and what of the domain each is made from;
#: a leading dot names another case table.
CASE_TABLES: dict[str, tuple[str, ...]] = {
    "personas": (),
    "item_sets": (".personas", "items", "item_stats"),
    "series": ("items", "item_stats"),
    "series_cases": (".series", "items", "item_stats", "personas", "interactions"),
    "human_cases": ("interactions", "splits", "items"),
}
#: Checks of each case table: name to description.
CHECKS: dict[str, dict[str, str]] = {
    "personas": {"pronouns_match": "No description uses wrong pronouns for the persona."},
    "item_sets": {"items_are_known": "Every item is in the domain's catalogue."},
    "series": {
        "one_is_held_out": "Each series has at least three items, exactly one of them held out."
    },
    "series_cases": {
        "the_answer_is_not_shown": "No history contains the item in question, or an item twice.",
        "histories_are_there": "Every history has items, each with a rating for either question.",
    },
    "human_cases": {
        "the_answer_is_not_shown": "No history contains the item in question, or an item twice.",
        "histories_are_there": "Every history has items, each with a rating.",
    },
}


def needs(table: str, domain: str) -> dict[str, str]:
    """Datasets that a case table is made from, by short name.

    >>> needs("series", "books")
    {'items': 'books.items', 'item_stats': 'books.item_stats'}
    >>> needs("series_cases", "books")[".series"]
    'ablations.books_series'
    """
    return {
        name: f"ablations.{domain}_{name[1:]}" if name.startswith(".") else f"{domain}.{name}"
        for name in CASE_TABLES[table]
    }


def make_cases(
    domain: str, table: str, inputs: Mapping[str, Snapshot], rule: CaseRule
) -> tuple[pl.DataFrame, dict[str, Any]]:
    """The rows of one case table, such as ``series``, and counts for its manifest.

    ``inputs`` are snapshots by the names of :func:`needs`, ``rule`` has sizes and seed. Raises
    ContractError if the tables of the domain are not what they should be.
    """
    frame, facts = _MAKERS[table](inputs, suite_named(domain), rule)
    return frame, {"counts": _counts(table, frame), **facts}


def check_cases(
    table: str, frame: pl.DataFrame, inputs: Mapping[str, Snapshot]
) -> list[CheckRecord]:
    """The checks of a case table, each with how many rows broke it."""
    broken: dict[str, pl.DataFrame] = {}
    if table == "personas":
        broken["pronouns_match"] = frame.filter(wrong_pronouns())
    elif table == "item_sets":
        items = inputs["items"].read(["item_id"])
        broken["items_are_known"] = frame.join(items, on="item_id", how="anti")
    elif table == "series":
        sizes = frame.group_by("series").agg(pl.len(), held=pl.col("held_out").sum())
        broken["one_is_held_out"] = sizes.filter((pl.col("len") < 3) | (pl.col("held") != 1))
    else:
        history = pl.col("history")
        broken["the_answer_is_not_shown"] = frame.filter(
            history.list.contains(pl.col("item_id"))
            | (history.list.n_unique() != history.list.len())
        )
        gaps = pl.col("ratings").list.eval(pl.element().is_null()).list.sum()
        if table == "series_cases":
            rated = pl.col("high").list.drop_nulls().list.len()
            same = rated == pl.col("low").list.drop_nulls().list.len()
            gap = (gaps != rated) | ~same | (rated == 0)
        else:
            gap = gaps > 0
        broken["histories_are_there"] = frame.filter(gap | (history.list.len() == 0))
    return [
        CheckRecord(
            name,
            not rows.height,
            details={
                "message": f"{CHECKS[table][name]} {rows.height} rows break it.",
                "rows": [
                    {k: str(v)[:200] for k, v in row.items()} for row in rows.head(5).to_dicts()
                ],
            },
        )
        for name, rows in broken.items()
    ]


def wrong_pronouns() -> pl.Expr:
    """Return True if a description uses pronouns of the other gender for a persona.

    Descriptions may speak of others, so only one is wrong that has the other gender's pronouns
    and none of the persona's own.
    """
    text = pl.col("description").str.to_lowercase()
    she = text.str.contains(r"\b(?:she|her|hers|herself)\b")
    he = text.str.contains(r"\b(?:he|him|his|himself)\b")
    female = pl.col("gender") == "female"
    return pl.when(female).then(he & ~she).otherwise(she & ~he)


_Made = tuple[pl.DataFrame, dict[str, Any]]


def _personas(inputs: Mapping[str, Snapshot], suite: Suite, rule: CaseRule) -> _Made:
    del inputs, rule
    return suite_personas(suite), {}


def _item_sets(inputs: Mapping[str, Snapshot], suite: Suite, rule: CaseRule) -> _Made:
    personas, items, stats = (inputs[k].read() for k in (".personas", "items", "item_stats"))
    return item_sets(personas, items, stats, suite, rule), {}


def _series(inputs: Mapping[str, Snapshot], suite: Suite, rule: CaseRule) -> _Made:
    count = suite.series if rule.series is None else rule.series
    series = find_series(inputs["items"].read(), inputs["item_stats"].read(), suite, rule)
    return series, {"wanted_series": count}


def _series_cases(inputs: Mapping[str, Snapshot], suite: Suite, rule: CaseRule) -> _Made:
    series, items, stats = (inputs[k].read() for k in (".series", "items", "item_stats"))
    source = source_scale(inputs["interactions"].scan())
    people = inputs["personas"].read()
    return series_cases(series, items, stats, people, source, suite, rule), {}


def _human_cases(inputs: Mapping[str, Snapshot], suite: Suite, rule: CaseRule) -> _Made:
    del suite
    columns = ["user_id", "item_id", "rating", "scale", "rated_at"]
    sample = human_cases(inputs["interactions"].read(columns), inputs["splits"].read(), rule)
    return sample.cases, {"human": {"scale": sample.scale.name, "shares": sample.distribution}}


_MAKERS: dict[str, Callable[[Mapping[str, Snapshot], Suite, CaseRule], _Made]] = {
    "personas": _personas,
    "item_sets": _item_sets,
    "series": _series,
    "series_cases": _series_cases,
    "human_cases": _human_cases,
}


def _counts(table: str, frame: pl.DataFrame) -> dict[str, int]:
    """Case counts for the report; a small domain has fewer than are asked for."""
    if table == "personas":
        return dict(frame.group_by("suite").len().sort("suite").iter_rows())
    if table == "item_sets":
        named = frame.select(pl.concat_str("suite", "group", "want", separator=" ").alias("of"))
        return dict(named.group_by("of").len().sort("of").iter_rows())
    if table == "series":
        named = frame.group_by("basis").agg(pl.col("series").n_unique()).sort("basis")
        return {"series": frame["series"].n_unique(), **dict(named.iter_rows())}
    if table == "series_cases":
        return {
            "series": frame["series"].n_unique(),
            "users": frame["persona_id"].n_unique(),
            "draws": frame["draw"].n_unique(),
            "cases": frame.height,
        }
    return {
        "items": frame["item_id"].n_unique(),
        "people": frame["user_id"].n_unique(),
        "draws": frame["draw"].n_unique(),
        "cases": frame.height,
    }
