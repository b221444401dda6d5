"""The statistical writer: a combinatorial grammar over a persona's attributes.

The phrases are in `data/grammar.yaml` and `data/domains/`, all of our own wording. Every
description states age, occupation, hobby and every liked and disliked genre, with reasons, and what
this person looks for in a film, book or game, and how it rates if not as most people do, in four to
eight sentences of the third person. The choice of phrases hangs on the row's `text_seed` alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from pipelines.personas._phrases import article, domain_phrases, genre_phrase, opened, stages
from pipelines.seeding import combine

#: Random numbers at a description's disposal; asking for more is a bug that raises.
_DRAWS = 128
#: Pronouns that a name may stand for: a subject that opens a clause, or an object.
_BY_NAME = re.compile(r"(^)\{they\}(?= )|( )\{them\}")
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

        Raises ConfigError if there are no phrases for a row's domain.
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
    """A description under construction."""

    row: dict[str, Any]
    numbers: Iterator[int]

    def __post_init__(self) -> None:
        row = self.row
        self.domain = row["domain"]
        stage = stages(row["age"], row["job"], row.get("activity") or "medium")
        self.phrases = domain_phrases(self.domain, stage)
        # No phrase comes twice in one description. Wordings are cached, one object per phrase.
        self.used: set[int] = set()
        # Retired people had a job: a detail of the text, not an attribute.
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
            "name": row["name"].split(" ")[0],
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
        """The description: introduction, hobby, likes, dislikes, what is looked for, and rating."""
        sentences = [
            self._fill(self._pick(self.phrases["introductions"]), {"name": self.row["name"]}),
            self._sentence("hobbies", "since", "whom", "comfort"),
            *self._likes(),
            *self._dislikes(),
            self._taste(),
            *self._rates(),
        ]
        return " ".join(sentences)

    def _likes(self) -> list[str]:
        first, *others = self._shuffled(self.row["likes"])
        common = ("more", "spark", "occasion")
        return [
            self._sentence("likes", *common, genre=first, side="liked"),
            *(self._sentence("others", *common, genre=g, side="liked") for g in others),
        ]

    def _dislikes(self) -> list[str]:
        genres = self._shuffled(self.row["dislikes"])
        if genres:
            first, *others = genres
            return [
                self._sentence("dislikes", "extent", "worse", genre=first, side="disliked"),
                *(self._sentence("other_dislikes", "extent", genre=g, side="disliked")
                  for g in others),
            ]  # fmt: skip
        if self._next() % 2:
            return [self._sentence("nothing_disliked", "occasion", "open", "welcome")]
        return []

    def _rates(self) -> list[str]:
        """Sentences on leniency, manner and conformity that differ from most people's."""
        stated = [(self.row.get("leniency"), {"generous": "grace", "harsh": "rigor"}),
                  (self.row.get("manner"), {"wide": "span", "narrow": "calm"})]  # fmt: skip
        sentences = [
            self._sentence("rates", reasons[value], field=value)
            for value, reasons in stated
            if value in reasons
        ]
        conformity = self.row.get("conformity")
        if conformity in ("low", "high") and self._next() % 2:
            sentences.append(self._sentence("agrees", field=conformity))
        return sentences

    def _taste(self) -> str:
        quality = self.phrases["qualities"][self._next() % len(self.phrases["qualities"])]
        extra = {"quality": (quality["name"],), "why": quality["why"]}
        return self._sentence("tastes", "pace", "company", "choice", extra=extra)

    def _sentence(
        self,
        section: str,
        *parts: str,
        genre: str = "",
        side: str = "",
        field: str = "",
        extra: dict[str, Sequence[tuple[str, ...]]] | None = None,
    ) -> str:
        """A sentence of the section, with a phrase for each part that it may use."""
        options = self.phrases[section]
        frame = self._pick(options[field] if field else options)
        # One clause of a sentence that does not name the person does so, more often than not.
        self.by_name = "{name}" not in frame and self._next() % 3 > 0
        slots = {name: self._part(options) for name, options in (extra or {}).items()}
        used = frame.lower()
        for part in parts:
            if f"{{{part}}}" in used:
                slots[part] = self._part(self.phrases[part])
        if genre:
            slots["genre"] = genre_phrase(genre, self.domain)
            slots["reason"] = self._reason(genre, side)
        return self._fill(frame, slots)

    def _reason(self, genre: str, side: str) -> str:
        reasons = self.phrases["genres"].get(genre, self.phrases["general"])[side]
        return self._part(reasons)

    def _part(self, options: Sequence[tuple[str, ...]]) -> str:
        phrase = self._pick(options)
        if self.by_name:
            named = _BY_NAME.sub(lambda m: f"{m[2] or ''}{{name}}", phrase, count=1)
            self.by_name = named == phrase
            phrase = named
        return self._fill(phrase)

    def _fill(self, frame: str, extra: dict[str, str] | None = None) -> str:
        if not extra:
            return frame.format_map(self.slots)
        slots = {**self.slots, **extra}
        first = frame[1 : frame.find("}")] if frame[0] == "{" else ""
        if first and (slot := first[0].lower() + first[1:]) in extra:
            slots[first] = opened(extra[slot])
        return frame.format_map(slots)

    def _pick(self, options: Sequence[tuple[str, ...]]) -> str:
        """Pick a wording of a phrase that is not used yet."""
        size = len(options)
        wording, at = divmod(self._next(), size)
        for place in range(at, at + size):
            option = options[place % size]
            if id(option) not in self.used:
                break
        self.used.add(id(option))
        return option[wording % len(option)]

    def _shuffled(self, genres: list[str]) -> list[str]:
        """The genres in one of all their orders, each as likely."""
        left, order = list(genres), []
        while left:
            order.append(left.pop(self._next() % len(left)))
        return order

    def _next(self) -> int:
        return next(self.numbers)


@cache
def _former_jobs() -> list[tuple[str, ...]]:
    # Read here: `_lists` is about what is sampled, this is only wording.
    from pipelines.personas._lists import load_lists

    return [(job,) for job in load_lists().jobs]
