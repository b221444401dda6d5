"""The suites: what each published table must look like as a whole, declared as data.

Row ranges, keys and nulls are pandera's (``pipelines.contracts``); relations between SQL tables
are dbt's. Nothing of that is repeated here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pipelines.quality._applies import APPLIES_FROM
from pipelines.quality._drift import drift_expectations
from pipelines.quality._spec import Expectation, of_dataset
from pipelines.quality._suites_catalogue import (
    HUMAN_USERS,
    INTERACTIONS,
    ITEM_STATS,
    ITEMS,
    SPLITS,
    USER_TRAITS,
)
from pipelines.quality._suites_choice_sets import CHOICE_SETS
from pipelines.quality._suites_domains import domain_suites
from pipelines.quality._suites_graph import SIMILARITY
from pipelines.quality._suites_synthetic import (
    EMBEDDINGS,
    GRAPH,
    PERSONA_EMBEDDINGS,
    PERSONAS,
    SCORE_PLAN,
    SCORES,
)

__all__ = ["CONTRACT_CHECK", "SUITES", "required_checks"]

#: Name of the record that says a version passed its pandera contract.
CONTRACT_CHECK = "contract"

#: In the order in which the tables are made.
_OWN: Mapping[str, tuple[Expectation, ...]] = {
    "movies.items": ITEMS,
    "movies.interactions": INTERACTIONS,
    "movies.splits": SPLITS,
    "movies.item_stats": ITEM_STATS,
    "movies.human_users": HUMAN_USERS,
    "movies.user_traits": USER_TRAITS,
    "personas": PERSONAS,
    "persona_embeddings": PERSONA_EMBEDDINGS,
    "movies.item_embeddings": EMBEDDINGS,
    "movies.score_plan": SCORE_PLAN,
    "movies.preference_scores": SCORES,
    "movies.graph_triples": GRAPH,
    "movies.item_similarity": SIMILARITY,
    **domain_suites("books"),
    **domain_suites("games"),
    **domain_suites("products", graph=False, personas=False),
    **CHOICE_SETS,
}


def _suite(dataset: str) -> tuple[Expectation, ...]:
    """Expectations of a dataset with the numbers of rows from which they apply."""
    numbers = of_dataset(APPLIES_FROM, dataset) or {}
    own = (replace(e, applies_from=numbers.get(e.name)) for e in _OWN[dataset])
    return (*own, *drift_expectations(dataset))


#: Expectations by dataset: its own and those against the last release.
SUITES: Mapping[str, tuple[Expectation, ...]] = {dataset: _suite(dataset) for dataset in _OWN}


def required_checks(dataset: str) -> frozenset[str]:
    """Names of the checks that publishing demands of a version of a dataset.

    The contract's record and every expectation of severity ``error``. What dbt adds for its
    marts is not in it.

    >>> sorted(required_checks("movies.score_plan"))
    ['contract', 'personas_planned', 'plan_balance']
    >>> required_checks("raw.movielens_movies")
    frozenset({'contract'})
    """
    return frozenset(
        {CONTRACT_CHECK, *(e.name for e in SUITES.get(dataset, ()) if e.severity == "error")}
    )
