"""Surrogates: a small model of another rater's distributions, at the speed of a table.

The logit of a rating at or below an answer is ``cutpoint - (a + c + U.V)``: a level and factors of
the persona, a level and factors of the item, and ordered cutpoints whose gaps are the persona's.
Personas and items that were learned have values of their own; those of others are linear in their
facts and text vectors (a regression-based latent factor model: Agarwal and Chen, "Regression-based
latent factor models", KDD 2009). They are learned in `pipelines.surrogates`.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from pipelines.errors import ConfigError, ContractError, IntegrityError, StoreError
from pipelines.raters.protocol import OK, BoundRater, Floats, Ints, RatingBatch, TableRater
from pipelines.raters.statistical.ordinal import cumulative
from pipelines.raters.statistical.profiles import vector_matrix
from pipelines.scales import RatingScale, scale_named
from pipelines.seeding import hash_ids
from pipelines.store import Snapshot, Store

Bools = npt.NDArray[np.bool_]

#: Kinds of pairs by whether the surrogate was taught the persona and the item, in the order of
#: ``2 * (persona unseen) + (item unseen)``.
KINDS = (
    "seen persona, seen item",
    "seen persona, unseen item",
    "unseen persona, seen item",
    "unseen persona, unseen item",
)
#: Files of a surrogate in its snapshot.
ARRAYS, METADATA = "surrogate.npz", "surrogate.json"
#: Columns that are read as sets, as categories, and as numbers (averages as they are, others as
#: logarithms); and averages beside the counts that they are shrunken by.
_SETS = ("likes", "dislikes", "genres")
_CATEGORIES = ("leniency", "manner", "activity", "conformity", "gender")
_PLAIN = ("age", "year", "vote_average", "average_rating", "train_mean_rating")
_LOGARITHMS = (
    *("runtime", "budget", "revenue", "popularity", "price", "metascore"),
    *("vote_count", "rating_number", "train_ratings"),
)
_COUNTED = {
    "vote_average": "vote_count",
    "average_rating": "rating_number",
    "train_mean_rating": "train_ratings",
}
_STRENGTHS = (1.0, 5.0, 20.0, 200.0)
#: Columns whose change makes an id another persona or item.
_STATED = ("likes", "dislikes", "leniency", "manner", "description", "title", "genres", "year")
#: Persona-item locations that are kept as a table (count, 8 bytes each), and pairs rated at once.
_TABLE, _CHUNK = 16_000_000, 65_536


def facts_of(frame: pl.DataFrame) -> dict[str, Floats]:
    """Columns of facts about personas or items by name, each of shape (rows,); NaN is unknown."""
    out: dict[str, pl.Series] = {}
    for name in (n for n in _SETS if n in frame.columns):
        sets = frame[name].cast(pl.List(pl.String)).fill_null([])
        size = sets.list.len()
        out[f"{name}=#"] = size
        for value in sets.explode().drop_nulls().unique().sort():
            out[f"{name}={value}"] = has = sets.list.contains(value).cast(pl.Float64)
            if name == "genres":
                out[f"{name}=/{value}"] = has / size.clip(lower_bound=1)
    for name in (n for n in _CATEGORIES if n in frame.columns):
        for value in frame[name].drop_nulls().unique().sort():
            out[f"{name}={value}"] = (frame[name] == value).fill_null(value=False)
    numbers = frame.select(pl.col(n).cast(pl.Float64) for n in frame.columns if n in _PLAIN)
    logs = frame.select(
        pl.col(n).cast(pl.Float64).clip(lower_bound=0).log1p()
        for n in frame.columns
        if n in _LOGARITHMS
    )
    for column in (*numbers, *logs):
        out |= {
            column.name: column,
            f"{column.name}^2": column**2,
            f"{column.name}=null": column.is_null(),
        }
    for average, count in _COUNTED.items():
        if average in frame.columns and count in frame.columns:
            votes = frame[count].cast(pl.Float64).fill_null(0)
            for strength in _STRENGTHS:
                trust = votes / (votes + strength)
                out[f"{average}=trust {strength:g}"] = trust
                out[f"{average} {strength:g}"] = frame[average].cast(pl.Float64) * trust
    return {name: column.cast(pl.Float64).to_numpy() for name, column in out.items()}


@dataclass(frozen=True)
class Side:
    """One side of the pairs: values of those that were taught, and a regression for others."""

    #: Taught ids, and hashes of what is stated of each, of shape (taught,).
    ids: npt.NDArray[np.str_]
    digests: npt.NDArray[np.uint64]
    #: Names of the columns of :func:`facts_of`, and their standardisation, each of shape (facts,).
    names: npt.NDArray[np.str_]
    mean: Floats
    spread: Floats
    #: Mean text vector (dimension,) and principal axes (components, dimension); without axes if
    #: the teacher's table has no vectors.
    centre: Floats
    axes: Floats
    #: Level, factors, and for personas logarithms of the gaps between cutpoints, of shape (taught,
    #: values); the same regressed on the columns and a constant, (columns + 1, values).
    values: Floats
    weights: Floats

    def columns(self, frame: pl.DataFrame, embeddings: pl.DataFrame | None) -> tuple[Floats, Bools]:
        """Standardised columns (rows, columns), and which rows have what they need.

        A row needs its text vector where the teacher's rows had one, else a genre.
        """
        facts = facts_of(frame)
        table = np.empty((frame.height, len(self.names)))
        for n, name in enumerate(self.names.tolist()):
            table[:, n] = facts.get(name, 0.0 if "=" in name else np.nan)
        # Facts far beyond the taught range are cut: a line is no guide out there.
        table = np.clip(np.nan_to_num((table - self.mean) / self.spread), -5.0, 5.0)
        sets = [facts[f"{name}=#"] > 0 for name in _SETS if f"{name}=#" in facts]
        complete = np.any([np.zeros(frame.height, bool), *sets], axis=0)
        if len(self.axes):
            vectors = text_vectors(frame, embeddings)
            if vectors.shape[1] != len(self.centre):
                vectors = np.zeros((frame.height, len(self.centre)))
            complete = vectors.any(axis=1)
            table = np.column_stack([table, (vectors - self.centre) @ self.axes.T])
        return table, complete

    def of(
        self, frame: pl.DataFrame, embeddings: pl.DataFrame | None
    ) -> tuple[Floats, Bools, Bools]:
        """Values of each row, which rows were taught, and which have a value at all."""
        columns, complete = self.columns(frame, embeddings)
        values = columns @ self.weights[:-1] + self.weights[-1]
        rows = self.rows(frame[id_column(frame)])
        seen = rows >= 0
        seen[seen] = self.digests[rows[seen]] == stated_digests(frame)[seen]
        values[seen] = self.values[rows[seen]]
        return values, seen, complete | seen

    def rows(self, ids: Sequence[str] | pl.Series) -> Ints:
        """Row of each id among the taught ones, -1 where it is none."""
        place = {name: n for n, name in enumerate(self.ids.tolist())}
        return np.array([place.get(i, -1) for i in ids], np.int64)


def id_column(frame: pl.DataFrame) -> str:
    """Name of the column that holds the ids of personas or items."""
    return "persona_id" if "persona_id" in frame.columns else "item_id"


def text_vectors(frame: pl.DataFrame, embeddings: pl.DataFrame | None) -> Floats:
    """Text vectors of personas or items, of shape (rows, dimension); zeros where one has none."""
    key = id_column(frame)
    return vector_matrix(frame[key], embeddings, key).astype(np.float64)


def with_stats(items: pl.DataFrame, stats: pl.DataFrame | None) -> pl.DataFrame:
    """Items with the count and mean of their training ratings, if there is a table of them."""
    if stats is None:
        return items
    train_stats = stats.select("item_id", "train_ratings", "train_mean_rating")
    return items.join(train_stats, on="item_id", how="left", maintain_order="left")


def stated_digests(frame: pl.DataFrame) -> npt.NDArray[np.uint64]:
    """Hashes of what is stated of each row: the same id with other facts is another one."""
    rows = frame.select(name for name in _STATED if name in frame.columns).rows()
    return hash_ids(orjson.dumps(row).decode() for row in rows)


@dataclass(frozen=True)
class Memory:
    """Effect of remembered ratings, learned from a teacher that was asked with histories."""

    #: Weights of the mean surplus of the remembered ratings over what is expected without them, and
    #: of that surplus carried along the items' factors.
    level: float
    factors: float
    #: Ratings that the surplus is shrunken by (count).
    strength: float


@dataclass(frozen=True)
class SurrogateModel:
    """A learned surrogate."""

    #: The teacher's scale.
    scale: RatingScale
    #: The two sides.
    personas: Side
    items: Side
    #: Cutpoint in the middle, the same for all personas.
    anchor: float
    #: None if the teacher was asked without histories.
    memory: Memory | None = None
    #: Teacher, counts, settings and ``fidelity`` (rows of `surrogate_fidelity`), ready for JSON.
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def teacher(self) -> str:
        """Name of the rater that it was taught by."""
        return str(self.metadata.get("teacher", {}).get("rater", ""))

    @property
    def rank(self) -> int:
        """Factors (count)."""
        return int(self.items.values.shape[1]) - 1

    def beats_baseline(self, kind: str) -> bool:
        """True if a kind's RMSE is below its baseline's, with the difference's 95 % interval."""
        rows = self.metadata.get("fidelity", ())
        rmse_rows = [r for r in rows if (r["kind"], r["figure"]) == (kind, "rmse")]
        return bool(rmse_rows) and rmse_rows[0]["difference_high"] < 0

    def save(self, folder: Path) -> list[Path]:
        """Write arrays and metadata as plain files into a folder."""
        sides = {"personas": self.personas, "items": self.items}
        arrays: dict[str, Any] = {
            f"{name}_{part.name}": getattr(side, part.name)
            for name, side in sides.items()
            for part in fields(Side)
        }
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)
        content = {
            "scale": self.scale.name,
            "anchor": self.anchor,
            "memory": None if self.memory is None else vars(self.memory),
            **self.metadata,
        }
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ARRAYS).write_bytes(buffer.getvalue())
        (folder / METADATA).write_bytes(
            orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
        )
        return [folder / ARRAYS, folder / METADATA]

    @classmethod
    def load(cls, folder: Path) -> SurrogateModel:
        """Read the files of :meth:`save`; IntegrityError if they are damaged."""
        try:
            content = orjson.loads((folder / METADATA).read_bytes())
            with np.load(folder / ARRAYS, allow_pickle=False) as arrays:
                personas, items = (
                    Side(**{part.name: arrays[f"{name}_{part.name}"] for part in fields(Side)})
                    for name in ("personas", "items")
                )
            scale, anchor, memory = (content.pop(k) for k in ("scale", "anchor", "memory"))
        except (OSError, ValueError, KeyError) as error:
            raise IntegrityError(
                "the surrogate can't be read",
                where=f"{folder}: {error}",
                hint="learn it again: understudy run --job train_surrogate",
            ) from None
        memory = None if memory is None else Memory(**memory)
        return cls(scale_named(scale), personas, items, anchor, memory, content)


