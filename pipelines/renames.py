"""Values that earlier versions wrote under other names, in settings and in published tables."""

from __future__ import annotations

import warnings
from typing import Any

__all__ = ["RENAMED", "current_name", "current_setting"]

#: Old name -> current name of raters and writers that need no language model.
RENAMED = {"embedded": "statistical"}


def current_name(name: str) -> str:
    """Return the current name of a rater or writer that a table or file names.

    >>> current_name("embedded"), current_name("random")
    ('statistical', 'random')
    """
    return RENAMED.get(name, name)


def current_setting(value: Any, where: str) -> Any:
    """Return a setting's value under its current name, with a warning if it is an old one.

    ``where`` is the setting, such as ``scoring.rater``, for the warning. Anything but an old name
    is returned unchanged.
    """
    if isinstance(value, str) and value in RENAMED:
        now = RENAMED[value]
        warnings.warn(f"{where}: {value!r} is now called {now!r}", FutureWarning, stacklevel=3)
        return now
    return value
