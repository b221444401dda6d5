"""Test personas that people wrote, for the ablation suites.

SUBER, appendix C: for eight genres four users who rate that genre highly and everything else low
(a young and an old woman, a young and an old man), and eight users who rate everything highly or
everything low. The texts are ours and name no scale, so that no number in them has to change
with the scale of the answers. A bank of paraphrases states the same in other words: numbers, stars,
thumbs, letter grades and everyday phrases.
"""

from __future__ import annotations

import csv
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import polars as pl

from pipelines.errors import ConfigError, IntegrityError
from pipelines.packaged import packaged_yaml
from pipelines.personas._generate import ID_DIGITS, SCHEMA
from pipelines.personas._phrases import article, genre_phrase, opened
from pipelines.seeding import hash_ids, hash_text, uniform

#: Raised when a text or an attribute changes.
HANDMADE_VERSION = "handmade-2"
#: Genres that there are test personas for, by domain. Books differ from SUBER's categories where
#: those are no Amazon category (drama, computer) or contain others of the list (fiction).
SUITE_GENRES: dict[str, tuple[str, ...]] = {
    "movies": (
        "Action", "Animation", "Children", "Comedy", "Documentary", "Fantasy", "Horror",
        "Romance",
    ),
    "books": (
        "Children's Books", "Fantasy", "History", "Horror", "Humor & Entertainment", "Mystery",
        "Romance", "Science Fiction",
    ),
}  # fmt: skip
#: Genres that share so many items that liking one can't mean disliking the other.
_AKIN = frozenset({"Animation", "Children"})
#: Registers of the paraphrases.
REGISTERS = ("numbers", "stars", "thumbs", "letters", "everyday")
#: SHA-256 of either half of the paraphrases. The sealed half is for final runs: neither the reader
#: of texts nor a prompt is developed on it.
PARAPHRASE_DIGESTS = {
    "open": "33a5b050507071fc6db265be6ecfc1feff6bd3f894e99b6329a3a0e899185d1c",
    "sealed": "aecd720b82d1e0a9aceac29bb019582d6300101f755ebec5ffd8b2a98c19d869",
}
#: Values of the template slots, by gender and by domain.
_PRONOUNS = {
    "female": {"he": "she", "him": "her", "his": "her"},
    "male": {"he": "he", "him": "him", "his": "his"},
}
_SLOTS = {"movies": {"film": "film", "films": "films"}, "books": {"film": "book", "films": "books"}}


def handmade_personas(domain: str, *, cohort: str | None = None) -> pl.DataFrame:
    """The test personas of a domain.

    Returns
    -------
    40 rows of the `personas` contract, origin `handmade`, writer
    `people`. Those of a genre like it and dislike the suite's other genres, with the manner
    `polar`; those who rate everything alike (`uniform`) state no genres.

    Raises
    ------
    ConfigError
        If there are none for the domain.

    Examples
    --------
    >>> handmade_personas("books")["likes"].list.len().sum()
    32
    """
    return pl.DataFrame(
        [row["persona"] for row in _rows(domain, cohort or f"handmade-{domain}")], schema=SCHEMA
    )


def handmade_suite(domain: str, *, cohort: str | None = None) -> pl.DataFrame:
    """Purpose of each test persona.

    Returns
    -------
    ``persona_id, suite, group``: suite `genres` with the liked genre as group, or suite `raters`
    with `high` or `low`.

    Raises
    ------
    ConfigError
        If there are none for the domain.
    """
    rows = _rows(domain, cohort or f"handmade-{domain}")
    return pl.DataFrame(
        {
            "persona_id": [row["persona"]["persona_id"] for row in rows],
            "suite": [row["suite"] for row in rows],
            "group": [row["group"] for row in rows],
        }
    )