def find_surrogate(home: Path, domain: str, version: str = "latest") -> Snapshot:
    """Snapshot of a domain's surrogate in a store; ConfigError if there is none."""
    dataset = f"{domain}.rating_surrogate"
    try:
        store = Store(home)
        return store.current(dataset) if version == "latest" else store.get(dataset, version)
    except StoreError as error:
        raise ConfigError(
            "the store has no such surrogate",
            where=f"surrogate.snapshot is {version}: {error}",
            hint="understudy run --job train_surrogate",
        ) from None


def surrogate_version(home: Path, domain: str, version: str = "latest") -> str:
    """Version of a domain's surrogate, part of what is made with it; ``none`` if there is none."""
    try:
        return find_surrogate(home, domain, version).version
    except ConfigError:
        return "none"


def cuts_of(gaps: Floats, anchor: float) -> Floats:
    """Ascending cutpoints (n, gaps + 1) with these log gaps, the middle one at `anchor`.

    >>> cuts_of(np.log([[1.0, 2.0]]), 0.5).tolist()
    [[-0.5, 0.5, 2.5]]
    """
    steps = np.cumsum(np.exp(gaps), axis=1)
    cuts = np.concatenate([np.zeros((len(gaps), 1)), steps], axis=1)
    middle = gaps.shape[1] // 2
    return np.asarray(cuts - cuts[:, middle : middle + 1] + anchor)


