"""Shared state of a suite's cells, and the scoring of one cell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines import raters
from pipelines.config import EngineSettings, Settings, identity_hash
from pipelines.errors import ConfigError, ReleaseError
from pipelines.hints import nearest
from pipelines.llm.answers import AnswerStore
from pipelines.llm.engines import Engine, load_engine
from pipelines.llm.engines.tokens import model_tokenizer
from pipelines.progress import add, listening
from pipelines.prompts import RATING_PROMPT_VERSION, Question, rating_prompt_digest
from pipelines.raters import layers
from pipelines.scales import rescale, scale_named
from pipelines.store import Snapshot
from sim._results import ResultCache
from sim.ablations._grid import (
    STRENGTH,
    TABLES,
    TESTS,
    UNSEEN,
    Cases,
    Human,
    Options,
    human_distribution,
    load_cases,
    scored,
)

if TYPE_CHECKING:
    from pipelines.ablations import CaseRule, Suite
    from pipelines.raters import Rater
    from pipelines.retrieval import Retriever
    from pipelines.store import Release as StoredRelease
    from pipelines.store import Store


#: Kinds of raters that a suite can judge.
KINDS = ("statistical", "random", "mean", "llm")
_VECTORS = ("item_embeddings", "persona_embeddings")


@dataclass(frozen=True)
class RaterSpec:
    """A rater of a suite: one of :data:`KINDS` and, for `llm`, its engine (else ConfigError)."""

    kind: str
    engine: EngineSettings | None = None
    #: Question that a model is asked, as `scoring.question`.
    question: Question = "scale"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError("unknown rater", where=self.kind, hint=nearest(self.kind, KINDS))
        if (self.kind == "llm") != (self.engine is not None):
            raise ConfigError("the rater llm, and only it, needs an engine", where=self.kind)

    @property
    def name(self) -> str:
        """Value of the ``rater`` column: ``statistical``, ``llm:<model>``."""
        if self.engine is None:
            return self.kind
        return raters.llm_name(self.engine.model or self.engine.kind, self.question)

    @property
    def sight(self) -> str:
        """Key of the options that it can see: the kind, of a model also the question."""
        return self.kind if self.question == "scale" else "closed question"


@dataclass
class RaterCache:
    """Opens raters on a domain's tables, once each.

    Parameters
    ----------
    settings
        The sections `scoring` (seed, role of the system message) and `serving` are read.
    domain
        ``movies`` or ``books``.
    tables
        Snapshots of the domain by short name.
    answers
        Store of the models' answers; None stores none.
    engines
        Opens an engine; given by tests.
    """

    settings: Settings
    domain: str
    tables: Mapping[str, Snapshot]
    answers: AnswerStore | None = None
    engines: Callable[[EngineSettings], Engine] | None = None
    _loaded: dict[RaterSpec, Engine] = field(default_factory=dict)
    _open: dict[tuple[RaterSpec, str, int, str], raters.Rater] = field(default_factory=dict)
    _frames: dict[str, Any] = field(default_factory=dict)

    def identity(self, spec: RaterSpec, scale: str, shots: int, system: str) -> dict[str, Any]:
        """Identity of the rater's answers, ready for JSON; opens no model that can be avoided.

        A fitted rater is identified by its code, its seed and what it is fitted on; one that asks
        a model by the engine, the prompts' version and digest, and the options it sees.
        """
        base: dict[str, Any] = {"kind": spec.kind, "scale": scale}
        if spec.kind == "random":
            return base
        if spec.engine is None:
            names = sorted(raters.needs_of(spec.kind))
            versions = {name: self.tables[name].version for name in names if name in self.tables}
            return base | {
                "code": raters.CODE_VERSION,
                "seed": self.settings.scoring.seed if spec.kind == "statistical" else None,
                "taste": self.settings.scoring.taste if spec.kind == "statistical" else None,
                "fitted_on": versions,
            }
        return base | {
            "engine": asdict(self._engine(spec).identity),
            "prompt_version": RATING_PROMPT_VERSION,
            "prompt_sha256": rating_prompt_digest(self.settings.scoring.layout, spec.question),
            "shots": shots,
            "system": system_text(self.domain, system) or "default",
            "system_role": self.settings.scoring.system_role,
            # Versions of the tables that prompts quote.
            "tables": {name: self.tables[name].version for name in ("item_stats", "items")},
        }

    def open(
        self, spec: RaterSpec, scale: str, shots: int, system: str, *, history: int
    ) -> raters.Rater:
        """The rater of these options; `history` is how many past ratings a prompt may show."""
        model = spec.engine
        if model is None:
            # Options that it can't see make no other rater.
            shots, system = 0, "default"
        key = (spec, scale, shots, system)
        if key not in self._open:
            scoring = self.settings.scoring.model_copy(
                update={
                    "rater": spec.kind,
                    "scale": scale,
                    "question": spec.question,
                    "shots": shots,
                    "history": history,
                    "system": system_text(self.domain, system),
                }
            )
            vectors: dict[str, Any] = {
                n: self.frame(n) for n in _VECTORS if n in self.tables and model is None
            }
            tokenizer = None
            if model is not None and self.engines is None:
                tokenizer = model_tokenizer(model, self.settings.serving)
            self._open[key] = raters.open_rater(
                self.settings.model_copy(update={"scoring": scoring}),
                items=self.frame("items"),
                item_stats=self.frame("item_stats"),
                interactions=self.tables["interactions"].scan(),
                splits=self.tables["splits"].scan(),
                domain=self.domain,
                store=self.answers,
                engine=None if model is None else self._engine(spec),
                tokenizer=tokenizer,
                name=spec.name,
                **vectors,
            )
        return self._open[key]

    def close(self) -> None:
        """Release the models and commit what the answer store still holds back."""
        try:
            for engine in self._loaded.values():
                engine.close()
        finally:
            self._loaded.clear()
            self._open.clear()
            if self.answers is not None:
                self.answers.close()

    def frame(self, name: str) -> pl.DataFrame:
        """A table of the domain, read once; items are in the order of their ids."""
        if name not in self._frames:
            frame = self.tables[name].read()
            self._frames[name] = frame.sort("item_id") if name == "items" else frame
        table: pl.DataFrame = self._frames[name]
        return table

    def _engine(self, spec: RaterSpec) -> Engine:
        if spec not in self._loaded:
            assert spec.engine is not None
            self._loaded[spec] = (
                self.engines(spec.engine)
                if self.engines
                else load_engine(spec.engine, self.settings.serving)
            )
        return self._loaded[spec]


_CUSTOM = (
    "You predict how one particular person rates {items}. You know people well: their habits, "
    "their age, and what they say about themselves tell you what they will enjoy. Before you "
    "answer, weigh three things: what the person says about taste and about giving marks, what "
    "the {item} is like ({features}), and how the person rated similar {items} before. What the "
    "person says and did counts more than what others think of the {item}, and more than what "
    "you think of it. Some people praise everything and some praise nothing; answer as this one "
    "would, without kindness and without severity of your own."
)
#: Custom system texts by domain.
SYSTEMS = {
    "movies": _CUSTOM.format(
        items="films", item="film", features="plot, genres, cast, average rating"
    ),
    "books": _CUSTOM.format(
        items="books", item="book", features="subject, categories, author, average rating"
    ),
}


def system_text(domain: str, system: str) -> str | None:
    """The text of a setting: None for `default`, which is the prompts' own."""
    if system not in ("default", "custom") or domain not in SYSTEMS:
        raise ConfigError(
            "no such system text", where=f"{domain}, {system}", hint="default or custom"
        )
    return SYSTEMS[domain] if system == "custom" else None


Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: Cases that are asked together at most (count).
BLOCK = 1_000
#: Tests under one draw whose answers are held in memory (count).
_LATEST = 32


