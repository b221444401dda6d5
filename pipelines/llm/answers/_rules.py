"""Rules by which a stored answer serves a call, and the choice between several.

One key may have several rows: an answer was cut and asked again with a larger budget, a failed
call was repeated, two processes asked the same at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pipelines.llm.answers._record import STATUS_CODE
from pipelines.llm.engines import Status

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.integer]
    Mask = NDArray[np.bool_]

#: Budgets are kept as unsigned integers of 32 bits; larger ones are as good as this.
LARGEST_BUDGET = 2**32 - 1

_OK, _TRUNCATED, _INVALID, _REFUSED, _ERROR = STATUS_CODE.values()
#: Order of preference, by status code.
_RANK = np.zeros(len(STATUS_CODE), dtype=np.int64)
_RANK[[_OK, _TRUNCATED, _REFUSED, _INVALID, _ERROR]] = range(5)


def serves(status: Status, made: int, wanted: int) -> bool:
    """Whether an answer generated with one token limit can be reused for a call with another.

    ====================  ==================================================================
    stored as             asked again
    ====================  ==================================================================
    ``ok``, ``refused``   never: it ended by itself
    ``truncated``         if the call now allows more tokens
    ``invalid``           if the call now allows fewer: prompt and budget may then fit
    ``engine_error``      always, on the next run
    ====================  ==================================================================

    >>> serves("ok", 10, 500), serves("truncated", 10, 500), serves("truncated", 500, 10)
    (True, False, True)
    """
    code = np.array([STATUS_CODE[status]], dtype=np.uint8)
    return bool(serving(code, np.array([budget(made)]), np.array([budget(wanted)]))[0])


def budget(max_tokens: int) -> int:
    """``max_tokens`` as it is compared."""
    return min(max(int(max_tokens), 0), LARGEST_BUDGET)


def serving(status: Numbers, made: Numbers, wanted: Numbers) -> Mask:
    """:func:`serves` for arrays of status codes and budgets."""
    asked_again: Mask = (
        (status == _ERROR)
        | ((status == _TRUNCATED) & (wanted > made))
        | ((status == _INVALID) & (wanted < made))
    )
    return np.logical_not(asked_again)


def preference(
    group: Numbers, status: Numbers, made: Numbers, stored_at: Numbers, place: Numbers
) -> Numbers:
    """Order of rows: by group (one call or key), and within each the one to take first.

    `ok` before `truncated` before `refused` before `invalid` before `engine_error`; of truncated
    ones the longest; else the one stored first, so that an answer once read stays. ``place``
    decides where everything else is equal.
    """
    budgets = made.astype(np.int64)
    longest = np.where(status == _TRUNCATED, -budgets, budgets * (status == _INVALID))
    return np.lexsort((place, stored_at, longest, _RANK[status], group))


def first_of_each(group: Numbers, order: Numbers) -> Numbers:
    """The first row of each group, in order."""
    if len(order) == 0:
        return order
    sorted_groups = group[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = sorted_groups[1:] != sorted_groups[:-1]
    return order[first]


def keep(
    group: Numbers, status: Numbers, made: Numbers, stored_at: Numbers, place: Numbers
) -> Mask:
    """Rows that a call could still be served from; `gc` drops the rest.

    An `ok` row makes all others of its key useless; else one row of each status may serve some
    budget. Rows of `engine_error` serve nothing.
    """
    mask = np.zeros(len(group), dtype=bool)
    order = preference(group, status, made, stored_at, place)
    if len(order) == 0:
        return mask
    key, rank = group[order], _RANK[status[order]]
    new_key = np.ones(len(order), dtype=bool)
    new_key[1:] = key[1:] != key[:-1]
    new_rank = new_key.copy()
    new_rank[1:] |= rank[1:] != rank[:-1]
    best = np.repeat(rank[new_key], np.diff(np.append(np.flatnonzero(new_key), len(order))))
    useful = new_rank & (rank < _RANK[_ERROR]) & ((best > _RANK[_OK]) | (rank == _RANK[_OK]))
    mask[order[useful]] = True
    return mask
