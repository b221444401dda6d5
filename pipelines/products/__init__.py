"""Product choice sets: products matched to a category tree (BIEL, section 4 and appendix C).

>>> tree = CategoryTree(["Toys & Games > Action & Toy Figures"])
>>> found = PathMatcher(tree).match(["toys and games", "Action Figures"])
>>> tree.nodes[found.node].key
'category:Toys & Games > Action & Toy Figures'
"""

from pipelines.products._choice_sets import ChoiceSets, choice_sets
from pipelines.products._facets import (
    PRICE_VALUES,
    WORD_VALUES,
    Vocabulary,
    content_words,
    facets,
    vocabularies,
)
from pipelines.products._match import PathMatch, PathMatcher, PathMiss
from pipelines.products._shown import choice_set_items, persona_splits
from pipelines.products._tree import CategoryTree

#: Raised when the same products, tree and settings would give other tables.
CODE_VERSION = "choice-sets-5"

__all__ = [
    "CODE_VERSION",
    "PRICE_VALUES",
    "WORD_VALUES",
    "CategoryTree",
    "ChoiceSets",
    "PathMatch",
    "PathMatcher",
    "PathMiss",
    "Vocabulary",
    "choice_set_items",
    "choice_sets",
    "content_words",
    "facets",
    "persona_splits",
    "vocabularies",
]
