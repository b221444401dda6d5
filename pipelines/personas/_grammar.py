"""The statistical writer: a combinatorial grammar over a persona's attributes.

The phrases are in `data/grammar.yaml` and `data/domains/`, all of our own wording. Every
description says age, occupation, hobby and every liked and disliked genre, with reasons, and what
this person looks for in a film, book or game, in four to six sentences of the third person. The
choice of phrases hangs on the row's `text_seed` alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from pipelines.personas._phrases import (
    article,
    domain_phrases,
    genre_phrase,
    listed,
    opened,
    stages,
)
from pipelines.seeding import combine

__all__ = ["StatisticalWriter"]

#: Random numbers at a description's disposal; asking for more is a bug that raises.
_DRAWS = 64
#: Rows whose random numbers are held as Python integers at a time.
_ROWS = 2_000
_PRONOUNS = {
    "female": {"they": "she", "them": "her", "their": "her", "self": "herself"},
    "male": {"they": "he", "them": "him", "their": "his", "self": "himself"},
}


class StatisticalWriter:
    """The writer that needs no model; its rows say ``writer = statistical``."""

    name = "statistical"

    def write(self, attributes: pl.DataFrame) -> pl.DataFrame:
        """Describe each row; see :class:`pipelines.personas.Writer`.

        Raises
        ------
        ConfigError
            If there are no phrases for a row's domain.
        """
        texts: list[str] = []
        # Text is put together row by row: the same as columnar string operations would be
        # longer, harder to read, and is not what a cohort's minutes go into.
        for part in attributes.iter_slices(_ROWS):
            seeds = part["text_seed"].to_numpy()[:, None]
            draws = combine(seeds, np.arange(_DRAWS, dtype=np.uint64)).tolist()
            texts += [
                _Description(row, iter(numbers)).text()
                for row, numbers in zip(part.iter_rows(named=True), draws, strict=True)
            ]
        return pl.DataFrame(
            {"description": texts, "status": ["ok"] * len(texts)},
            schema={"description": pl.String, "status": pl.String},
        )


@dataclass
class _Description:
    """One description in the making."""

    row: dict[str, Any]
    numbers: Iterator[int]

    def __post_init__(self) -> None:
        row = self.row
        self.domain = row["domain"]
        self.phrases = domain_phrases(self.domain, stages(row["age"], row["job"]))
        # No phrase comes twice in one description.
        self.said: set[str] = set()
        # Whoever is retired has had a job; it is colour, not an attribute.
        job = self._pick(_former_jobs()) if row["job"] == "retired" else row["job"]
        pupils = self.phrases["pupils"]
        pupil = next((p for until, p in pupils if row["age"] <= until), None)
        pupil = pupil or self._pick(self.phrases["studies"])
        place = self._pick(self.phrases["places"])
        words = self.phrases["words"]
        pronouns = _PRONOUNS[row["gender"]]
        self.slots = {
            **words,
            **pronouns,
            **{k.capitalize(): v.capitalize() for k, v in pronouns.items()},
            "a_item": article(words["item"]),
            "A_item": opened(article(words["item"])),
            "name": row["name"],
            "age": str(row["age"]),
            "an_age": article(str(row["age"])),
            "job": job,
            "a_job": article(job),
            "A_job": opened(article(job)),
            "pupil": pupil,
            "a_pupil": article(pupil),
            "A_pupil": opened(article(pupil)),
            "place": place,
            "Place": opened(place),
            "hobby": row["hobby"],
            "Hobby": opened(row["hobby"]),
        }

    def text(self) -> str:
        """The description: introduction, hobby, likes, dislikes, and what is looked for."""
        sentences = [
            self._fill(self._pick(self.phrases["introductions"])),
            self._sentence("hobbies", "since", "whom", "comfort"),
            *self._likes(),
            *self._dislikes(),
            self._taste(),
        ]
        return " ".join(sentences)

    def _likes(self) -> list[str]:
        first, *others = self._shuffled(self.row["likes"])
        common = ("more", "spark", "occasion")
        sentences = [self._sentence("likes", *common, genres=[first], side="liked")]
        if others:
            sentences.append(self._sentence("others", *common, genres=others, side="liked"))
        return sentences

    def _dislikes(self) -> list[str]:
        genres = self._shuffled(self.row["dislikes"])
        if genres:
            return [self._sentence("dislikes", "extent", "worse", genres=genres, side="disliked")]
        if self._next() % 2:
            return [self._sentence("nothing_disliked", "occasion", "open", "welcome")]
        return []

    def _taste(self) -> str:
        quality = self.phrases["qualities"][self._next() % len(self.phrases["qualities"])]
        extra = {
            "quality": self._fill(quality["name"]),
            "why": self._fill(self._pick(quality["why"])),
        }
        return self._sentence("tastes", "pace", "company", "choice", extra=extra)

    def _sentence(
        self,
        section: str,
        *parts: str,
        genres: Sequence[str] = (),
        side: str = "",
        extra: dict[str, str] | None = None,
    ) -> str:
        """A sentence of the section, with a phrase for each part that it may use."""
        slots = dict(extra or {})
        for part in parts:
            slots[part] = self._fill(self._pick(self.phrases[part]))
        if genres:
            # The reason is one for the genre named last, next to it.
            phrases = [genre_phrase(g, self.domain) for g in genres]
            slots["genre"] = listed(phrases, "or" if side == "disliked" else "and")
            slots["genre_and"] = slots["others"] = listed(phrases)
            slots["reason"] = self._reason(genres[-1], side)
        return self._fill(self._pick(self.phrases[section]), slots)

    def _reason(self, genre: str, side: str) -> str:
        reasons = self.phrases["genres"].get(genre, self.phrases["general"])[side]
        return self._fill(self._pick(reasons))

    def _fill(self, frame: str, extra: dict[str, str] | None = None) -> str:
        slots = self.slots
        if extra:
            slots = {**slots, **{opened(k): opened(v) for k, v in extra.items()}, **extra}
        return frame.format_map(slots)

    def _pick(self, options: Sequence[str]) -> str:
        at = self._next() % len(options)
        for step in range(len(options)):
            option = options[(at + step) % len(options)]
            if option not in self.said:
                self.said.add(option)
                return option
        return options[at]

    def _shuffled(self, genres: list[str]) -> list[str]:
        """The genres in one of all their orders, each as likely."""
        left, order = list(genres), []
        while left:
            order.append(left.pop(self._next() % len(left)))
        return order

    def _next(self) -> int:
        return next(self.numbers)


@cache
def _former_jobs() -> list[str]:
    # Read here: `_lists` is about what is sampled, this is only wording.
    from pipelines.personas._lists import load_lists

    return load_lists().jobs
