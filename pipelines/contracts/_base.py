"""Table contracts: a pandera schema with a name, a key and an order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipelines.errors import ContractError

if TYPE_CHECKING:
    import pandera.polars as pa
    import polars as pl
    import pyarrow


@dataclass(frozen=True, slots=True)
class ColumnDoc:
    """A row of the tables reference."""

    name: str
    dtype: str
    nullable: bool
    description: str
    unit: str
    range: str


@dataclass(frozen=True, slots=True)
class Contract:
    """A table's contract."""

    #: Short table name within its dataset family, such as ``items``.
    name: str
    #: pandera (polars) model; the single place where columns are declared.
    model: type[pa.DataFrameModel]
    #: Columns that identify a row.
    key: tuple[str, ...]
    #: Total order in which rows are written, so that equal content gives equal bytes; default: by
    #: the key.
    order: tuple[str, ...] = ()
    #: Whether each cohort of personas is a snapshot of its own; the order begins with
    #: ``persona_id``.
    by_cohort: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", self.order or self.key)

    @property
    def description(self) -> str:
        """First paragraph of the model's docstring."""
        return " ".join((self.model.__doc__ or "").strip().split("\n\n")[0].split())

    def polars_schema(self) -> pl.Schema:
        """Column names and polars types, in the written order."""
        import polars as pl

        columns = self.model.to_schema().columns
        return pl.Schema({n: c.dtype.type for n, c in columns.items()})

    def arrow_schema(self) -> pyarrow.Schema:
        """The Arrow schema of the written Parquet files."""
        return self.polars_schema().to_frame().to_arrow().schema

    def columns(self) -> list[ColumnDoc]:
        """The documented columns, in the written order."""
        docs = []
        for name, column in self.model.to_schema().columns.items():
            meta: dict[str, Any] = column.metadata or {}
            docs.append(
                ColumnDoc(
                    name=name,
                    dtype=str(column.dtype.type),
                    nullable=bool(column.nullable),
                    description=column.description or "",
                    unit=str(meta.get("unit", "")),
                    range=str(meta.get("range", "")),
                )
            )
        return docs

    def validate(
        self, frame: pl.DataFrame, *, dataset: str | None = None, keyed: bool = True
    ) -> pl.DataFrame:
        """Check types, ranges, nulls and the key of a collected frame; return it in column order.

        Errors name ``dataset``, or the contract. Rows that share a key are not looked for unless
        ``keyed``: who checks that rows strictly ascend by it need not.

        Raises
        ------
        ContractError
            Naming the table, the columns and up to ten failing rows (in ``details["rows"]``).
        """
        import pandera.errors
        import polars as pl

        where = dataset or self.name
        expected = list(self.polars_schema())
        missing = [c for c in expected if c not in frame.columns]
        extra = [c for c in frame.columns if c not in expected]
        if missing or extra:
            raise ContractError(
                f"columns differ from the contract (missing {missing}, unexpected {extra})",
                where=where,
                details={"missing": missing, "unexpected": extra},
            )
        frame = frame.select(expected)
        try:
            self.model.validate(frame, lazy=True)
        except pandera.errors.SchemaErrors as error:
            cases = error.failure_cases
            rows = cases.head(10).to_dicts()
            columns = sorted({str(c) for c in cases["column"].to_list() if c is not None})
            checks = sorted({str(c) for c in cases["check"].to_list()})
            raise ContractError(
                f"{len(cases)} failing values in {', '.join(columns) or 'the schema'}: "
                f"{'; '.join(checks[:3])}",
                where=where,
                hint="the first rows are in the check's metadata and in --debug output",
                details={"rows": _plain(rows), "columns": columns, "checks": checks},
            ) from None
        if not keyed:
            return frame
        doubled = frame.filter(pl.struct(self.key).is_duplicated())
        if doubled.height:
            raise ContractError(
                f"{doubled.height} rows share a key ({', '.join(self.key)})",
                where=where,
                details={"rows": _plain(doubled.head(10).to_dicts()), "columns": list(self.key)},
            )
        return frame


#: Tables of which each cohort is a snapshot.
_BY_COHORT = {"personas", "persona_embeddings", "score_plan", "preference_scores"}


def contracts(families: str | Sequence[str], **tables: tuple[Any, ...]) -> dict[str, Contract]:
    """Contracts by dataset name, each table given as its model and the columns of its key.

    Several families, such as domains, have the same tables each.
    """
    return {
        f"{family}.{name}": Contract(name, model, tuple(key), by_cohort=name in _BY_COHORT)
        for family in ([families] if isinstance(families, str) else families)
        for name, (model, *key) in tables.items()
    }


def _plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with values that JSON and a UI table can show."""
    return [{k: v if v is None else str(v)[:200] for k, v in row.items()} for row in rows]
