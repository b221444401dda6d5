"""The writer that asks a language model, under a grammar that lets it reply nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import polars as pl

from pipelines.config import PersonaSettings, ServingSettings
from pipelines.errors import AnswerError, ConfigError
from pipelines.llm.answers import AnswerStore, Asking, Tally
from pipelines.llm.engines import Engine, Request, Sampling
from pipelines.llm.grammars import PersonaGrammar, TextLimits, persona_record, vocabulary
from pipelines.personas._joint import TRAITS
from pipelines.personas._lists import load_lists
from pipelines.personas._phrases import article
from pipelines.prompts import (
    DOMAIN_WORDS,
    PERSONA_PROMPT_VERSION,
    persona_messages,
    persona_prompt_digest,
)
from pipelines.renames import current_name

__all__ = ["ModelWriter", "opening"]

#: Seeds that every server takes: 31 bits.
_SEED_BITS = 0x7FFF_FFFF


def opening(name: str, age: int, job: str) -> str:
    """How a portrait begins: whatever the model adds, the text names its person.

    >>> opening("Marta", 34, "nurse")
    'Marta, 34, works as a nurse and '
    >>> opening("Leo", 9, "student"), opening("Ana", 70, "retired")
    ('Leo, 9, is a student and ', 'Ana, 70, is retired and ')
    """
    without = {
        "student": "is a student",
        "retired": "is retired",
        "not working": "is not working at present",
    }
    does = without.get(job, f"works as {article(job)}")
    return f"{name}, {age}, {does} and "


class ModelWriter(Asking):
    """Describes personas with a language model.

    Attributes that were sampled, traits of rating too, are stated in the prompt and not asked for
    again. The reply is a
    sentence of :func:`pipelines.llm.grammars.persona_record`; a reply that is none (an engine that
    ignored the grammar, an apology, a text cut by length) becomes a row without a description,
    never a persona.

    Parameters
    ----------
    engine
        The model.
    settings
        Who decides on genres, temperature and room for the reply; the domain is the rows'.
    store
        Where replies are kept: a run that broke off goes on from there. None keeps nothing.
    serving
        When replies are committed, and how many may fail.
    genres
        What a model may like, where it decides; default: the domain's own list.
    limits
        Lengths of portrait and taste.
    tokenizer
        The model's, as :meth:`pipelines.llm.grammars.Grammar.check` takes it; None where it is
        out of reach (a server's): then only lengths are checked, by a bound for every tokenizer.
    progress
        Called with the tally of calls after every reply.

    Raises
    ------
    ConfigError
        If the tokenizer can't spell the grammar, or the model calls itself `statistical`.

    Examples
    --------
    >>> import numpy as np
    >>> from pipelines.llm.engines.scripted import ScriptedEngine
    >>> from pipelines.personas import sample_attributes
    >>> writer = ModelWriter(ScriptedEngine(), PersonaSettings(writer="model"))
    >>> written = writer.write(sample_attributes(7, "demo", np.arange(3)))
    >>> writer.name, written["status"].to_list(), writer.tally.calls
    ('scripted', ['ok', 'ok', 'ok'], 3)
    """

    def __init__(
        self,
        engine: Engine,
        settings: PersonaSettings,
        *,
        store: AnswerStore | None = None,
        serving: ServingSettings | None = None,
        genres: Sequence[str] | None = None,
        limits: TextLimits | None = None,
        tokenizer: Any = None,
        progress: Callable[[Tally], object] | None = None,
    ) -> None:
        super().__init__(engine, store, serving, progress)
        self._settings = settings
        self._given = None if genres is None else tuple(genres)
        self._checked: set[str] = set()
        self._limits = limits or TextLimits()
        self._tokenizer = None if tokenizer is None else vocabulary(tokenizer)
        self._longest = 0
        self.name = engine.identity.model
        if not self.name or current_name(self.name) == "statistical":
            raise ConfigError(
                "a model's rows must say which model wrote them",
                where=f"engine.model {self.name!r}",
            )
        self._check(settings.domain)

    def metadata(self) -> dict[str, Any]:
        """What wrote the texts and what it took; JSON-ready, for metadata."""
        return {
            "writer": self.name,
            "engine": asdict(self._engine.identity),
            "answered_by": self._engine.metadata().get("answered_by", []),
            "domain": self._settings.domain,
            "genres": self._settings.genres,
            "genre_list": list(self._genres(self._settings.domain))
            if self._settings.genres == "model"
            else None,
            "prompt_version": PERSONA_PROMPT_VERSION,
            "prompt_sha256": persona_prompt_digest(),
            "sentences": list(self._limits.sentences),
            "sentence_characters": list(self._limits.characters),
            "temperature": self._settings.temperature,
            "longest_reply_tokens": self._longest,
            "calls": self.tally.to_dict(),
        }

    def write(self, attributes: pl.DataFrame) -> pl.DataFrame:
        """Describe each row; see :class:`pipelines.personas.Writer`.

        Returns
        -------
        ``description`` and ``status``; with `genres: model` also ``likes`` and ``dislikes``.

        Raises
        ------
        ConfigError
            If the longest legal reply does not fit ``personas.max_tokens``.
        EngineError
            If the engine died or failed too often: replies until then are stored, and the same
            call goes on from them.
        """
        if self._settings.max_tokens is not None:
            for row in attributes.iter_rows(named=True):
                self._grammar(row).check(self._tokenizer, self._settings.max_tokens)
        for domain in attributes["domain"].unique():
            self._check(domain)
        descriptions: list[str | None] = [None] * attributes.height
        likes: list[list[str] | None] = [None] * attributes.height
        dislikes: list[list[str] | None] = [None] * attributes.height
        statuses = ["engine_error"] * attributes.height
        for request, _, answer in self._ask(self.requests(attributes)):
            row, grammar = request.tag
            statuses[row] = answer.status
            if answer.status != "ok":
                continue
            try:
                record = grammar.record(answer.text)
            except AnswerError:
                statuses[row] = "invalid"
                continue
            descriptions[row] = f"{record.portrait} {record.taste}"
            likes[row], dislikes[row] = list(record.likes), list(record.dislikes)
        written = pl.DataFrame(
            {"description": descriptions, "status": statuses},
            schema={"description": pl.String, "status": pl.String},
        )
        if self._settings.genres == "sampled":
            return written
        genres = pl.List(pl.String)
        return written.with_columns(
            pl.Series("likes", likes, dtype=genres), pl.Series("dislikes", dislikes, dtype=genres)
        )

    def requests(self, attributes: pl.DataFrame) -> Iterator[Request]:
        """What the model is asked about each row, in order.

        Yields
        ------
        Request
            Its tag is the row's number and the :class:`~pipelines.llm.grammars.PersonaGrammar` that
            reads the reply.
        """
        settings = self._settings
        settled = settings.genres == "sampled"
        for number, row in enumerate(attributes.iter_rows(named=True)):
            grammar = self._grammar(row)
            longest = grammar.longest(self._tokenizer)
            self._longest = max(self._longest, longest)
            yield Request(
                messages=persona_messages(
                    row["domain"],
                    name=row["name"],
                    age=row["age"],
                    gender=row["gender"],
                    job=row["job"],
                    hobby=row["hobby"],
                    opening=opening(row["name"], row["age"], row["job"]),
                    limits=self._limits,
                    likes=row["likes"] if settled else None,
                    dislikes=row["dislikes"] if settled else (),
                    genres=self._genres_for(row["domain"], row["age"]),
                    **{trait: row.get(trait) for trait in TRAITS},
                ),
                constraint=grammar.constraint,
                sampling=Sampling(
                    temperature=settings.temperature, max_tokens=settings.max_tokens or longest
                ),
                seed=row["text_seed"] & _SEED_BITS,
                group=f"personas/{row['domain']}",
                tag=(number, grammar),
            )

    def _grammar(self, row: dict[str, Any]) -> PersonaGrammar:
        begin = opening(row["name"], row["age"], row["job"])
        if self._settings.genres == "model":
            genres = self._genres_for(row["domain"], row["age"])
            return self._declare(row["domain"], None, (), begin, genres)
        return self._declare(row["domain"], row["likes"], row["dislikes"], begin, ())

    def _check(self, domain: str) -> None:
        if domain not in self._checked:
            begin = opening("Ana", 34, "nurse")
            self._declare(domain, None, (), begin, self._genres(domain)).check(self._tokenizer)
            self._checked.add(domain)

    def _genres(self, domain: str) -> tuple[str, ...]:
        return self._given if self._given is not None else DOMAIN_WORDS[domain].default

    def _genres_for(self, domain: str, age: int) -> tuple[str, ...]:
        """What a person of that age may have an opinion of, as for sampled opinions."""
        lists, genres = load_lists(domain), self._genres(domain)
        early = set(lists.genres).difference(lists.genres_from(age))
        # A list with nothing else on it is the user's own choice.
        return tuple(g for g in genres if g not in early) or genres

    def _declare(
        self,
        domain: str,
        likes: Sequence[str] | None,
        dislikes: Sequence[str],
        begin: str,
        genres: Sequence[str],
    ) -> PersonaGrammar:
        return persona_record(
            domain,
            genres if likes is None else (*likes, *dislikes),
            likes=likes,
            dislikes=dislikes,
            opening=begin,
            portrait=self._limits,
            taste=self._limits,
        )
