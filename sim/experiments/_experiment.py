"""Experiments: decorated functions that fill a study, by name, run on one context."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pipelines.errors import ConfigError
from pipelines.packaged import packaged_yaml
from pipelines.plugins import Registry
from pipelines.progress import advance
from pipelines.study import Claim, Plot, Row, Study, TooFew
from sim.agents import ASSUMED_FILE
from sim.experiments._context import ExperimentContext

#: In the order of reports: each is the function of this name in ``sim.experiments._<name>``.
EXPERIMENTS = Registry(
    "experiment",
    {
        name: f"sim.experiments._{name}:{name}"
        for name in (
            "believability",
            "rating",
            "distribution",
            "strategies",
            "enhancement",
            "bubble",
            "causal",
            "traits",
            "exposure",
            "reviews",
            "thumbnails",
            "hallucination",
            "offline",
            "feeling",
            "judge",
            "cost",
        )
    },
    group="understudy.experiments",
)
#: Sentence on the intervals of an experiment that states no other.
LEGEND = (
    "Means over people with 95 % bootstrap intervals over people, unless a note says otherwise. "
    "Source `statistical` and `baseline`: no language model."
)


@dataclass(frozen=True)
class Experiment:
    """A question on simulated users, and the function that answers it on a context.

    Made by the decorator :func:`experiment`.
    """

    #: Name on the command line.
    name: str
    #: Fills a study with rows: ``function(study, context, **options)``.
    function: Callable[..., None]
    #: One sentence.
    question: str
    #: Names of the labels of rows.
    conditions: tuple[str, ...]
    #: Meaning of each figure with unit and range, by name.
    figures: Mapping[str, str]
    #: Tables and figures of the papers, such as ``Agent4Rec, Table 1; SimUSER, Table 1``.
    paper: str = ""
    #: The claim that the page leads with.
    claim: Claim | None = None
    #: Pictures by name.
    plots: Mapping[str, Plot] = field(default_factory=dict)
    #: Sentences below the rows; ``{name}`` stands for the value of an option.
    notes: Sequence[str] = ()
    #: Part of the identity of cached results; raise it whenever they would change.
    version: str = "1"
    #: Sentence on the intervals.
    legend: str = LEGEND
    #: Keyword arguments of the function that differ from its defaults.
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Any]:
        """Options with their defaults, as far as they are plain values: identity of the results."""
        parameters = list(inspect.signature(self.function).parameters.values())[2:]
        options = {p.name: self.options.get(p.name, p.default) for p in parameters}
        plain = (bool, int, float, str, tuple)
        return {name: value for name, value in options.items() if isinstance(value, plain)}

    def configure(self, **options: Any) -> Experiment:
        """The experiment with other options.

        Raises ConfigError if one is unknown.
        """
        accepted = list(inspect.signature(self.function).parameters)[2:]
        for name in options:
            if name not in accepted:
                raise ConfigError(
                    f"the experiment has no option {name}",
                    where=f"experiment {self.name}",
                    hint=f"options: {', '.join(accepted) or 'none'}",
                )
        return replace(self, options={**self.options, **options})

    def study(self, context: ExperimentContext) -> Study:
        """A study without rows."""
        return Study(
            self.name,
            self.question,
            self.paper,
            self.figures,
            self.conditions,
            self.claim,
            settings=self.settings,
            version=self.version,
            where=f"experiment {self.name}, {context.release.ref}",
            seed=context.seed,
            published=paper_rows(self.name),
            legend=self.legend,
        )

    def run(self, context: ExperimentContext) -> Study:
        """Answer the question on a release.

        Raises TooFew if there are too few agents, interactions, systems or pictures for a figure.
        """
        study = self.study(context)
        study.notes += [note.format(**self.settings) for note in self.notes]
        self.function(study, context, **self.options)
        if context.people:
            study.notes.append(context.people)
        if any(row.source == "statistical" for row in study.rows):
            study.footer = f"The statistical brain's assumptions are in `{ASSUMED_FILE}`."
        study.draw(self.plots)
        return study


def experiment(
    *, question: str, conditions: Sequence[str], figures: Mapping[str, str], **fields: Any
) -> Callable[[Callable[..., None]], Experiment]:
    """Decorator that registers an :class:`Experiment` under its function's name.

    The function takes a :class:`pipelines.study.Study` and an :class:`ExperimentContext`, adds rows
    and comparisons to the study, and raises :class:`pipelines.study.TooFew` (``Study.require``).
    Its keyword arguments are the options of the experiment. ``fields`` are others of an
    :class:`Experiment`: ``paper``, ``claim``, ``plots``, ``notes``, ``version``, ``legend``.

    >>> @experiment(question="Is there an answer?", conditions=("brain",), figures={"one": "1"})
    ... def mine(study, context):
    ...     study.add(["none"], "baseline", figures={"one": 1.0})
    >>> mine.name, mine.question
    ('mine', 'Is there an answer?')
    """

    def decorate(function: Callable[..., None]) -> Experiment:
        declared = Experiment(
            function.__name__, function, question, tuple(conditions), dict(figures), **fields
        )
        if declared.name not in EXPERIMENTS:
            EXPERIMENTS.register(declared.name)(declared)
        return declared

    return decorate


def page(name: str, **where: Callable[[Row], bool]) -> dict[str, Any]:
    """Arguments of :func:`experiment` in ``data/pages.yaml``: figures, claim, plots and notes.

    ``where`` are functions by plot that select the rows to draw.
    """
    texts = packaged_yaml("sim.experiments", "pages.yaml")[name]
    plots = {}
    for plot, values in texts.get("plots", {}).items():
        named: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in values.items()
        }
        if plot in where:
            named["where"] = where[plot]
        plots[plot] = Plot(**named)
    return {**texts, "claim": Claim(**texts["claim"]), "plots": plots}


def paper_rows(name: str) -> list[Row]:
    """Published rows of an experiment, for context: other data, other models."""
    return [
        Row(
            labels={"paper": row["table"], **row.get("labels", {})},
            source="paper",
            figures={k: float(v) for k, v in row["figures"].items()},
            n=row.get("n"),
            note=row.get("note", ""),
        )
        for row in packaged_yaml("sim.experiments", "papers.yaml").get(name) or []
    ]


def open_experiment(name: str, **options: Any) -> Experiment:
    """An experiment by name.

    A name is one of `EXPERIMENTS`, or that of your own (:class:`pipelines.plugins.Registry`);
    options are keyword arguments of the function.

    Raises
    ------
    ConfigError
        If there is none of that name (naming the nearest), it is no function with the decorator
        :func:`experiment`, or an option is unknown.
    """
    target = EXPERIMENTS[name]
    if not isinstance(target, Experiment):
        raise ConfigError(
            "not an experiment",
            where=name,
            hint="decorate a function with sim.experiments.experiment",
        )
    return target.configure(**options)


def chosen_names(names: Sequence[str]) -> list[str]:
    """Names of experiments, each once; ``all`` stands for all of them.

    Raises ConfigError if no name is given.
    """
    if not names:
        raise ConfigError(
            "no experiment is named", where="understudy experiment", hint="names of `list`, or all"
        )
    named = [n for name in names for n in (EXPERIMENTS.names() if name == "all" else [name])]
    return list(dict.fromkeys(named))


def run_experiments(context: ExperimentContext, names: Sequence[str]) -> dict[str, Study]:
    """Run experiments (:func:`chosen_names`) one after the other; sets the context's ``seconds``.

    Returns the studies by name; where too little is there for figures, a study's ``too_few`` says
    so.

    Raises
    ------
    ConfigError
        If a name is unknown, or two experiments have the same.
    TooFew
        If a single experiment is asked for, and too little is there.
    """
    chosen = chosen_names(names)
    # A wrong name ends the run before the first experiment.
    opened: dict[str, Experiment] = {}
    for name in chosen:
        entry = open_experiment(name)
        if entry.name in opened:
            raise ConfigError(
                f"two experiments are named {entry.name}", where=name, hint="give one a new name"
            )
        opened[entry.name] = entry
    out: dict[str, Study] = {}
    for number, (name, entry) in enumerate(opened.items()):
        advance(name, number, len(chosen))
        began = time.perf_counter()
        try:
            out[name] = entry.run(context)
        except TooFew as error:
            if len(chosen) == 1:
                raise
            out[name] = entry.study(context)
            out[name].too_few = error
        context.seconds[name] = time.perf_counter() - began
    return out
