"""Worlds: the folder of original files that a run starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.captions import poster_files
from pipelines.config import Settings
from pipelines.domains import DOMAINS
from pipelines.downloads import fetch
from pipelines.errors import ConfigError, SourceError
from pipelines.seams import SOURCES
from pipelines.sources._folders import described, entries, has_folder, unread
from pipelines.sources._protocol import open_source

GENERATED = "generated"
GIVEN = "given"
#: Download address of GroupLens.
MOVIELENS_URL = "https://files.grouplens.org"
#: Sources of a world of named files of one's own.
_OF_OWN = ("own", "persona_files")
#: Names that an error text shows.
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class World:
    """A set of original files."""

    #: Name in releases: the MovieLens variant found, or ``sample``.
    name: str
    #: The data folder, with one folder per source in it.
    folder: Path
    #: ``generated``, ``given``, or the address it was downloaded from.
    origin: str
    #: Original files by source; nothing for a source without files here.
    files: Mapping[str, tuple[Path, ...]]
    #: Domains that there are files for.
    domains: frozenset[str]
    #: Names in a given data folder that no source reads; folders end with ``/``.
    unread: tuple[str, ...] = ()
    #: What sources lack to be of (full) use although some domain has files, as text.
    unused: tuple[str, ...] = ()

    def has(self, source: str) -> bool:
        """Whether there are files of this source."""
        return bool(self.files.get(source))

    def relative(self, path: Path) -> str:
        """Return a file's name relative to the data folder, with ``/``.

        A file that the settings name and that lies elsewhere is known by its name alone.
        """
        if path.is_relative_to(self.folder):
            return path.relative_to(self.folder).as_posix()
        return path.name


def open_world(folder: Path, origin: str, settings: Settings) -> World:
    """Find the original files of a data folder.

    ``origin`` is ``generated``, ``given``, or the address that the folder was downloaded from; the
    settings' ``data`` names files that lie elsewhere.

    Raises SourceError if no domain can be made of the files, or one can't be read.
    """
    # Files of one's own that are named are the whole world, wherever they lie.
    named = settings.data.own.named
    sources = {name: open_source(name, settings) for name in (_OF_OWN if named else SOURCES)}
    files = {
        name: tuple(source.files(folder)) if source.present(folder) else ()
        for name, source in sources.items()
    }
    lacks = [lack for source in sources.values() if (lack := source.lacks(folder))]
    fed = frozenset().union(*(source.feeds(folder) for source in sources.values()))
    domains = frozenset(d for d in fed if all(files[s] for s in DOMAINS[d].sources))
    folders = [source.folder_name for source in sources.values()]
    given = [path for paths in files.values() for path in paths]
    given += poster_files(folder)
    left = tuple(unread(folder, given, folders)) if origin == GIVEN and not named else ()
    for name, source in sources.items():
        other = "" if files[name] else described(folder / source.folder_name)
        if other and not named and origin == GIVEN and not source.lacks(folder):
            lacks.append(
                SourceError(
                    f"no file of {name} is read{other}",
                    where=str(folder / source.folder_name),
                    hint=f"expected {source.expected}; see docs/data.md",
                )
            )
    if not domains and lacks:
        raise lacks[0]
    if not domains:
        present = [name for name in files if files[name]]
        raise SourceError(
            f"files of {', '.join(present)} alone do not make a domain"
            if present
            else f"no files of any source{described(folder)}",
            where=str(folder),
            hint=f"expected folders such as {', '.join(f'{name}/' for name in folders)}; "
            + (f"not read: {', '.join(left[:_SHOWN])}; " if left else "")
            + "see docs/data.md",
        )
    name = _name(folder, origin, domains, settings)
    return World(name, folder, origin, files, domains, left, tuple(map(str, lacks)))


def _name(folder: Path, origin: str, domains: frozenset[str], settings: Settings) -> str:
    """The MovieLens variant if there is one, else what the folder is called."""
    from pipelines.sources.movielens import find_layout

    if "movies" in domains:
        variant = settings.world.variant if settings.world.folder else "auto"
        return find_layout(folder, variant).variant
    if domains == {"own"}:
        return settings.data.own.name
    return folder.name if origin == GIVEN else origin


def given_folder(folder: Path) -> Path:
    """Return the absolute path of a data folder that can be read.

    Raises SourceError if it is missing, no folder, or can't be read.
    """
    folder = folder.expanduser().absolute()
    expected = "a data folder as described in docs/data.md"
    if not has_folder(folder, expected):
        raise SourceError("there is no such folder", where=str(folder), hint=f"expected {expected}")
    entries(folder, expected)
    return folder


def download_folder(settings: Settings, base_url: str = MOVIELENS_URL) -> tuple[Path, str]:
    """Download the configured archive; return its data folder and address.

    Raises ConfigError if there is no such archive, SourceError if it can't be downloaded or has
    another checksum than published.
    """
    from pipelines.sources.movielens import ARCHIVES

    name = settings.world.source
    if name not in ARCHIVES:
        names = ", ".join(("sample", *ARCHIVES))
        raise ConfigError(f"unknown dataset {name}", where="world.source", hint=f"known: {names}")
    download = ARCHIVES[name]
    # A folder each, so that one world never sees the archive of another.
    folder = settings.runtime.folder / "downloads" / name
    fetch(download, folder / "movielens", base_url=base_url)
    return folder, f"{base_url.rstrip('/')}/{download.path}"
