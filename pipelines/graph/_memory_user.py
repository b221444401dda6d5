"""How a user's community reaches every item: |p_u→y| and |p_u→u|, summed over user paths."""

from __future__ import annotations

import numpy as np

from pipelines.graph._memory_base import Base, UserPath
from pipelines.graph._memory_blocks import Codes, Vector
from pipelines.graph._memory_growth import Growth

__all__ = ["spread_into", "user_counts"]

#: From this many entries on, NumPy is faster than a loop.
_MANY = 24


def user_counts(base: Base, growth: Growth, user: int) -> Vector:
    """Path instances from a user to every item, and, last, from the user back to itself.

    Returns
    -------
    Of shape (items + 1,), whole numbers.
    """
    weights = np.zeros(base.columns)
    own = 0.0
    grown: list[tuple[int, Vector, dict[int, float]]] = []
    sums: dict[tuple[int, bytes], Vector] = {}
    for path in base.user_paths:
        known, new = _profile(base, growth, path, user, sums)
        # Not a BLAS product, whose threads would wait for each other on a busy machine.
        own += float(np.einsum("i,i", known, known)) + sum(value * value for value in new.values())
        block = base.blocks[path.right]
        weights[block.offset : block.offset + block.width] += known
        if growth.columns[path.right]:
            grown.append((path.right, known, new))
    out = np.empty(base.items + 1)
    out[:-1] = base.spread(weights)
    out[-1] = own
    for right, known, new in grown:
        for node, items in growth.columns[right].items():
            weight = known[node] if node < len(known) else new.get(node, 0.0)
            if weight:
                spread_into(out, items, float(weight))
    return out


def spread_into(out: Vector, entries: dict[int, float], factor: float) -> None:
    """Add `factor` times each entry to the element it is for."""
    if len(entries) < _MANY:
        for at, value in entries.items():
            out[at] += factor * value
    else:
        at_all = np.fromiter(entries.keys(), np.intp, len(entries))
        out[at_all] += factor * np.fromiter(entries.values(), np.float64, len(entries))


def _profile(
    base: Base,
    growth: Growth,
    path: UserPath,
    user: int,
    sums: dict[tuple[int, bytes], Vector],
) -> tuple[Vector, dict[int, float]]:
    """Walks from a user to the middle of a path: to nodes of the base, and to new ones."""
    width = base.blocks[path.right].width
    new: dict[int, float] = {}
    if path.rest < 0:
        out = np.zeros(width)
        for node, ways in growth.walk(user, path.walk).items():
            _put(out, new, node, ways)
        return out, new
    history: Codes = growth.reached(path.walk[0], user)
    # `viewed` often is `rated` under another name: the same history over the same block.
    key = (id(base.blocks[path.rest]), history.tobytes())
    if key not in sums:
        sums[key] = base.sum_rows(path.rest, history)
    rows = growth.rows[path.rest]
    if not rows:
        return sums[key], new
    out = sums[key].copy()
    for item in history.tolist():
        for node, ways in rows.get(item, {}).items():
            _put(out, new, node, ways)
    return out, new


def _put(out: Vector, new: dict[int, float], node: int, ways: float) -> None:
    if node < len(out):
        out[node] += ways
    else:
        new[node] = new.get(node, 0.0) + ways
