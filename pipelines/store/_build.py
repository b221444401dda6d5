"""Builds: tables made together, found in the store if an equal build made them before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pipelines.store._manifest import build_key

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

__all__ = ["Build", "Table"]

Rows: TypeAlias = "pl.DataFrame | pa.Table | pa.RecordBatch"


@dataclass(frozen=True, slots=True)
class Table:
    """One table on its way into the store.

    Attributes
    ----------
    dataset
        Name of the table, such as ``movies.items``.
    frames
        Its rows in batches, which are read once.
    stats
        Facts for the manifest (JSON); called after the last batch.
    allow_empty
        Whether no rows are fine.
    ordered
        Whether the rows are in the contract's order; if not, there is one batch, which is sorted.
    """

    dataset: str
    frames: Iterable[Rows]
    stats: Callable[[], Mapping[str, Any]] = dict
    allow_empty: bool = False
    ordered: bool = True


@dataclass(frozen=True, slots=True)
class Build:
    """What identifies tables that are made together, and how they are made.

    Attributes
    ----------
    datasets
        Names of the tables.
    make
        Returns the tables one after another; not called if an equal build is found.
    code_version, config, inputs
        The three parts of the build key: code, identity settings (JSON), and versions
        (``dataset -> version`` or ``file:<name> -> sha256``).
    reusable
        Whether the tables of an equal build may be used.
    """

    datasets: tuple[str, ...]
    make: Callable[[], Iterable[Table]]
    code_version: str
    config: Mapping[str, Any]
    inputs: Mapping[str, str]
    reusable: bool = True

    @property
    def key(self) -> str:
        """The build key."""
        return build_key(self.code_version, self.config, self.inputs)