def recall(cases: Cases, retriever: Retriever | None, k: int) -> tuple[Ints, Floats]:
    """The past items that each case shows, oldest first, and their ratings.

    Item numbers, -1 padding, and ratings on the cases' scale, each of shape (n, k). Each case has
    its own memory: nothing that another case asked is in it.
    """
    if retriever is None or not cases.history.shape[1]:
        return np.empty((len(cases), 0), dtype=np.int64), np.empty((len(cases), 0))
    ratings = np.nan_to_num(cases.ratings)
    at = retriever.select(cases.item, cases.history, ratings, k)
    present = at >= 0
    safe = np.where(present, at, 0)
    items = np.where(present, np.take_along_axis(cases.history, safe, axis=1), -1)
    shown = np.take_along_axis(cases.ratings, safe, axis=1)
    return items, np.where(present, shown, np.nan)


def blocks(person: Ints, *, alone: bool, max_block: int = BLOCK) -> Iterator[Ints]:
    """Rows of the cases that are asked together (at most `max_block`), together each once.

    `alone`: a persona is in a block only once, as a rater knows histories by persona.

    >>> [b.tolist() for b in blocks(np.array([7, 7, 8]), alone=True)]
    [[0, 2], [1]]
    >>> [b.tolist() for b in blocks(np.array([7, 7, 8]), alone=False, max_block=2)]
    [[0, 1], [2]]
    """
    order = np.argsort(person, kind="stable")
    turn = layers(person)[order] if alone else np.zeros(len(order), dtype=np.int64)
    for round_ in range(int(turn.max()) + 1 if len(turn) else 0):
        rows = order[turn == round_]
        for start in range(0, len(rows), max_block):
            yield rows[start : start + max_block]


