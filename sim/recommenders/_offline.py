"""Offline evaluation: how well recommenders find the held-out items of real people."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import polars as pl

from pipelines.errors import ConfigError, ReleaseError
from pipelines.progress import advance
from sim._release import Release, release_view
from sim.environment import Catalogue, histories, split_rows
from sim.metrics import RESAMPLES, Figure, mean_with_interval, ndcg, recall, user_weights
from sim.recommenders._protocol import Floats, Ints, Recommender
from sim.recommenders._registry import BASELINES, RECOMMENDERS, CheckedRecommender

#: Splits whose items are masked when lists are judged on a split.
MASKED = {"validation": ("train",), "test": ("train", "validation")}
#: People whose lists are asked for at once (count): bounds the memory of their histories.
_AT_ONCE = 1_000


def people_release(release: Release, users: Sequence[str]) -> Release:
    """The release with real people in the place of its personas, each matched to itself.

    Recommenders then serve people through the same seam as personas. Person n is the n-th persona
    of the view.
    """
    ids = [f"persona:people:{n:09d}" for n in range(len(users))]
    frame = pl.DataFrame(
        {
            "persona_id": ids,
            "cohort": "people",
            "domain": release.domain,
            "origin": "matched",
            "name": list(users),
            "likes": [[] for _ in ids],
            "dislikes": [[] for _ in ids],
        },
        schema_overrides={"likes": pl.List(pl.String), "dislikes": pl.List(pl.String)},
    )
    matches = pl.DataFrame({"persona_id": ids, "user_id": list(users)})
    return release_view(release, {"personas": frame, "matched_personas": matches})


@dataclass(frozen=True)
class OfflineRow:
    """Figures of one recommender."""

    #: Name in the table.
    name: str
    #: Recall@k and NDCG@k, means over people with 95 % bootstrap intervals.
    recall: Figure
    ndcg: Figure
    #: The same minus those of the reference recommender, paired by person; None for the reference
    #: itself.
    recall_difference: Figure | None
    ndcg_difference: Figure | None
    #: A sentence on the recommender.
    note: str
    #: Whether it is one of `BASELINES`.
    baseline: bool
    #: People that got the most popular items for lack of a history (count).
    fallbacks: int
    #: Wall time.
    fit_seconds: float
    recommend_seconds: float


@dataclass(frozen=True)
class OfflineReport:
    """Recommenders on the same people and held-out items."""

    #: Release and split of the held-out items, and the splits whose items are masked.
    release: str
    split: str
    masked: tuple[str, ...]
    #: Length of the lists (items).
    k: int
    #: People with a held-out item (count).
    users: int
    #: The recommender that differences are taken from.
    against: str
    #: Baselines first.
    rows: tuple[OfflineRow, ...]
    #: NDCG@k of every person by recommender, of shape (people,); not in JSON.
    ndcg_by_person: Mapping[str, Floats] = field(repr=False, compare=False)

    def as_json(self) -> dict[str, Any]:
        """Report as plain values."""
        names = ("release", "split", "k", "users", "against")
        return {name: getattr(self, name) for name in names} | {
            "masked": list(self.masked),
            "rows": [
                {
                    "recommender": row.name,
                    "note": row.note,
                    "baseline": row.baseline,
                    "recall": bounds(row.recall),
                    "ndcg": bounds(row.ndcg),
                    "recall_difference": bounds(row.recall_difference),
                    "ndcg_difference": bounds(row.ndcg_difference),
                    "fallbacks": row.fallbacks,
                    "fit_seconds": round(row.fit_seconds, 3),
                    "recommend_seconds": round(row.recommend_seconds, 3),
                }
                for row in self.rows
            ],
        }


def bounds(figure: Figure | None) -> dict[str, float] | None:
    """A figure and its interval as plain values."""
    if figure is None:
        return None
    return {"value": figure.value, "low": figure.low, "high": figure.high}


def evaluate_offline(
    recommenders: Mapping[str, Recommender],
    release: Release,
    *,
    split: Literal["validation", "test"] = "test",
    k: int = 20,
    against: str = "popular",
    users: int | None = None,
    seed: int = 0,
    interactions: pl.DataFrame | None = None,
) -> OfflineReport:
    """Fit recommenders on the training split and judge them on held-out items.

    All people with an item in the split are asked for k items. Items of ``train`` (and of
    ``validation``, when judged on ``test``) are masked, and count as no hit.

    The recommenders are unfitted, by the name that the table shows; differences of the others from
    ``against`` are paired by person. The release needs ``items``, ``interactions`` and ``splits``;
    tune on the split ``validation``. At most ``users`` people are drawn with ``seed``, which is the
    bootstrap's too. ``interactions`` are fitted on in the place of the training split.

    Raises
    ------
    ConfigError
        If `against` is not among the names, or ``content`` is: people state no likes.
    ReleaseError
        If a table is missing, or the split is empty.
    ContractError
        If a recommender raises or returns what is no list of k unseen items.
    """
    if against not in recommenders:
        raise ConfigError(
            "the recommender to compare with is not evaluated",
            where=f"against {against}",
            hint=f"one of {', '.join(recommenders)}",
        )
    if "content" in recommenders:
        raise ConfigError(
            "content can't be evaluated offline",
            where="recommender content",
            hint="it reads what personas like, and people state no likes; see understudy train",
        )
    held = split_rows(release, (split,))
    if held.is_empty():
        raise ReleaseError(f"no user has an item in the split {split}", where=release.ref)
    people = _drawn(sorted(held["user_id"].unique().to_list()), users, seed)
    view, items = people_release(release, people), Catalogue.read(release).ids
    truth = histories(held, people, items)
    masked = histories(split_rows(release, MASKED[split]), people, items)
    held_out = (truth >= 0).sum(axis=1)
    weights = user_weights(len(people), RESAMPLES, seed)
    scores: dict[str, tuple[Any, Any]] = {}
    facts: dict[str, dict[str, Any]] = {}
    for name in sorted(recommenders, key=_order):
        advance(f"fitting {name}", len(scores), len(recommenders))
        lists, facts[name] = _lists(name, recommenders[name], view, masked, k, interactions)
        hits = _hits(lists, truth, len(items))
        scores[name] = recall(hits, held_out, k), ndcg(hits, held_out, k)
    rows = []
    for name, values in scores.items():
        means = [mean_with_interval(score, weights) for score in values]
        pairs = zip(values, scores[against], strict=True)
        gaps = [mean_with_interval(score - other, weights) for score, other in pairs]
        differences = (None, None) if name == against else (gaps[0], gaps[1])
        rows.append(OfflineRow(name, means[0], means[1], *differences, **facts[name]))
    by_person = {name: values[1] for name, values in scores.items()}
    return OfflineReport(
        release.ref, split, MASKED[split], k, len(people), against, tuple(rows), by_person
    )


def _order(name: str) -> tuple[bool, int]:
    """Baselines first, then the project's own in their order, then plug-ins as given."""
    names = list(RECOMMENDERS)
    return name not in BASELINES, names.index(name) if name in names else len(names)


