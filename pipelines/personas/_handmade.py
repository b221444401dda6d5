"""Test personas that people wrote, for the ablation suites.

SUBER, appendix C: for eight genres four users who rate that genre highly and everything else low
(a young and an old woman, a young and an old man), and eight users who rate everything highly or
everything low. The texts are ours and name no scale, so that no number in them has to change
with the scale of the answers.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import polars as pl
import yaml

from pipelines.errors import ConfigError
from pipelines.personas._generate import ID_DIGITS
from pipelines.personas._phrases import article

__all__ = ["HANDMADE_VERSION", "SUITE_GENRES", "handmade_personas", "handmade_suite"]

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


def handmade_personas(domain: str, *, cohort: str | None = None) -> pl.DataFrame:
    """The test personas of a domain.

    Parameters
    ----------
    domain
        `movies` or `books`.
    cohort
        Name of the cohort that they form; default ``handmade-<domain>``.

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
        [row["persona"] for row in _rows(domain, cohort or f"handmade-{domain}")], schema=_SCHEMA
    )


def handmade_suite(domain: str, *, cohort: str | None = None) -> pl.DataFrame:
    """What each test persona is for.

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


_SCHEMA: dict[str, Any] = {
    **dict.fromkeys(("persona_id", "cohort", "domain", "origin", "writer", "name"), pl.String),
    "age": pl.Int64,
    **dict.fromkeys(("gender", "job", "hobby"), pl.String),
    **dict.fromkeys(("likes", "dislikes"), pl.List(pl.String)),
    **dict.fromkeys(("leniency", "manner"), pl.String),
    "description": pl.String,
}


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
    file = files("pipelines.personas").joinpath("data", "handmade", f"{domain}.yaml")
    content = yaml.safe_load(file.read_text("utf-8"))
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
