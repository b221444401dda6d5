"""The visits of a shard as tables (contracts ``simulations.*``)."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from sim.agents._loop import EXIT_REASONS, FAILED, Visits
from sim.agents._protocol import ACTIONS, EMOTIONS, FATIGUE, MOODS, Ints

#: Tables of a run, in the order in which they are written.
TABLES = ("agents", "views", "pages", "memories")
_MOODS = tuple(mood.lower() for mood in MOODS)
_TIRED = tuple(level.lower() for level in FATIGUE)
_VALENCES = ("negative", "neutral", "positive")


def frames_of(visits: Visits, *, brain: str, recommender: str) -> dict[str, pl.DataFrame]:
    """Tables of visits after :meth:`Visits.run` by short name, each ordered by its key."""
    from pipelines.contracts import CONTRACTS

    found = {
        "agents": _agents(visits, brain, recommender),
        "views": _views(visits),
        "pages": _pages(visits),
        "memories": visits.entries.frame(visits.agents, visits.world.catalogue.ids),
    }
    schemas = {name: CONTRACTS[f"simulations.{name}"].polars_schema() for name in TABLES}
    return {
        name: found[name].select(pl.col(c).cast(t) for c, t in schemas[name].items())
        for name in TABLES
    }


def _agents(visits: Visits, brain: str, recommender: str) -> pl.DataFrame:
    people = visits.world.people[visits.people.tolist()]
    return pl.DataFrame(
        {
            "agent": visits.agents,
            "persona_id": people["persona_id"],
            "user_id": people["user_id"],
            "brain": pl.repeat(brain, people.height, eager=True),
            "recommender": pl.repeat(recommender, people.height, eager=True),
            "exit_page": visits.page,
            "views": visits.view,
            "exit_reason": _named(EXIT_REASONS, visits.exit_reason),
            "satisfaction": _rounded(visits.satisfaction),
            "interview": _positive(visits.interview),
            "tokens": visits.tokens,
        }
    ).with_columns(
        # Satisfaction and interview of a failed visit are null.
        pl.when(pl.Series(visits.exit_reason == FAILED))
        .then(None)
        .otherwise(pl.col("satisfaction", "interview"))
        .name.keep()
    )


def _views(visits: Visits) -> pl.DataFrame:
    log = visits.log
    row, view, place = np.nonzero(log.judged)
    at: Any = (row, view, place)
    watched = log.watched[at]
    valence = _named(_VALENCES, np.where(watched, log.valence[at] + 1, -1))
    ids = pl.Series(visits.world.catalogue.ids, dtype=pl.String)
    return pl.DataFrame(
        {
            "agent": visits.agents[row],
            "view": view + 1,
            "page": log.pages[row, view],
            "position": place,
            "item_id": ids.gather(log.items[at]),
            "clicked": log.clicked[row, view],
            "watched": watched,
            "reason": _texts(log.reasons[at]),
            "rating": _positive(np.nan_to_num(log.ratings[at])),
            "expected": _rounded(log.expected[at]),
            "feeling": _texts(log.feelings[at]),
            "valence": valence,
            "status": _texts(log.status[row, view]),
            "answer_key": _texts(log.keys[row, view]),
        }
    )


def _pages(visits: Visits) -> pl.DataFrame:
    log = visits.log
    row, view = np.nonzero(log.pages)
    at: Any = (row, view)
    status = np.where(log.page_status[at] == None, log.status[at], log.page_status[at])  # noqa: E711
    return pl.DataFrame(
        {
            "agent": visits.agents[row],
            "view": view + 1,
            "page": log.pages[at],
            "mood": _named(_MOODS, log.moods[at]),
            "fatigue": _named(_TIRED, log.fatigue[at]),
            "emotion": _named(EMOTIONS, log.emotions[at]),
            "action": _named(ACTIONS, log.actions[at]),
            "target": pl.Series(log.targets[at]).replace(-1, None),
            "reason": _texts(log.page_reasons[at]),
            "flagged": pl.Series(log.flagged[at].tolist(), dtype=pl.Boolean),
            "status": _texts(status),
            "answer_key": _texts(log.page_keys[at]),
        }
    )


def _named(names: tuple[str, ...], codes: Ints) -> pl.Series:
    """Names of codes; -1 has none."""
    return pl.Series(list(names)).gather(pl.Series(codes, dtype=pl.Int64).replace(-1, None))


def _texts(values: Any) -> pl.Series:
    return pl.Series(values.tolist(), dtype=pl.String)


def _positive(values: Any) -> pl.Series:
    """Whole numbers; 0 stands for none."""
    return pl.Series(values.astype(np.int64)).replace(0, None)


def _rounded(values: Any) -> pl.Series:
    return pl.Series(np.round(values, 6)).fill_nan(None)