def _hits(lists: Ints, truth: Ints, items: int) -> Any:
    """Hits: True where a recommended item is held out, of the shape of the lists."""
    row = np.arange(len(lists))[:, None] * items
    return np.isin(row + lists, (row + truth)[truth >= 0]) & (lists >= 0)


def _drawn(people: list[str], users: int | None, seed: int) -> list[str]:
    if users is None or users >= len(people):
        return people
    chosen = np.random.default_rng(seed).choice(len(people), users, replace=False)
    return [people[n] for n in np.sort(chosen)]


def _lists(
    name: str,
    recommender: Recommender,
    view: Release,
    masked: Ints,
    k: int,
    interactions: pl.DataFrame | None,
) -> tuple[Ints, dict[str, Any]]:
    """Lists of k items for everybody, and the notes that the table shows."""
    started = time.perf_counter()
    checked = CheckedRecommender(recommender, name).fit(view, interactions=interactions)
    fitted = time.perf_counter()
    people = np.arange(len(masked))
    parts = [people[n : n + _AT_ONCE] for n in range(0, len(people), _AT_ONCE)]
    lists = np.concatenate([checked.recommend(part, k, seen=masked[part]) for part in parts])
    facts = {
        "note": checked.note,
        "baseline": name in BASELINES,
        "fallbacks": checked.fallbacks,
        "fit_seconds": fitted - started,
        "recommend_seconds": time.perf_counter() - fitted,
    }
    return lists, facts
