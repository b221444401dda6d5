"""Contracts of shopping dialogues: their episodes, turns and report.

They belong to no release: they are made on one.
"""

from __future__ import annotations

from typing import Any

import pandera.polars as pa
import polars as pl

from pipelines.contracts._base import Contract, contracts
from pipelines.contracts._columns import ITEM, Model

__all__ = ["DIALOGUE"]

_RUN = "Configuration of the run (hex): agent, customer, setting, cell, feedback, memory."
_SEED = "Seed of the lifetime."
_EPISODE = "Episode of the lifetime, from 1."
_POINTS = {"unit": "points, 0-100"}
_STATED = "The same, stated by a language model in words; null for other agents."


def _probability(description: str) -> Any:
    """Nullable column of probabilities."""
    return pa.Field(nullable=True, ge=0, le=1, description=description)


class DialogueEpisodes(Model):
    """Episodes: a customer, a choice set, and the product that the agent sold."""

    run: pl.String = pa.Field(description=_RUN)
    agent: pl.String = pa.Field(description="Agent.")
    customer: pl.String = pa.Field(description="Customer: `statistical` or a model.")
    setting: pl.String = pa.Field(
        isin=["customer", "category", "both"],
        description="One customer in many categories, one category with many customers, or both.",
    )
    feedback: pl.String = pa.Field(
        isin=["none", "regret", "stars", "text"], description="Form of feedback."
    )
    memory: pl.Boolean = pa.Field(description="Whether the agent remembers past episodes.")
    seed: pl.Int64 = pa.Field(ge=0, description=_SEED)
    episode: pl.Int64 = pa.Field(ge=1, description=_EPISODE)
    persona_id: pl.String = pa.Field(description="Persona of the customer.")
    category_id: pl.String = pa.Field(description="Category of the choice set.")
    cell: pl.String = pa.Field(
        isin=["seen/seen", "unseen/seen", "seen/unseen", "unseen/unseen"],
        description="Customer and category: whether agents may use their scores.",
    )
    questions: pl.Int64 = pa.Field(ge=0, description="Questions asked (count).")
    repeated: pl.Int64 = pa.Field(
        ge=0, description="Questions already asked in the episode (count)."
    )
    unmatched: pl.Int64 = pa.Field(ge=0, description="Questions that match no facet (count).")
    item_id: pl.String = pa.Field(nullable=True, description=f"{ITEM} Null if it failed.")
    rank: pl.Int64 = pa.Field(
        nullable=True,
        ge=1,
        description="Rank of the sold product: one more than the number of better ones.",
    )
    score: pl.Float64 = pa.Field(
        nullable=True,
        ge=0,
        le=100,
        description="Score of the sold product (4 decimals).",
        metadata=_POINTS,
    )
    best: pl.Float64 = pa.Field(
        ge=0, le=100, description="Best score of the choice set (4 decimals).", metadata=_POINTS
    )
    regret: pl.Float64 = pa.Field(
        nullable=True,
        ge=0,
        le=100,
        description="Best score minus that of the sold product (4 decimals); null if it failed.",
        metadata=_POINTS,
    )
    random_regret: pl.Float64 = pa.Field(
        ge=0,
        le=100,
        description="Best score minus the mean score: the exact regret of a random product "
        "(4 decimals).",
        metadata=_POINTS,
    )
    stars: pl.Int64 = pa.Field(
        nullable=True, ge=0, le=5, description="Stars of the sold product; null if it failed."
    )
    status: pl.String = pa.Field(
        isin=["ok", "failed", "leaked"],
        description="`failed`: a reply was unusable; `leaked`: a customer named a product, an id, "
        "an index or a score twice. Neither has a regret.",
    )
    language_model: pl.String = pa.Field(
        nullable=True, description="Model of the agent; null without one."
    )
    tokens: pl.Int64 = pa.Field(
        ge=0, description="Tokens of all prompts and replies, of both sides (count)."
    )
    forgotten: pl.Int64 = pa.Field(
        ge=0,
        description="Past episodes that the longest prompt left out to fit the model's context "
        "(count).",
    )


