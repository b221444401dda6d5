"""Product choice sets: products matched to a category tree (BIEL, section 4 and appendix C).

>>> tree = CategoryTree(["Toys & Games > Action & Toy Figures"])
>>> found = PathMatcher(tree).match(["toys and games", "Action Figures"])
>>> tree.nodes[found.node].key
'category:Toys & Games > Action & Toy Figures'
"""

from pipelines.products._choice_sets import ChoiceSets, choice_sets
from pipelines.products._match import HEURISTICS, Heuristic, PathMatch, PathMatcher, PathMiss
from pipelines.products._tree import CategoryNode, CategoryTree

#: Raised when the same products, tree and settings would give other tables.
CODE_VERSION = "choice-sets-1"

__all__ = [
    "CODE_VERSION",
    "HEURISTICS",
    "CategoryNode",
    "CategoryTree",
    "ChoiceSets",
    "Heuristic",
    "PathMatch",
    "PathMatcher",
    "PathMiss",
    "choice_sets",
]
