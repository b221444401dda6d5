"""Table contracts: a pandera schema with a name, a key and an order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandera.polars as pa
import polars as pl

from pipelines.errors import ContractError

if TYPE_CHECKING:
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
    #: True if each cohort of personas is a snapshot of its own; the order begins with
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


ITEM = "Item, stable across versions: source and id, such as `ml:862` or `steam:730`."
USER = "Human user: source and id, such as `ml-user:17`."
TIME = pl.Datetime("us", "UTC")

_TIERS = ("low", "medium", "high")


class Model(pa.DataFrameModel):
    """Base of the contracts' models: exactly the declared columns, in their order."""

    class Config:
        """Of pandera."""

        strict = True
        ordered = True


def column(
    description: str, *, null: bool = False, unit: str = "", within: str = "", **checks: Any
) -> Any:
    """A column with its documentation: unit and range of values as text, checks as pandera's."""
    metadata = {k: v for k, v in (("unit", unit), ("range", within)) if v}
    return pa.Field(nullable=null, description=description, metadata=metadata or None, **checks)


def share(description: str, **more: Any) -> Any:
    """A column of shares or probabilities, 0 to 1."""
    return column(description, ge=0, le=1, **more)


def item_key(pattern: str, **more: Any) -> Any:
    """The column of an item's key; ``pattern`` is a regular expression of the whole key."""
    return column(ITEM, str_matches=f"^{pattern}$", **more)


def user_key(pattern: str, **more: Any) -> Any:
    """The column of a human user's key; ``pattern`` is a regular expression of the whole key."""
    return column(USER, str_matches=f"^{pattern}$", **more)


def rating(low: float, high: float) -> Any:
    """The column of a rating on one of the scales between ``low`` and ``high``."""
    return column("Rating on `scale`.", ge=low, le=high, unit="stars")


def scale(*names: str) -> Any:
    """The column that names each rating's scale, one of ``names``."""
    return column("Rating scale of the source: lowest and highest rating.", isin=list(names))


def rated_at() -> Any:
    """The column of a rating's time."""
    return column("Time of the rating (UTC).", unit="microseconds")


def tier(description: str) -> Any:
    """The column of one of three tiers."""
    return column(description, isin=list(_TIERS))


class Splits(Model):
    """Per-user split of interactions by time: no later interaction is in an earlier split."""

    user_id: pl.String = column(USER)
    item_id: pl.String = column(ITEM)
    split: pl.String = column("Split.", isin=["train", "validation", "test"])


class ItemStats(Model):
    """Counts and means per item; the `train_` columns use the training split only."""

    item_id: pl.String = column(ITEM, unique=True)
    ratings: pl.Int64 = column("Ratings (count).", ge=0)
    mean_rating: pl.Float64 = column("Mean rating.", null=True, ge=0.5, le=5, unit="stars")
    train_ratings: pl.Int64 = column("Ratings in the training split (count).", ge=0)
    train_mean_rating: pl.Float64 = column(
        "Mean rating in the training split.", null=True, ge=0.5, le=5, unit="stars"
    )
    popularity_rank: pl.Int64 = column(
        "Rank by number of ratings; 1 is the most rated, ties by id.", ge=1
    )


class HumanUsers(Model):
    """Human users of the source; attributes that the source lacks are null, never invented."""

    user_id: pl.String = column(USER, unique=True)
    ratings: pl.Int64 = column("Ratings given (count).", ge=1)
    mean_rating: pl.Float64 = column("Mean rating given.", ge=0.5, le=5, unit="stars")
    first_rated_at: TIME = column("First rating (UTC).")
    last_rated_at: TIME = column("Last rating (UTC).")
    age_band: pl.String = column("Age band of the source.", null=True)
    gender: pl.String = column("Gender code of the source.", null=True)
    occupation: pl.String = column("Occupation of the source.", null=True)


class UserTraits(Model):
    """Habits of each human user (Agent4Rec 2.1.1, SimUSER 3.2.1), with ratings converted to 1-5.

    Thresholds of the tiers are quantiles of all users of the domain (settings ``traits``).
    """

    user_id: pl.String = column(USER, unique=True)
    activity: pl.Int64 = column("Interactions (count).", ge=1)
    activity_tier: pl.String = tier("Tier among the users of the domain.")
    conformity: pl.Float64 = column(
        "Mean squared difference of the ratings from the items' means: small for users who rate "
        "like others; 6 decimals.",
        ge=0,
        le=16,
        unit="stars squared",
        within="0-16",
    )
    conformity_tier: pl.String = tier("Conformity tier; `high` is for the smallest differences.")
    diversity: pl.Int64 = column("Distinct genres among the items (count).", ge=0)
    diversity_tier: pl.String = tier("Tier among the users of the domain.")
    diversity_80: pl.Int64 = column(
        "Most frequent genres whose cumulative share of the items' genres is at most 0.8 "
        "(Agent4Rec's code; count); 0 if one genre exceeds it.",
        ge=0,
    )
    diversity_80_tier: pl.String = tier("Tier among the users of the domain.")
    mean_rating: pl.Float64 = column(
        "Mean of the ratings; 6 decimals.", ge=1, le=5, unit="stars, 1-5"
    )
    pickiness: pl.String = column(
        "Pickiness by mean rating (SimUSER, appendix A).",
        isin=["extremely_picky", "moderately_picky", "not_picky"],
    )


class TrainingTraits(UserTraits):
    """Habits of each human user in the training split only: the traits of simulated users.

    Formulas, thresholds and columns are those of ``user_traits``; item means and counts are of
    training ratings, so that nothing of a held-out rating is in them.
    """


def of_every_domain(items: type[Model], interactions: type[Model]) -> dict[str, tuple[Any, ...]]:
    """Models and keys of the tables that every domain has, for `contracts`."""
    return {
        "items": (items, "item_id"),
        "interactions": (interactions, "user_id", "item_id"),
        "splits": (Splits, "user_id", "item_id"),
        "item_stats": (ItemStats, "item_id"),
        "human_users": (HumanUsers, "user_id"),
        "user_traits": (UserTraits, "user_id"),
    }
