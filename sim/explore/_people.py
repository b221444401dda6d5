"""Personas with ratings and the reasons for them, and the personas nearest to each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pipelines.errors import UnderstudyError
from pipelines.raters import OK
from pipelines.scales import scale_named
from sim._release import Release
from sim.environment import Cast, World

if TYPE_CHECKING:
    from sim.explore._site import Items

#: Ratings shown of a persona, and items that they are spread over: those that a person of this
#: taste is most likely to know.
_RATINGS, _WATCHED = 10, 40
#: Nearest personas shown of each (count).
_NEAREST = 5
#: Effects on a rating below this are not shown (points of the scale).
_LEAST = 0.03
#: Columns of a persona that are shown as they are.
_SHOWN = (
    *("persona_id", "name", "age", "gender", "job", "hobby", "likes", "dislikes"),
    *("leniency", "manner", "activity", "conformity", "origin", "writer", "description"),
)

Why = Callable[[str, str], dict[str, float]]


def people(release: Release, items: Items, number: int) -> dict[str, Any] | str:
    """The first ``number`` personas with scores, or the reason why there are none."""
    if lacking := sorted({"personas", "preference_scores"} - set(release)):
        return f"the release has no table {lacking[0]}"
    cast = Cast.read(release).frame
    scored = release["preference_scores"].lazy().filter(pl.col("status") == OK)
    ids = scored.select(pl.col("persona_id").unique().sort()).collect()["persona_id"]
    # Of every cohort some: not only of that whose name comes first.
    cast = cast.filter(pl.col("persona_id").is_in(ids.implode())).with_columns(
        place=pl.int_range(pl.len()).over("cohort")
    )
    chosen = cast.sort("place", "persona_id").head(number).sort("persona_id")
    if chosen.is_empty():
        return "the release has no scores of its personas"
    names = chosen["persona_id"].to_list()
    ratings = _ratings(release, scored, names)
    raters = sorted({row["rater"] for rows in ratings.values() for row in rows})
    why, reason = _explainer(release, raters)
    scale = scale_named(next(row["scale"] for rows in ratings.values() for row in rows))
    near = _nearest(release, names)
    users = _users(release)
    rows = [
        {
            **row,
            "user": users.get(row["persona_id"]),
            "near": near[n],
            "ratings": [_rating(score, items, why) for score in ratings[row["persona_id"]]],
        }
        for n, row in enumerate(chosen.select(_SHOWN).iter_rows(named=True))
    ]
    return {
        "rows": rows,
        "total": len(ids),
        "raters": raters,
        "absent": {"reasons of ratings": "" if why else reason},
        "scale": {"name": scale.name, "answers": [float(a) for a in scale.answers]},
    }


def _ratings(
    release: Release, scored: pl.LazyFrame, names: list[str]
) -> dict[str, list[dict[str, Any]]]:
    """Scores by persona, from best to worst."""
    columns = ("item_id", "rater", "scale", "probabilities", "expected", "explanation")
    scores = scored.filter(pl.col("persona_id").is_in(names)).select("persona_id", *columns)
    if "score_plan" in release:
        plan = release["score_plan"].lazy().select("persona_id", "item_id", "exposure")
        scores = scores.join(plan, on=["persona_id", "item_id"], how="left")
    else:
        scores = scores.with_columns(exposure=0.0)
    exposure = pl.col("exposure").fill_null(0)
    ordered_scores = scores.sort("persona_id", exposure, "item_id", descending=[False, True, False])
    first = ordered_scores.group_by("persona_id", maintain_order=True).head(_WATCHED)
    chosen: dict[str, list[dict[str, Any]]] = {}
    for (name,), part in first.collect().group_by("persona_id", maintain_order=True):
        ordered = part.sort("expected", "item_id", descending=[True, False])
        spread = np.linspace(0, part.height - 1, min(_RATINGS, part.height)).round().astype(int)
        chosen[str(name)] = ordered[spread.tolist()].to_dicts()
    return chosen


def _rating(score: dict[str, Any], items: Items, why: Why | None) -> dict[str, Any]:
    parts: dict[str, float] = {}
    if why is not None and score["rater"] == "statistical":
        parts = why(score["persona_id"], score["item_id"])
    return {
        "item": items.number(score["item_id"]),
        "expected": round(score["expected"], 3),
        "p": [round(p, 4) for p in score["probabilities"]],
        "why": {name: round(v, 3) for name, v in parts.items() if abs(v) >= _LEAST},
        "text": score["explanation"],
    }


def _explainer(release: Release, raters: list[str]) -> tuple[Why | None, str]:
    """Effects on the expected rating of a pair, by name, or why there are none."""
    if "statistical" not in raters:
        return None, f"the scores are of {', '.join(raters)}: only the statistical rater gives them"
    try:
        world = World.open(release, rater="statistical")
    except UnderstudyError as error:
        return None, str(error)
    nothing = np.zeros(0, np.int64), np.zeros(0)

    def why(persona: str, item: str) -> dict[str, float]:
        return world.rater.explain(world.cast.index(persona), world.catalogue.row(item), *nothing)

    return why, ""


def _nearest(release: Release, names: list[str]) -> list[list[tuple[int, float]]]:
    """Numbers of the nearest personas by the cosine of their texts' vectors, nearest first."""
    if "persona_embeddings" not in release:
        return [[] for _ in names]
    table = release["persona_embeddings"].lazy().filter(pl.col("persona_id").is_in(names))
    frame = pl.DataFrame({"persona_id": names}).join(
        table.select("persona_id", "vector").collect(), on="persona_id", how="left",
        maintain_order="left",
    )  # fmt: skip
    embedded = frame["vector"].is_not_null().to_numpy()
    width = max(frame["vector"].list.len().drop_nulls().to_list(), default=0)
    vectors = np.zeros((len(names), width))
    if embedded.any():
        vectors[embedded] = np.array(frame["vector"].drop_nulls().to_list())
    cosine = vectors @ vectors.T
    cosine[:, ~embedded] = -np.inf
    np.fill_diagonal(cosine, -np.inf)
    order = np.argsort(-cosine, axis=1, kind="stable")[:, :_NEAREST]
    return [
        [(int(m), round(float(cosine[n, m]), 3)) for m in row if np.isfinite(cosine[n, m])]
        if embedded[n]
        else []
        for n, row in enumerate(order)
    ]


def _users(release: Release) -> dict[str, str]:
    """The real user that each matched persona stands for."""
    if "matched_personas" not in release:
        return {}
    rows = release["matched_personas"].polars(["persona_id", "user_id"])
    return dict(rows.iter_rows())