class SurrogateRater(TableRater):
    """Answers as the teacher of a surrogate would, from facts and text vectors.

    A persona or item that was not taught is rated by its facts; one that lacks them has no rating
    (``invalid``, with a note). ``item_stats``, ``item_embeddings`` and ``persona_embeddings`` are
    the domain's tables.
    """

    uses = ("item_stats", "item_embeddings", "persona_embeddings")
    language_model = False

    def __init__(
        self,
        model: SurrogateModel,
        *,
        item_stats: pl.DataFrame | None = None,
        item_embeddings: pl.DataFrame | None = None,
        persona_embeddings: pl.DataFrame | None = None,
    ) -> None:
        self.model, self.scale = model, model.scale
        self.name = f"surrogate:{model.teacher}"
        self._tables = item_stats, item_embeddings, persona_embeddings

    def for_personas(self, persona_embeddings: pl.DataFrame) -> SurrogateRater:
        """The same model with the vectors of other personas."""
        rater = copy(self)
        rater._tables = (*self._tables[:2], persona_embeddings)
        return rater

    def rate_pairs(
        self, personas: pl.DataFrame, items: pl.DataFrame, past: pl.DataFrame | None, pairs: Ints
    ) -> RatingBatch:
        """Distributions of the model, after the memories that it learned the effect of."""
        (who, what), histories = pairs.T, past
        remembered, ratings = np.zeros((len(who), 0), np.int64), np.zeros((len(who), 0))
        more: list[str] = []
        if histories is not None and histories.height and self.model.memory is not None:
            # Remembered items that are not rated here are known by what was taught of them.
            ids = items["item_id"].to_list()
            id_set = set(ids)
            more = [i for i in histories["item_id"].unique().sort() if i not in id_set]
            place = {name: n for n, name in enumerate([*ids, *more])}
            by_id = histories.group_by("persona_id", maintain_order=True).agg("item_id", "rating")
            lists = {
                p: (i, r) for p, i, r in by_id.select("persona_id", "item_id", "rating").rows()
            }
            wide = max(len(i) for i, _ in lists.values())
            rows, marks = np.full((personas.height, wide), -1), np.zeros((personas.height, wide))
            for n, name in enumerate(personas["persona_id"]):
                item_ids, given = lists.get(name, ((), ()))
                rows[n, : len(item_ids)] = [place[i] for i in item_ids]
                marks[n, : len(given)] = given
            remembered, ratings = rows[who].astype(np.int64), marks[who]
        return BoundSurrogate(self, personas, items, more).rate(who, what, remembered, ratings)

    def bind(self, personas: pl.DataFrame, items: pl.DataFrame) -> BoundSurrogate:
        """Its array form."""
        return BoundSurrogate(self, personas, items)

    def sides(
        self, personas: pl.DataFrame, items: pl.DataFrame
    ) -> tuple[tuple[Floats, Bools, Bools], tuple[Floats, Bools, Bools]]:
        """:meth:`Side.of` of these personas and items."""
        stats, of_items, of_personas = self._tables
        return self.model.personas.of(personas, of_personas), self.model.items.of(
            with_stats(items, stats), of_items
        )

    def metadata(self) -> dict[str, Any]:
        """Teacher, its counts, and the fidelity on held-out pairs by kind."""
        facts = self.model.metadata
        fidelity = [r for r in facts.get("fidelity", ()) if r["figure"] == "rmse"]
        return self.described(
            {"rank": self.model.rank, "histories": self.model.memory is not None},
            teacher=facts.get("teacher", {}),
            fidelity={
                r["kind"]: {k: r[k] for k in ("value", "low", "high", "floor", "pairs")}
                for r in fidelity
            },
        )


