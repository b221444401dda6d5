"""The loader of the Steam files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from pipelines.errors import SourceError
from pipelines.licences import Licence
from pipelines.sources._protocol import RawTable, Source, Workspace
from pipelines.sources.steam._games import games_table
from pipelines.sources.steam._layout import EXPECTED, find_files
from pipelines.sources.steam._lists import playtime_table, reviews_table

__all__ = ["SteamSource"]


class SteamSource(Source):
    """Steam's games, reviews and, if there, time played: one Python literal a line.

    Lines are Python's or JSON's spelling of a dictionary; they are never evaluated. Games come
    out by number, reviews and time played by their place in the file, all as published. Games
    without any value (the published file begins with thousands) are filtered as
    ``empty_record``. Rejected are lines that hold no dictionary (``blank_line``,
    ``too_long``, ``invalid_utf8``, ``not_json``, ``not_object``) and, by reason:

    =================  =====================================================================
    ``bad_id``         a game or user that is missing or has characters of no id
    ``bad_recommend``  a review that neither recommends nor doesn't
    ``bad_playtime``   a time played that is missing, no whole number, or negative
    ``duplicate_key``  a second record of a game; the first in the file stays
    ``wrong_type``     another field with a value of another type than published
    =================  =====================================================================

    A rejected review or time played has the line of its user; its text begins with its number
    in the user's list. A user whose list is empty makes no row.
    """

    name: ClassVar[str] = "steam"
    expected: ClassVar[str] = EXPECTED
    code_version: ClassVar[str] = "steam-1"
    datasets: ClassVar[tuple[str, ...]] = (
        "raw.steam_games",
        "raw.steam_reviews",
        "raw.steam_playtime",
        "raw.steam_rejected",
    )
    domains: ClassVar[frozenset[str]] = frozenset({"games"})
    licence: ClassVar[Licence] = Licence(
        name="Steam data of Kang and McAuley",
        url="https://cseweb.ucsd.edu/~jmcauley/datasets.html#steam_data",
        terms="For academic use; cite the papers. The reviews are their writers', the store's "
        "texts Valve's and the publishers'.",
        citation="W.-C. Kang, J. McAuley. Self-Attentive Sequential Recommendation. ICDM 2018. "
        "A. Pathak, K. Gupta, J. McAuley. Generating and Personalizing Bundle Recommendations on "
        "Steam. SIGIR 2017.",
    )

    def present(self, folder: Path) -> bool:
        """Whether files are named in the settings or lie in ``folder/steam``."""
        return bool(find_files(folder, self.settings, progress=self.progress))

    def files(self, folder: Path) -> list[Path]:
        """Return the files that are read: games, reviews and, if there, items."""
        return [
            file.path for file in find_files(folder, self.settings, progress=self.progress).values()
        ]

    def read(self, folder: Path, work: Workspace) -> Iterator[RawTable]:
        """Read games, reviews and time played."""
        found = find_files(folder, self.settings, progress=self.progress)
        if not found:
            raise SourceError(
                "no Steam files", where=str(folder / self.name), hint="see docs/data.md"
            )
        yield games_table(found["games"], work)
        yield reviews_table(found["reviews"], work)
        yield playtime_table(found.get("items"), work)
