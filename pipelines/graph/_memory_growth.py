"""What was added to a graph memory since it was opened: new nodes, edges and path counts.

Additions are kept as differences to the shared base, so that a memory of one simulated user
holds that user's own edges and nothing else. An edge changes the counts of a walk W from items
by (walks that end where it begins) × (walks that begin where it ends); only those entries are
touched, which is what makes adding cost the degree of its ends and not the size of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipelines.graph._memory_base import Base, Steps
from pipelines.graph._memory_blocks import Codes

__all__ = ["Growth"]

#: Differences of one walk's counts: by item, then node; and by node, then item.
_Rows = dict[int, dict[int, float]]


class Growth:
    """Additions to a base. Cloned by the first of several owners who adds again.

    Attributes
    ----------
    nodes
        Codes of new nodes by type and id; they go on where the base's end.
    rows, columns
        Differences per walk of ``base.walks``.
    old_nodes
        Keys of `columns` that walks of the base reach, too.
    item_trips, user_item_trips
        Differences of the round trips, by item.
    ratings
        By user, then item: on the memory's scale.
    rated
        By item: sum and number of ratings added.
    edges
        Number of edges added, inverses not counted.
    """

    def __init__(self, base: Base) -> None:
        walks = range(len(base.walks))
        self.base = base
        self.nodes: dict[str, dict[str, int]] = {}
        self.rows: list[_Rows] = [{} for _ in walks]
        self.columns: list[_Rows] = [{} for _ in walks]
        self.old_nodes: list[set[int]] = [set() for _ in walks]
        self.item_trips: dict[int, float] = {}
        self.user_item_trips: dict[int, float] = {}
        self.ratings: dict[int, dict[int, float]] = {}
        self.rated: dict[int, tuple[float, int]] = {}
        self.edges = 0
        self._next: dict[int, dict[int, list[int]]] = {}
        self._seen: set[tuple[int, int, int]] = set()

    def clone(self) -> Growth:
        """A copy that shares nothing but the base."""
        other = Growth(self.base)
        other.nodes = {kind: dict(codes) for kind, codes in self.nodes.items()}
        other.rows = [_clone(rows) for rows in self.rows]
        other.columns = [_clone(columns) for columns in self.columns]
        other.old_nodes = [set(nodes) for nodes in self.old_nodes]
        other.item_trips = dict(self.item_trips)
        other.user_item_trips = dict(self.user_item_trips)
        other.ratings = {user: dict(given) for user, given in self.ratings.items()}
        other.rated = dict(self.rated)
        other.edges = self.edges
        other._next = {
            step: {node: list(ends) for node, ends in lists.items()}
            for step, lists in self._next.items()
        }
        other._seen = set(self._seen)
        return other

    def code(self, kind: str, name: str) -> int | None:
        """Code of a node of the base or added, or None."""
        code = self.base.index.codes(kind).get(name)
        return code if code is not None else self.nodes.get(kind, {}).get(name)

    def new_node(self, kind: str, name: str) -> int:
        """Code of a node, which is made if there is none."""
        code = self.code(kind, name)
        if code is None:
            added = self.nodes.setdefault(kind, {})
            code = added[name] = self.base.index.count(kind) + len(added)
        return code

    def add(self, edge: int, head: int, tail: int) -> bool:
        """Add an edge of a type (its number) and its inverse; False if it was there before."""
        key = (edge, head, tail)
        forward, backward = 2 * edge, 2 * edge + 1
        if key in self._seen or _holds(self.base.neighbours(forward, head), tail):
            return False
        # The walks up to the edge must not use it yet, those after it may: so each new
        # instance of a walk that takes the edge more than once is counted at one place.
        places = self.base.places[edge]
        before = [self.walk(tail if p.backward else head, p.back) for p in places]
        self._seen.add(key)
        self._next.setdefault(forward, {}).setdefault(head, []).append(tail)
        self._next.setdefault(backward, {}).setdefault(tail, []).append(head)
        for place, items in zip(places, before, strict=True):
            after = self.walk(head if place.backward else tail, place.onward)
            for item, ways in items.items():
                for node, onward in after.items():
                    self._change(place.walk, item, node, ways * onward)
        self.edges += 1
        return True

    def rate(self, user: int, item: int, rating: float, before: float | None) -> None:
        """Keep a rating, in the place of an earlier one of the same user."""
        self.ratings.setdefault(user, {})[item] = rating
        total, count = self.rated.get(item, (0.0, 0))
        change = (rating, 1) if before is None else (rating - before, 0)
        self.rated[item] = (total + change[0], count + change[1])

    def added(self) -> list[tuple[int, int, int]]:
        """Every added edge: number of its type, head and tail, ordered."""
        return sorted(self._seen)

    def reached(self, step: int, node: int) -> Codes:
        """Nodes that a step leads to from a node, in the base and added."""
        known = self.base.neighbours(step, node)
        added = self._next.get(step, {}).get(node)
        if not added:
            return known
        return np.concatenate([known, np.asarray(added, dtype=known.dtype)])

    def walk(self, start: int, steps: Steps) -> dict[int, float]:
        """Number of walks along some steps from a node, by end."""
        ends = {start: 1.0}
        for step in steps:
            onward: dict[int, float] = {}
            for node, ways in ends.items():
                for end in self._ends(step, node):
                    onward[end] = onward.get(end, 0.0) + ways
            ends = onward
        return ends

    def value(self, walk: int, item: int, node: int) -> float:
        """Walks from an item to a node now."""
        added = self.rows[walk].get(item)
        return self.base.blocks[walk].value(item, node) + (added.get(node, 0.0) if added else 0.0)

    def _ends(self, step: int, node: int) -> Iterator[int]:
        yield from self.base.neighbours(step, node).tolist()
        yield from self._next.get(step, {}).get(node, ())

    def _change(self, walk: int, item: int, node: int, by: float) -> None:
        """Change one count, and the round trips that it is part of."""
        base = self.base
        old = self.value(walk, item, node)
        square = by * (2.0 * old + by)
        own = square * base.item_squares[walk]
        for other in base.crossed_with[walk]:
            own += by * self.value(other, item, node)
        if own:
            self.item_trips[item] = self.item_trips.get(item, 0.0) + own
        if base.user_squares[walk]:
            more = square * base.user_squares[walk]
            self.user_item_trips[item] = self.user_item_trips.get(item, 0.0) + more
        row = self.rows[walk].setdefault(item, {})
        row[node] = row.get(node, 0.0) + by
        met = base.met[walk]
        if node < len(met) and met[node]:
            self.old_nodes[walk].add(node)
        column = self.columns[walk].setdefault(node, {})
        column[item] = column.get(item, 0.0) + by


def _clone(rows: _Rows) -> _Rows:
    return {key: dict(row) for key, row in rows.items()}


def _holds(codes: Codes, code: int) -> bool:
    at = codes.searchsorted(code)
    return bool(at < len(codes) and codes[at] == code)
