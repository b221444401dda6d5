"""Target distributions of a sampled cohort: ages, genders and opinions on genres."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class PersonaTargets:
    """Distributions that personas are sampled from."""

    #: Bands as (first age, last age, share), both ages included (years); shares sum to 1.
    ages: tuple[tuple[int, int, float], ...]
    #: Share per gender; they sum to 1.
    genders: Mapping[str, float]
    #: Per domain and genre: the share of opinions (liked or disliked) that are favourable, of
    #: adults (children are not given a liking for some genres).
    favourable: Mapping[str, Mapping[str, float]]


@cache
def persona_targets(min_age: int = 18) -> PersonaTargets:
    """Targets from the packaged census and preference lists, of people from an age (years) on.

    Raises ConfigError if the packaged bands leave a gap.
    """
    import numpy as np

    from pipelines.domains import DOMAINS
    from pipelines.personas import DOMAIN_NAMES, load_lists

    lists = load_lists()
    by_domain = {name: load_lists(name) for name in DOMAINS if name in DOMAIN_NAMES}
    ages = tuple(
        (int(low), int(high), float(share))
        for low, high, share in zip(*lists.ages_from(min_age), strict=True)
    )
    male = 0.0
    for low, high, share in ages:
        years = np.arange(low, high + 1)
        # Gender bands are wider than age bands and their edges need not meet.
        male += share * float(lists.male_shares[lists.gender_bands.of(years)].mean())
    return PersonaTargets(
        ages=ages,
        genders={"female": 1.0 - male, "male": male},
        favourable={
            name: dict(zip(domain_lists.genres, map(float, domain_lists.genre_shares), strict=True))
            for name, domain_lists in by_domain.items()
        },
    )
