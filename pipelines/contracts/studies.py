"""Contracts of what is measured on releases: suites, experiments, visits, dialogues, policies."""

from __future__ import annotations

from typing import Any

import polars as pl

from pipelines.contracts._base import ITEM, USER, Contract, Model, column, contracts, share
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
    score: pl.Float64 = share(
        "Share of drawn ratings that are a success, or 1 - total variation; mean over "
        "seeds; null if no case has a rating.",
        null=True,
    )
    low: pl.Float64 = column("Lower end of the 95 % interval over users (bootstrap).", null=True)
    high: pl.Float64 = column("Upper end of that interval.", null=True)
    seeds_low: pl.Float64 = column(
        "Lower end of the 95 % interval over seeds (Student's t).", null=True
    )
    seeds_high: pl.Float64 = column("Upper end of that interval.", null=True)
    expected: pl.Float64 = share(
        "Score without sampling noise: mean probability of success, or the similarity of the mean "
        "distribution.",
        null=True,
    )
    cases: pl.Int64 = column("Cases over all seeds (count).", ge=0)
    users: pl.Int64 = column("Users in the interval (count).", ge=0)
    unreadable: pl.Int64 = column("Cases without a rating, left out of the score (count).", ge=0)
    flagged: pl.Boolean = column("Whether there are too many of these for a meaningful score.")


#: Tables of the ablation suites by dataset name.
ABLATIONS: dict[str, Contract] = {
    name: contract
    for domain in ("movies", "books")
    for name, contract in contracts(
        "ablations",
        **{
            f"{domain}_personas": (SuitePersonas, "persona_id"),
            f"{domain}_item_sets": (ItemSets, "persona_id", "item_id"),
            f"{domain}_series": (Series, "series", "position"),
            f"{domain}_series_cases": (SeriesCases, "draw", "series", "persona_id"),
            f"{domain}_human_cases": (HumanCases, "draw", "case"),
            f"{domain}_scores": (Scores, "cell", "test"),
        },
    ).items()
}


_NAME = "Experiment, as on the command line."
_FIGURE = "Figure; docs/experiments.md has its meaning and unit."


class ExperimentFigures(Model):
    """Figures of experiments on simulated users, with the papers' rows."""

    experiment: pl.String = column(_NAME)
    row: pl.Int64 = column("Row of the experiment's table, from 0.", ge=0)
    source: pl.String = column(
        "Source of the row: real users, baselines, brains without and with a language "
        "model, or published figures.",
        isin=["people", "baseline", "statistical", "model", "paper"],
    )
    labels: pl.String = column("Labels of the row, as `name: value; name: value`.")
    figure: pl.String = column(_FIGURE)
    value: pl.Float64 = column("Mean over people; null if not available.", null=True)
    low: pl.Float64 = column(
        "Lower end of the 95 % interval; null for published figures.", null=True
    )
    high: pl.Float64 = column(
        "Upper end of the 95 % interval; null for published figures.", null=True
    )
    n: pl.Int64 = column("People (count); null if not stated.", null=True, ge=0)
    note: pl.String = column("Note on the row; may be empty.")


