"""Suites: the figures of BIEL as lists of configurations, how they are run, and their reports.

A report has intervals and tests, as Markdown, CSV and HTML with pictures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl

from pipelines.config import Settings, identity_hash
from pipelines.contracts import DIALOGUE
from pipelines.errors import ConfigError, IntegrityError
from pipelines.hints import nearest
from pipelines.plugins import closing
from pipelines.progress import within
from pipelines.study import Comparison, Figure, Study, draw, false_discovery, write_report
from sim.dialogue._lifetimes import CELLS, SETTINGS, Cell, Lifetimes, Setting
from sim.dialogue._metrics import (
    METRICS,
    Values,
    agreement,
    answers_used,
    calibration,
    faithfulness,
    gap_closed,
    paired,
    pivoted,
    values_of,
)
from sim.dialogue._protocol import CONFIDENCES, FEEDBACK, STATED, Customer, Feedback
from sim.dialogue._run import Played, play
from sim.dialogue._world import DialogueWorld
from sim.dialogue.agents import AGENTS, open_agent
from sim.dialogue.customers import open_customer

__all__ = [
    "FIGURES",
    "FILES",
    "SUITES",
    "Configuration",
    "DialogueContext",
    "DialogueRun",
    "Suite",
    "checks",
    "chosen_suites",
    "configured_customer",
    "read_run",
    "run_suites",
    "write_run",
]

#: Agents that assume the customers' answer model.
_ASSUMING = ("base", "greedy", "dp", "thompson")
#: Agents that know nothing of the customer, and those that know everything.
BASELINES, BOUNDS = ("random", "popularity"), ("oracle", "best")
#: Control of what a belief over types is sure of: chosen on validation personas (docs/dialogue.md).
_TEMPERED: dict[str, Any] = {"carry": 0.5}
#: Questions of the planning protocol; the paper's T is unknown.
_FORCED = 10


@dataclass(frozen=True)
class Configuration:
    """A row of a figure."""

    #: Name of the agent and arguments of its class.
    agent: str
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Setting of the lifetimes and the run.
    setting: Setting = "customer"
    feedback: Feedback = "text"
    memory: bool = True
    cell: Cell = "unseen/seen"
    #: Share of the statistical customer's answers that are wrong; None: of the settings.
    unfaithful: float | None = None
    #: Questions that are asked without stopping; the episode ends after them. 0: free.
    must_ask: int = 0
    #: Episodes, from 1, in which recommendations are probed after each question.
    probes: tuple[int, ...] = ()
    #: True if the agent asks a language model.
    model: bool = False

    @property
    def source(self) -> str:
        """Kind of the row: ``baseline``, ``statistical`` or ``model``."""
        if self.model:
            return "model"
        return "baseline" if self.agent in BASELINES + BOUNDS else "statistical"

    @property
    def labels(self) -> dict[str, str]:
        """Columns of the row in a report."""
        options = ", ".join(f"{k}={v}" for k, v in self.options.items())
        return {
            "agent": f"{self.agent} ({options})" if options else self.agent,
            "setting": self.setting,
            "feedback": self.feedback,
            "memory": "on" if self.memory else "off",
            "cell": self.cell,
            "unfaithful": "" if self.unfaithful is None else f"{self.unfaithful:g}",
        }


@dataclass(frozen=True)
class Suite:
    """A figure of the paper, or one of ours."""

    #: One sentence.
    question: str
    #: Figures of the paper.
    anchor: str
    #: Findings of the paper, in words, as it publishes no numbers; empty where it has none.
    paper: str
    #: Configurations, given the agents that ask a language model.
    rows: Callable[[Sequence[str]], list[Configuration]]
    #: Labels that tell the rows apart.
    varied: tuple[str, ...]
    #: Label and value of the row that each one is tested against.
    reference: tuple[str, str]
    #: Lifetimes of a configuration where they differ from the settings' (count).
    seeds: int | None = None


def _bounds(**shared: Any) -> list[Configuration]:
    """Baselines and bounds, which learn nothing."""
    return [Configuration(a, memory=False, **shared) for a in BASELINES + BOUNDS]


def _with_control(rows: Sequence[Configuration]) -> list[Configuration]:
    """Each row with memory, then without."""
    return [replace(row, memory=memory) for row in rows for memory in (True, False)]


def _agents(names: Sequence[str], models: Sequence[str], **shared: Any) -> list[Configuration]:
    rows = [Configuration(a, **shared) for a in names]
    return rows + [Configuration(a, model=True, **shared) for a in models]


def _models(models: Sequence[str]) -> list[Configuration]:
    rows = _agents(("base", "greedy", "dp", "thompson", "linear"), models)
    rows.insert(3, Configuration("dp", _TEMPERED))
    return _bounds() + _with_control(rows)


def _planning(models: Sequence[str]) -> list[Configuration]:
    shared: dict[str, Any] = {"must_ask": _FORCED, "probes": (1, 5, 10)}
    rows = _agents(("base", "greedy", "dp"), (), **shared)
    rows.append(Configuration("dp", {"depth": 2}, **shared))
    for name in models:
        # Only the agents that we know of take the option.
        options = {"confidences": "both"} if name in AGENTS else {}
        rows.append(Configuration(name, options, model=True, **shared))
    return _bounds() + rows


def _feedback(models: Sequence[str]) -> list[Configuration]:
    rows = _agents(("dp", "linear"), models)
    return _bounds() + [replace(row, feedback=form) for row in rows for form in FEEDBACK]


def _reasoning(models: Sequence[str]) -> list[Configuration]:
    rows = [Configuration("greedy"), Configuration("dp"), Configuration("dp", {"depth": 2})]
    return _bounds() + rows + _agents((), models)


def _context(models: Sequence[str]) -> list[Configuration]:
    rows = [Configuration("dp"), Configuration("dp", _TEMPERED), *_agents(("linear",), models)]
    return _bounds() + _with_control(rows)


def _settings(models: Sequence[str]) -> list[Configuration]:
    rows = [*_bounds(), *_with_control(_agents(("dp", "linear"), models))]
    return [replace(row, setting=setting) for setting in SETTINGS for row in rows]


def _generalisation(models: Sequence[str]) -> list[Configuration]:
    # Most releases have fewer unseen categories than a lifetime has episodes.
    rows = [*_bounds(), *_with_control(_agents(("dp", "linear"), models))]
    return [replace(row, cell=cell, setting="category") for cell in CELLS for row in rows]


def _faithfulness(models: Sequence[str]) -> list[Configuration]:
    rows = _agents(("base", "dp", "linear"), models)
    shares = (0.0, 0.1, 0.3, 0.5)
    return _bounds() + [replace(row, unfaithful=share) for row in rows for share in shares]


#: Suites by name, in the order of reports.
SUITES: dict[str, Suite] = {
    "models": Suite(
        "Do agents get better from episode to episode, and do they ask less?",
        "BIEL, fig. 5",
        "no model improves over episodes or comes near the oracle; questions become fewer",
        _models,
        ("agent", "memory"),
        ("agent", "random"),
    ),
    "planning": Suite(
        "Does planning help, by number of questions and by episode, and are agents calibrated?",
        "BIEL, figs. 6-8, 22, 23",
        "greedy prompts help at times, only DP prompts improve over episodes, by episode 10; more "
        "questions don't help without a strategy, and confidences are badly calibrated",
        _planning,
        ("agent",),
        ("agent", "base"),
        seeds=60,
    ),
    "feedback": Suite(
        "Does the form of feedback matter?",
        "BIEL, fig. 18",
        "no significant difference between regret, stars and text",
        _feedback,
        ("agent", "feedback"),
        ("feedback", "none"),
    ),
    "reasoning": Suite(
        "Does thinking further ahead matter?",
        "BIEL, fig. 19",
        "a reasoning prompt makes no significant difference",
        _reasoning,
        ("agent",),
        ("agent", "greedy"),
    ),
    "context": Suite(
        "Does the memory of past episodes matter?",
        "BIEL, fig. 20",
        "summaries instead of the dialogues make no significant difference",
        _context,
        ("agent", "memory"),
        ("memory", "off"),
    ),
    "settings": Suite(
        "Does it matter which of customer and category vary?",
        "BIEL, fig. 21",
        "no significant difference between the settings",
        _settings,
        ("setting", "agent", "memory"),
        ("setting", "customer"),
    ),
    "generalisation": Suite(
        "Do agents keep up with customers and categories that they have no scores of?",
        "ours",
        "no train or test split is given",
        _generalisation,
        ("cell", "agent", "memory"),
        ("cell", "seen/seen"),
    ),
    "faithfulness": Suite(
        "What do wrong answers cost?",
        "BIEL, appendix D",
        "simulated customers at times deny their persona; nothing is measured",
        _faithfulness,
        ("agent", "unfaithful"),
        ("unfaithful", "0"),
    ),
}


def chosen_suites(names: Sequence[str]) -> list[str]:
    """Names of suites, each once; ``all`` stands for all of them.

    Raises ConfigError if a name is unknown, naming the nearest.
    """
    for name in names:
        if name not in SUITES and name != "all":
            hint = nearest(name, [*SUITES, "all"])
            raise ConfigError(f"no suite {name!r}", where="understudy dialogue", hint=hint)
    expanded = [n for name in names for n in (SUITES if name == "all" else [name])]
    return list(dict.fromkeys(expanded))


@dataclass
class DialogueContext:
    """World and settings of runs."""

    #: Choice sets and customers; settings of engine and section ``dialogue``; the store's folder.
    world: DialogueWorld
    settings: Settings
    home: Path
    #: Name and arguments of the customers' class.
    customer: str = "statistical"
    customer_options: Mapping[str, Any] = field(default_factory=dict)
    #: Lifetimes of a configuration (count), the first one's seed, and their episodes; None: of the
    #: settings, and of the suite.
    seeds: int | None = None
    first_seed: int = 0
    episodes: int | None = None
    #: Agents that ask a language model, their lifetimes and episodes (count).
    models: tuple[str, ...] = ()
    model_seeds: int = 2
    model_episodes: int = 3

    def draw(self, chosen: Configuration, *, seeds: int | None = None) -> Lifetimes:
        """Lifetimes of a configuration.

        Raises ConfigError if its cell has too few customers or choice sets, or its customers can't
        give wrong answers on purpose.
        """
        dialogue = self.settings.dialogue
        if chosen.unfaithful and self.customer != "statistical":
            raise ConfigError(
                "only the statistical customer gives wrong answers on purpose",
                where=f"customer {self.customer}",
                hint="leave out the suite faithfulness",
            )
        count = self.model_seeds if chosen.model else self.seeds or seeds or dialogue.seeds
        return Lifetimes.draw(
            self.world,
            range(self.first_seed, self.first_seed + count),
            setting=chosen.setting,
            cell=chosen.cell,
            episodes=self.model_episodes if chosen.model else self.episodes or dialogue.episodes,
            min_best=dialogue.min_best,
        )

    def play(self, chosen: Configuration, *, seeds: int | None = None) -> Played:
        """Play a configuration."""
        dialogue = self.settings.dialogue
        lifetimes = self.draw(chosen, seeds=seeds)
        assumed = {"tau": dialogue.tau} if chosen.agent in _ASSUMING else {}
        agent = open_agent(chosen.agent, settings=self.settings, **{**assumed, **chosen.options})
        options = dict(self.customer_options)
        if chosen.unfaithful is not None and self.customer == "statistical":
            options.setdefault("unfaithful", chosen.unfaithful)
        if self.customer == "model" and chosen.model:
            options.setdefault("session", agent)  # the weights are loaded once
        customer = configured_customer(self.customer, self.settings, **options)
        text = " ".join(v for k, v in chosen.labels.items() if v and k != "unfaithful")
        with closing(agent), closing(customer), within(text):
            return play(
                self.world,
                lifetimes,
                agent,
                customer,
                feedback=chosen.feedback,
                memory=chosen.memory,
                max_questions=chosen.must_ask or dialogue.max_questions,
                must_ask=chosen.must_ask,
                probes=chosen.probes,
            )


def configured_customer(name: str, settings: Settings, **options: Any) -> Customer:
    """A customer by name, whose answer model is that of the section ``dialogue``."""
    if name == "statistical":
        options = {"tau": settings.dialogue.tau} | options
    return open_customer(name, settings=settings, **options)


# Reports ---------------------------------------------------------------------------------------

#: Files of a run's folder by kind; there are pictures and a page per suite besides.
FILES = {
    "episodes": "episodes.parquet",
    "turns": "turns.parquet",
    "report": "report.csv",
    "html": "dialogues.html",
}
#: Meaning of the metrics of reports, with units.
FIGURES: dict[str, str] = METRICS | {
    "gap_closed": "(R_random - R) / (R_random - R_oracle)",
    "slope": "normalised regret per episode, by least squares in each lifetime",
    "memory_effect": "normalised regret with memory minus that without, same lifetimes",
    "faithful": "share of the customers' facet answers whose products score above the set's mean",
    "answers_used": "share of facet answers whose value the sold product has, minus the share of "
    "the set's products that have it; 0: answers are ignored",
    "agreement": "share of the customers' facet answers that are the most probable ones by the "
    "persona's scores",
    "agreement_chance": "the same with the other personas' scores: chance of a customer who "
    "answers alike whoever it plays",
    "agreement_gain": "agreement minus its chance, same lifetimes",
    "skipped": "pairs that a lifetime's draw left out for their best score (count)",
    "regret_episode_N": "regret of the product that would be sold after so many questions (points)",
    **{
        f"ece_{c}": f"expected calibration error of {c}, ten equal bins"
        for c in (*CONFIDENCES, *STATED)
    },
}
#: Metrics of a report's table, of whole lifetimes.
_TABLE = (
    *("regret", "normalised_regret", "gap_closed", "top_1", "top_5", "questions", "unmatched"),
    *("agreement", "agreement_chance", "answers_used", "slope", "memory_effect", "failed"),
)
#: Metrics over episodes.
_CURVES = (
    "regret",
    "normalised_regret",
    "questions",
    "repeated",
    "top_1",
    "stars",
    "cumulative_regret",
)
_SHARE = "normalised_regret"
#: Worth of knowing the customer from which asking can pay (points).
MIN_WORTH = 5.0
#: Share of episodes without a regret above which a row is flagged.
MAX_FAILED = 0.05
#: Episodes whose calibration is reported, from 1 (BIEL, B.5).
_SLICES = (1, 5, 10)
_LEGEND = (
    "Means over lifetimes with 95 % bootstrap intervals over lifetimes. Source `statistical` and "
    "`baseline`: agents without a language model. Statistical agents know the answer model of the "
    "statistical customer, which a language model has to find out. Intervals of plots with more "
    "than eight curves are only in `report.csv`."
)


@dataclass(frozen=True)
class DialogueRun:
    """Outcome of suites."""

    #: Hash of the rows and the release (hex); name of the run's folder.
    key: str
    #: Reference.
    release: str
    #: Tables ``dialogue.*``.
    episodes: pl.DataFrame
    turns: pl.DataFrame
    report: pl.DataFrame
    #: Sentences on rows with too many episodes without a regret.
    flagged: list[str]
    #: Time of each suite.
    seconds: dict[str, float]
    #: Studies of the suites, for the pages; empty of a run that was read.
    results: Mapping[str, Study]
    #: Sentences on rows whose cell or setting has too few customers or choice sets.
    not_played: list[str] = field(default_factory=list)


Rows = list[tuple[Configuration, Played]]


def run_suites(
    context: DialogueContext, names: Sequence[str], custom: Sequence[Configuration] = ()
) -> DialogueRun:
    """Play suites, or rows of one's own beside baselines and bounds, and compute their figures.

    ``custom`` are rows of the figure ``agents``.
    """
    suites = {name: SUITES[name] for name in names}
    if custom:
        suites["agents"] = _own_suite(custom)
    frames, results, seconds, played = [], {}, {}, list[Played]()
    flagged, not_played = list[str](), list[str]()
    for name, suite in suites.items():
        began = time.perf_counter()
        playable, lacking = _playable(context, suite)
        not_played += [f"{name}: {text}" for text in lacking]
        rows = [(row, context.play(row, seeds=suite.seeds)) for row, _ in playable]
        drawn = [lifetimes for _, lifetimes in playable]
        figures, comparisons = _figures(context.world, suite, rows, drawn)
        frames.append(_report_frame(name, suite, rows, figures))
        notes = [*_circumstances(context, figures), *lacking]
        results[name] = _study(name, suite, rows, figures, comparisons, notes)
        flagged += [
            f"{name}: {share:.0%} of the episodes of {_title(suite, row)} have no regret"
            for (row, _), points in zip(rows, figures, strict=True)
            if (share := points["failed", 0.0].figure.value) > MAX_FAILED
        ]
        played += [p for _, p in rows]
        seconds[name] = time.perf_counter() - began
    tables = [
        pl.concat([getattr(p, table) for p in played])
        .unique(list(DIALOGUE[f"dialogue.{table}"].key))
        .sort(list(DIALOGUE[f"dialogue.{table}"].key))
        for table in ("episodes", "turns")
    ]
    key = identity_hash(
        {
            "suites": list(suites),
            "runs": sorted({p.run for p in played}),
            "lifetimes": sorted({p.episodes.height for p in played}),
            "first": context.first_seed,
        }
    )
    return DialogueRun(
        key=key[:12],
        release=context.world.reference,
        episodes=tables[0],
        turns=tables[1],
        report=pl.concat(frames),
        flagged=flagged,
        seconds=seconds,
        results=results,
        not_played=not_played,
    )


def _playable(
    context: DialogueContext, suite: Suite
) -> tuple[list[tuple[Configuration, Lifetimes]], list[str]]:
    """Rows with enough customers and choice sets, and what the cells and settings of others lack.

    A small release has no unseen categories: the other cells are played. Raises ConfigError if no
    row can be played.
    """
    rows: list[tuple[Configuration, Lifetimes]] = []
    lacking: dict[str, ConfigError] = {}
    for row in suite.rows(context.models):
        try:
            rows.append((row, context.draw(row, seeds=suite.seeds)))
        except ConfigError as error:
            lacking.setdefault(str(error), error)
    if not rows:
        raise next(iter(lacking.values()))
    return rows, [f"rows not played: {text}" for text in lacking]


def _circumstances(context: DialogueContext, figures: list[Points]) -> list[str]:
    """Sentences on what the rows of a suite share."""
    most = max(points["skipped", 0.0].figure.value for points in figures)
    notes = [
        f"Pairs skipped in a lifetime's draw, for a best score below "
        f"{context.settings.dialogue.min_best:g}: {most:.2f} at most on average (the paper: 3.75)."
    ]
    if context.customer != "statistical":
        notes.append(f"Customers of all rows: {context.customer}.")
    return notes


def _own_suite(custom: Sequence[Configuration]) -> Suite:
    first = custom[0]
    shared = {"setting": first.setting, "cell": first.cell, "feedback": first.feedback}
    bounds = [Configuration(a, memory=False, **shared) for a in BASELINES + BOUNDS]  # type: ignore[arg-type]
    chosen = [row for row in bounds if row.agent not in {c.agent for c in custom}]
    return Suite(
        "How do these agents do?",
        "ours",
        "",
        lambda _: [*chosen, *custom],
        ("agent", "memory"),
        ("agent", "random"),
    )


def _title(suite: Suite, row: Configuration) -> str:
    return ", ".join(
        f"{name} {value}" if name != "agent" else value
        for name, value in row.labels.items()
        if name in suite.varied and value
    )


@dataclass(frozen=True, slots=True)
class _Point:
    """A figure (NaN where it can't be had), with its test and the lifetimes behind it."""

    figure: Figure
    lifetimes: int
    #: p-value of the paired test, uncorrected and corrected over the suite.
    p: float = float("nan")
    q: float = float("nan")


#: Points of a row by metric and x.
Points = dict[tuple[str, float], _Point]
#: Metrics whose mean over lifetimes is reported.
_WHOLE = ("regret", "normalised_regret", "top_1", "top_3", "top_5", "stars", "questions",
          "repeated", "unmatched", "failed")  # fmt: skip


def _figures(
    world: DialogueWorld, suite: Suite, rows: Rows, drawn: Sequence[Lifetimes]
) -> tuple[list[Points], list[Comparison]]:
    """Points of each row, and its comparisons; tests are corrected over the rows of the suite."""
    shares = [values_of(played.episodes, _SHARE) for _, played in rows]
    out: list[Points] = []
    for (row, played), share, life in zip(rows, shares, drawn, strict=True):
        episodes, turns = played.episodes, played.turns
        skipped = Values(life.seeds, np.zeros(1), life.skipped[:, None].astype(np.float64))
        measured: Points = {("skipped", 0.0): _overall(skipped)}
        for name in _CURVES:
            measured |= _curve(name, values_of(episodes, name))
        for name in _WHOLE:
            measured[name, 0.0] = _overall(values_of(episodes, name))
        measured["slope", 0.0] = _overall(share.slope())
        for (episode, name), (figure, count) in calibration(turns).items():
            measured[f"ece_{name}", float(episode)] = _Point(figure, count)
        for episode in row.probes:
            measured |= _probed(turns, episode)
        follows, chance = agreement(world, turns, episodes)
        for name, values in (
            ("faithful", faithfulness(world, turns, episodes)),
            ("answers_used", answers_used(world, turns, episodes)),
            ("agreement", follows),
            ("agreement_chance", chance),
            ("agreement_gain", paired(follows, chance)[0]),
        ):
            if len(values.seeds):
                measured[name, 0.0] = _overall(values)
        out.append(measured)
    return out, _compare(suite, rows, shares, out)


def _overall(values: Values) -> _Point:
    return _Point(values.overall(), int((~np.isnan(values.means)).sum()))


def _curve(name: str, values: Values) -> Points:
    points = zip(values.x.tolist(), values.curve(), values.lifetimes.tolist(), strict=True)
    return {(name, x): _Point(figure, count) for x, figure, count in points}


def _probed(turns: pl.DataFrame, episode: int) -> Points:
    """Regret by questions asked, of recommendations probed in an episode."""
    probed = turns.filter(
        (pl.col("episode") == episode)
        & pl.col("kind").is_in(["probe", "recommend"])
        & pl.col("regret").is_not_null()
    ).unique(["seed", "turn"], keep="first", maintain_order=True)
    if probed.is_empty():
        return {}
    values = pivoted(probed.select("seed", "turn", value="regret"), "turn")
    return _curve(f"regret_episode_{episode}", values)


def _compare(
    suite: Suite, rows: Rows, shares: Sequence[Values], out: list[Points]
) -> list[Comparison]:
    """Gap closed, memory effects and tests against the suite's reference, added to the points."""
    comparisons: list[Comparison] = []
    tests: list[tuple[int, str]] = []
    titles = [_title(suite, row) for row, _ in rows]
    for n, (row, played) in enumerate(rows):
        count = played.episodes["seed"].n_unique()
        oracle = _partner(rows, row, agent="oracle")
        if oracle is not None and _above_chance(rows[oracle][1].episodes):
            figure = gap_closed(played.episodes, rows[oracle][1].episodes)
            out[n]["gap_closed", 0.0] = _Point(figure, len(shares[n].seeds))
        off = _partner(rows, row, memory="off") if row.memory else None
        if off is not None:
            effect, p = paired(shares[n], shares[off])
            out[n] |= _curve("memory_effect", effect)
            out[n]["memory_effect", 0.0] = replace(_overall(effect), p=p)
            tests.append((n, "memory_effect"))
            overall = out[n]["memory_effect", 0.0].figure
            if not np.isnan(p):
                comparisons.append(
                    Comparison(titles[n], "the same, memory off", _SHARE, overall, p, count)
                )
        other = _partner(rows, row, **{suite.reference[0]: suite.reference[1]})
        if other is not None and other != n:
            difference, p = paired(shares[n], shares[other])
            out[n][_SHARE, 0.0] = replace(out[n][_SHARE, 0.0], p=p)
            tests.append((n, _SHARE))
            if not np.isnan(p) and suite.reference != ("memory", "off"):
                comparisons.append(
                    Comparison(titles[n], titles[other], _SHARE, difference.overall(), p, count)
                )
    corrected = false_discovery([out[n][name, 0.0].p for n, name in tests])
    for (n, name), q in zip(tests, corrected, strict=True):
        out[n][name, 0.0] = replace(out[n][name, 0.0], q=q)
    return comparisons


def _above_chance(episodes: pl.DataFrame) -> bool:
    """True for an oracle better than a random product, interval included; else there is no gap."""
    chance, regret = values_of(episodes, "random_regret"), values_of(episodes, "regret")
    return paired(chance, regret)[0].overall().low > 0


def _partner(rows: Rows, row: Configuration, **changed: str) -> int | None:
    """First row with other labels than `row` in nothing but these; itself if they are its own.

    Rows of another agent need to be of the same setting and cell alone: baselines and bounds are
    played once for all forms of feedback and memory.
    """
    same = ("setting", "cell") if "agent" in changed else tuple(row.labels)
    for m, (other, _) in enumerate(rows):
        labels = {name: row.labels[name] for name in same if name not in changed} | changed
        if all(other.labels[name] == value for name, value in labels.items()):
            return m
    return None


def _known(value: float) -> float | None:
    return None if np.isnan(value) else round(float(value), 9)


def _report_frame(name: str, suite: Suite, rows: Rows, figures: list[Points]) -> pl.DataFrame:
    lines = [
        {
            "figure": name,
            "configuration": _title(suite, row),
            "x": x,
            "metric": metric,
            "value": _known(point.figure.value),
            "low": _known(point.figure.low),
            "high": _known(point.figure.high),
            "p": _known(point.q),
            "lifetimes": point.lifetimes,
        }
        for (row, _), points in zip(rows, figures, strict=True)
        for (metric, x), point in points.items()
    ]
    return pl.DataFrame(lines, schema=DIALOGUE["dialogue.report"].polars_schema())


def _study(
    name: str,
    suite: Suite,
    rows: Rows,
    figures: list[Points],
    comparisons: list[Comparison],
    notes: Sequence[str],
) -> Study:
    """The study of a suite: a row per configuration."""
    study = Study(
        name,
        suite.question,
        suite.anchor,
        {n: FIGURES[n] for n in _TABLE},
        suite.varied,
        unit="seed",
        comparisons=comparisons,
        legend=_LEGEND,
        pictures=_pictures(suite, rows, figures),
    )
    zero = _always_zero(figures)
    for (row, played), points in zip(rows, figures, strict=True):
        labels = [row.labels[varied] for varied in suite.varied]
        values = {
            m: _shown(points[m, 0.0].figure) for m in _TABLE if (m, 0.0) in points and m not in zero
        }
        count = played.episodes["seed"].n_unique()
        note = f"{count} lifetimes of {played.episodes['episode'].n_unique()} episodes"
        source = "model" if played.identity["agent"].get("language_model") else row.source
        model_note = note if source == "model" else ""
        study.add(labels, source, figures=values, n=count, note=model_note)
    study.notes += [
        *([f"The paper: {suite.paper}. It publishes no numbers."] if suite.paper else []),
        "The oracle reads the persona's description with a rater that made no scores; `best` knows "
        "the scores. Neither is a competitor.",
        *([f"0 in all rows: {', '.join(f'`{m}`' for m in zero)}."] if zero else []),
        *notes,
    ]
    return study


def _always_zero(figures: list[Points]) -> list[str]:
    """Metrics of the table that are 0 in all rows: a sentence replaces their columns."""
    values = {m: [f[m, 0.0].figure.value for f in figures if (m, 0.0) in f] for m in _TABLE}
    return [m for m, column in values.items() if column and not any(column)]


def _shown(figure: Figure) -> Figure | None:
    return None if np.isnan(figure.value) else figure


def _pictures(suite: Suite, rows: Rows, figures: list[Points]) -> dict[str, bytes]:
    """Curves over episodes, and by questions where recommendations were probed."""
    charts = {
        "normalised regret by episode": ("normalised_regret", "episode"),
        "questions by episode": ("questions", "episode"),
        **{
            f"regret by questions, episode {e}": (f"regret_episode_{e}", "questions asked")
            for e in _SLICES
            if any(e in row.probes for row, _ in rows)
        },
    }
    out = {}
    for title, (metric, axis) in charts.items():
        curves: dict[str, dict[str, Figure | float | None]] = {}
        for (row, _), measured in zip(rows, figures, strict=True):
            if metric == "questions" and row.agent in BASELINES + BOUNDS:
                continue
            points = {f"{x:g}": p.figure for (n, x), p in measured.items() if n == metric and x > 0}
            shown = {x: f for x, f in points.items() if not np.isnan(f.value)}
            if shown:
                curves[_title(suite, row)] = dict(shown)
        if curves:
            unit = metric.partition("_episode")[0].replace("_", " ")
            out[title] = draw({"": curves}, title=title, x=axis, y=unit, lines=True)
    return out


def write_run(result: DialogueRun, folder: Path) -> dict[str, Path]:
    """Write tables and reports into a folder and return the files by kind.

    Per suite ``<suite>.md``, ``<suite>.csv``, ``<suite>-paired.csv`` and pictures; one page
    ``dialogues.html``; ``report.csv`` with every figure; ``episodes.parquet``, ``turns.parquet``.
    """
    from pipelines.store.files import storage_errors

    written = write_report(
        result.results, folder, release=result.release, title="Shopping dialogues", stem="dialogues"
    )
    record = {
        "release": result.release,
        "key": result.key,
        "flagged": result.flagged,
        "not_played": result.not_played,
        "seconds": result.seconds,
    }
    with storage_errors(folder):
        result.episodes.write_parquet(folder / FILES["episodes"])
        result.turns.write_parquet(folder / FILES["turns"])
        result.report.write_csv(folder / FILES["report"])
        # Written last: a folder with it is a finished run.
        (folder / "run.json").write_bytes(orjson.dumps(record, option=orjson.OPT_INDENT_2))
    return written | {kind: folder / name for kind, name in FILES.items()}


def read_run(folder: Path) -> DialogueRun:
    """The tables of a run's folder.

    Raises IntegrityError if a file is missing or can't be read.
    """
    try:
        record = orjson.loads((folder / "run.json").read_bytes())
        return DialogueRun(
            key=record["key"],
            release=record["release"],
            episodes=pl.read_parquet(folder / FILES["episodes"]),
            turns=pl.read_parquet(folder / FILES["turns"]),
            report=pl.read_csv(
                folder / FILES["report"],
                schema_overrides=DIALOGUE["dialogue.report"].polars_schema(),
            ),
            flagged=record["flagged"],
            seconds=record["seconds"],
            results={},
            not_played=record.get("not_played", []),
        )
    except (OSError, ValueError, KeyError, pl.exceptions.PolarsError) as error:
        raise IntegrityError(
            "no finished run of dialogues can be read here",
            where=str(folder),
            hint="understudy dialogue run",
        ) from error


def checks(world: DialogueWorld, result: DialogueRun) -> dict[str, tuple[bool, dict[str, Any]]]:
    """Whether each check of a run passed, with its figures, by name."""
    leaked = int((result.episodes["status"] == "leaked").sum())
    worth = [
        float(np.nanmean(y.max(axis=1)) - np.nanmean(y, axis=0).max())
        for shelf in world.sets
        if len(y := shelf.y[~np.isnan(shelf.y).any(axis=1)])
    ]
    paying = float(np.mean(np.array(worth) >= MIN_WORTH))
    overall = result.report.filter((pl.col("metric") == "regret") & (pl.col("x") == 0))
    beaten = []
    bounds = {(r["figure"], r["configuration"]): r for r in overall.iter_rows(named=True)}
    for (figure, name), row in bounds.items():
        words = name.split(", ")
        if "oracle" not in words:
            continue
        baselines = [", ".join(b if w == "oracle" else w for w in words) for b in BASELINES]
        lows = [bounds[figure, b]["low"] for b in baselines if (figure, b) in bounds]
        # A row whose episodes all failed has no regret to compare.
        if row["high"] is None or any(low is None or row["high"] >= low for low in lows):
            beaten.append(f"{figure}: {name}")
    return {
        "replies_are_readable": (not result.flagged, {"flagged": result.flagged}),
        "no_leaks": (not leaked, {"leaked": leaked}),
        "asking_pays": (paying > 0.5, {"share_of_sets": paying, "sets": len(worth)}),
        "oracle_beats_floors": (not beaten, {"not_in": beaten}),
    }
