"""The writer that asks a language model, under a grammar that lets it reply nothing else."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import polars as pl

from pipelines.config import PersonaSettings, ServingSettings
from pipelines.errors import AnswerError, ConfigError
from pipelines.llm.answers import AnswerStore, Asking
from pipelines.llm.engines import Engine, Message, Request, Sampling
from pipelines.llm.grammars import Grammar, PersonaGrammar, TextLimits, persona_record, vocabulary
from pipelines.personas._gates import Fault, TextGates
from pipelines.personas._joint import TRAITS
from pipelines.personas._lists import load_lists
from pipelines.personas._phrases import OWN, genre_phrase
from pipelines.personas._slots import SLOTS_VERSION, introduction, slots_grammar, slots_messages
from pipelines.prompts import (
    DOMAIN_WORDS,
    PERSONA_PROMPT_VERSION,
    persona_messages,
    persona_prompt_digest,
)
from pipelines.renames import current_name

#: Seeds that every server takes: 31 bits.
_SEED_BITS = 0x7FFF_FFFF
#: Characters that are shown of a refused text (count).
_SHOWN = 200
#: Sentences of each text, and characters of one: so many that a sentence ends where its writer ends
#: it, within the length that the contract allows. Tokens of a reply, unless the settings say more.
_LIMITS, _BUDGET = TextLimits((2, 3), (20, 300)), 400
_END = re.compile(r"[.!?](?=[ \"]|$)")


@dataclass(frozen=True)
class _Draft:
    """The last text drawn for a row."""

    status: str = "engine_error"
    text: str | None = None
    likes: list[str] | None = None
    dislikes: list[str] | None = None
    faults: tuple[Fault, ...] = ()
    #: Reason of a status other than `ok`.
    detail: str = ""

    @property
    def reason(self) -> str | None:
        """Reason why there is no description, and the text; None if there is one."""
        if self.status == "ok" and not self.faults:
            return None
        gates = f"gate {', '.join(self.faults)} refused" if self.faults else ""
        text = " ".join((self.text or "").split())
        cut = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        reason = gates or self.detail or self.status
        return f"{reason}: {cut}" if cut else reason


class ModelWriter(Asking):
    """Describes personas with a language model.

    Attributes that were sampled, traits of rating too, are stated in the prompt and not asked for
    again. The reply is a
    sentence of :func:`pipelines.llm.grammars.persona_record`, or with `style: slots` a plan of
    sentences with filled blanks; a reply that is none (an engine that ignored the grammar, an
    apology, a text cut by length) becomes a row without a description, never a persona. A text
    that a gate rejects, and a reply that is none, are drawn again, up to ``personas.draws`` times,
    and then `invalid`.

    Parameters
    ----------
    engine
        The model.
    settings
        Source of genres, temperature and room for the reply; the domain is the rows'.
    store
        Answer store: an interrupted run continues from it. None stores nothing.
    serving
        When replies are committed, and how many may fail.
    genres
        Genres that a model may like, if it decides; default: the domain's own list.
    limits
        Lengths of portrait and taste.
    tokenizer
        The model's, as :meth:`pipelines.llm.grammars.Grammar.check` takes it; None where it is
        out of reach (a server's): then only lengths are checked, by a bound for every tokenizer.
    sampling
        Sampling of texts, if the settings of personas leave it open; default: temperature 1.
    gates
        Judge of each text; None takes every text.

    Raises
    ------
    ConfigError
        If the tokenizer can't encode the grammar, or the model calls itself `statistical`.

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
        sampling: Sampling | None = None,
        gates: TextGates | None = None,
    ) -> None:
        super().__init__(engine, store, serving)
        self._settings = settings
        self._given = None if genres is None else tuple(genres)
        self._checked: set[str] = set()
        self._limits = limits or _LIMITS
        self._tokenizer = None if tokenizer is None else vocabulary(tokenizer)
        self._longest = 0
        stated = {
            name: value
            for name in ("temperature", "top_p", "min_p", "repetition_penalty")
            if (value := getattr(settings, name)) is not None
        }
        self._sampling = replace(sampling or Sampling(), **stated)
        self._gates = gates
        self._first: Counter[str] = Counter()
        self._faults: Counter[Fault] = Counter()
        self._texts = self._again = 0
        #: Reason why a persona has no description, with its refused text; None if all have one.
        self.refusal: str | None = None
        self.name = engine.identity.model
        if not self.name or current_name(self.name) == "statistical":
            raise ConfigError(
                "a model's rows must say which model wrote them",
                where=f"engine.model {self.name!r}",
            )
        self._check(settings.domain)

    def metadata(self) -> dict[str, Any]:
        """Identity and cost of the writing model; JSON-ready."""
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
            "style": self._settings.style,
            "slots_version": SLOTS_VERSION if self._settings.style == "slots" else None,
            "sampling": {
                name: getattr(self._sampling, name)
                for name in ("temperature", "top_p", "min_p", "repetition_penalty")
            },
            "gates": {
                "in_use": self._gates.names if self._gates else [],
                "texts": self._texts,
                "passed_at_first": self._first["ok"],
                "drawn_again": self._again,
                "faults": dict(self._faults),
            },
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
            If the longest legal reply does not fit ``personas.max_tokens`` (`style: slots`).
        EngineError
            If the engine died or failed too often: replies until then are stored, and the same
            call goes on from them.
        """
        if self._settings.max_tokens is not None and self._settings.style == "slots":
            for row in attributes.iter_rows(named=True):
                self._grammar(row).check(self._tokenizer, self._settings.max_tokens)
        for domain in attributes["domain"].unique():
            self._check(domain)
        rows = list(attributes.iter_rows(named=True))
        drawn = [_Draft() for _ in rows]
        pending = list(range(len(rows)))
        for draw in range(self._settings.draws if self._gates else 1):
            self._draw(attributes, rows, pending, drawn, draw)
            pending = [n for n in pending if drawn[n].faults or drawn[n].status == "invalid"]
            if not pending:
                break
            self._again += len(pending)
        self.refusal = next(filter(None, (draft.reason for draft in drawn)), self.refusal)
        statuses = ["invalid" if draft.faults else draft.status for draft in drawn]
        descriptions = [
            draft.text if status == "ok" else None
            for draft, status in zip(drawn, statuses, strict=True)
        ]
        likes = [draft.likes if draft.status == "ok" else None for draft in drawn]
        dislikes = [draft.dislikes if draft.status == "ok" else None for draft in drawn]
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

    def _draw(
        self,
        attributes: pl.DataFrame,
        rows: Sequence[dict[str, Any]],
        pending: Sequence[int],
        drawn: list[_Draft],
        draw: int,
    ) -> None:
        """Draw another text for each pending row."""
        requests = self.requests(attributes, rows=pending, draw=draw)
        for request, _, answer in self._ask(requests):
            number, grammar = request.tag
            drawn[number] = _Draft(answer.status, detail=answer.detail)
            text = answer.text
            if answer.status != "ok":
                cut = answer.status == "truncated" and isinstance(grammar, PersonaGrammar)
                text = _finished(text) if cut else None
                if text is None:
                    continue
            try:
                drawn[number] = self._read(grammar, text)
            except AnswerError as error:
                drawn[number] = _Draft("invalid", detail=str(error))
        written = [n for n in pending if drawn[n].status == "ok"]
        if self._gates is not None and written:
            texts = [str(drawn[n].text) for n in written]
            judged = [
                {**rows[n], "likes": drawn[n].likes, "dislikes": drawn[n].dislikes}
                if self._settings.genres == "model"
                else rows[n]
                for n in written
            ]
            for n, faults in zip(written, self._gates(texts, judged), strict=True):
                drawn[n] = replace(drawn[n], faults=tuple(faults))
                self._faults.update(faults)
        if draw == 0:
            self._texts += len(pending)
            self._first["ok"] += sum(
                drawn[n].status == "ok" and not drawn[n].faults for n in pending
            )

    def _read(self, grammar: Grammar, text: str | None) -> _Draft:
        if not isinstance(grammar, PersonaGrammar):
            grammar.read(text)
            return _Draft("ok", text)
        record = grammar.record(text)
        return _Draft(
            "ok", f"{record.portrait} {record.taste}", list(record.likes), list(record.dislikes)
        )

    def requests(
        self, attributes: pl.DataFrame, *, rows: Sequence[int] | None = None, draw: int = 0
    ) -> Iterator[Request]:
        """Requests to the model for each of ``rows`` (numbers; default: all), in order.

        ``attributes`` has the columns that `sample_attributes` returns; ``draw`` counts texts of
        each that were drawn before. A request's tag is the row's number and the
        :class:`~pipelines.llm.grammars.PersonaGrammar` that reads the reply.
        """
        selected = None if rows is None else set(rows)
        for number, row in enumerate(attributes.iter_rows(named=True)):
            if selected is not None and number not in selected:
                continue
            grammar = self._grammar(row)
            longest = grammar.longest(self._tokenizer)
            self._longest = max(self._longest, longest)
            yield Request(
                messages=self._messages(row),
                constraint=grammar.constraint,
                sampling=replace(self._sampling, max_tokens=self._room(longest)),
                seed=row["text_seed"] & _SEED_BITS,
                replicate=draw,
                group=f"personas/{row['domain']}",
                tag=(number, grammar),
            )

    def _room(self, longest: int) -> int:
        """Token budget of a reply; one of a plan of sentences can't be cut back."""
        planned = self._settings.style == "slots"
        return self._settings.max_tokens or (longest if planned else min(longest, _BUDGET))

    def _messages(self, row: dict[str, Any]) -> tuple[Message, ...]:
        if self._settings.style == "slots":
            return slots_messages(row)
        settled = self._settings.genres == "sampled"

        def named(tastes: Sequence[str]) -> list[str]:
            # A shopper's taste is the value of a facet (`material:wood`), which no text contains.
            if row["domain"] != "products":
                return list(tastes)
            return [genre_phrase(taste, "products") for taste in tastes]

        return persona_messages(
            row["domain"],
            name=row["name"],
            age=row["age"],
            gender=row["gender"],
            job=row["job"],
            hobby=row["hobby"],
            opening=introduction(row["name"], row["age"], row["job"]),
            limits=self._limits,
            likes=named(row["likes"]) if settled else None,
            dislikes=named(row["dislikes"]) if settled else (),
            genres=named(self._genres_for(row["domain"], row["age"])),
            **{trait: row.get(trait) for trait in TRAITS},
        )

    def _grammar(self, row: dict[str, Any]) -> Grammar:
        if self._settings.style == "slots":
            return slots_grammar(row)
        begin = introduction(row["name"], row["age"], row["job"])
        if self._settings.genres == "model":
            genres = self._genres_for(row["domain"], row["age"])
            return self._declare(row["domain"], None, (), begin, genres)
        return self._declare(row["domain"], row["likes"], row["dislikes"], begin, ())

    def _check(self, domain: str) -> None:
        if domain not in self._checked:
            begin = introduction("Ana", 34, "nurse")
            self._declare(domain, None, (), begin, self._genres(domain)).check(self._tokenizer)
            self._checked.add(domain)

    def _genres(self, domain: str) -> tuple[str, ...]:
        return self._given if self._given is not None else DOMAIN_WORDS[domain].default

    def _genres_for(self, domain: str, age: int) -> tuple[str, ...]:
        """Genres that a person of that age may have an opinion of, as for sampled opinions."""
        genres = self._genres(domain)
        if domain == OWN:  # no genre of one's own data is only for adults
            return genres
        lists = load_lists(domain)
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


def _finished(reply: str | None) -> str | None:
    """A record that its token budget cut, up to its last full sentence; None without one.

    >>> _finished('{"portrait":"Ann is a nurse.","cinema":"She likes noir. She ha')
    '{"portrait":"Ann is a nurse.","cinema":"She likes noir."}'
    """
    ends = [end.end() for end in _END.finditer(reply or "")]
    return f'{(reply or "")[: ends[-1]]}"}}' if ends else None
