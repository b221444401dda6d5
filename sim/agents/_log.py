"""Finished visits as tables (contracts ``simulations.*``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from pipelines.memory import opinion_of
from sim.agents._visit import Visit
from sim.agents._world import AgentWorld

#: Tables of a run, in the order in which they are written.
TABLES = ("agents", "views", "pages", "memories")
_VALENCES = {"disliked": "negative", "neutral": "neutral", "liked": "positive"}


def frames_of(
    visits: Sequence[Visit], world: AgentWorld, *, brain: str, recommender: str, first: int = 0
) -> dict[str, pl.DataFrame]:
    """Tables of finished visits by short name, each in the order of its key.

    ``first`` is added to the numbers of agents.
    """
    from pipelines.contracts import CONTRACTS

    ids, people = world.catalogue.ids, world.people
    rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TABLES}
    personas, users = people["persona_id"].to_list(), people["user_id"].to_list()
    for visit in sorted(visits, key=lambda visit: visit.agent):
        agent = visit.agent + first
        rows["agents"].append(
            (
                agent, personas[visit.person], users[visit.person], brain, recommender,
                visit.views[-1].page, len(visit.views), visit.exit_reason,
                _rounded(visit.satisfaction), visit.interview, visit.tokens,
            )
        )  # fmt: skip
        for number, view in enumerate(visit.views, 1):
            for place in view.asked:
                given = view.opinions.get(place)
                rows["views"].append(
                    (
                        agent, number, view.page, place, ids[view.items[place]], view.clicked,
                        given is not None and given.watched, *_opinion(given), view.status,
                        view.answer_key,
                    )
                )  # fmt: skip
            decision = view.decision
            rows["pages"].append(
                (
                    agent, number, view.page,
                    *((None,) * 6 if decision is None else (
                        decision.mood, decision.fatigue, decision.emotion, decision.action,
                        decision.target, decision.reason,
                    )),
                    view.page_status or view.status, view.page_key,
                )
            )  # fmt: skip
        rows["memories"] += [
            (agent, e.number, e.kind, None if e.item is None else ids[e.item], e.text, e.evidence)
            for e in visit.entries
        ]
    schemas = {name: CONTRACTS[f"simulations.{name}"].polars_schema() for name in TABLES}
    return {
        name: pl.DataFrame(rows[name], schema=schema, orient="row")
        for name, schema in schemas.items()
    }


def _opinion(given: Any) -> tuple[Any, ...]:
    """Columns ``reason`` to ``valence``."""
    if given is None:
        return (None,) * 5
    rating = given.rating if given.watched else None
    felt = given.feeling if given.watched else None
    valence = None if rating is None else _VALENCES[opinion_of(rating)]
    return given.reason, rating, _rounded(given.expected), felt, valence


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
