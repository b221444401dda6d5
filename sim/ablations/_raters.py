"""Raters of a suite: a model is loaded once for all cells that ask it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import polars as pl

from pipelines import raters
from pipelines.config import EngineSettings, Settings
from pipelines.errors import ConfigError
from pipelines.llm.answers import AnswerStore
from pipelines.llm.engines import Engine, load_engine
from pipelines.llm.engines.tokens import model_tokenizer
from pipelines.prompts import RATING_PROMPT_VERSION, Question, rating_prompt_digest
from pipelines.store import Snapshot

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
            raise ConfigError("unknown rater", where=self.kind, hint=f"one of {', '.join(KINDS)}")
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
