"""When a stored answer serves a call."""

from __future__ import annotations

from pipelines.llm.engines import Status

#: Budgets are compared up to here.
LARGEST_BUDGET = 2**32 - 1


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
    match status:
        case "engine_error":
            return False
        case "truncated":
            return budget(wanted) <= budget(made)
        case "invalid":
            return budget(wanted) >= budget(made)
    return True


def replaces(status: Status, stored: Status) -> bool:
    """Whether a new answer takes the place of a stored one: one key has one row.

    A call is repeated only where the stored answer does not serve it, so that the newer one is of
    more use; but `ok` stays, and a failed call replaces nothing but another.

    >>> replaces("ok", "truncated"), replaces("truncated", "ok"), replaces("engine_error", "ok")
    (True, False, False)
    """
    return stored != "ok" and (status != "engine_error" or stored == "engine_error")


def budget(max_tokens: int) -> int:
    """``max_tokens`` as it is stored and compared."""
    return min(max(int(max_tokens), 0), LARGEST_BUDGET)
