"""Case counts by kind, and constants of the suites."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pipelines.errors import ConfigError
from pipelines.scales import SCALES, RatingScale

__all__ = ["CaseRule", "Suite", "suite_named"]


@dataclass(frozen=True)
class CaseRule:
    """Sizes of the case tables (SUBER, appendix C), and the seed of their draws.

    Attributes
    ----------
    liked, disliked
        Items per persona and side of the genre test (count).
    everything
        Items per high or low rater (count).
    series
        Series at most (count); None is the suite's own number.
    users
        Users per series (count).
    fillers
        Other items in each history of a series (count).
    people
        Ratings of people per draw (count).
    past
        Training ratings of a person shown at most, the latest (count).
    draws
        Independent draws of users, histories and people's ratings (count).
    least_ratings
        Training ratings that an item needs to be asked about in the tests of hand-made personas
        (count): of what nobody rated, nobody can say how well known it is.
    seed
        Of all draws.
    """

    liked: int = 20
    disliked: int = 20
    everything: int = 160
    series: int | None = None
    users: int = 100
    fillers: int = 10
    people: int = 2_000
    past: int = 50
    draws: int = 5
    least_ratings: int = 3
    seed: int = 0

    def metadata(self) -> dict[str, Any]:
        """The rule, ready for JSON: part of what identifies a table."""
        return asdict(self)


@dataclass(frozen=True)
class Suite:
    """Scale, thresholds and aggregate of a domain's suite.

    Attributes
    ----------
    domain
        ``movies`` or ``books``.
    scale
        Scale that thresholds and histories are stated on.
    series
        Series that are asked for (count).
    thresholds
        By test: a rating of at least the first is high, of at most the second is low.
    aggregate
        Tests whose mean is the aggregate (SUBER, section 4.2 and appendix C: the books' leaves
        the similarity out).
    """

    domain: str
    scale: RatingScale
    series: int
    thresholds: dict[str, tuple[float, float]]
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

    Raises
    ------
    ConfigError
        If there is none.
    """
    if name not in _SUITES:
        raise ConfigError("no ablation suite", where=name, hint=f"one of {', '.join(_SUITES)}")
    return _SUITES[name]
