"""Figures of a store."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from pipelines.llm.answers._catalogue import Problem
from pipelines.llm.engines import STATUSES, EngineIdentity, Status

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = (
    "identity",
    "status",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "latency",
    "stored_at",
)


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

    #: Rows (count).
    answers: int
    #: Rows that `gc` would drop: useless beside another of their key; failed calls.
    superseded: int
    failed: int
    #: Files, and bytes of them.
    parts: int
    size: int
    #: Moments of the first and last row (UTC); None in an empty store.
    oldest: datetime | None
    newest: datetime | None
    #: By engine identity, most rows first.
    models: tuple[ModelStats, ...]
    #: Corrupt parts, which are ignored.
    problems: tuple[Problem, ...]

    @property
    def statuses(self) -> dict[Status, int]:
        """Rows by status (count), every status named."""
        return {s: sum(m.statuses[s] for m in self.models) for s in STATUSES}

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "answers": self.answers,
            "superseded": self.superseded,
            "failed": self.failed,
            "parts": self.parts,
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
            "problems": [asdict(p) for p in self.problems],
        }


class Figures:
    """Adds up rows, some at a time."""

    columns = _COLUMNS

    def __init__(self) -> None:
        self._models: dict[str, ModelStats] = {}
        self._first: int | None = None
        self._last: int | None = None

    def add(self, table: pa.Table) -> None:
        """Count rows with the columns of this class."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not table.num_rows:
            return
        moments = pc.min_max(table.column("stored_at").cast(pa.int64())).as_py()
        self._first = min(moments["min"], self._first or moments["min"])
        self._last = max(moments["max"], self._last or moments["max"])
        sums = ("prompt_tokens", "completion_tokens", "cached_tokens", "latency")
        grouped = table.group_by(["identity", "status"]).aggregate(
            [([], "count_all"), *((name, "sum") for name in sums)]
        )
        for row in grouped.to_pylist():
            text = row["identity"]
            if text not in self._models:
                self._models[text] = ModelStats(EngineIdentity(**orjson.loads(text)))
            model = self._models[text]
            model.statuses[row["status"]] += row["count_all"]
            model.prompt_tokens += row["prompt_tokens_sum"]
            model.completion_tokens += row["completion_tokens_sum"]
            model.cached_tokens += row["cached_tokens_sum"]
            model.seconds += row["latency_sum"]

    def models(self) -> tuple[ModelStats, ...]:
        """Most rows first."""
        return tuple(sorted(self._models.values(), key=lambda m: (-m.answers, str(m.identity))))

    def span(self) -> tuple[datetime | None, datetime | None]:
        """First and last moment."""
        return _moment(self._first), _moment(self._last)


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else datetime.fromtimestamp(micros / 1e6, UTC)
