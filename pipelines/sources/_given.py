"""Files that the settings name: paths on this machine, and addresses to download from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pipelines.downloads import Download, fetch
from pipelines.errors import ConfigError
from pipelines.sources._protocol import Progress, no_progress

if TYPE_CHECKING:
    from pipelines.config import Settings

__all__ = ["given_files", "relative_name"]


def given_files(
    names: Iterable[str], settings: Settings, *, progress: Progress = no_progress
) -> list[Path]:
    """The named files, on disk.

    An address (``http://…``, ``https://…``) is downloaded once into ``<home>/downloads/given``,
    resumed if it was cut; remove the file there to fetch it anew. Nobody publishes a checksum
    for it: the one of what arrived is in the inventory of the world's files.

    Raises
    ------
    ConfigError
        If an address has no file name.
    SourceError
        If a download is refused or (:class:`SourceUnavailableError`) does not succeed.
    """
    return [_located(name, settings, progress) for name in names]


def relative_name(path: Path, folder: Path) -> str:
    """A file's name relative to the data folder; of one that lies elsewhere, its own name."""
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name


def _located(name: str, settings: Settings, progress: Progress) -> Path:
    address = urlsplit(name)
    if address.scheme not in ("http", "https"):
        return Path(name).expanduser().absolute()
    base = address.path.rpartition("/")[2]
    if not base:
        raise ConfigError("the address names no file", where=name)
    # A folder per address, so that files of one name don't stand for each other.
    place = hashlib.sha256(name.encode()).hexdigest()[:12]
    home = settings.runtime.home.expanduser().absolute()
    query = f"?{address.query}" if address.query else ""
    return fetch(
        Download(base, f"{address.path.lstrip('/')}{query}", "sha256", ""),
        home / "downloads" / "given" / place,
        base_url=f"{address.scheme}://{address.netloc}",
        progress=progress,
    )
