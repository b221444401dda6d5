"""Contracts of visits of simulated users to a recommender.

They belong to no release: they are made on one.
"""

from __future__ import annotations

import pandera.polars as pa
import polars as pl

from pipelines.contracts._base import Contract, contracts
from pipelines.contracts._columns import ITEM, Model
from pipelines.statuses import STATUSES

__all__ = ["SIMULATIONS"]

_AGENT = "Number of the agent in the run, from 0."
_VIEW = "Number of the view within the visit, from 1: a page, or one clicked item of it."
_PAGE = "Number of the page, from 1."
_KEY = "Key of the stored answer; null without a model."


class SimulatedAgents(Model):
    """Visits of simulated users to a recommender, page by page, and how each ended."""

    agent: pl.Int64 = pa.Field(unique=True, ge=0, description=_AGENT)
    persona_id: pl.String = pa.Field(description="Persona that the agent plays.")
    user_id: pl.String = pa.Field(
        nullable=True,
        description="Real user whose training history the agent has; null without one.",
    )
    brain: pl.String = pa.Field(description="Brain: `statistical`, a baseline, or a model.")
    recommender: pl.String = pa.Field(description="Recommender that the agent visits.")
    exit_page: pl.Int64 = pa.Field(ge=1, description="Page on which the visit ended.")
    views: pl.Int64 = pa.Field(ge=1, description="Views of the visit (count).")
    exit_reason: pl.String = pa.Field(
        isin=["chosen", "limit", "failed"],
        description="`chosen` by the agent; `limit` of pages, or nothing left to show; `failed` "
        "after two unusable replies, excluded from figures.",
    )
    satisfaction: pl.Float64 = pa.Field(
        nullable=True,
        ge=0,
        le=1,
        description="Satisfaction with the recommendations at the end (6 decimals); null if the "
        "brain has no such number, or failed.",
    )
    interview: pl.Int64 = pa.Field(
        nullable=True, ge=1, le=10, description="Score of the interview; null if it failed."
    )
    tokens: pl.Int64 = pa.Field(ge=0, description="Tokens of all prompts and replies (count).")


class SimulatedViews(Model):
    """Items that simulated users judged, with their decisions and ratings."""

    agent: pl.Int64 = pa.Field(ge=0, description=_AGENT)
    view: pl.Int64 = pa.Field(ge=1, description=_VIEW)
    page: pl.Int64 = pa.Field(ge=1, description=_PAGE)
    position: pl.Int64 = pa.Field(ge=0, description="Position on the page, from 0.")
    item_id: pl.String = pa.Field(description=ITEM)
    clicked: pl.Boolean = pa.Field(
        description="Whether the agent clicked it and judged its long description."
    )
    watched: pl.Boolean = pa.Field(description="Whether the agent watched it.")
    reason: pl.String = pa.Field(nullable=True, description="Reason for the decision.")
    rating: pl.Int64 = pa.Field(
        nullable=True,
        ge=1,
        le=5,
        description="Rating; null unless watched.",
        metadata={"unit": "stars, 1-5"},
    )
    expected: pl.Float64 = pa.Field(
        nullable=True,
        ge=1,
        le=5,
        description="Rating that the agent expected (6 decimals); null if the brain has none.",
        metadata={"unit": "stars, 1-5"},
    )
    feeling: pl.String = pa.Field(nullable=True, description="Feeling about a watched item.")
    valence: pl.String = pa.Field(
        nullable=True,
        isin=["negative", "neutral", "positive"],
        description="Valence of the feeling; null unless watched.",
    )
    status: pl.String = pa.Field(
        isin=list(STATUSES), description="Status of the last reply about the view."
    )
    answer_key: pl.String = pa.Field(nullable=True, description=_KEY)


class SimulatedPages(Model):
    """Feelings and decisions of simulated users, by page view."""

    agent: pl.Int64 = pa.Field(ge=0, description=_AGENT)
    view: pl.Int64 = pa.Field(ge=1, description=_VIEW)
    page: pl.Int64 = pa.Field(ge=1, description=_PAGE)
    mood: pl.String = pa.Field(
        nullable=True, isin=["negative", "positive"], description="Overall feeling."
    )
    fatigue: pl.String = pa.Field(
        nullable=True,
        isin=["not tired", "a little tired", "very tired"],
        description="Level of fatigue.",
    )
    emotion: pl.String = pa.Field(
        nullable=True,
        isin=["CURIOUS", "FRUSTRATED", "EXCITED", "NEUTRAL", "OVERWHELMED"],
        description="Emotion (SimUSER, appendix C.10).",
    )
    action: pl.String = pa.Field(
        nullable=True,
        isin=["NEXT", "PREVIOUS", "CLICK", "EXIT"],
        description="Action of the agent; null if it failed before.",
    )
    target: pl.Int64 = pa.Field(nullable=True, ge=0, description="Position that was clicked.")
    reason: pl.String = pa.Field(nullable=True, description="Reason for the action.")
    status: pl.String = pa.Field(
        isin=list(STATUSES),
        description="Status of the last reply about the decision, the reflection or the "
        "interview; without a decision, about the view.",
    )
    answer_key: pl.String = pa.Field(nullable=True, description=_KEY)


class SimulatedMemories(Model):
    """Entries that visits added to the agents' memories, after their training interactions."""

    agent: pl.Int64 = pa.Field(ge=0, description=_AGENT)
    entry: pl.Int64 = pa.Field(
        ge=0,
        description="Number of the entry; earlier numbers are the agent's training interactions, "
        "oldest first, which are not repeated here.",
    )
    kind: pl.String = pa.Field(isin=["action", "reflection"], description="Kind of entry.")
    item_id: pl.String = pa.Field(nullable=True, description=f"{ITEM} Null for a reflection.")
    text: pl.String = pa.Field(description="Text of the memory.")
    evidence: pl.List(pl.Int64) = pa.Field(
        description="Numbers of the entries that a reflection is based on; empty for an action."
    )


#: The tables by dataset name.
SIMULATIONS: dict[str, Contract] = contracts(
    "simulations",
    agents=(SimulatedAgents, "agent"),
    views=(SimulatedViews, "agent", "view", "position"),
    pages=(SimulatedPages, "agent", "view"),
    memories=(SimulatedMemories, "agent", "entry"),
)
