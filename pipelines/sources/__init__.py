"""Sources: original files of every publisher, read into raw snapshots.

>>> from pipelines.sources import SOURCES
>>> list(SOURCES)[:2]
['movielens', 'tmdb']
"""

from pipelines.seams import SOURCES
from pipelines.sources._ingest import (
    ingest,
    ingest_build,
    inventory_build,
    rejected_line,
    rejected_rows,
)
from pipelines.sources._protocol import Source, open_source
from pipelines.sources._rejects import RejectLog
from pipelines.sources._tables import RawTable, Workspace
from pipelines.sources._world import (
    GENERATED,
    GIVEN,
    MOVIELENS_URL,
    World,
    download_folder,
    given_folder,
    open_world,
)

__all__ = [
    "GENERATED",
    "GIVEN",
    "MOVIELENS_URL",
    "SOURCES",
    "RawTable",
    "RejectLog",
    "Source",
    "Workspace",
    "World",
    "download_folder",
    "given_folder",
    "ingest",
    "ingest_build",
    "inventory_build",
    "open_source",
    "open_world",
    "rejected_line",
    "rejected_rows",
]