def answers(
    cases: Cases, shown: tuple[Ints, Floats], rater: Rater, items: pl.DataFrame
) -> pl.DataFrame:
    """The rater's answer to each case, asked in :func:`blocks`.

    ``shown`` is of :func:`recall`, ``items`` are in the order of their ids.

    Columns: ``case`` (0 to n - 1, ascending), ``status`` and ``probabilities`` (null unless
    ``ok``).
    """
    schema: dict[str, Any] = {
        "case": pl.Int64,
        "status": pl.String,
        "probabilities": pl.List(pl.Float64),
    }
    parts = [pl.DataFrame(schema=schema)]
    for rows in blocks(cases.person, alone=shown[0].shape[1] > 0):
        # Progress of the rater itself would be counted as cases.
        with listening(None):
            parts.append(_asked(cases, rows, shown, rater, items))
        add(len(rows))
    return pl.concat(parts).sort("case")


def _asked(
    cases: Cases, rows: Ints, shown: tuple[Ints, Floats], rater: Rater, items: pl.DataFrame
) -> pl.DataFrame:
    who, person = np.unique(cases.person[rows], return_inverse=True)
    what, item = np.unique(cases.item[rows], return_inverse=True)
    people = cases.personas[who.tolist()]
    past_items, past_ratings = shown[0][rows], shown[1][rows]
    present = past_items >= 0
    histories = None
    if present.any():
        ratings = rescale(past_ratings[present], cases.scale, rater.scale)
        at = np.nonzero(present)[0]
        histories = pl.DataFrame(
            {
                "persona_id": people["persona_id"].gather(person[at]),
                "item_id": items["item_id"].gather(past_items[present]),
                # A conversion of 1-10 to 0-9 and back is exact but for rounding.
                "rating": np.clip(ratings, rater.scale.low, rater.scale.high),
            }
        )
    batch = rater.rate(
        people, items[what.tolist()], histories, pairs=np.stack([person, item], axis=1)
    )
    status = pl.Series("status", list(batch.status), dtype=pl.String)
    return pl.DataFrame(
        {
            "case": rows,
            "status": status,
            "probabilities": pl.Series(batch.probabilities).arr.to_list(),
        }
    ).with_columns(probabilities=pl.when(pl.col("status") == "ok").then("probabilities"))


#: Bumped whenever the same identity gives another result.
CODE_VERSION = "1"
#: Past items that are shown (count; SUBER, section 4.2).
RETRIEVED = 3
#: Tables of a domain that a suite needs.
_NEEDED = ("items", "item_stats", "interactions", "splits", "personas", "human_users")
#: Tables beside the items that a retriever chooses by.
_CHOSEN_BY = {
    "none": (),
    "recent": (),
    "features": ("item_stats",),
    "embedding": ("item_embeddings",),
    "graph": ("graph_triples",),
    UNSEEN: (),
}


#: Tests whose cases have a history; hand-made personas have none.
_WITH_HISTORIES = ("collections", "similarity")


