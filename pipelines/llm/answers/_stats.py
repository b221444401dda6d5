"""Figures of a store."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pipelines.llm.engines import STATUSES, EngineIdentity, Status


@dataclass(frozen=True, slots=True)
class Problem:
    """A file of answers that is damaged, and how, in one line."""

    file: str
    reason: str
    path: Path = field(repr=False, compare=False)


@dataclass(slots=True)
class ModelStats:
    """Rows of one engine identity: by status, their tokens (counts), the sum of their latencies."""

    identity: EngineIdentity
    statuses: Counter[Status] = field(default_factory=Counter)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0

    @property
    def answers(self) -> int:
        """Rows (count)."""
        return self.statuses.total()


@dataclass(frozen=True, slots=True)
class AnswerStats:
    """Figures of a store."""

    #: Files, and bytes of them.
    files: int
    size: int
    #: Moments of the first and last row (UTC); None in an empty store.
    oldest: datetime | None
    newest: datetime | None
    #: By engine identity, most rows first.
    models: tuple[ModelStats, ...]
    #: Damaged files, whose answers are not counted.
    problems: tuple[Problem, ...]

    @property
    def answers(self) -> int:
        """Rows (count)."""
        return sum(model.answers for model in self.models)

    @property
    def failed(self) -> int:
        """Rows of failed calls (count), which `gc` drops."""
        return self.statuses["engine_error"]

    @property
    def statuses(self) -> dict[Status, int]:
        """Rows by status (count), every status named."""
        return {s: sum(m.statuses[s] for m in self.models) for s in STATUSES}

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "answers": self.answers,
            "failed": self.failed,
            "files": self.files,
            "bytes": self.size,
            "oldest": self.oldest and self.oldest.isoformat(),
            "newest": self.newest and self.newest.isoformat(),
            "statuses": self.statuses,
            "models": [
                {
                    **asdict(m.identity),
                    "answers": m.answers,
                    "statuses": {s: m.statuses[s] for s in STATUSES},
                    "prompt_tokens": m.prompt_tokens,
                    "completion_tokens": m.completion_tokens,
                    "cached_tokens": m.cached_tokens,
                    "seconds": m.seconds,
                }
                for m in self.models
            ],
            "problems": [{"file": p.file, "reason": p.reason} for p in self.problems],
        }


@dataclass(frozen=True, slots=True)
class GcReport:
    """Outcome of a collection, or of its dry run (then the size after is that before)."""

    #: Rows before (count).
    answers: int
    #: Rows dropped: failed calls, which are asked again anyway; those whose status or model was
    #: named; those that are not what was stored.
    failed: int
    forgotten: int
    corrupt: int
    #: Size of the files.
    bytes_before: int
    bytes_after: int
    #: Damaged files: what could be read is kept, and they are in ``answers/corrupt``.
    set_aside: tuple[Problem, ...]
    #: Whether the run only reported, without changing the store.
    dry_run: bool


@dataclass(frozen=True, slots=True)
class UnusedReport:
    """Answers (count) of removed tables, and those that are kept."""

    #: Dropped, or in a dry run to be dropped.
    removed: int
    #: Kept: of tables that are kept.
    attributed: int
    #: Kept: asked for outside of tables, or for a table that was never finished.
    unattributed: int
