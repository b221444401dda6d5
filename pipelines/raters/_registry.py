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
from pipelines.raters._surrogate import SurrogateModel, SurrogateRater, find_surrogate
from pipelines.raters.llm import ListwiseRater, LLMRater
from pipelines.raters.protocol import Rater
from pipelines.raters.report import Calibration, read_calibration
from pipelines.raters.statistical import (
    FacetRater,
    RandomRater,
    TextRater,
    WordsRater,
    fit_rater,
    source_scale,
)
from pipelines.scales import SCALES, scale_named
from pipelines.seams import RATERS

#: Name of the calibration beside a model's files.
CALIBRATION = "calibration.json"
_FITTED_ON = ("item_stats", "interactions", "splits", "item_embeddings", "persona_embeddings")

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
        if kind == "random":
            return RandomRater(scale_named(scoring.scale))
        if kind == "replay":
            return ReplayRater(available["preference_scores"], rater=scoring.replay)
        if kind == "surrogate":
            snapshot = find_surrogate(settings.runtime.home, domain, settings.surrogate.snapshot)
            used = {t: rows for t, rows in available.items() if t in SurrogateRater.uses}
            return SurrogateRater(SurrogateModel.load(snapshot.path), **used)
        if kind in ("facets", "text", "words"):
            return _of_products(kind, available, scoring)
        if kind not in ("llm", "listwise"):
            fitted_on: dict[str, Any] = {table: available.get(table) for table in _FITTED_ON}
            return fit_rater(
                kind,
                scale=scoring.scale,
                seed=scoring.seed,
                taste=scoring.taste,
                items=items,
                **fitted_on,
            )
        asking = partial(
            _listwise
            if kind == "listwise"
            else partial(_llm, calibration=_calibration(settings, scoring, chosen)),
            scoring=scoring,
            serving=settings.serving,
            tables=available,
            domain=domain,
            store=store,
            name=name,
        )
        if engine is not None:
            return asking(engine, tokenizer)
        with closing_on_error(load(chosen, settings.serving)) as loaded:
            return asking(loaded, model_tokenizer(chosen, settings.serving))

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


def _calibration(
    settings: Settings, scoring: ScoringSettings, engine: EngineSettings
) -> Calibration | None:
    file = _calibration_file(settings, scoring, engine)
    return None if file is None else read_calibration(file, scoring.scale)


def needs_of(name: str, *, optional: bool = True) -> tuple[str, ...]:
    """Tables that a rater reads beside the items that it rates; `optional`: needed or not.

    Of a class ``module:Class`` these are its constructor's parameters, all of them.

    >>> needs_of("mean"), needs_of("pipelines.raters.statistical:MeanRater")
    (('item_stats', 'interactions'), ('item_stats', 'scale', 'source'))
    """
    cls = RATERS[name]
    if name not in RATERS:
        return tuple(inspect.signature(cls).parameters)
    return (*cls.needs, *(cls.uses if optional else ()))


def _of_products(kind: str, tables: Mapping[str, Any], scoring: ScoringSettings) -> Rater:
    """A statistical rater of products in choice sets."""
    scale, sets = scale_named(scoring.scale), tables["choice_set_items"]
    if kind == "facets":
        return FacetRater(sets, tables["facets"], scale, seed=scoring.seed)
    if kind == "words":
        return WordsRater(sets, tables["facets"], tables["items"], scale)
    return TextRater(sets, tables["item_embeddings"], tables["persona_embeddings"], scale)


def _listwise(
    engine: Engine,
    tokenizer: Any,
    *,
    scoring: ScoringSettings,
    serving: ServingSettings,
    tables: Mapping[str, Any],
    domain: str,  # noqa: ARG001 (as of the other model's rater)
    store: AnswerStore | None,
    name: str | None,
) -> ListwiseRater:
    from pipelines.llm.engines.chat import read_template

    return ListwiseRater(
        engine,
        scale_named(scoring.scale),
        choice_set_items=tables["choice_set_items"],
        catalogue=tables["items"],
        store=store,
        serving=serving,
        system=scoring.system,
        system_role=scoring.system_role,
        seed=scoring.seed,
        tokenizer=tokenizer,
        chat_template=read_template(serving.chat_template),
        name=name,
    )


def _llm(
    engine: Engine,
    tokenizer: Any,
    *,
    scoring: ScoringSettings,
    serving: ServingSettings,
    tables: Mapping[str, Any],
    domain: str,
    store: AnswerStore | None,
    name: str | None,
    calibration: Calibration | None,
) -> LLMRater:
    from pipelines.llm.engines.chat import read_template

    interactions = tables.get("interactions")
    return LLMRater(
        engine,
        scale_named(scoring.scale),
        domain=domain,
        store=store,
        serving=serving,
        shots=scoring.shots,
        system=scoring.system,
        system_role=scoring.system_role,
        layout=scoring.layout,
        question=scoring.question,
        history=scoring.history,
        catalogue=tables["items"],
        # Means whose scale is unknown are not shown.
        item_stats=None if interactions is None else tables.get("item_stats"),
        tokenizer=tokenizer,
        chat_template=read_template(serving.chat_template),
        source=SCALES["0.5-5"] if interactions is None else source_scale(interactions),
        calibration=calibration,
        name=name,
    )
