"""Reading a whole release again to see whether it is what was published."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipelines.errors import IntegrityError
from pipelines.store._release import Release

__all__ = ["VerifyReport", "verify_release"]


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Outcome of a verification.

    Attributes
    ----------
    release
        ``name@version``.
    files, bytes
        What was read (count, bytes).
    problems
        One line for each thing that is not as published, naming its file; empty if all is well.
    """

    release: str
    files: int
    bytes: int
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether everything is as published."""
        return not self.problems


def verify_release(
    release: Release, progress: Callable[[Path, int], None] | None = None
) -> VerifyReport:
    """See :meth:`Store.verify`."""
    problems: list[str] = []
    files = size = 0
    for name in sorted(release.tables):
        try:
            snapshot = release.snapshot(name)
        except IntegrityError as error:
            problems.append(str(error))
            continue
        problems += [str(p) for p in snapshot.problems(progress)]
        files += len(snapshot.manifest.files)
        size += snapshot.bytes
    try:
        release.card()
    except IntegrityError as error:
        problems.append(str(error))
    return VerifyReport(str(release), files, size, tuple(problems))
