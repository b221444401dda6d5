"""Writers: from a persona's attributes to its description."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import polars as pl

from pipelines.config import EngineSettings, PersonaSettings, ServingSettings, Settings
from pipelines.errors import ConfigError
from pipelines.llm.engines import Sampling
from pipelines.personas._gates import TextGates
from pipelines.personas._grammar import StatisticalWriter
from pipelines.plugins import closing_on_error
from pipelines.seams import WRITERS


@runtime_checkable
class Writer(Protocol):
    """Writes who a persona is, from its attributes.

    ``pipelines.personas.testing.check_writer`` tests an implementation.
    """

    @property
    def name(self) -> str:
        """Value of the ``writer`` column: `statistical`, or a model's id."""

    def write(self, attributes: pl.DataFrame) -> pl.DataFrame:
        """Describe each persona.

        Parameters
        ----------
        attributes
            The columns that `sample_attributes` returns; any number of rows, 0 included.

        Returns
        -------
        ``description`` (null unless the status is `ok`) and ``status`` (`ok`, `truncated`,
        `invalid`, `refused` or `engine_error`), one row per row of `attributes`, in order. A
        writer that decides on genres itself adds ``likes`` and ``dislikes``, which replace those
        of `attributes`.
        """


def statistical_writer(settings: Settings | None, *, stored: bool) -> Writer:
    del settings, stored
    return StatisticalWriter()


def model_writer(settings: Settings | None, *, stored: bool) -> Writer:
    if settings is None:
        raise ConfigError(
            "the writer `model` needs all settings, not those of personas alone",
            where="personas.writer",
            hint="pass load_writer(name, settings) as the writer",
        )
    # Engines and grammars are heavy; the statistical writer needs neither.
    from pipelines.llm.answers import AnswerStore
    from pipelines.llm.engines import load_engine
    from pipelines.personas._model_writer import ModelWriter

    with closing_on_error(load_engine(settings.engine, settings.serving)) as engine:
        return ModelWriter(
            engine,
            settings.personas,
            store=AnswerStore(settings.runtime.home, settings.serving) if stored else None,
            serving=settings.serving,
            tokenizer=_tokenizer(settings.engine, settings.serving),
            sampling=_sampling(settings.engine),
            gates=_gates(settings.personas, settings.serving),
        )


def _tokenizer(engine: EngineSettings, serving: ServingSettings) -> object | None:
    """The model's tokenizer, where its files are on this machine."""
    if engine.kind not in ("transformers", "vllm", "vllm_server", "guidance"):
        return None
    from pipelines.llm.engines.checkpoints import find_checkpoint
    from pipelines.llm.engines.tokens import load_tokenizer

    checkpoint = find_checkpoint(engine.model, engine.revision, serving.models, serving.home)
    tokenizer: object = load_tokenizer(checkpoint.folder)
    return tokenizer


def _sampling(engine: EngineSettings) -> Sampling | None:
    """Sampling recommended for a published model."""
    from pipelines.llm.models import PUBLISHED

    return PUBLISHED[engine.model].writing if engine.model in PUBLISHED else None


def _gates(chosen: PersonaSettings, serving: ServingSettings) -> TextGates | None:
    if chosen.gates == "none":
        return None
    plain = chosen.style == "slots"
    if chosen.gates == "rules":
        return TextGates(plain=plain)
    from pipelines.llm.models import PUBLISHED, ModelFolder, TextScorer

    name = next(iter(PUBLISHED))
    if serving.models is None or name not in ModelFolder(serving.models):
        raise ConfigError(
            f"the gate `perplexity` needs the model {name}",
            where="personas.gates",
            hint=f"understudy models get {name}; or --set personas.gates=rules",
        )
    scorer = TextScorer(ModelFolder(serving.models).get(name))
    return TextGates(scorer, plain=plain)


def load_writer(name: str, settings: Settings | None = None, *, stored: bool = True) -> Writer:
    """The writer of a name of :data:`pipelines.seams.WRITERS`, such as `statistical`.

    `model` needs the settings: which engine answers, how it is run, and where replies are kept,
    unless they are not `stored`. A writer with a `close` is to be closed.

    Raises
    ------
    ConfigError
        If there is none of that name, or it can't be opened with these settings.
    EngineError
        If the model can't be loaded.
    """
    writer: Writer = WRITERS[name](settings, stored=stored)
    return writer
