"""Contracts of what is measured on releases: suites, experiments, visits, dialogues, policies."""

from __future__ import annotations

from typing import Any

import pandera.polars as pa
import polars as pl

from pipelines.contracts._base import ITEM, USER, Contract, Model, column, contracts
from pipelines.contracts.published import Personas
from pipelines.statuses import STATUSES

_PERSONA = "Persona, `persona:<cohort>:<n>`."
_DRAW = "Number of the independent draw, from 0: a seed of the suite uses one."
_SERIES = "Name of the series, in lower case, such as `toy story`."


class SuitePersonas(Personas):
    """Hand-made test personas, with the purpose of each (SUBER, appendix C)."""

    suite: pl.String = column(
        "Test that the persona is for: taste in genres, or rating everything alike.",
        isin=["genres", "raters"],
    )
    group: pl.String = column(
        "Genre that the persona rates high while it rates all else low; or `high` or `low`."
    )


class ItemSets(Model):
    """Items that each hand-made persona is asked about, and the expected ratings."""

    persona_id: pl.String = column(_PERSONA)
    item_id: pl.String = column(ITEM)
    suite: pl.String = column("Test.", isin=["genres", "raters"])
    group: pl.String = column("Genre of the persona, or `high` or `low`.")
    want: pl.String = column("Whether a high or a low rating is a success.", isin=["high", "low"])


class Series(Model):
    """Series of items and the one of each that is held out."""

    series: pl.String = column(_SERIES)
    item_id: pl.String = column(ITEM, unique=True)
    title: pl.String = column("Title of the item.", str_length={"min_value": 1})
    basis: pl.String = column("Basis of the series.", isin=["collection", "title", "keyword"])
    position: pl.Int64 = column("Place in the series by year, then id.", ge=1)
    held_out: pl.Boolean = column("Whether the item is held out for the question.")


class SeriesCases(Model):
    """Users with a history of a series, other items mixed in; both are in random order."""

    draw: pl.Int64 = column(_DRAW, ge=0)
    series: pl.String = column(_SERIES)
    persona_id: pl.String = column(_PERSONA)
    item_id: pl.String = column("Held-out item of the series, which the question is about.")
    history: pl.List(pl.String) = column(
        "Items rated before, oldest first; never the one in question."
    )
    ratings: pl.List(pl.Float64) = column(
        "Ratings of these items: the item's mean rounded, or null for items of the series, "
        "which are rated high in one question and low in the other.",
        unit="stars, on the suite's scale",
        within="1-10 (movies), 1-5 (books)",
    )
    high: pl.List(pl.Float64) = column(
        "High rating of each item of the series; null for the others.",
        unit="stars, on the suite's scale",
    )
    low: pl.List(pl.Float64) = column(
        "Low rating of each item of the series; null for the others.",
        unit="stars, on the suite's scale",
    )


class HumanCases(Model):
    """Ratings that people gave outside the training split, with their training ratings."""

    draw: pl.Int64 = column(_DRAW, ge=0)
    case: pl.Int64 = column("Number of the case in its draw.", ge=0)
    user_id: pl.String = column(USER)
    item_id: pl.String = column(ITEM)
    rating: pl.Float64 = column("Rating by the person, on `scale`.", ge=0.5, le=5)
    scale: pl.String = column("Scale of the source.", isin=["0.5-5", "1-5"])
    history: pl.List(pl.String) = column(
        "Items that the person rated in the training split, the latest, oldest first; never empty "
        "and never the one in question."
    )
    ratings: pl.List(pl.Float64) = column("Ratings of these items, on `scale`.")


class Scores(Model):
    """Success of each configuration in each test, with intervals; `test` is also `aggregate`."""

    cell: pl.String = column("Key of the configuration (hex).", str_length=64)
    rater: pl.String = column("Rater; `statistical` needs no language model.")
    scale: pl.String = column("Rating scale.")
    shots: pl.String = column("Worked examples, or `-` if the rater uses none.")
    system: pl.String = column("`default` or `custom`, or `-`.")
    retrieval: pl.String = column("Retriever of past items, or `-`.")
    perturbation: pl.String = column("Noise on the rating.", isin=["none", "greedy", "gaussian"])
    wording: pl.String = column(
        "Words of the hand-made personas: `own`, or paraphrases of the `open` or "
        "`sealed` half; `-text`: without fields; or `-`."
    )
    test: pl.String = column(
        "Test.", isin=["genres", "raters", "collections", "similarity", "aggregate"]
    )
    score: pl.Float64 = column(
        "Share of drawn ratings that are a success, or 1 - total variation; mean over "
        "seeds; null if no case has a rating.",
        null=True,
        ge=0,
        le=1,
    )
    low: pl.Float64 = column("Lower end of the 95 % interval over users (bootstrap).", null=True)
    high: pl.Float64 = column("Upper end of that interval.", null=True)
    seeds_low: pl.Float64 = column(
        "Lower end of the 95 % interval over seeds (Student's t).", null=True
    )
    seeds_high: pl.Float64 = column("Upper end of that interval.", null=True)
    expected: pl.Float64 = column(
        "Score without sampling noise: mean probability of success, or the similarity of the mean "
        "distribution.",
        null=True,
        ge=0,
        le=1,
    )
    cases: pl.Int64 = column("Cases over all seeds (count).", ge=0)
    users: pl.Int64 = column("Users in the interval (count).", ge=0)
    unreadable: pl.Int64 = column("Cases without a rating, left out of the score (count).", ge=0)
    flagged: pl.Boolean = column("Whether there are too many of these for a meaningful score.")


