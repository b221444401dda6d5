"""Shared inputs of experiments: worlds, opened brains, fitted recommenders, kept results."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy.typing as npt
import orjson
import polars as pl

from pipelines.config import identity_hash
from pipelines.errors import ConfigError
from pipelines.paths import home_path
from pipelines.progress import advance, within
from pipelines.study import Study
from sim._results import ResultCache
from sim.agents import (
    BRAINS,
    AgentWorld,
    Brain,
    Simulation,
    default_folder,
    match_people,
    open_brain,
    simulate,
    source_of,
)
from sim.agents import CODE_VERSION as AGENTS_VERSION
from sim.recommenders import RECOMMENDERS as OWN_RECOMMENDERS
from sim.recommenders import Ints, Recommender, open_recommender

if TYPE_CHECKING:
    from pipelines.config import Settings
    from sim import Release

#: Bumped whenever kept cells of the same key would be others.
CODE_VERSION = "4"
#: Recommenders that are visited, as far as their libraries are installed.
RECOMMENDERS = ("random", "popular", "mean-rating", "ease", "als", "multvae", "lightgcn")


@dataclass
class ExperimentContext:
    """Release, brains, recommenders and kept results that experiments share.

    Whatever is opened or fitted is opened once. Visits are kept below ``home/simulations`` and
    cells below ``home/experiments``, under everything that decides them.
    """

    #: Release, settings (the engine of a brain that asks a model) and the store's folder.
    release: Release
    settings: Settings
    home: Path
    #: Agents (count), pages of a visit at most, items of a page, seed.
    agents: int = 1_000
    pages: int = 5
    per_page: int = 4
    seed: int = 0
    #: Names of brains; ``random`` and ``statistical`` are always among them.
    brains: tuple[str, ...] = ("random", "statistical")
    #: Names of recommenders.
    recommenders: tuple[str, ...] = ()
    #: Size of runs with brains that ask a model: ``model_agents`` and ``model_pages`` (counts).
    sample: dict[str, int] = field(default_factory=dict)
    #: Arguments of brains by name.
    brain_options: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Cells computed and read (counts).
    made: int = 0
    reused: int = 0
    #: Time that each experiment took, set by `run_experiments`.
    seconds: dict[str, float] = field(default_factory=dict)
    #: Sentence on people that were matched for this run; None: the release has matched personas.
    people: str | None = None
    _worlds: dict[Any, AgentWorld] = field(default_factory=dict, repr=False)
    _brains: dict[Any, Brain] = field(default_factory=dict, repr=False)
    _of_brain: dict[int, AgentWorld] = field(default_factory=dict, repr=False)
    _fitted: dict[Any, Recommender] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for name in ("agents", "pages", "per_page"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}", where="experiments", hint="at least 1"
                )
        self.release, self.people = match_people(self.release, self.settings.matching)
        self.home = home_path(self.home)
        self.brains = tuple(dict.fromkeys(("random", "statistical", *self.brains)))
        self.recommenders = self.recommenders or installed(RECOMMENDERS)
        self.sample = {"model_agents": 20, "model_pages": 2} | self.sample
        self._cache = ResultCache(self.home, "experiments")

    def close(self) -> None:
        """Close brains that hold an engine."""
        for brain in self._brains.values():
            close = getattr(brain, "close", None)
            if close is not None:
                close()

    def world(
        self, *, traits: bool = True, graph: bool = True, pages: int | None = None
    ) -> AgentWorld:
        """The release opened for agents, once per set of arguments; see `AgentWorld.open`."""
        key = traits, graph, self.pages if pages is None else pages
        if key not in self._worlds:
            self._worlds[key] = AgentWorld.open(
                self.release, traits=traits, graph=graph, pages=key[2], per_page=self.per_page
            )
        return self._worlds[key]

    def brain(self, name: str, world: AgentWorld | None = None, **options: Any) -> Brain:
        """A brain by name (see `open_brain`), opened once per world and set of its class's options.

        By default on matched people, with `pages`, or with ``model_pages`` where a model is asked.
        """
        options = {**self.brain_options.get(name, {}), **options}
        if world is None:
            world = self.world(pages=self.sample["model_pages"] if _asks(name) else None)
        key = (name, id(world), repr(sorted(options.items())))
        if key not in self._brains:
            advance(f"opening brain {name}")
            opened = open_brain(name, settings=self.settings, **options).open(world)
            self._brains[key], self._of_brain[id(opened)] = opened, world
        return self._brains[key]

    def players(self) -> Iterator[tuple[str, Brain, str]]:
        """Each brain's name, the opened brain and the source of its rows."""
        for name in self.brains:
            brain = self.brain(name)
            yield name, brain, self.source(brain)

    def world_of(self, brain: Brain) -> AgentWorld:
        """The world that a brain was opened on."""
        return self._of_brain[id(brain)]

    def agents_of(self, brain: Brain) -> int:
        """Agents of a run (count): fewer where a model is asked."""
        if self.source(brain) == "model":
            return min(self.agents, self.sample["model_agents"])
        return self.agents

    def source(self, brain: Brain) -> str:
        """``baseline``, ``statistical`` (no language model) or ``model``: source of its rows."""
        return source_of(brain.name, brain.metadata())

    def recommender(self, name: str) -> Recommender:
        """A recommender by name (see `open_recommender`), fitted once on the training split.

        The project's own are fitted when they are first asked for a list: visits and results that
        are kept need none.
        """
        if name not in self._fitted:
            inner = open_recommender(name)
            # The note, which visits are kept under, may say what fitting found.
            deferred = name in OWN_RECOMMENDERS and name != "content"
            self._fitted[name] = _Deferred(inner, self._fit) if deferred else self._fit(inner)
        return self._fitted[name]

    def visits(
        self,
        brain: Brain | str,
        recommender: Recommender | str,
        *,
        world: AgentWorld | None = None,
    ) -> Simulation:
        """Visits of `agents_of` the brain to a recommender; kept, and resumed after a kill.

        ``brain`` and ``recommender`` are opened and fitted, or names. The world is the brain's by
        default.
        """
        mind = self.brain(brain) if isinstance(brain, str) else brain
        shown = self.recommender(recommender) if isinstance(recommender, str) else recommender
        played = self.world_of(mind) if world is None else world
        number = self.agents_of(mind)
        folder = default_folder(self.home, played, mind, shown, agents=number, seed=self.seed)
        with within(f"{mind.name} visits {shown.name}"):
            return simulate(played, mind, shown, agents=number, folder=folder, seed=self.seed)

    def of_visits(
        self,
        study: Study,
        brain: Brain,
        recommender: str,
        compute: Callable[[Simulation], pl.DataFrame],
    ) -> pl.DataFrame:
        """The frame of :meth:`visits` that ``compute`` makes; computed once and cached."""
        run = self.visits(brain, recommender)
        return self.cell(study, {"visits": run.identity}, lambda: compute(run))

    def cell(
        self, owner: Study | str, key: Mapping[str, Any], compute: Callable[[], pl.DataFrame]
    ) -> pl.DataFrame:
        """The frame of ``compute``, computed once and cached.

        ``owner`` is a study, whose settings and version are part of the identity, or the name of
        what several of them share. ``key`` has all else that decides the frame beside release,
        seed and code, such as `identity` of the brain.
        """
        name = owner if isinstance(owner, str) else owner.name
        parts = {
            "experiment": name,
            "code": CODE_VERSION,
            "agents_code": AGENTS_VERSION,
            "release": self.release.ref,
            "seed": self.seed,
            "key": key,
        }
        if not isinstance(owner, str):
            parts |= {"settings": owner.settings, "version": owner.version}
        plain = orjson.loads(orjson.dumps(parts, option=orjson.OPT_SERIALIZE_NUMPY))
        digest = identity_hash(plain)
        cached = self._cache.frame(name, digest)
        if cached is not None:
            self.reused += 1
            return cached
        advance(name)
        frame = compute()
        self._cache.put(name, digest, frame)
        self.made += 1
        return frame

    def identity(self, brain: Brain) -> dict[str, Any]:
        """Name, fitted values and world of a brain, for keys of cells."""
        world = self.world_of(brain)
        shape = {name: getattr(world, name) for name in ("cast", "pages", "per_page")}
        habits: dict[str, Any] = {
            "traits": world.traits,
            "graph": world.graph,
            "people": len(world),
        }
        if world.matched:
            habits["matches"] = world.release["matched_personas"].version
        texts = None if world.texts is None else world.texts.digest
        named = {"brain": brain.name, "metadata": brain.metadata(), "texts": texts}
        return {**named, **shape, **habits}

    def _fit(self, recommender: Recommender) -> Recommender:
        advance(f"fitting {recommender.name}")
        return recommender.fit(self.release)


class _Deferred:
    """A recommender that is fitted when it is first asked for a list."""

    def __init__(self, inner: Recommender, fit: Callable[[Recommender], Recommender]) -> None:
        self.name, self.note = inner.name, inner.note
        self._inner, self._fit = inner, fit

    @cached_property
    def _fitted(self) -> Recommender:
        return self._fit(self._inner)

    def fit(self, release: Release, *, interactions: pl.DataFrame | None = None) -> Self:
        """Fit on other data; see :class:`Recommender`."""
        self.__dict__["_fitted"] = self._inner.fit(release, interactions=interactions)
        return self

    def recommend(self, users: npt.ArrayLike, k: int, **options: Any) -> Ints:
        """See :class:`Recommender`."""
        return self._fitted.recommend(users, k, **options)


def _asks(name: str) -> bool:
    """Whether a brain's class takes an engine; the class is not instantiated."""
    return "engine" in inspect.signature(BRAINS[name]).parameters


def installed(names: Sequence[str]) -> tuple[str, ...]:
    """The recommenders of these names whose libraries are installed."""
    needs = {name: getattr(OWN_RECOMMENDERS[name], "needs", ()) for name in names}
    return tuple(name for name in names if all(map(importlib.util.find_spec, needs[name])))
