"""Where the MovieLens files lie in a data folder, and where the archives are published."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipelines.downloads import Download
from pipelines.errors import SourceError
from pipelines.sources._folders import (
    check_file,
    entries,
    has_folder,
    pick_files,
    resembling,
    unclear_name,
)
from pipelines.sources._original import (
    UNPACK_LIMITS,
    Original,
    UnpackLimits,
    plain_file,
    zip_members,
)

__all__ = ["ARCHIVES", "EXPECTED", "FILES", "Format", "Layout", "find_layout"]

Format = Literal["csv", "dat", "u"]

#: The files of each layout, in the order in which they are read. The tag genome of the large
#: archives is not used, nor are ML-100K's prepared splits and its lists of names.
FILES: Mapping[Format, tuple[str, ...]] = {
    "csv": ("movies.csv", "ratings.csv", "links.csv", "tags.csv"),
    "dat": ("movies.dat", "users.dat", "ratings.dat"),
    "u": ("u.item", "u.user", "u.data"),
}

#: Published archives. The MD5 sums are those GroupLens publishes beside each archive.
#: ml-latest-small was compared with a real copy; the others are quoted from public code that
#: compared its own downloads with them, and were not verified against the files here.
#: GroupLens may regenerate ml-latest-small; the others are frozen.
ARCHIVES: Mapping[str, Download] = {
    "ml-latest-small": Download(
        name="ml-latest-small.zip",
        path="datasets/movielens/ml-latest-small.zip",
        algorithm="md5",
        checksum="31a303aabbc519bd33d025e44d6c2570",
    ),
    "ml-25m": Download(
        name="ml-25m.zip",
        path="datasets/movielens/ml-25m.zip",
        algorithm="md5",
        checksum="6b51fb2759a8657d3bfcbfc42b592ada",
    ),
    "ml-32m": Download(
        name="ml-32m.zip",
        path="datasets/movielens/ml-32m.zip",
        algorithm="md5",
        checksum="d472be332d4daa821edc399621853b57",
    ),
    "ml-1m": Download(
        name="ml-1m.zip",
        path="datasets/movielens/ml-1m.zip",
        algorithm="md5",
        checksum="c4d9eecfca2ab87c1945afe126590906",
    ),
    "ml-100k": Download(
        name="ml-100k.zip",
        path="datasets/movielens/ml-100k.zip",
        algorithm="md5",
        checksum="0e33842e24a9c977be4e0107933c0723",
    ),
}

_FOLDER = "movielens"
#: The names of files, for error texts.
EXPECTED = "movielens/ml-latest-small.zip or movielens/<variant>/movies.csv"
#: The layout of each; in the order in which `auto` prefers them.
_VARIANTS: Mapping[str, Format] = {
    "ml-latest-small": "csv",
    "sample": "csv",
    "ml-25m": "csv",
    "ml-32m": "csv",
    "ml-1m": "dat",
    "ml-100k": "u",
}
#: Files directly in the folder have no name; they are in the CSV layout.
_BARE = "movielens"


@dataclass(frozen=True, slots=True)
class Layout:
    """One variant of MovieLens in a data folder.

    Attributes
    ----------
    variant
        Its name, such as ``ml-25m``.
    path
        The archive, or the folder of its files.
    format
        Which layout they are in: ``csv``, ``dat`` (ML-1M) or ``u`` (ML-100K).
    """

    variant: str
    path: Path
    format: Format = "csv"

    @property
    def name(self) -> str:
        """Name relative to the data folder."""
        return _FOLDER if self.variant == _BARE else f"{_FOLDER}/{self.path.name}"

    def paths(self) -> list[Path]:
        """Return the files on disk that are read: the archive, or its files.

        Raises
        ------
        SourceError
            If one is missing or can't be read.
        """
        return [self.path] if self._packed else list(self._files().values())

    def originals(self, limits: UnpackLimits = UNPACK_LIMITS) -> dict[str, Original]:
        """Return the files by base name.

        Raises
        ------
        SourceError
            If the archive is corrupt or exceeds the limits, or a file is missing.
        """
        if not self._packed:
            return {n: plain_file(p, f"{self.name}/{n}") for n, p in self._files().items()}
        found = zip_members(self.path, self.name, FILES[self.format], limits)
        self._refuse_missing(found)
        return found

    @property
    def _packed(self) -> bool:
        return self.path.suffix == ".zip"

    def _files(self) -> dict[str, Path]:
        names = FILES[self.format]
        picked = pick_files(self.path, names.__contains__, ", ".join(names))
        found = {path.name: path for path in picked}
        self._refuse_missing(found)
        return {name: found[name] for name in names}

    def _refuse_missing(self, found: Collection[str]) -> None:
        names = FILES[self.format]
        missing = [name for name in names if name not in found]
        if missing:
            raise SourceError(
                f"{', '.join(missing)} missing",
                where=str(self.path),
                hint=f"expected {', '.join(names)}",
            )


def find_layout(folder: Path, variant: str = "auto") -> Layout:
    """Find the MovieLens files of a data folder.

    Parameters
    ----------
    folder
        The data folder: ``movielens/<variant>.zip``, ``movielens/<variant>/`` or the CSV
        files directly in ``movielens/``. An archive wins over a folder of the same name. A
        part of a published archive may be called ``<variant>-<anything>.zip``; it is taken
        if the whole one is not there.
    variant
        Which one; ``auto`` takes the only one, or ml-latest-small among several.

    Raises
    ------
    SourceError
        If there is none, not the one asked for, or several to choose from.
    """
    here = folder / _FOLDER
    if not has_folder(here, EXPECTED):
        raise SourceError(
            "no folder with MovieLens files",
            where=str(here),
            hint=f"expected {EXPECTED}; see docs/data.md",
        )
    inside = {path.name: path for path in entries(here, EXPECTED)}
    found: dict[str, Layout] = {}
    for name, layout in _VARIANTS.items():
        parts = [n for n in inside if n.startswith(f"{name}-") and n.endswith(".zip")]
        for each in (f"{name}.zip", name, *parts):
            if each in inside and name not in found:
                path = inside[each]
                if path.suffix == ".zip":
                    check_file(path, EXPECTED)
                else:
                    has_folder(path, EXPECTED)
                found[name] = Layout(name, path, layout)
    known = {*_VARIANTS, *(f"{name}.zip" for name in _VARIANTS), *FILES["csv"]}
    for path in inside.values():
        if path.name not in known and resembling(path.name) in known:
            raise unclear_name(path, EXPECTED)
    if _VARIANTS.get(variant, "csv") == "csv" and any(name in inside for name in FILES["csv"]):
        bare = _BARE if variant == "auto" else variant
        found.setdefault(bare, Layout(bare, here))
    listed = ", ".join(found) or "none"
    if variant != "auto":
        if variant not in found:
            raise SourceError(
                f"no {variant} here (found: {listed})",
                where=str(here),
                hint=f"expected {variant}.zip or {variant}/",
            )
        return found[variant]
    if "ml-latest-small" in found:
        return found["ml-latest-small"]
    if len(found) == 1:
        return next(iter(found.values()))
    raise SourceError(
        f"which MovieLens variant? found: {listed}" if found else "no MovieLens files",
        where=str(here),
        hint="set world.variant"
        if found
        else f"expected {', '.join(f'{name}.zip' for name in ARCHIVES)} or their files",
    )
