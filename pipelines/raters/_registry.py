"""Opening the rater that the settings name."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import polars as pl

from pipelines.config import EngineSettings, ServingSettings, Settings
from pipelines.errors import ConfigError
from pipelines.llm.answers import AnswerStore, Tally
from pipelines.llm.engines import load_engine
from pipelines.raters._ensemble import EnsembleRater
from pipelines.raters._replay import ReplayRater
from pipelines.raters.llm import LLMRater
from pipelines.raters.protocol import Rater
from pipelines.raters.statistical import fit_rater, source_scale
from pipelines.scales import SCALES, scale_named

__all__ = ["OPENED", "model_tokenizer", "needs_of", "open_rater", "rater_class"]

#: Names that `open_rater` takes beside ``module:Class``; the first three are fitted by `fit_rater`.
OPENED = ("statistical", "random", "mean", "llm", "ensemble", "replay")

Frame = pl.DataFrame | pl.LazyFrame


def open_rater(
    settings: Settings,
    *,
    items: pl.DataFrame,
    item_stats: pl.DataFrame | None = None,
    interactions: Frame | None = None,
    splits: Frame | None = None,
    item_embeddings: pl.DataFrame | None = None,
    persona_embeddings: pl.DataFrame | None = None,
    scores: pl.DataFrame | None = None,
    domain: str = "movies",
    store: AnswerStore | None = None,
    progress: Callable[[Tally], object] | None = None,
) -> Rater:
    """The rater of ``settings.scoring``, ready to rate.

    Parameters
    ----------
    settings
        The sections `scoring`, `engine` and `serving` are read.
    items, item_stats, interactions, splits, item_embeddings, persona_embeddings
        Tables of those names. `random`, `mean` and `statistical` need what
        :func:`pipelines.raters.fit_rater` needs; `llm` shows the training means of `item_stats`
        if they are given, with `interactions` to tell their scale; `replay` needs none. A class
        of your own is given those that its parameters name, and ``scale``, ``domain``, ``seed``.
    scores
        Rows of `preference_scores`, for `replay`.
    domain
        What the items are: `movies`, `books`, `games` or `products`.
    store
        Answers of models; None keeps none. It is the rater's to close (``rater.close()``), as
        are the engines.
    progress
        Called with the tally of a model's calls after every answer.

    Raises
    ------
    ConfigError
        If a table that the rater needs is not given, or the engine can't be opened.
    """
    scoring = settings.scoring
    if ":" in scoring.rater:
        return _own(
            scoring.rater,
            scale=scale_named(scoring.scale),
            items=items,
            item_stats=item_stats,
            interactions=interactions,
            splits=splits,
            item_embeddings=item_embeddings,
            persona_embeddings=persona_embeddings,
            domain=domain,
            seed=scoring.seed,
        )

    def single(name: str, engine: EngineSettings) -> Rater:
        if name == "llm":
            return _llm(
                settings,
                engine,
                items=items,
                item_stats=item_stats,
                interactions=interactions,
                domain=domain,
                store=store,
                progress=progress,
            )
        if item_stats is None or interactions is None or splits is None:
            raise ConfigError(
                "the rater needs the human ratings of the domain",
                where=f"scoring.rater {name}",
                hint="give item_stats, interactions and splits",
            )
        return fit_rater(
            name,
            scale=scoring.scale,
            items=items,
            item_stats=item_stats,
            interactions=interactions,
            splits=splits,
            item_embeddings=item_embeddings,
            persona_embeddings=persona_embeddings,
            seed=scoring.seed,
            taste=scoring.taste,
        )

    if scoring.rater == "replay":
        if scores is None:
            raise ConfigError("there are no stored scores to replay", where="scoring.rater replay")
        return ReplayRater(scores, rater=scoring.replay)
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
            if isinstance(rater, LLMRater):
                rater.release()
        raise


def rater_class(name: str) -> type[Any]:
    """The class behind ``module:Class``.

    Raises
    ------
    ConfigError
        If it can't be imported or is no rater.
    """
    module, _, attribute = name.partition(":")
    where = f"scoring.rater {name}"
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"the rater can't be imported ({error})",
            where=where,
            hint="install its package, or put its folder on PYTHONPATH",
        ) from None
    if not inspect.isclass(found) or not callable(getattr(found, "rate", None)):
        raise ConfigError(
            "no class with a method `rate`", where=where, hint="implement pipelines.raters.Rater"
        )
    cls: type[Any] = found
    return cls


def needs_of(name: str) -> tuple[str, ...]:
    """Parameters of a rater class ``module:Class``: what it is to be given.

    >>> needs_of("pipelines.raters.statistical:MeanRater")
    ('item_stats', 'scale', 'source')
    """
    return tuple(inspect.signature(rater_class(name)).parameters)


def _own(name: str, **given: Any) -> Rater:
    """A rater of a class outside the project, given the tables that its parameters name."""
    cls = rater_class(name)
    wanted = inspect.signature(cls).parameters
    there = {key: value for key, value in given.items() if value is not None}
    missing = [n for n, p in wanted.items() if p.default is p.empty and n not in there]
    if missing:
        raise ConfigError(
            f"the rater needs {', '.join(missing)}, which can't be given",
            where=f"scoring.rater {name}",
            hint=f"its parameters may be {', '.join(there)}",
        )
    made: Rater = cls(**{n: there[n] for n in wanted if n in there})
    return made


def model_tokenizer(engine: EngineSettings, serving: ServingSettings) -> Any:
    """The model's tokenizer; None if only a server has it, or there is none.

    Raises
    ------
    ConfigError
        If it should be there and can't be loaded.
    """
    from pipelines.llm.engines.checkpoints import find_checkpoint
    from pipelines.llm.engines.tokens import load_tokenizer

    if engine.kind in ("transformers", "vllm", "guidance"):
        return load_tokenizer(find_checkpoint(engine.model, engine.revision, serving.models).folder)
    if engine.kind == "openai" and serving.tokenizer is not None:
        return load_tokenizer(serving.tokenizer)
    return None


def _llm(
    settings: Settings,
    engine: EngineSettings,
    *,
    items: pl.DataFrame,
    item_stats: pl.DataFrame | None,
    interactions: Frame | None,
    domain: str,
    store: AnswerStore | None,
    progress: Callable[[Tally], object] | None,
) -> LLMRater:
    from pipelines.llm.engines.chat import read_template

    scoring, serving = settings.scoring, settings.serving
    if interactions is None:
        # Means whose scale is unknown are not shown.
        item_stats = None
    source = SCALES["0.5-5"] if interactions is None else source_scale(interactions)
    loaded = load_engine(engine, serving)
    try:
        return LLMRater(
            loaded,
            scale_named(scoring.scale),
            domain=domain,
            store=store,
            serving=serving,
            shots=scoring.shots,
            system=scoring.system,
            system_role=scoring.system_role,
            history=scoring.history,
            catalogue=items,
            item_stats=item_stats,
            tokenizer=model_tokenizer(engine, serving),
            chat_template=read_template(serving.chat_template),
            source=source,
            progress=progress,
        )
    except BaseException:
        loaded.close()
        raise
