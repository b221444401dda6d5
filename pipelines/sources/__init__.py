"""Sources: original files of every publisher, read into raw snapshots.

>>> from pipelines.sources import SOURCES
>>> list(SOURCES)[:2]
['movielens', 'tmdb']
"""

from pipelines.sources._ingest import ingest, inventory
from pipelines.sources._protocol import (
    Licence,
    Progress,
    RawTable,
    Source,
    Workspace,
    no_progress,
)
from pipelines.sources._registry import SOURCES, open_source
from pipelines.sources._rejects import RejectLog
from pipelines.sources._world import World, prepare_world

__all__ = [
    "SOURCES",
    "Licence",
    "Progress",
    "RawTable",
    "RejectLog",
    "Source",
    "Workspace",
    "World",
    "ingest",
    "inventory",
    "no_progress",
    "open_source",
    "prepare_world",
]