class BoundSurrogate(BoundRater):
    """A surrogate over fixed personas and items.

    ``below_baseline`` names the kinds of pairs among them on which it is not shown to be better
    than a baseline.
    """

    def __init__(
        self,
        rater: SurrogateRater,
        personas: pl.DataFrame,
        items: pl.DataFrame,
        more: Sequence[str] = (),
    ) -> None:
        super().__init__(rater, personas, items)
        self._model = model = rater.model
        self.language_model = False
        (people, seen, person_ok), (things, met, item_ok) = rater.sides(personas, items)
        self.below_baseline = tuple(
            kind
            for number, kind in enumerate(KINDS)
            if (person_ok & (seen ^ bool(number & 2))).any()
            and (item_ok & (met ^ bool(number & 1))).any()
            and not model.beats_baseline(kind)
        )
        if more:
            rows = model.items.rows(more)
            taught = np.where((rows >= 0)[:, None], model.items.values[rows], 0.0)
            things, item_ok = np.vstack([things, taught]), np.concatenate([item_ok, rows >= 0])
        width = 1 + model.rank
        self._people, self._things = people[:, :width].copy(), things
        self._cuts = cuts_of(people[:, width:], model.anchor)
        self._person_ok, self._item_ok = person_ok, item_ok
        self._table: Floats | None = None
        if len(people) * len(things) <= _TABLE and not more:
            self._table = self._people[:, 1:] @ things[:, 1:].T
            self._table += self._people[:, :1] + things[None, :, 0]
        about_memory = (
            "memories count as its answers with histories taught"
            if model.memory
            else "it was taught without histories, and memories change nothing"
        )
        self.note = (
            f"Ratings are a surrogate's of the rater {model.teacher} (a small statistical model of "
            f"its answers, no language model); {about_memory}."
        )

    def rate(
        self,
        personas: Ints,
        items: Ints,
        past: Ints | None = None,
        ratings: Floats | None = None,
        met: Ints | None = None,  # noqa: ARG002 (base)
    ) -> RatingBatch:
        """Rate one pair per row; see :class:`pipelines.raters.BoundRater`.

        ContractError if a past rating is off the scale.
        """
        out = np.empty((len(personas), len(self.scale)))
        memory = self._model.memory
        for start in range(0, len(personas), _CHUNK):
            rows = slice(start, start + _CHUNK)
            who, what = personas[rows], items[rows]
            location, cuts = self.locations(who, what)
            if memory is not None and past is not None and ratings is not None and past.size:
                surplus = self.surplus(who, what, past[rows], ratings[rows], memory.strength)
                location = location + surplus @ [memory.level, memory.factors]
            out[rows] = cumulative(cuts - location[:, None])
        ok = self._person_ok[personas] & self._item_ok[items]
        if ok.all():
            return RatingBatch(self.scale, out, [OK] * len(out))
        out[~ok] = np.nan
        status = np.where(ok, OK, "invalid").tolist()
        notes = [None if good else "the surrogate lacks facts or a text vector" for good in ok]
        return RatingBatch(self.scale, out, status, notes=notes)

    def locations(self, personas: Ints, items: Ints) -> tuple[Floats, Floats]:
        """Locations (n,) and cutpoints (n, answers - 1) without a memory."""
        cuts = self._cuts[personas]
        if self._table is not None:
            return self._table[personas, items], cuts
        who, what = self._people[personas], self._things[items]
        return who[:, 0] + what[:, 0] + np.einsum("ij,ij->i", who[:, 1:], what[:, 1:]), cuts

    def surplus(
        self, personas: Ints, items: Ints, past: Ints, ratings: Floats, strength: float
    ) -> Floats:
        """Memory effects, of shape (n, 2).

        They are the shrunken mean surplus of the past ratings over what is expected without a
        memory, and the same carried along the items' factors.
        """
        if not (self.scale.covers(ratings) | (past < 0)).all():
            raise ContractError("a past rating is not on the scale", where=self.scale.name)
        rated = (past >= 0) & self._item_ok[past]
        who, what = np.broadcast_to(personas[:, None], past.shape)[rated], past[rated]
        location, cuts = self.locations(who, what)
        above = np.zeros(past.shape)
        above[rated] = ratings[rated] - cumulative(cuts - location[:, None]) @ self.scale.answers
        above /= rated.sum(axis=1, keepdims=True) + strength
        carried = np.einsum("nk,nkr->nr", above, self._things[past, 1:])
        along = np.einsum("nr,nr->n", carried, self._things[items, 1:])
        return np.column_stack([above.sum(axis=1), along])