def _drawn_and_worded(test: str, draw: int, wording: str) -> tuple[int, str]:
    """Draw of the cases of a test (0 where there is one only) and wording of its personas."""
    if test in _WITH_HISTORIES:
        return draw, "own"
    worded = "own" if wording == UNSEEN else wording
    return (0 if worded.startswith("own") else draw), worded


@dataclass
class SuiteContext:
    """State shared by the cells of a suite: a release's tables, case tables, raters, retrievers.

    Made by :meth:`open`.
    """

    suite: Suite
    release: StoredRelease
    tables: Mapping[str, Snapshot]
    cases: Mapping[str, Snapshot]
    raters: RaterCache
    results: ResultCache
    k: int = RETRIEVED
    #: Cases of each test that are asked (count; None: all of them).
    sample: int | None = None
    _retrievers: dict[str, Any] = field(default_factory=dict)
    _loaded: dict[tuple[str, int, str], Cases] = field(default_factory=dict)
    _shown: dict[tuple[str, int, str], Any] = field(default_factory=dict)
    #: Latest answers by their identity: configurations that differ in the noise share them.
    _answered: dict[str, pl.DataFrame] = field(default_factory=dict)

    @classmethod
    def open(
        cls,
        store: Store,
        release: StoredRelease,
        suite: str,
        settings: Settings,
        *,
        rule: CaseRule | None = None,
        answer_store: AnswerStore | None = None,
        engines: Callable[[EngineSettings], Engine] | None = None,
        k: int = RETRIEVED,
        sample: int | None = None,
        run_id: str | None = None,
    ) -> SuiteContext:
        """Open a release for a suite; case tables that were not made of it yet are made.

        ReleaseError if the release lacks a table that the suite needs, or is of another domain.
        """
        from pipelines.ablations import CASE_TABLES, needs, suite_named
        from pipelines.stages import PipelineContext, build, case_stage

        definition = suite_named(suite)
        missing = [name for name in _NEEDED if name not in release.tables]
        other = [
            lock.dataset for name, lock in release.tables.items()
            if name == "items" and lock.dataset != f"{suite}.items"
        ]  # fmt: skip
        if missing or other:
            what = f"lacks {', '.join(missing)}" if missing else f"holds {other[0]}"
            raise ReleaseError(
                f"the release {what}, so that the suite {suite} can't run on it",
                where=str(release),
                hint=f"give a release of {suite}, such as {suite}@latest",
            )
        tables = {name: release.snapshot(name) for name in release.tables}
        cases: dict[str, Snapshot] = {}
        context = PipelineContext.of(store, settings)
        for table in CASE_TABLES:
            inputs = {
                name: cases[name[1:]] if name.startswith(".") else tables[name]
                for name in needs(table, suite)
            }
            stage = case_stage(suite, table, rule)
            (cases[table],) = build(stage, context, inputs=inputs, run_id=run_id).snapshots.values()
        opened = RaterCache(settings, suite, tables, answer_store, engines)
        return cls(
            definition,
            release,
            tables,
            cases,
            opened,
            ResultCache(store.home, "ablations"),
            k,
            sample,
        )

    def questions(self, test: str, draw: int, wording: str = "own") -> Cases:
        """The asked cases of a test under one draw, with hand-made personas in this wording."""
        key = (test, *_drawn_and_worded(test, draw, wording))
        if key not in self._loaded:
            self._loaded[key] = load_cases(
                test, key[1], self.cases, self.suite, self.raters.frame, key[2]
            ).sample(self.sample)
        return self._loaded[key]

    @property
    def human(self) -> Human | None:
        """Distribution of people's ratings."""
        return human_distribution(self.cases["human_cases"])

    def identity(self, spec: RaterSpec, options: Options, test: str, draw: int) -> dict[str, Any]:
        """Identity of a rater's answers in a test, ready for JSON."""
        from pipelines.ablations import wording_digest

        histories = test in _WITH_HISTORIES
        drawn, wording = _drawn_and_worded(test, draw, options.wording)
        retrieval = options.retrieval if histories else UNSEEN
        used = {"items", *_CHOSEN_BY[retrieval]}
        if test == "collections":
            used.add("personas")
        if test == "similarity":
            used.add("human_users")
        worded = {"wording": wording, "texts": wording_digest(wording)}
        return {
            **(worded if wording != "own" else {}),
            **({"sample": self.sample} if self.sample is not None else {}),
            "code": CODE_VERSION,
            "test": test,
            "rater": self.raters.identity(spec, options.scale, *options.prompt),
            "cases": {name: self.cases[name].version for name in TABLES[test]},
            "tables": {n: self.tables[n].version for n in sorted(used) if n in self.tables},
            "retrieval": retrieval,
            "retrieved": self.k if retrieval not in (UNSEEN, "none") else 0,
            "draw": drawn,
            # Settings of the graph's paths.
            "graph": self.release.settings.get("graph", {}) if retrieval == "graph" else {},
        }

    def cell_key(self, spec: RaterSpec, options: Options, seed: int) -> str:
        """Hash (hex) of what decides a cell: a configuration under one seed."""
        return identity_hash(
            {
                "tests": [self.identity(spec, options, test, seed) for test in TESTS],
                "perturbation": [options.perturbation, STRENGTH[options.perturbation]],
                "seed": seed,
                "thresholds": {k: list(v) for k, v in self.suite.thresholds.items()},
            }
        )

    def cell(
        self,
        spec: RaterSpec,
        options: Options,
        seed: int,
    ) -> tuple[pl.DataFrame, bool]:
        """The scored cases of a configuration under one seed, and whether they were results.

        A cell with a call that failed is not kept, so that the next run asks that call again.
        """
        key = self.cell_key(spec, options, seed)
        stored = self.results.frame("cells", key)
        if stored is not None:
            return stored, True
        scale = scale_named(options.scale)
        frames, failed = [], False
        for test in TESTS:
            cases = self.questions(test, seed, options.wording)
            answered = self._answers(spec, options, test, seed, cases)
            failed = failed or bool((answered["status"] == "engine_error").any())
            frames.append(
                scored(
                    cases,
                    answered,
                    scale,
                    self.suite,
                    seed=seed,
                    noise=options.perturbation,
                    human=self.human,
                )
            )
        joined = pl.concat(frames)
        if not failed:
            self.results.put("cells", key, joined)
        return joined, False

    def metadata(self, spec: RaterSpec, options: Options) -> dict[str, Any]:
        """Metadata of the rater, without its calls."""
        metadata = self._rater(spec, options).metadata()
        metadata.pop("calls", None)
        return metadata

    def _rater(self, spec: RaterSpec, options: Options) -> Rater:
        return self.raters.open(spec, options.scale, *options.prompt, history=self.k)

    def _answers(
        self, spec: RaterSpec, options: Options, test: str, seed: int, cases: Cases
    ) -> pl.DataFrame:
        identity = self.identity(spec, options, test, seed)
        key = identity_hash(identity)
        answered = self._answered.pop(key, None)
        if answered is None:
            shown = self._recall(cases, identity["retrieval"], int(identity["draw"]))
            rater, items = self._rater(spec, options), self.raters.frame("items")
            answered = answers(cases, shown, rater, items)
        else:
            add(len(cases))
        self._answered[key] = answered
        if len(self._answered) > _LATEST:
            del self._answered[next(iter(self._answered))]
        return answered

    def _recall(self, cases: Cases, retrieval: str, draw: int) -> Any:
        key = (cases.test, draw, retrieval)
        if key not in self._shown:
            retriever = None if retrieval in (UNSEEN, "none") else self._retriever(retrieval)
            self._shown[key] = recall(cases, retriever, self.k)
        return self._shown[key]

    def _retriever(self, name: str) -> Any:
        if name not in self._retrievers:
            from pipelines.raters import source_scale
            from pipelines.retrieval import open_retriever
            from sim._release import Release

            vectors = "item_embeddings" in self.tables
            self._retrievers[name] = open_retriever(
                name,
                items=self.raters.frame("items"),
                item_stats=self.raters.frame("item_stats"),
                item_embeddings=self.raters.frame("item_embeddings") if vectors else None,
                release=Release(self.release) if name == "graph" else None,
                scale=source_scale(self.tables["interactions"].scan()),
            )
        return self._retrievers[name]