def _of(domain: str) -> dict[str, Contract]:
    tables: dict[str, tuple[type[Model], tuple[str, ...]]] = {
        "personas": (SuitePersonas, ("persona_id",)),
        "item_sets": (ItemSets, ("persona_id", "item_id")),
        "series": (Series, ("series", "position")),
        "series_cases": (SeriesCases, ("draw", "series", "persona_id")),
        "human_cases": (HumanCases, ("draw", "case")),
        "scores": (Scores, ("cell", "test")),
    }
    return {
        f"ablations.{domain}_{name}": Contract(f"{domain}_{name}", model, key)
        for name, (model, key) in tables.items()
    }


#: Tables of the ablation suites by dataset name.
ABLATIONS: dict[str, Contract] = {**_of("movies"), **_of("books")}


_NAME = "Experiment, as on the command line."
_FIGURE = "Figure; docs/experiments.md has its meaning and unit."


class ExperimentFigures(Model):
    """Figures of experiments on simulated users, with the papers' rows."""

    experiment: pl.String = pa.Field(description=_NAME)
    row: pl.Int64 = pa.Field(ge=0, description="Row of the experiment's table, from 0.")
    source: pl.String = pa.Field(
        isin=["people", "baseline", "statistical", "model", "paper"],
        description="Source of the row: real users, baselines, brains without and with a language "
        "model, or published figures.",
    )
    labels: pl.String = pa.Field(description="Labels of the row, as `name: value; name: value`.")
    figure: pl.String = pa.Field(description=_FIGURE)
    value: pl.Float64 = pa.Field(
        nullable=True, description="Mean over people; null if not available."
    )
    low: pl.Float64 = pa.Field(
        nullable=True, description="Lower end of the 95 % interval; null for published figures."
    )
    high: pl.Float64 = pa.Field(
        nullable=True, description="Upper end of the 95 % interval; null for published figures."
    )
    n: pl.Int64 = pa.Field(nullable=True, ge=0, description="People (count); null if not stated.")
    note: pl.String = pa.Field(description="Note on the row; may be empty.")


class ExperimentComparisons(Model):
    """Paired differences between rows of experiments on simulated users."""

    experiment: pl.String = pa.Field(description=_NAME)
    left: pl.String = pa.Field(description="Labels of the left row.")
    right: pl.String = pa.Field(description="Labels of the right row.")
    figure: pl.String = pa.Field(description=_FIGURE)
    difference: pl.Float64 = pa.Field(description="Left minus right over the same people.")
    low: pl.Float64 = pa.Field(description="Lower end of the 95 % interval.")
    high: pl.Float64 = pa.Field(description="Upper end of the 95 % interval.")
    p: pl.Float64 = pa.Field(
        nullable=True, ge=0, le=1, description="p-value of the paired permutation test (two-sided)."
    )
    q: pl.Float64 = pa.Field(
        nullable=True,
        ge=0,
        le=1,
        description="p-value after the Benjamini-Hochberg correction over the experiment.",
    )
    n: pl.Int64 = pa.Field(ge=0, description="People in both rows (count).")


#: The tables by dataset name.
EXPERIMENTS: dict[str, Contract] = contracts(
    "experiments",
    figures=(ExperimentFigures, "experiment", "row", "figure"),
    comparisons=(ExperimentComparisons, "experiment", "left", "right", "figure"),
)


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


class TrainedPolicy(Model):
    """Recommendation policies trained in the environment, one per seed, with their evaluation."""

    seed: pl.Int64 = column("Seed of the training.", unique=True, ge=0)
    algo: pl.String = column("Algorithm.", isin=["a2c", "ppo", "trpo", "dqn"])
    steps: pl.Int64 = column("Training steps (count).", ge=1)
    release: pl.String = column("Release used for training, `name@version`.")
    rater: pl.String = column("Rater of the recommended items.")
    language_model: pl.Boolean = column("Whether the rater is a language model.")
    scale: pl.String = column("Scale of the ratings.")
    items_sha256: pl.String = column(
        "Hash of the item ids in their order; the policy works with no others.", str_length=64
    )
    personas_sha256: pl.String = column("Hash of the persona ids in their order.", str_length=64)
    users: pl.Int64 = column("Personas in the evaluation (count).", ge=1)
    average_reward: pl.Float64 = column(
        "Mean rating of ten recommendations.", unit="rating, on `scale`"
    )
    map_at_10: pl.Float64 = column("MAP@10 (SUBER, appendix F.1).", ge=0, le=1)
    mrr_at_10: pl.Float64 = column("MRR@10 (SUBER, appendix F.1).", ge=0, le=1)
    personalization_at_10: pl.Float64 = column(
        "1 - mean pairwise cosine of lists; null for a single user.", null=True, ge=0, le=1.000001
    )
    liked_at_5: pl.Float64 = column("Share of liked genres, top 5.", ge=0, le=1)
    disliked_at_5: pl.Float64 = column("Share of disliked genres, top 5.", ge=0, le=1)
    liked_at_10: pl.Float64 = column("Share of liked genres, top 10.", ge=0, le=1)
    disliked_at_10: pl.Float64 = column("Share of disliked genres, top 10.", ge=0, le=1)
    weights: pl.Binary = column(
        "The policy as a safetensors file; `sim.training.load_policy` opens it."
    )


#: The table by dataset name.
TRAINING: dict[str, Contract] = {
    "trained_policy": Contract("trained_policy", TrainedPolicy, ("seed",))
}
