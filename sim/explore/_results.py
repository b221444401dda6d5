"""Results that a home holds on a release: experiments, training, and two releases compared."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from pipelines.config import Settings
from pipelines.errors import IntegrityError
from pipelines.store import Store
from sim._release import Release
from sim.experiments import paper_rows

#: A column's shift is shown from this population stability index on.
_SHIFTED = 0.005
#: Personas that two releases rate differently, and ratings of each (count).
_PEOPLE, _MOVED = 12, 4
#: Figures of a training curve that are shown, where it has them.
_CURVES = ("average_reward", "map@10", "personalization@10")


def experiments(release: Release, settings: Settings) -> dict[str, Any] | str:
    """The newest report of experiments on the release, or why there is none."""
    report = _json(settings.runtime.home / "experiments" / "reports" / "experiments.json")
    if report is None or report["release"] != release.ref:
        return "the home has none on this release (understudy experiment run all)"
    return {"rows": [_experiment(result) for result in report["experiments"]]}


def _experiment(result: dict[str, Any]) -> dict[str, Any]:
    figure = result["figure"]
    papers = [row.as_json() for row in paper_rows(result["name"])]
    rows = [
        {
            "title": ", ".join(v for v in row["labels"].values() if v),
            "source": row["source"],
            "n": row["n"],
            "value": row["figures"][figure],
        }
        for row in [*result["rows"], *papers]
        if row["figures"].get(figure) is not None
    ]
    answer = result["answer"] or {}
    return {
        "name": result["name"],
        "question": result["question"],
        "paper": result["anchor"],
        "claim": result["claim"],
        "figure": figure,
        "measured": answer.get("measured"),
        "verdict": answer.get("verdict"),
        "too_few": result["too_few"],
        "values": rows,
    }


def training(release: Release, settings: Settings) -> dict[str, Any] | str:
    """Curves and tables of the runs of training on the release, or why there are none."""
    rows = []
    for file in sorted((settings.runtime.home / "training").glob("*/report.json")):
        report = _json(file)
        if report is None or report["release"] != release.ref:
            continue
        curves = [
            {
                "seed": run["seed"],
                "points": [
                    {key: point[key] for key in ("steps", *_CURVES) if key in point}
                    for point in run["curve"]
                ],
            }
            for run in report["runs"]
        ]
        shown = ("algo", "rater", "note", "scale", "steps", "seeds", "users")
        rows.append(
            {key: report[key] for key in shown}
            | {
                "curves": curves,
                "table": [
                    {
                        "recommender": row["recommender"],
                        "trained": row["trained"],
                        **{k: row["figures"][k] for k in ("average_reward", "headroom")},
                    }
                    for row in report["rows"]
                ],
            }
        )
    return {"rows": rows} if rows else "the home has none on this release (understudy train)"


def compared(release: Release, other: Release | None, settings: Settings) -> dict[str, Any] | str:
    """Tables of two releases: rows, versions, shifted columns, and why they differ."""
    if other is None:
        return "no second release was given (--beside)"
    diff = Store(release.home).diff(
        Store(release.home).release(release.ref),
        Store(other.home).release(other.ref),
        memory_limit_mb=settings.runtime.memory_limit_mb,
    )
    rows = [asdict(table) for table in diff.tables.values()]
    for row in rows:
        row["shifts"] = [s for s in row["shifts"] if s["psi"] >= _SHIFTED]
    people = _both(release, other)
    return {"a": diff.a, "b": diff.b, "same": diff.same, "rows": rows, "people": people}


def _both(release: Release, other: Release) -> list[dict[str, Any]]:
    """Personas that both releases rate differently on one scale, and what moved most."""
    names = ("items", "personas", "preference_scores")
    if not all(name in tables for name in names for tables in (release, other)):
        return []
    keys = ["persona_id", "item_id", "scale"]
    before, after = (
        tables["preference_scores"].lazy().select(*keys, "expected").drop_nulls("expected")
        for tables in (release, other)
    )
    pairs = before.join(after, on=keys, suffix="_after").with_columns(
        moved=(pl.col("expected_after") - pl.col("expected")).abs()
    )
    titles = release["items"].lazy().select("item_id", "title")
    people = (
        pairs.join(titles, on="item_id", how="left")
        .sort("moved", "item_id", descending=[True, False])
        .group_by("persona_id")
        .agg(
            pl.len().alias("ratings"),
            pl.col("moved").mean().alias("mean_moved"),
            pl.col("expected", "expected_after").mean(),
            items=pl.struct("title", before="expected", after="expected_after").head(_MOVED),
        )
        .filter(pl.col("mean_moved") > 0)
        .join(release["personas"].lazy().select("persona_id", "name", "likes"), on="persona_id")
        .sort("mean_moved", "persona_id", descending=[True, False])
        .head(_PEOPLE)
    )
    return people.collect().to_dicts()


def _json(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        report: dict[str, Any] = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise IntegrityError(
            "a report can't be read", where=str(path), hint="remove it, and run it again"
        ) from error
    return report
