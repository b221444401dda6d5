"""The way in for every consumer of published datasets.

>>> from sim import open_release
>>> release = open_release("movies@latest")          # doctest: +SKIP
>>> release["items"].polars(["item_id", "title"])    # doctest: +SKIP

Importing ``sim`` is cheap: it loads no orchestrator, torch, pandas or DuckDB. Where gymnasium is
installed, the environments are registered, so that ``gymnasium.make("Understudy/Movies-v0")``
works after ``import sim``.
"""

from sim._registry import ENVIRONMENTS, register_environments
from sim._release import Release, Table, open_release

__all__ = ["ENVIRONMENTS", "Release", "Table", "open_release", "register_environments"]

register_environments()
