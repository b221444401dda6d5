"""Where the Steam files lie: in a data folder, or where the settings say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipelines.config import Settings
from pipelines.errors import SourceError
from pipelines.sources._folders import check_file, pick_files
from pipelines.sources._given import given_files, relative_name
from pipelines.sources._protocol import Progress, no_progress

__all__ = ["EXPECTED", "REQUIRED", "Kind", "SteamFile", "find_files"]

Kind = Literal["games", "reviews", "items"]

_FOLDER = "steam"
#: The published names; `.gz` may be missing.
_NAMES: Mapping[Kind, str] = {
    "games": "steam_games.json",
    "reviews": "australian_user_reviews.json",
    "items": "australian_users_items.json",
}
EXPECTED = " or ".join(f"{name}.gz" for name in _NAMES.values())
#: Play time refines what a review says; the others are the domain.
REQUIRED: tuple[Kind, ...] = ("games", "reviews")


@dataclass(frozen=True, slots=True)
class SteamFile:
    """One file: where it is, and its name relative to the data folder."""

    path: Path
    name: str


def find_files(
    folder: Path, settings: Settings, *, progress: Progress = no_progress
) -> dict[Kind, SteamFile]:
    """The Steam files that there are, in the order games, reviews, items.

    Parameters
    ----------
    folder
        The data folder, with ``steam/steam_games.json[.gz]`` and so on.
    settings
        ``data.steam`` names files that lie elsewhere.
    progress
        Told of downloads of those that have an address.

    Raises
    ------
    SourceError
        If there is a packed and a plain file of one kind, if a required one is missing beside
        the other, or if the folder can't be read.
    """
    data = settings.data.steam
    found: dict[Kind, SteamFile] = {}
    for kind, name in _NAMES.items():
        given = getattr(data, kind)
        paths = (
            [check_file(p, name) for p in given_files([given], settings, progress=progress)]
            if given
            else _lying(folder / _FOLDER, name)
        )
        if len(paths) > 1:
            raise SourceError(
                "a packed and a plain file of the same name",
                where=str(paths[0]),
                hint="keep one of them",
            )
        for path in paths:
            found[kind] = SteamFile(path, relative_name(path, folder))
    missing = [kind for kind in REQUIRED if kind not in found]
    if found and missing:
        raise SourceError(
            f"the Steam {missing[0]} are missing",
            where=str(folder / _FOLDER),
            hint=f"expected {_NAMES[missing[0]]}.gz there, or its place in data.steam."
            f"{missing[0]}; found {', '.join(f.name for f in found.values())}",
        )
    return found


def _lying(folder: Path, name: str) -> list[Path]:
    return pick_files(folder, (f"{name}.gz", name).__contains__, f"{name}.gz")
