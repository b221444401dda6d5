"""Work of a stage in pieces, as the workers of an executor get it."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson

from pipelines.config import Settings, load_settings
from pipelines.context import PipelineContext
from pipelines.execution import Advance, Piece
from pipelines.stages._stage import Inputs
from pipelines.store import Store


class StageWork(ABC):
    """Base of a stage's work: a worker opens for itself what this process has open.

    Secrets don't travel: a worker has its own environment. Until ``table`` is committed, a file
    beside the parts identifies workers that see another home. ``code`` has versions of the code
    that decides its rows, by name.
    """

    def __init__(
        self, inputs: Inputs, settings: Settings, table: str, code: Mapping[str, str]
    ) -> None:
        self._here: tuple[Inputs, Settings] | None = (inputs, settings)
        self.table = table
        self._code = dict(code)
        self._mark, mark = inputs.scratch / "mark", uuid.uuid4().hex
        inputs.context.store.files.put(self._mark, mark.encode())
        self.job = orjson.dumps(
            {
                "mark": mark,
                "settings": settings.without_secrets(),
                "tables": {name: (s.dataset, s.version) for name, s in inputs.items()},
                "previous": inputs.previous and (inputs.previous.dataset, inputs.previous.version),
                "domain": inputs.domain,
                "cohort": inputs.partition,
                "table": table,
            }
        )

    @property
    def opened(self) -> tuple[Inputs, Settings]:
        """Inputs and settings, in this process or in a worker."""
        return self._here or reopened(self.job)

    @abstractmethod
    def __call__(self, piece: Piece, advance: Advance) -> Mapping[str, Any]:
        """Compute a piece; see :class:`pipelines.execution.Work`."""

    def probe(self) -> dict[str, Any]:
        """Versions of the code, and what this machine has in the folder of parts."""
        mark = self._mark.read_text() if self._mark.exists() else "absent"
        return {**self._code, str(self._mark): mark}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_here": None}


@lru_cache(maxsize=1)
def reopened(job: bytes) -> tuple[Inputs, Settings]:
    """Inputs and settings of a job in a worker."""
    of = orjson.loads(job)
    settings = load_settings(overrides=of["settings"])
    store = Store(settings.runtime.home)
    inputs = Inputs(
        PipelineContext.of(store, settings),
        {name: store.get(*table) for name, table in of["tables"].items()},
        of["domain"],
        of["cohort"],
        of["previous"] and store.get(*of["previous"]),
        store.home / "scratch" / of["table"] / (of["cohort"] or ""),
        None,
    )
    return inputs, settings
