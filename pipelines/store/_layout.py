"""Paths in a store's home."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths below a home.

    >>> Layout(Path("h")).snapshot("movies.items", "0123456789abcdef").as_posix()
    'h/data/movies.items/0123456789abcdef'
    """

    home: Path

    @property
    def format(self) -> Path:
        """Record of the format that the home is written in."""
        return self.home / "_format.json"

    @property
    def data(self) -> Path:
        """Snapshots, by dataset."""
        return self.home / "data"

    @property
    def refs(self) -> Path:
        """The current version of each dataset."""
        return self.home / "refs"

    @property
    def releases(self) -> Path:
        """Lock files and cards."""
        return self.home / "releases"

    def snapshot(self, dataset: str, version: str) -> Path:
        """Folder of a snapshot."""
        return self.data / dataset / version

    def ref(self, dataset: str) -> Path:
        """Pointer to a dataset's current version."""
        return self.refs / f"{dataset}.json"

    def builds(self, dataset: str) -> Path:
        """Records of builds of a dataset, one file per build key."""
        return self.home / "builds" / dataset

    def build(self, dataset: str, key: str) -> Path:
        """Record of one build."""
        return self.builds(dataset) / f"{key}.json"

    def checks(self, dataset: str, version: str) -> Path:
        """Outcomes of the checks of one snapshot."""
        return self.home / "checks" / dataset / f"{version}.json"

    def release(self, name: str, version: str) -> Path:
        """Lock file of a release."""
        return self.releases / f"{name}@{version}.json"

    def card(self, name: str, version: str) -> Path:
        """Dataset card of a release."""
        return self.releases / f"{name}@{version}.md"

    def latest(self, name: str) -> Path:
        """Pointer to the latest release of a name."""
        return self.refs / "releases" / f"{name}.json"

    @property
    def versions_lock(self) -> Path:
        """Held shared while a version becomes current or pinned, alone while some are removed."""
        return self.lock("versions")

    def lock(self, name: str) -> Path:
        """A lock file."""
        return self.home / "_locks" / f"{name}.lock"
