"""Table contracts: the one place where columns are declared, with units and ranges.

``CONTRACTS`` maps a dataset name (``movies.items``, ``raw.movielens_ratings``) to its
:class:`Contract`. The tables reference in the documentation is generated from it.

>>> from pipelines.contracts import CONTRACTS
>>> CONTRACTS["movies.items"].key
('item_id',)
"""

from pipelines.contracts._base import Contract
from pipelines.contracts._report import POPULATION, RATER_REPORT
from pipelines.contracts.models import (
    CAPTIONED_DOMAINS,
    CAPTIONS,
    MATCHED_DOMAINS,
    MATCHING,
    SURROGATE_DOMAINS,
    SURROGATES,
    TUNED_DOMAINS,
    TUNING,
)
from pipelines.contracts.published import BOOKS, GAMES, OWN, PRODUCTS, PUBLISHED, RAW_OWN
from pipelines.contracts.raw import RAW, RAW_AMAZON, RAW_FILES, RAW_STEAM
from pipelines.contracts.studies import ABLATIONS, DIALOGUE, EXPERIMENTS, SIMULATIONS, TRAINING

__all__ = [
    "ABLATIONS",
    "CAPTIONED_DOMAINS",
    "CAPTIONS",
    "CONTRACTS",
    "DIALOGUE",
    "EXPERIMENTS",
    "MATCHED_DOMAINS",
    "MATCHING",
    "PUBLISHED",
    "RAW",
    "SIMULATIONS",
    "SURROGATES",
    "SURROGATE_DOMAINS",
    "TRAINING",
    "TUNED_DOMAINS",
    "TUNING",
    "Contract",
]

RAW.update(RAW_AMAZON | RAW_FILES | RAW_OWN | RAW_STEAM)
PUBLISHED.update(BOOKS | GAMES | OWN | PRODUCTS)
PUBLISHED["movies.rater_report"] = RATER_REPORT
PUBLISHED["movies.population"] = POPULATION
#: Tables that mean the same in every domain: the movies' declarations are everybody's.
_DERIVED = ("item_embeddings", "personas", "persona_embeddings", "score_plan", "preference_scores")
_REPORTED = ("rater_report", "population", "graph_triples", "item_similarity")
for _domain in ("books", "games", "products", "own"):
    for _table in _DERIVED if _domain == "products" else _DERIVED + _REPORTED:
        PUBLISHED[f"{_domain}.{_table}"] = PUBLISHED[f"movies.{_table}"]

CONTRACTS: dict[str, Contract] = (
    RAW
    | PUBLISHED
    | MATCHING
    | CAPTIONS
    | TUNING
    | SURROGATES
    | ABLATIONS
    | TRAINING
    | SIMULATIONS
    | EXPERIMENTS
    | DIALOGUE
)
