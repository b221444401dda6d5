"""Case counts by kind, and constants of the suites."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pipelines.errors import ConfigError
from pipelines.scales import SCALES, RatingScale


@dataclass(frozen=True)
class CaseRule:
    """Sizes of the case tables (SUBER, appendix C), and the seed of their draws."""

    #: Items per persona and side of the genre test (count).
    liked: int = 20
    disliked: int = 20
    #: Items per high or low rater (count).
    everything: int = 160
    #: Series at most (count); None is the suite's own number.
    series: int | None = None
    #: Users per series (count).
    users: int = 100
    #: Other items in each history of a series (count).
    fillers: int = 10
    #: Ratings of people per draw (count).
    people: int = 2_000
    #: Training ratings of a person shown at most, the latest (count).
    past: int = 50
    #: Independent draws of users, histories and people's ratings (count).
    draws: int = 5
    #: Training ratings that an item needs to be asked about in the tests of hand-made personas
    #: (count): the popularity of an unrated item is unknown.
    least_ratings: int = 3
    #: Seed of all draws.
    seed: int = 0

    def metadata(self) -> dict[str, Any]:
        """The rule, ready for JSON: part of what identifies a table."""
        return asdict(self)


@dataclass(frozen=True)
class Suite:
    """Scale, thresholds and aggregate of a domain's suite."""

    #: ``movies`` or ``books``.
    domain: str
    #: Scale that thresholds and histories are stated on.
    scale: RatingScale
    #: Series that are asked for (count).
    series: int
    #: By test: a rating of at least the first is high, of at most the second is low.
    thresholds: dict[str, tuple[float, float]]
    #: Tests whose mean is the aggregate (SUBER, section 4.2 and appendix C: the books' leaves the
    #: similarity out).
    aggregate: tuple[str, ...]


_SUITES = {
    "movies": Suite(
        "movies",
        SCALES["1-10"],
        22,
        {"genres": (8, 5), "raters": (9, 2), "collections": (7, 5)},
        ("genres", "raters", "collections", "similarity"),
    ),
    "books": Suite(
        "books",
        SCALES["1-5"],
        20,
        {"genres": (5, 3), "raters": (5, 3), "collections": (4, 3)},
        ("genres", "raters", "collections"),
    ),
}


def suite_named(name: str) -> Suite:
    """The suite of a domain.

    Raises ConfigError if there is none.
    """
    if name not in _SUITES:
        raise ConfigError("no ablation suite", where=name, hint=f"one of {', '.join(_SUITES)}")
    return _SUITES[name]
