"""Reader of persona texts that asks a language model by closed choices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from pipelines.config import ServingSettings
from pipelines.llm.answers import AnswerStore, Asking
from pipelines.llm.engines import Choice, Engine, Message, Request, Sampling
from pipelines.personas._phrases import DOMAIN_NAMES, genre_phrase
from pipelines.personas._reader import LENIENCY, MANNER, PRICE_TASTES, Reading, genres_named

#: Raised when a question changes.
READER_PROMPT_VERSION = "reader-1"
_SYSTEM = (
    "You read a text about a person and answer a question about what the text states of this "
    "person. Tastes of other people and of the past do not count. Answer with one word."
)
_NONE = "unstated"
_QUESTIONS = {
    "leniency": (
        "Beside others, does this person give harsh, average or generous ratings?",
        LENIENCY,
    ),
    "manner": (
        "Are this person's ratings narrow (few different ones), average, wide (the whole scale), "
        "polar (best for some genres, bad for all others) or uniform (everything alike)?",
        MANNER,
    ),
}
#: Probability that an answer needs, else it reads as nothing.
_SURE = 0.5


class ModelReader(Asking):
    """Reads texts with a language model.

    One closed choice (`Choice`) per genre that the text names, one each for leniency and manner. An
    answer that failed, or of a probability below one half, reads as nothing. The domain, `movies`,
    `books` or `games`, selects the names of genres.

    >>> from pipelines.llm.engines.scripted import ScriptedEngine
    >>> def rule(request):
    ...     options = request.constraint.options
    ...     chosen = "like" if "like" in options else "unstated"
    ...     return {o: float(o == chosen) for o in options}
    >>> with ModelReader(ScriptedEngine(rule, name="likes")) as reader:
    ...     reader.read(["She adores comedies."], ("Comedy", "Horror"))
    [Reading(likes=('Comedy',), dislikes=(), leniency=None, manner=None)]
    """

    def __init__(
        self,
        engine: Engine,
        domain: str = "movies",
        *,
        store: AnswerStore | None = None,
        serving: ServingSettings | None = None,
    ) -> None:
        super().__init__(engine, store, serving)
        self._domain = domain
        self.name = engine.identity.model
        self.texts, self.understood = 0, 0

    def read(self, texts: Sequence[str], genres: Sequence[str]) -> list[Reading]:
        """Read texts with the genres of their domain.

        Raises EngineError if the engine died or failed too often; answers until then are stored.
        """
        chosen: list[dict[str, str]] = [{} for _ in texts]
        for request, _, answer in self._ask(self._requests(texts, tuple(genres))):
            if answer.status != "ok" or answer.probabilities is None:
                continue
            row, about = request.tag
            options = _options(request)
            best = max(range(len(options)), key=answer.probabilities.__getitem__)
            if answer.probabilities[best] >= _SURE:
                chosen[row][about] = options[best]
        readings = [_reading(stated_options, genres) for stated_options in chosen]
        self.texts += len(readings)
        self.understood += sum(map(bool, readings))
        return readings

    def metadata(self) -> dict[str, Any]:
        """``model``, ``texts`` and how many of them something was ``read`` in (counts)."""
        return {"model": self.name, "texts": self.texts, "read": self.understood}

    def read_fields(self, personas: pl.DataFrame, genres: Sequence[str]) -> pl.DataFrame:
        """Personas with `likes`, `dislikes`, `leniency` and `manner` read from their texts.

        A text that states no taste for prices leaves the one that the persona has, as of a stated
        income.
        """
        readings = self.read(personas["description"].to_list(), genres)
        strings = pl.List(pl.String)
        prices = [
            PRICE_TASTES & set(had) if PRICE_TASTES.isdisjoint((*r.likes, *r.dislikes)) else set()
            for had, r in zip(personas["likes"].to_list(), readings, strict=True)
        ]
        likes = [sorted({*r.likes, *taste}) for r, taste in zip(readings, prices, strict=True)]
        return personas.with_columns(
            pl.Series("likes", likes, dtype=strings),
            pl.Series("dislikes", [sorted(r.dislikes) for r in readings], dtype=strings),
            pl.Series("leniency", [r.leniency for r in readings], dtype=pl.String),
            pl.Series("manner", [r.manner for r in readings], dtype=pl.String),
        )

    def _requests(self, texts: Sequence[str], genres: tuple[str, ...]) -> Iterator[Request]:
        for row, text in enumerate(texts):
            for genre in genres_named(text, genres):
                phrase = (
                    genre_phrase(genre, self._domain) if self._domain in DOMAIN_NAMES else genre
                )
                question = f"Does this person like or dislike {phrase}?"
                yield _request(text, question, ("like", "dislike", _NONE), (row, genre))
            for about, (question, values) in _QUESTIONS.items():
                yield _request(text, question, (*values, _NONE), (row, about))


def _request(text: str, question: str, options: tuple[str, ...], tag: Any) -> Request:
    prompt = (
        f"Text: {text}\n\nQuestion: {question} Answer {', '.join(options[:-1])} or {options[-1]}."
    )
    return Request(
        messages=(Message("system", _SYSTEM), Message("user", prompt)),
        constraint=Choice(options),
        sampling=Sampling(temperature=0.0, max_tokens=8),
        group=f"reader/{tag[0]}",
        tag=tag,
    )


def _options(request: Request) -> tuple[str, ...]:
    return request.constraint.options if isinstance(request.constraint, Choice) else ()


def _reading(stated_options: dict[str, str], genres: Sequence[str]) -> Reading:
    def stated(about: str) -> str | None:
        value = stated_options.get(about)
        return None if value in (None, _NONE, "average") else value

    return Reading(
        tuple(g for g in genres if stated_options.get(g) == "like"),
        tuple(g for g in genres if stated_options.get(g) == "dislike"),
        stated("leniency"),
        stated("manner"),
    )
