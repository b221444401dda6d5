"""Raters as a grid of configurations wants them: a model is loaded once for all of its cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import polars as pl

from pipelines import raters
from pipelines.ablations._systems import system_text
from pipelines.config import EngineSettings, Settings
from pipelines.errors import ConfigError
from pipelines.llm.answers import AnswerStore, Tally
from pipelines.llm.engines import Engine, load_engine
from pipelines.prompts import RATING_PROMPT_VERSION, rating_prompt_digest
from pipelines.raters import source_scale
from pipelines.scales import scale_named
from pipelines.store import Snapshot

__all__ = ["KINDS", "RaterBank", "RaterSpec"]

#: Kinds of raters that a suite can judge.
KINDS = ("statistical", "random", "mean", "llm")
_FITTED = ("items", "item_stats", "interactions", "splits")


@dataclass(frozen=True)
class RaterSpec:
    """A rater of a suite.

    Attributes
    ----------
    kind
        One of :data:`KINDS`.
    engine
        The model, for `llm`.

    Raises
    ------
    ConfigError
        If the kind is unknown, or a model is missing.
    """

    kind: str
    engine: EngineSettings | None = None

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
        return f"llm:{self.engine.model or self.engine.kind}"


@dataclass
class RaterBank:
    """Opens raters on a domain's tables.

    Parameters
    ----------
    settings
        The sections `scoring` (seed, role of the system message) and `serving` are read.
    domain
        ``movies`` or ``books``.
    tables
        Snapshots of the domain by short name.
    answers
        Where models' answers are kept; None keeps none.
    engines
        Opens an engine; given by tests.
    progress
        Called with the tally of a model's calls.
    """

    settings: Settings
    domain: str
    tables: Mapping[str, Snapshot]
    answers: AnswerStore | None = None
    engines: Callable[[EngineSettings], Engine] | None = None
    progress: Callable[[Tally], object] | None = None
    _loaded: dict[RaterSpec, Engine] = field(default_factory=dict)
    _open: dict[tuple[RaterSpec, str, int, str], raters.Rater] = field(default_factory=dict)
    _frames: dict[str, Any] = field(default_factory=dict)

    def identity(self, spec: RaterSpec, scale: str, shots: int, system: str) -> dict[str, Any]:
        """What decides the rater's answers, ready for JSON; opens no model that can be avoided.

        A fitted rater is identified by its code, its seed and what it is fitted on; one that asks
        a model by the engine, the prompts' version and digest, and the options it sees.
        """
        base: dict[str, Any] = {"kind": spec.kind, "scale": scale}
        if spec.kind == "random":
            return base
        if spec.engine is None:
            names = _FITTED if spec.kind == "mean" else (*_FITTED, *self._vectors())
            versions = {name: self.tables[name].version for name in sorted(names)}
            return base | {
                "code": raters.CODE_VERSION,
                "seed": self.settings.scoring.seed if spec.kind == "statistical" else None,
                "taste": self.settings.scoring.taste if spec.kind == "statistical" else None,
                "fitted_on": versions,
            }
        return base | {
            "engine": asdict(self._engine(spec).identity),
            "prompt_version": RATING_PROMPT_VERSION,
            "prompt_sha256": rating_prompt_digest(),
            "shots": shots,
            "system": system_text(self.domain, system) or "default",
            "system_role": self.settings.scoring.system_role,
            # What prompts tell about items.
            "tables": {name: self.tables[name].version for name in ("item_stats", "items")},
        }

    def open(
        self, spec: RaterSpec, scale: str, shots: int, system: str, *, history: int
    ) -> raters.Rater:
        """The rater of these options; `history` is how many past ratings a prompt may show."""
        if spec.kind != "llm":
            # What it can't see does not make another rater.
            shots, system = 0, "default"
        key = (spec, scale, shots, system)
        if key not in self._open:
            self._open[key] = self._made(spec, scale, shots, system, history)
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
        found: pl.DataFrame = self._frames[name]
        return found

    def _made(
        self, spec: RaterSpec, scale: str, shots: int, system: str, history: int
    ) -> raters.Rater:
        if spec.engine is None:
            vectors: dict[str, Any] = {name: self.frame(name) for name in self._vectors()}
            return raters.fit_rater(
                spec.kind,
                scale=scale,
                items=self.frame("items"),
                item_stats=self.frame("item_stats"),
                interactions=self.tables["interactions"].scan(),
                splits=self.tables["splits"].scan(),
                seed=self.settings.scoring.seed,
                taste=self.settings.scoring.taste,
                **vectors,
            )
        from pipelines.llm.engines.chat import read_template

        return raters.LLMRater(
            self._engine(spec),
            scale_named(scale),
            domain=self.domain,
            store=self.answers,
            serving=self.settings.serving,
            shots=shots,
            system=system_text(self.domain, system),
            system_role=self.settings.scoring.system_role,
            history=history,
            catalogue=self.frame("items"),
            item_stats=self.frame("item_stats"),
            tokenizer=None
            if self.engines
            else raters.model_tokenizer(spec.engine, self.settings.serving),
            chat_template=read_template(self.settings.serving.chat_template),
            source=source_scale(self.tables["interactions"].scan()),
            name=spec.name,
            progress=self.progress,
        )

    def _engine(self, spec: RaterSpec) -> Engine:
        if spec not in self._loaded:
            assert spec.engine is not None
            self._loaded[spec] = (
                self.engines(spec.engine)
                if self.engines
                else load_engine(spec.engine, self.settings.serving)
            )
        return self._loaded[spec]

    def _vectors(self) -> tuple[str, ...]:
        return tuple(n for n in ("item_embeddings", "persona_embeddings") if n in self.tables)