class ExperimentComparisons(Model):
    """Paired differences between rows of experiments on simulated users."""

    experiment: pl.String = column(_NAME)
    left: pl.String = column("Labels of the left row.")
    right: pl.String = column("Labels of the right row.")
    figure: pl.String = column(_FIGURE)
    difference: pl.Float64 = column("Left minus right over the same people.")
    low: pl.Float64 = column("Lower end of the 95 % interval.")
    high: pl.Float64 = column("Upper end of the 95 % interval.")
    p: pl.Float64 = share("p-value of the paired permutation test (two-sided).", null=True)
    q: pl.Float64 = share(
        "p-value after the Benjamini-Hochberg correction over the experiment.", null=True
    )
    n: pl.Int64 = column("People in both rows (count).", ge=0)


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

    agent: pl.Int64 = column(_AGENT, unique=True, ge=0)
    persona_id: pl.String = column("Persona that the agent plays.")
    user_id: pl.String = column(
        "Real user whose training history the agent has; null without one.", null=True
    )
    brain: pl.String = column("Brain: `statistical`, a baseline, or a model.")
    recommender: pl.String = column("Recommender that the agent visits.")
    exit_page: pl.Int64 = column("Page on which the visit ended.", ge=1)
    views: pl.Int64 = column("Views of the visit (count).", ge=1)
    exit_reason: pl.String = column(
        "`chosen` by the agent; `limit` of pages, or nothing left to show; `failed` "
        "after two unusable replies, excluded from figures.",
        isin=["chosen", "limit", "failed"],
    )
    satisfaction: pl.Float64 = share(
        "Satisfaction with the recommendations at the end (6 decimals); null if the "
        "brain has no such number, or failed.",
        null=True,
    )
    interview: pl.Int64 = column(
        "Score of the interview; null if it failed.", null=True, ge=1, le=10
    )
    tokens: pl.Int64 = column("Tokens of all prompts and replies (count).", ge=0)


class SimulatedViews(Model):
    """Items that simulated users judged, with their decisions and ratings."""

    agent: pl.Int64 = column(_AGENT, ge=0)
    view: pl.Int64 = column(_VIEW, ge=1)
    page: pl.Int64 = column(_PAGE, ge=1)
    position: pl.Int64 = column("Position on the page, from 0.", ge=0)
    item_id: pl.String = column(ITEM)
    clicked: pl.Boolean = column("Whether the agent clicked it and judged its long description.")
    watched: pl.Boolean = column("Whether the agent watched it.")
    reason: pl.String = column("Reason for the decision.", null=True)
    rating: pl.Int64 = column(
        "Rating; null unless watched.", null=True, ge=1, le=5, unit="stars, 1-5"
    )
    expected: pl.Float64 = column(
        "Rating that the agent expected (6 decimals); null if the brain has none.",
        null=True,
        ge=1,
        le=5,
        unit="stars, 1-5",
    )
    feeling: pl.String = column("Feeling about a watched item.", null=True)
    valence: pl.String = column(
        "Valence of the feeling; null unless watched.",
        null=True,
        isin=["negative", "neutral", "positive"],
    )
    status: pl.String = column("Status of the last reply about the view.", isin=list(STATUSES))
    answer_key: pl.String = column(_KEY, null=True)


class SimulatedPages(Model):
    """Feelings and decisions of simulated users, by page view."""

    agent: pl.Int64 = column(_AGENT, ge=0)
    view: pl.Int64 = column(_VIEW, ge=1)
    page: pl.Int64 = column(_PAGE, ge=1)
    mood: pl.String = column("Overall feeling.", null=True, isin=["negative", "positive"])
    fatigue: pl.String = column(
        "Level of fatigue.", null=True, isin=["not tired", "a little tired", "very tired"]
    )
    emotion: pl.String = column(
        "Emotion (SimUSER, appendix C.10).",
        null=True,
        isin=["CURIOUS", "FRUSTRATED", "EXCITED", "NEUTRAL", "OVERWHELMED"],
    )
    action: pl.String = column(
        "Action of the agent; null if it failed before.",
        null=True,
        isin=["NEXT", "PREVIOUS", "CLICK", "EXIT"],
    )
    target: pl.Int64 = column("Position that was clicked.", null=True, ge=0)
    reason: pl.String = column("Reason for the action.", null=True)
    status: pl.String = column(
        "Status of the last reply about the decision, the reflection or the "
        "interview; without a decision, about the view.",
        isin=list(STATUSES),
    )
    answer_key: pl.String = column(_KEY, null=True)


