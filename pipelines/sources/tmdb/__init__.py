"""TMDB: film records from a dump or from the live API, as raw tables.

A dump is JSON lines (gzip or plain) of ``/movie/{id}?append_to_response=credits,keywords``
answers. Without one, :class:`TmdbClient` asks the API for every film that MovieLens links to
and keeps the answers on disk, so that a stopped fetch goes on where it was.
"""

from pipelines.sources.tmdb._cache import CacheEntry, TmdbCache
from pipelines.sources.tmdb._client import FetchReport, TmdbClient
from pipelines.sources.tmdb._identity import WantedFilms
from pipelines.sources.tmdb._records import RecordFaultError, flatten, to_frame
from pipelines.sources.tmdb._source import CODE_VERSION, TmdbSource

__all__ = [
    "CODE_VERSION",
    "CacheEntry",
    "FetchReport",
    "RecordFaultError",
    "TmdbCache",
    "TmdbClient",
    "TmdbSource",
    "WantedFilms",
    "flatten",
    "to_frame",
]
