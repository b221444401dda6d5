"""Several tables written together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self

from pipelines.store._snapshot import Snapshot
from pipelines.store._writer import SnapshotWriter, commit_together

if TYPE_CHECKING:
    from pipelines.contracts import Contract

__all__ = ["Transaction"]


class Opener(Protocol):
    """Makes writers: ``Store._writer``."""

    def __call__(
        self,
        dataset: str,
        *,
        code_version: str,
        config: Mapping[str, Any] | None,
        inputs: Mapping[str, str] | None,
        run_id: str | None,
        contract: Contract | None,
        allow_empty: bool,
        deferred: bool,
    ) -> SnapshotWriter: ...


class Transaction:
    """Several tables that become visible only after all of them were written without error.

    Not atomic across tables when the process is killed in the middle of committing: then some
    tables are new and some are old, each of them whole, and a release of such a mixture is
    refused because its lineage is inconsistent.
    """

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self._writers: list[SnapshotWriter] = []

    def write(
        self,
        dataset: str,
        *,
        code_version: str,
        config: Mapping[str, Any] | None = None,
        inputs: Mapping[str, str] | None = None,
        run_id: str | None = None,
        contract: Contract | None = None,
        allow_empty: bool = False,
    ) -> SnapshotWriter:
        """A writer like that of ``Store.write``, committed with the transaction."""
        writer = self._opener(
            dataset,
            code_version=code_version,
            config=config,
            inputs=inputs,
            run_id=run_id,
            contract=contract,
            allow_empty=allow_empty,
            deferred=True,
        )
        self._writers.append(writer)
        return writer

    @property
    def snapshots(self) -> dict[str, Snapshot]:
        """The committed snapshots by dataset."""
        return {w.dataset: w.snapshot for w in self._writers}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                commit_together(self._writers)
        finally:
            for writer in self._writers:
                writer.abort()