class DialogueTurns(Model):
    """Turns: questions, answers, recommendations, probed recommendations and feedback."""

    run: pl.String = pa.Field(description=_RUN)
    seed: pl.Int64 = pa.Field(ge=0, description=_SEED)
    episode: pl.Int64 = pa.Field(ge=1, description=_EPISODE)
    turn: pl.Int64 = pa.Field(ge=0, description="Questions before the turn (count).")
    role: pl.String = pa.Field(isin=["agent", "customer"], description="Speaker.")
    kind: pl.String = pa.Field(
        isin=["answer", "ask", "feedback", "probe", "recommend"],
        description="`probe`: what the agent would have sold after this many questions; it "
        "enters no history.",
    )
    text: pl.String = pa.Field(nullable=True, description="Text; null if there is none.")
    facet_id: pl.String = pa.Field(
        nullable=True, description="Facet that is asked about; null if none matches."
    )
    value: pl.String = pa.Field(
        nullable=True, description="Value of the answer; null for no preference or none."
    )
    item_id: pl.String = pa.Field(
        nullable=True,
        description="Recommended or probed product; at a question, the one that would be sold; "
        "null if the agent states none.",
    )
    regret: pl.Float64 = pa.Field(
        nullable=True,
        ge=0,
        le=100,
        description="Regret of that product (4 decimals).",
        metadata=_POINTS,
    )
    rank: pl.Int64 = pa.Field(nullable=True, ge=1, description="Rank of that product.")
    expected_regret: pl.Float64 = pa.Field(
        nullable=True,
        ge=0,
        le=100,
        description="Regret that the agent expects of the product (4 decimals); null if it states "
        "none.",
        metadata=_POINTS,
    )
    top_1: pl.Float64 = _probability("Probability of the best product, by the agent.")
    top_5: pl.Float64 = _probability("Probability of one of the best five, by the agent.")
    regret_5: pl.Float64 = _probability("Probability of a regret of at most 5, by the agent.")
    regret_10: pl.Float64 = _probability("Probability of a regret of at most 10, by the agent.")
    regret_20: pl.Float64 = _probability("Probability of a regret of at most 20, by the agent.")
    regret_30: pl.Float64 = _probability("Probability of a regret of at most 30, by the agent.")
    stated_top_1: pl.Float64 = _probability(_STATED)
    stated_top_5: pl.Float64 = _probability(_STATED)
    stated_regret_5: pl.Float64 = _probability(_STATED)
    stated_regret_10: pl.Float64 = _probability(_STATED)
    stated_regret_20: pl.Float64 = _probability(_STATED)
    stated_regret_30: pl.Float64 = _probability(_STATED)
    status: pl.String = pa.Field(
        isin=["ok", "failed", "leaked"], description="Status of the reply behind the turn."
    )
    answer_key: pl.String = pa.Field(
        nullable=True,
        description="Keys of the stored answers, which hold the distribution over the products; "
        "null without a model.",
    )


class DialogueReport(Model):
    """Figures of suites of dialogues, with intervals over lifetimes."""

    figure: pl.String = pa.Field(description="Figure, such as `models`; see docs/dialogue.md.")
    configuration: pl.String = pa.Field(description="Row of the figure: agent and settings.")
    x: pl.Float64 = pa.Field(
        description="Position on the horizontal axis: an episode or a number of questions; 0 for "
        "a value over all."
    )
    metric: pl.String = pa.Field(description="Metric; docs/dialogue.md has its unit.")
    value: pl.Float64 = pa.Field(nullable=True, description="Mean over lifetimes; null if none.")
    low: pl.Float64 = pa.Field(nullable=True, description="Lower end of the 95 % interval.")
    high: pl.Float64 = pa.Field(nullable=True, description="Upper end of the 95 % interval.")
    p: pl.Float64 = pa.Field(
        nullable=True,
        ge=0,
        le=1,
        description="p-value of the paired permutation test against the figure's reference, with "
        "the Benjamini-Hochberg correction; null if nothing is compared.",
    )
    lifetimes: pl.Int64 = pa.Field(ge=0, description="Lifetimes with a value (count).")


#: The tables by dataset name.
DIALOGUE: dict[str, Contract] = contracts(
    "dialogue",
    episodes=(DialogueEpisodes, "run", "seed", "episode"),
    turns=(DialogueTurns, "run", "seed", "episode", "turn", "role", "kind"),
    report=(DialogueReport, "figure", "configuration", "x", "metric"),
)
