"""Sources by name; each is imported when it is first asked for."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

from pipelines.config import Settings
from pipelines.errors import ConfigError
from pipelines.sources._protocol import Progress, Source, no_progress

__all__ = ["SOURCES", "open_source"]


class _Registry(Mapping[str, type[Source]]):
    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = dict(places)

    def __getitem__(self, name: str) -> type[Source]:
        module, _, attribute = self._places[name].partition(":")
        found: type[Source] = getattr(importlib.import_module(module), attribute)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


#: In the order of ingest: a source comes after those whose tables it needs.
SOURCES: Mapping[str, type[Source]] = _Registry(
    {
        "movielens": "pipelines.sources.movielens:MovielensSource",
        "tmdb": "pipelines.sources.tmdb:TmdbSource",
        "steam": "pipelines.sources.steam:SteamSource",
        "amazon": "pipelines.sources.amazon:AmazonSource",
        "taxonomy": "pipelines.sources.taxonomy:TaxonomySource",
        "persona_files": "pipelines.sources.persona_files:PersonaFilesSource",
    }
)


def open_source(name: str, settings: Settings, *, progress: Progress = no_progress) -> Source:
    """Return the source of this name; downloads of its files report to ``progress``.

    Raises
    ------
    ConfigError
        If there is none, listing the known ones.
    """
    if name not in SOURCES:
        raise ConfigError(f"unknown source {name}", hint=f"known: {', '.join(SOURCES)}")
    return SOURCES[name](settings, progress=progress)
