"""Opening the rater that the settings name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.config import EngineSettings, ScoringSettings, ServingSettings, Settings
from pipelines.errors import ConfigError
from pipelines.llm.answers import AnswerStore
from pipelines.llm.engines import Engine, load_engine
from pipelines.llm.engines.checkpoints import find_checkpoint
from pipelines.llm.engines.tokens import model_tokenizer
from pipelines.plugins import closing_on_error
from pipelines.raters._ensemble import EnsembleRater
from pipelines.raters._replay import ReplayRater
from pipelines.raters.llm import ListwiseRater, LLMRater
from pipelines.raters.protocol import Rater
from pipelines.raters.report.calibration import read_calibration
from pipelines.raters.statistical.baselines import RandomRater
from pipelines.raters.statistical.fit import fit_rater
from pipelines.raters.statistical.products import FacetRater, TextRater, WordsRater
from pipelines.raters.statistical.profiles import source_scale
from pipelines.raters.surrogate import SurrogateModel, SurrogateRater, find_surrogate
from pipelines.scales import SCALES, scale_named
from pipelines.seams import RATERS

#: Name of the calibration beside a model's files.
CALIBRATION = "calibration.json"
_FITTED_ON = (
    "items",
    "item_stats",
    "interactions",
    "splits",
    "item_embeddings",
    "persona_embeddings",
)

Frame = pl.DataFrame | pl.LazyFrame


def open_rater(
    settings: Settings,
    *,
    items: pl.DataFrame,
    domain: str = "movies",
    store: AnswerStore | None = None,
    engine: Engine | None = None,
    tokenizer: Any = None,
    name: str | None = None,
    load: Callable[[EngineSettings, ServingSettings], Engine] = load_engine,
    **tables: Frame | None,
) -> Rater:
    """The rater of a domain's settings (``scoring``, ``product_scoring``), ready to rate.

    Parameters
    ----------
    settings
        The sections `scoring` or `product_scoring`, `engine` and `serving` are read; of the
        rater `surrogate`, also `surrogate` and the store's home.
    items, tables
        Tables by name: ``item_stats, interactions, splits, item_embeddings, persona_embeddings,
        preference_scores, choice_set_items, facets``; the large ones may be lazy. Each class
        states what it needs and what it uses where there is any (:func:`needs_of`). A class of
        your own is given those that its parameters name, and ``scale``, ``domain``, ``seed``.
    domain
        Domain of the items.
    store
        Answers of models; None stores none. It is the rater's to close (``rater.close()``), as
        are the engines that this opens.
    engine, tokenizer
        An open engine for the rater `llm` in place of the settings', and its model's tokenizer.
    name
        Value of the ``rater`` column of the rater `llm`; default ``llm:<model>``.
    load
        Opens the engines that the settings name.

    Raises
    ------
    ConfigError
        If a table that the rater needs is not given, or the engine can't be opened.
    """
    scoring = settings.scoring_of(domain)
    available: dict[str, Any] = {"items": items}
    available.update((table, rows) for table, rows in tables.items() if rows is not None)
    if scoring.rater not in RATERS:
        more = {"scale": scale_named(scoring.scale), "domain": domain, "seed": scoring.seed}
        custom: Rater = RATERS.open(scoring.rater, offered=available | more)
        return custom

    def single(kind: str, chosen: EngineSettings) -> Rater:
        missing = [table for table in RATERS[kind].needs if table not in available]
        if missing:
            raise ConfigError(
                f"the rater needs {', '.join(missing)}",
                where=f"scoring.rater {kind}",
                hint="give these tables of the domain",
            )
        if kind == "surrogate":
            snapshot = find_surrogate(settings.runtime.home, domain, settings.surrogate.snapshot)
            used = {t: rows for t, rows in available.items() if t in SurrogateRater.uses}
            return SurrogateRater(SurrogateModel.load(snapshot.path), **used)
        if kind in ("llm", "listwise"):
            asking = partial(_model_rater, kind, settings, scoring, available, domain, store, name)
            if engine is not None:
                return asking(engine, tokenizer, chosen)
            with closing_on_error(load(chosen, settings.serving)) as loaded:
                return asking(loaded, model_tokenizer(chosen, settings.serving), chosen)
        return _statistical(kind, scoring, available)

    if scoring.rater != "ensemble":
        return single(scoring.rater, settings.engine)
    opened: list[Rater] = []
    try:
        opened.extend(
            single(member.rater, member.engine or settings.engine) for member in scoring.ensemble
        )
        return EnsembleRater(opened)
    except BaseException:
        # A model that is loaded already would stay in memory.
        for rater in opened:
            if isinstance(rater, LLMRater | ListwiseRater):
                rater.release()
        raise


def _statistical(kind: str, scoring: ScoringSettings, tables: Mapping[str, Any]) -> Rater:
    """A rater without a language model."""
    scale = scale_named(scoring.scale)
    sets: Any = tables.get("choice_set_items")
    if kind == "random":
        return RandomRater(scale)
    if kind == "replay":
        return ReplayRater(tables["preference_scores"], rater=scoring.replay)
    if kind == "facets":
        return FacetRater(sets, tables["facets"], scale, seed=scoring.seed)
    if kind == "words":
        return WordsRater(sets, tables["facets"], tables["items"], scale)
    if kind == "text":
        return TextRater(sets, tables["item_embeddings"], tables["persona_embeddings"], scale)
    learned: dict[str, Any] = {table: tables.get(table) for table in _FITTED_ON}
    return fit_rater(kind, scale=scale, seed=scoring.seed, taste=scoring.taste, **learned)


def _model_rater(
    kind: str,
    settings: Settings,
    scoring: ScoringSettings,
    tables: Mapping[str, Any],
    domain: str,
    store: AnswerStore | None,
    name: str | None,
    engine: Engine,
    tokenizer: Any,
    chosen: EngineSettings,
) -> LLMRater | ListwiseRater:
    """A rater that asks `engine`, which the settings `chosen` open."""
    from pipelines.llm.engines.chat import read_template

    options: dict[str, Any] = {
        "store": store,
        "serving": settings.serving,
        "system": scoring.system,
        "system_role": scoring.system_role,
        "catalogue": tables["items"],
        "tokenizer": tokenizer,
        "chat_template": read_template(settings.serving.chat_template),
        "name": name,
    }
    scale = scale_named(scoring.scale)
    if kind == "listwise":
        sets = tables["choice_set_items"]
        return ListwiseRater(engine, scale, choice_set_items=sets, seed=scoring.seed, **options)
    file = _calibration_file(settings, scoring, chosen)
    interactions = tables.get("interactions")
    return LLMRater(
        engine,
        scale,
        domain=domain,
        shots=scoring.shots,
        layout=scoring.layout,
        question=scoring.question,
        history=scoring.history,
        # Means whose scale is unknown are not shown.
        item_stats=None if interactions is None else tables.get("item_stats"),
        source=SCALES["0.5-5"] if interactions is None else source_scale(interactions),
        calibration=None if file is None else read_calibration(file, scoring.scale),
        **options,
    )


def calibration_file(settings: Settings, scoring: ScoringSettings) -> Path | None:
    """File of the rater's calibration; None without one.

    ConfigError if it is to be the model's and the model is no folder here.
    """
    uses_llm = "llm" in {scoring.rater, *(member.rater for member in scoring.ensemble)}
    return _calibration_file(settings, scoring, settings.engine) if uses_llm else None


def _calibration_file(
    settings: Settings, scoring: ScoringSettings, engine: EngineSettings
) -> Path | None:
    if scoring.calibration == "none":
        return None
    if scoring.calibration != "model":
        return Path(scoring.calibration).expanduser()
    serving = settings.serving
    checkpoint = find_checkpoint(engine.model, engine.revision, serving.models, serving.home)
    return checkpoint.folder / CALIBRATION


def needs_of(name: str, *, optional: bool = True) -> tuple[str, ...]:
    """Tables that a rater reads beside the items that it rates; `optional`: needed or not.

    Of a class ``module:Class`` these are its constructor's parameters, all of them.

    >>> needs_of("mean"), needs_of("pipelines.raters.statistical.baselines:MeanRater")
    (('item_stats', 'interactions'), ('item_stats', 'scale', 'source'))
    """
    cls = RATERS[name]
    if name not in RATERS:
        return tuple(inspect.signature(cls).parameters)
    return (*cls.needs, *(cls.uses if optional else ()))
