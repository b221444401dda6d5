"""Matching a product's category path to the tree (BIEL, appendix C).

Each level of the path is looked for below the category that the level before it was matched
to; the first one, at the top of the tree. Four heuristics are tried in turn, the surest first;
within one, categories near the last match come before deeper ones (breadth first), so that
levels which the product's path leaves out are bridged. A path matches only as a whole: if a
level can't be found, the choice before it is taken back and the next best is tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rapidfuzz import fuzz

from pipelines.products._names import folded, normal, repaired
from pipelines.products._tree import CategoryTree

Heuristic = Literal["equal", "folded", "words", "substring"]

#: By falling priority.
HEURISTICS: tuple[Heuristic, ...] = ("equal", "folded", "words", "substring")
#: Least similarity of folded names for `words` and `substring` (rapidfuzz's normalised indel
#: similarity, in percent).
_MIN_SIMILARITY = 50.0
#: Shortest text that counts as a part of another one (characters).
_MIN_SUBSTRING = 4
#: Categories that are tried for one level before its path counts as not matched.
_MAX_CHOICES = 12
#: Longer than any real path; the rest of a longer one is junk.
_MAX_LEVELS = 32


@dataclass(frozen=True, slots=True)
class PathMatch:
    """Target of a path."""

    #: Number of the category in the tree.
    node: int
    #: The weakest one that was needed.
    heuristic: Heuristic
    #: Levels of the tree's path that the product's path lacks (count).
    bridged: int
    #: Least similarity of a level to the category it was matched to (0-1).
    similarity: float


@dataclass(frozen=True, slots=True)
class PathMiss:
    """Reason that a path has no match."""

    #: The first level that could not be found below any category that those before it can be
    #: matched to; empty for a path without levels.
    level: str
    #: Levels before it (count).
    matched: int


@dataclass(frozen=True, slots=True)
class _Choice:
    node: int
    heuristic: int
    similarity: float


class PathMatcher:
    """Matches paths to one tree; equal questions are answered once.

    The first level may be matched below the top level of the tree too, where only one category
    there fits (of "Automotive", many parts and accessories do: none is taken).

    >>> tree = CategoryTree(["CDs & Vinyl > Music Styles > Blues"])
    >>> match = PathMatcher(tree).match(["CDs and Vinyl", "Blues"])
    >>> tree.nodes[match.node].path, match.heuristic, match.bridged
    (('CDs & Vinyl', 'Music Styles', 'Blues'), 'folded', 1)
    """

    def __init__(self, tree: CategoryTree) -> None:
        self.tree = tree
        self._choices: dict[tuple[int, str], list[_Choice]] = {}

    def match(self, path: Sequence[str]) -> PathMatch | PathMiss:
        """Match the whole path, or return the level without a match."""
        levels = _levels(path)
        if not levels:
            return PathMiss("", 0)
        dead: set[tuple[int, int]] = set()
        reached = 0
        trail: list[_Choice] = []
        pending = [iter(self._options(0, levels[0]))]
        while pending:
            choice = next(pending[-1], None)
            if choice is None:
                pending.pop()
                if trail:
                    dead.add((len(trail), trail.pop().node))
                continue
            depth = len(trail) + 1
            if (depth, choice.node) in dead:
                continue
            trail.append(choice)
            if depth == len(levels):
                return self._matched(trail)
            reached = max(reached, depth)
            pending.append(iter(self._options(choice.node, levels[depth])))
        return PathMiss(levels[reached], reached)

    def _matched(self, trail: Sequence[_Choice]) -> PathMatch:
        node = self.tree.nodes[trail[-1].node]
        return PathMatch(
            node=node.number,
            heuristic=HEURISTICS[max(choice.heuristic for choice in trail)],
            bridged=node.depth - len(trail),
            similarity=min(choice.similarity for choice in trail) / 100.0,
        )

    def _options(self, node: int, level: str) -> list[_Choice]:
        choices = self._choices.get((node, level))
        if choices is None:
            choices = self._choices[node, level] = self._search(node, level)
        return choices

    def _search(self, node: int, level: str) -> list[_Choice]:
        tree, choices, seen = self.tree, [], set()
        text = folded(level)
        finders = (tree.named, tree.folding_to, tree.with_words, tree.containing)
        for rank, finder in enumerate(finders):
            if finder == tree.containing and len(text) < _MIN_SUBSTRING:
                continue
            here = []
            for number in finder(level, node):
                if number in seen:
                    continue
                similarity = 100.0 if rank < 2 else fuzz.ratio(text, tree.foldeds[number])
                seen.add(number)
                if similarity >= _MIN_SIMILARITY:
                    here.append(_Choice(number, rank, similarity))
            if not node:
                here = self._starts(here)
            # Breadth first; among categories of one depth the most alike; then by path.
            here.sort(key=lambda c: (tree.nodes[c.node].depth, -c.similarity, c.node))
            choices += here
            if len(choices) >= _MAX_CHOICES:
                break
        return choices[:_MAX_CHOICES]

    def _starts(self, choices: list[_Choice]) -> list[_Choice]:
        """Nodes that a path may begin with: of the top level, or the only one below it."""
        top = [c for c in choices if self.tree.nodes[c.node].depth == 1]
        return top or (choices if len(choices) == 1 else [])


def _levels(path: Sequence[str]) -> list[str]:
    """The levels without empty ones and without the ones that repeat the level before.

    >>> _levels(["Gift Cards", " Gift  card", "", "Accessories"])
    ['gift cards', 'accessories']
    """
    levels: list[str] = []
    last = ""
    for level in path[:_MAX_LEVELS]:
        name = normal(repaired(level))
        key = folded(name) or name
        if name and key != last:
            levels.append(name)
            last = key
    return levels