@cache
def paraphrases(half: str) -> tuple[dict[str, str], ...]:
    r"""Rows ``register, group, text`` of a half of the paraphrases.

    ``group`` is `like` (a genre best, all others low), `high` or `low` (everything alike). Slots
    of a text are ``{name}``, ``{he}``, ``{him}``, ``{his}``, ``{genre}``, ``{film}``, ``{films}``
    and their capitalised forms.

    A text is in the `sealed` half if the first byte of sha256("understudy paraphrases 1\n" + text)
    is odd, else in the `open` one.

    Raises IntegrityError if the file does not have the digest of `PARAPHRASE_DIGESTS`.
    """
    file = files("pipelines.personas").joinpath("data", "handmade", "paraphrases", f"{half}.tsv")
    data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != PARAPHRASE_DIGESTS[half]:
        raise IntegrityError(
            "the paraphrases differ from those behind the published figures",
            where=f"{half}.tsv",
            hint="restore the file, or update its digest and measure again",
        )
    lines = data.decode("utf-8").splitlines()
    return tuple(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def restated_personas(personas: pl.DataFrame, half: str, draw: int) -> pl.DataFrame:
    """Test personas whose texts state the same taste in the words of a paraphrase.

    Registers alternate from persona to persona and from draw to draw; the paraphrase of its
    register is drawn by persona and draw.

    ``personas`` are rows of :func:`handmade_personas` with the columns of :func:`handmade_suite`.

    >>> rows = handmade_personas("books").join(handmade_suite("books"), on="persona_id")
    >>> restated_personas(rows, "open", 0)["description"][36][-50:]
    "aves Greta's house with a single star out of five."
    """
    chance = uniform(draw, hash_text("paraphrases"), hash_ids(personas["persona_id"]))
    texts = []
    for n, row in enumerate(personas.iter_rows(named=True)):
        group = "like" if row["suite"] == "genres" else row["group"]
        register = REGISTERS[(n + draw) % len(REGISTERS)]
        candidates = [
            p["text"]
            for p in paraphrases(half)
            if p["group"] == group and p["register"] == register
        ]
        words = _SLOTS[row["domain"]] | {
            "name": row["name"],
            **_PRONOUNS[row["gender"]],
            "genre": genre_phrase(row["group"], row["domain"]) if group == "like" else "",
        }
        words |= {opened(slot): opened(word) for slot, word in words.items()}
        text = candidates[int(np.floor(chance[n] * len(candidates)))].format(**words)
        texts.append(_introduced(text, row["name"], row["age"], row["job"], row["hobby"]))
    return personas.with_columns(description=pl.Series(texts, dtype=pl.String))


#: Leniency of those who rate everything alike.
_LENIENCY = {"high": "generous", "low": "harsh"}


@cache
def _rows(domain: str, cohort: str) -> list[dict[str, Any]]:
    if domain not in SUITE_GENRES:
        raise ConfigError(
            "there are no hand-made personas for this domain",
            where=domain,
            hint=f"one of {', '.join(SUITE_GENRES)}",
        )
    content = packaged_yaml("pipelines.personas", f"handmade/{domain}.yaml")
    rows: list[dict[str, Any]] = []
    for suite in ("genres", "raters"):
        for group, people in content[suite].items():
            likes = [group] if suite == "genres" else []
            akin = _AKIN if group in _AKIN else frozenset(likes)
            others = [g for g in SUITE_GENRES[domain] if g not in akin] if likes else []
            for name, age, gender, job, hobby, text in people:
                persona = {
                    "persona_id": f"persona:{cohort}:{len(rows):0{ID_DIGITS}}",
                    "cohort": cohort,
                    "domain": domain,
                    "origin": "handmade",
                    "writer": "people",
                    "name": name,
                    "age": age,
                    "gender": gender,
                    "job": job,
                    "hobby": hobby,
                    "likes": likes,
                    "dislikes": others,
                    "leniency": _LENIENCY.get(group) if suite == "raters" else None,
                    "manner": "polar" if suite == "genres" else "uniform",
                    "description": _introduced(text, name, age, job, hobby),
                }
                rows.append({"persona": persona, "suite": suite, "group": group})
    return rows


def _introduced(text: str, name: str, age: int, job: str, hobby: str) -> str:
    """The text behind a line that states the attributes, which the texts leave out."""
    does = "is retired" if job == "retired" else f"works as {article(job)}"
    return f"{name}, {age}, {does} and enjoys {hobby}. {text}"
