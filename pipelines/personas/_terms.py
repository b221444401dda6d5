"""Where the persona sampler's figures come from, and on what terms (see data/SOURCES.md)."""

from __future__ import annotations

from pipelines.licences import Licence

__all__ = ["LICENCES"]

LICENCES = {
    "us_census": Licence(
        name="Public domain",
        url="https://data.census.gov/",
        terms="Shares of age and gender of the US Census Bureau's American Community Survey "
        "2023; works of the US government are free of copyright.",
        citation="US Census Bureau, American Community Survey 2023",
    ),
    "genre_preferences": Licence(
        name="Published figures",
        url="https://arxiv.org/abs/2406.01631",
        terms="Shares of US adults who like a film genre (2018), as SUBER states them; figures "
        "are facts and used as such.",
        citation="N. Corecco et al. SUBER: An RL Environment with Simulated Human Behavior for "
        "Recommender Systems. 2024",
    ),
}
