"""A category tree and the look-ups that matching needs, none of which walks the tree."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipelines.errors import ContractError
from pipelines.products._names import SEPARATOR, folded, normal, repaired, words


@dataclass(frozen=True, slots=True)
class CategoryNode:
    """A category."""

    #: Position in depth-first order; 0 is the root that stands above the top level.
    number: int
    #: Names from the top level down to this category; empty for the root.
    path: tuple[str, ...]
    #: Number of the category above.
    parent: int
    #: Number after the last of its descendants: they are ``number + 1`` to ``end - 1``.
    end: int

    @property
    def depth(self) -> int:
        """Levels from the top (1 is the top level; 0 the root)."""
        return len(self.path)

    @property
    def name(self) -> str:
        """The last level's name."""
        return self.path[-1] if self.path else ""

    @property
    def key(self) -> str:
        """The category's id: its path.

        >>> CategoryNode(2, ("Toys", "Puzzles"), 1, 3).key
        'category:Toys > Puzzles'
        """
        return f"category:{SEPARATOR.join(self.path)}"


class CategoryTree:
    """Categories by number, in depth-first order of their paths.

    Descendants of a category have consecutive numbers, so that "below this category" is a
    range and a sorted list of numbers is cut to it by bisection.

    Paths from the top level are tuples of names or texts with `` > `` between levels. One that
    differs from another in case, spaces or encoding only is the same one. Levels above a path that
    are not listed themselves are added; ``implied`` counts them. ``nodes`` are all categories, the
    root first.

    Raises ContractError if there is no path.

    Examples
    --------
    >>> tree = CategoryTree(["Music > Styles > Blues", "Music"])
    >>> [node.path for node in tree.nodes[1:]], tree.implied
    ([('Music',), ('Music', 'Styles'), ('Music', 'Styles', 'Blues')], 1)
    """

    def __init__(self, paths: Iterable[str | Sequence[str]]) -> None:
        listed: dict[tuple[str, ...], tuple[str, ...]] = {}
        for path in paths:
            levels = path.split(SEPARATOR) if isinstance(path, str) else path
            names = tuple(repaired(level).strip() for level in levels)
            listed.setdefault(tuple(normal(n) for n in names), names)
        if not listed:
            raise ContractError("the category tree is empty", where="raw.taxonomy_categories")
        written = len(listed)
        for key, names in sorted(listed.items()):
            for depth in range(1, len(key)):
                listed.setdefault(key[:depth], names[:depth])
        self.implied = len(listed) - written
        self.nodes = _numbered(listed)
        self._index()

    def __len__(self) -> int:
        return len(self.nodes) - 1

    def _index(self) -> None:
        self.normals = [normal(node.name) for node in self.nodes]
        self.foldeds = [folded(node.name) for node in self.nodes]
        self._by_normal: dict[str, list[int]] = {}
        self._by_folded: dict[str, list[int]] = {}
        self._by_word: dict[str, list[int]] = {}
        for node in self.nodes[1:]:
            self._by_normal.setdefault(self.normals[node.number], []).append(node.number)
            self._by_folded.setdefault(self.foldeds[node.number], []).append(node.number)
            for word in dict.fromkeys(words(node.name)):
                self._by_word.setdefault(word, []).append(node.number)
        self._vocabulary = sorted(self._by_word)

    def below(self, numbers: list[int], node: int) -> list[int]:
        """Descendants of the node among the ascending numbers."""
        end = self.nodes[node].end
        return numbers[bisect_right(numbers, node) : bisect_left(numbers, end)]

    def named(self, name: str, node: int) -> list[int]:
        """Descendants with this name, but for case and spaces."""
        return self.below(self._by_normal.get(normal(name), []), node)

    def folding_to(self, name: str, node: int) -> list[int]:
        """Descendants whose name differs in plural, ampersand, accents or punctuation only."""
        key = folded(name)
        return self.below(self._by_folded.get(key, []), node) if key else []

    def with_words(self, name: str, node: int) -> list[int]:
        """Descendants whose name has every word of this one."""
        return self._having(words(name), node)

    def containing(self, name: str, node: int) -> list[int]:
        """Descendants whose folded name contains this one's, from the start of a word on.

        `Head` is in `Headphones` and `Head Covers`; `Men` is not in `Women`.
        """
        parts = words(name)
        if not parts:
            return []
        *complete, last = parts
        position = bisect_left(self._vocabulary, last)
        numbers: set[int] = set()
        while position < len(self._vocabulary) and self._vocabulary[position].startswith(last):
            numbers.update(self.below(self._by_word[self._vocabulary[position]], node))
            position += 1
        if complete:
            numbers.intersection_update(self._having(tuple(complete), node))
        text = " " + " ".join(parts)
        return [n for n in sorted(numbers) if text in f" {self.foldeds[n]}"]

    def _having(self, parts: tuple[str, ...], node: int) -> list[int]:
        if not parts:
            return []
        # The rarest word first: what is left can only shrink.
        lists = sorted((self.below(self._by_word.get(w, []), node) for w in set(parts)), key=len)
        left = set(lists[0])
        for numbers in lists[1:]:
            left.intersection_update(numbers)
        return sorted(left)


def _numbered(listed: dict[tuple[str, ...], tuple[str, ...]]) -> list[CategoryNode]:
    # Sorted by keys, every category stands right before its descendants: keys are tuples, and a
    # tuple sorts before those it begins.
    keys = sorted(listed)
    number = {(): 0} | {key: n for n, key in enumerate(keys, start=1)}
    ends = [len(keys) + 1] * (len(keys) + 1)
    open_keys: list[tuple[str, ...]] = []
    for key in keys:
        while open_keys and open_keys[-1] != key[: len(open_keys[-1])]:
            ends[number[open_keys.pop()]] = number[key]
        open_keys.append(key)
    nodes = [CategoryNode(0, (), 0, ends[0])]
    paths: dict[tuple[str, ...], tuple[str, ...]] = {(): ()}
    for key in keys:
        # Names of upper levels are those of the category above, however this line wrote them.
        paths[key] = (*paths[key[:-1]], listed[key][-1])
        n = number[key]
        nodes.append(CategoryNode(n, paths[key], number[key[:-1]], ends[n]))
    return nodes
