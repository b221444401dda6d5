"""Sources of the persona sampler's figures, and their terms (see data/SOURCES.md)."""

from __future__ import annotations

from pipelines.licences import Licence

LICENCES = {
    "us_census": Licence(
        name="Public domain",
        url="https://data.census.gov/",
        terms="Shares of age and gender of the US Census Bureau's American Community Survey "
        "2023; works of the US government are free of copyright.",
        citation="US Census Bureau, American Community Survey 2023",
    ),
    "census_records": Licence(
        name="Public domain",
        url="https://www.census.gov/",
        terms="Surname frequencies of the 1990 census, and counts of occupations by age and gender "
        "over records drawn from the American Community Survey.",
        citation="US Census Bureau, 1990 census surname file; American Community Survey",
    ),
    "joint_shares": Licence(
        name="GroupLens research terms",
        url="https://grouplens.org/datasets/movielens/100k/",
        terms="Aggregate counts of at least 20 people of ml-100k: genres and habits of rating by "
        "gender, age and each other; no ratings and no row of a person.",
        citation="F. M. Harper and J. A. Konstan. The MovieLens Datasets: History and Context. ACM "
        "TiiS 5(4), 2015. doi:10.1145/2827872",
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