class SimulatedMemories(Model):
    """Entries that visits added to the agents' memories, after their training interactions."""

    agent: pl.Int64 = column(_AGENT, ge=0)
    entry: pl.Int64 = column(
        "Number of the entry; earlier numbers are the agent's training interactions, "
        "oldest first, which are not repeated here.",
        ge=0,
    )
    kind: pl.String = column("Kind of entry.", isin=["action", "reflection"])
    item_id: pl.String = column(f"{ITEM} Null for a reflection.", null=True)
    text: pl.String = column("Text of the memory.")
    evidence: pl.List(pl.Int64) = column(
        "Numbers of the entries that a reflection is based on; empty for an action."
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
_STATED = "The same, stated by a language model in words; null for other agents."


def _points(description: str, **more: Any) -> Any:
    """A column of preference scores."""
    return column(description, ge=0, le=100, unit="points, 0-100", **more)


class DialogueEpisodes(Model):
    """Episodes: a customer, a choice set, and the product that the agent sold."""

    run: pl.String = column(_RUN)
    agent: pl.String = column("Agent.")
    customer: pl.String = column("Customer: `statistical` or a model.")
    setting: pl.String = column(
        "One customer in many categories, one category with many customers, or both.",
        isin=["customer", "category", "both"],
    )
    feedback: pl.String = column("Form of feedback.", isin=["none", "regret", "stars", "text"])
    memory: pl.Boolean = column("Whether the agent remembers past episodes.")
    seed: pl.Int64 = column(_SEED, ge=0)
    episode: pl.Int64 = column(_EPISODE, ge=1)
    persona_id: pl.String = column("Persona of the customer.")
    category_id: pl.String = column("Category of the choice set.")
    cell: pl.String = column(
        "Customer and category: whether agents may use their scores.",
        isin=["seen/seen", "unseen/seen", "seen/unseen", "unseen/unseen"],
    )
    questions: pl.Int64 = column("Questions asked (count).", ge=0)
    repeated: pl.Int64 = column("Questions already asked in the episode (count).", ge=0)
    unmatched: pl.Int64 = column("Questions that match no facet (count).", ge=0)
    item_id: pl.String = column(f"{ITEM} Null if it failed.", null=True)
    rank: pl.Int64 = column(
        "Rank of the sold product: one more than the number of better ones.", null=True, ge=1
    )
    score: pl.Float64 = _points("Score of the sold product (4 decimals).", null=True)
    best: pl.Float64 = _points("Best score of the choice set (4 decimals).")
    regret: pl.Float64 = _points(
        "Best score minus that of the sold product (4 decimals); null if it failed.", null=True
    )
    random_regret: pl.Float64 = _points(
        "Best score minus the mean score: the exact regret of a random product (4 decimals)."
    )
    stars: pl.Int64 = column("Stars of the sold product; null if it failed.", null=True, ge=0, le=5)
    status: pl.String = column(
        "`failed`: a reply was unusable; `leaked`: a customer named a product, an id, "
        "an index or a score twice. Neither has a regret.",
        isin=["ok", "failed", "leaked"],
    )
    language_model: pl.String = column("Model of the agent; null without one.", null=True)
    tokens: pl.Int64 = column("Tokens of all prompts and replies, of both sides (count).", ge=0)
    forgotten: pl.Int64 = column(
        "Past episodes that the longest prompt left out to fit the model's context (count).", ge=0
    )


class DialogueTurns(Model):
    """Turns: questions, answers, recommendations, probed recommendations and feedback."""

    run: pl.String = column(_RUN)
    seed: pl.Int64 = column(_SEED, ge=0)
    episode: pl.Int64 = column(_EPISODE, ge=1)
    turn: pl.Int64 = column("Questions before the turn (count).", ge=0)
    role: pl.String = column("Speaker.", isin=["agent", "customer"])
    kind: pl.String = column(
        "`probe`: what the agent would have sold after this many questions; it enters no history.",
        isin=["answer", "ask", "feedback", "probe", "recommend"],
    )
    text: pl.String = column("Text; null if there is none.", null=True)
    facet_id: pl.String = column("Facet that is asked about; null if none matches.", null=True)
    value: pl.String = column("Value of the answer; null for no preference or none.", null=True)
    item_id: pl.String = column(
        "Recommended or probed product; at a question, the one that would be sold; "
        "null if the agent states none.",
        null=True,
    )
    regret: pl.Float64 = _points("Regret of that product (4 decimals).", null=True)
    rank: pl.Int64 = column("Rank of that product.", null=True, ge=1)
    expected_regret: pl.Float64 = _points(
        "Regret that the agent expects of the product (4 decimals); null if it states none.",
        null=True,
    )
    top_1: pl.Float64 = share("Probability of the best product, by the agent.", null=True)
    top_5: pl.Float64 = share("Probability of one of the best five, by the agent.", null=True)
    regret_5: pl.Float64 = share("Probability of a regret of at most 5, by the agent.", null=True)
    regret_10: pl.Float64 = share("Probability of a regret of at most 10, by the agent.", null=True)
    regret_20: pl.Float64 = share("Probability of a regret of at most 20, by the agent.", null=True)
    regret_30: pl.Float64 = share("Probability of a regret of at most 30, by the agent.", null=True)
    stated_top_1: pl.Float64 = share(_STATED, null=True)
    stated_top_5: pl.Float64 = share(_STATED, null=True)
    stated_regret_5: pl.Float64 = share(_STATED, null=True)
    stated_regret_10: pl.Float64 = share(_STATED, null=True)
    stated_regret_20: pl.Float64 = share(_STATED, null=True)
    stated_regret_30: pl.Float64 = share(_STATED, null=True)
    status: pl.String = column(
        "Status of the reply behind the turn.", isin=["ok", "failed", "leaked"]
    )
    answer_key: pl.String = column(
        "Keys of the stored answers, which hold the distribution over the products; "
        "null without a model.",
        null=True,
    )


class DialogueReport(Model):
    """Figures of suites of dialogues, with intervals over lifetimes."""

    figure: pl.String = column("Figure, such as `models`; see docs/dialogue.md.")
    configuration: pl.String = column("Row of the figure: agent and settings.")
    x: pl.Float64 = column(
        "Position on the horizontal axis: an episode or a number of questions; 0 for "
        "a value over all."
    )
    metric: pl.String = column("Metric; docs/dialogue.md has its unit.")
    value: pl.Float64 = column("Mean over lifetimes; null if none.", null=True)
    low: pl.Float64 = column("Lower end of the 95 % interval.", null=True)
    high: pl.Float64 = column("Upper end of the 95 % interval.", null=True)
    p: pl.Float64 = share(
        "p-value of the paired permutation test against the figure's reference, with "
        "the Benjamini-Hochberg correction; null if nothing is compared.",
        null=True,
    )
    lifetimes: pl.Int64 = column("Lifetimes with a value (count).", ge=0)


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
    map_at_10: pl.Float64 = share("MAP@10 (SUBER, appendix F.1).")
    mrr_at_10: pl.Float64 = share("MRR@10 (SUBER, appendix F.1).")
    personalization_at_10: pl.Float64 = column(
        "1 - mean pairwise cosine of lists; null for a single user.", null=True, ge=0, le=1.000001
    )
    liked_at_5: pl.Float64 = share("Share of liked genres, top 5.")
    disliked_at_5: pl.Float64 = share("Share of disliked genres, top 5.")
    liked_at_10: pl.Float64 = share("Share of liked genres, top 10.")
    disliked_at_10: pl.Float64 = share("Share of disliked genres, top 10.")
    weights: pl.Binary = column(
        "The policy as a safetensors file; `sim.training.load_policy` opens it."
    )


#: The table by dataset name.
TRAINING: dict[str, Contract] = {
    "trained_policy": Contract("trained_policy", TrainedPolicy, ("seed",))
}
