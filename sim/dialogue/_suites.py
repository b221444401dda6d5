"""Suites: the figures of BIEL as lists of configurations, with controls, and how they are run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pipelines.config import Settings
from pipelines.errors import ConfigError
from pipelines.hints import nearest
from pipelines.plugins import closing
from pipelines.progress import within
from sim._results import ResultCache
from sim.dialogue._lifetimes import CELLS, SETTINGS, Cell, Lifetimes, Setting
from sim.dialogue._protocol import FEEDBACK, Customer, Feedback
from sim.dialogue._run import Played, play
from sim.dialogue._world import DialogueWorld
from sim.dialogue.agents import AGENTS, open_agent
from sim.dialogue.customers import open_customer

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
    #: Whether the agent asks a language model.
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
    """World, settings and cache of runs; finished blocks of lifetimes are not played again."""

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
        """Play a configuration, or read it from the cache."""
        dialogue = self.settings.dialogue
        lifetimes = self.draw(chosen, seeds=seeds)
        agent = self._agent(chosen)
        customer = self._customer(chosen, agent)
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
                cache=ResultCache(self.home, "dialogues"),
            )

    def _agent(self, chosen: Configuration) -> Any:
        options: dict[str, Any] = {}
        if chosen.agent in _ASSUMING:
            options = {"tau": self.settings.dialogue.tau}
        return open_agent(chosen.agent, settings=self.settings, **{**options, **chosen.options})

    def _customer(self, chosen: Configuration, agent: Any) -> Any:
        options = dict(self.customer_options)
        if chosen.unfaithful is not None and self.customer == "statistical":
            options.setdefault("unfaithful", chosen.unfaithful)
        if self.customer == "model" and chosen.model:
            options.setdefault("session", agent)  # the weights are loaded once
        return configured_customer(self.customer, self.settings, **options)


def configured_customer(name: str, settings: Settings, **options: Any) -> Customer:
    """A customer by name, whose answer model is that of the section ``dialogue``."""
    if name == "statistical":
        options = {"tau": settings.dialogue.tau} | options
    return open_customer(name, settings=settings, **options)
