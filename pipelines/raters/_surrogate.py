"""Surrogates: a small model of another rater's distributions, at the speed of a table.

The logit of a rating at or below an answer is ``cutpoint - (a + c + U.V)``: a level and factors of
the persona, a level and factors of the item, and ordered cutpoints whose gaps are the persona's.
Levels, factors and gaps of personas and items that were taught are their own; those of others are
linear in their facts and text vectors (a regression-based latent factor model: Agarwal and Chen,
"Regression-based latent factor models", KDD 2009). It is learned in `pipelines.surrogates`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl
from scipy.special import expit

from pipelines.errors import ConfigError, ContractError, IntegrityError, StoreError
from pipelines.raters.protocol import OK, BoundRater, Floats, Ints, RatingBatch, all_pairs
from pipelines.raters.statistical import genre_matrix, vector_matrix
from pipelines.scales import RatingScale, scale_named
from pipelines.seeding import U64, hash_ids
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
#: Columns of personas that are read as categories, and of items as numbers; those beside ``year``
#: are read as logarithms.
_CATEGORIES = ("leniency", "manner", "activity", "conformity", "gender")
_NUMBERS = (
    *("year", "runtime", "budget", "revenue", "popularity", "vote_average", "vote_count"),
    *("average_rating", "rating_number", "price", "metascore"),
)
_PLAIN = frozenset({"year", "vote_average", "average_rating"})
#: Ratings that count as many as an item's own in its shrunken means (counts).
_STRENGTHS = (1.0, 5.0, 20.0)
#: Components of text vectors at most (count).
_COMPONENTS = 32
#: Persona-item locations that are kept as a table (count, 8 bytes each), and pairs rated at once.
_TABLE, _CHUNK = 16_000_000, 65_536


@dataclass(frozen=True)
class Facts:
    """Feature columns of personas or items: fitted on those of a teacher, applied to any."""

    #: ``personas`` or ``items``.
    of: str
    #: Genres with a column (of liked and of disliked ones for personas).
    genres: tuple[str, ...]
    #: Categories by column; for items the mean of each numeric column and of ``rating``.
    values: Mapping[str, Any]
    #: Mean text vector (dimension,) and principal axes (dimension, components); of size 0 if the
    #: teacher's table has no vectors.
    centre: Floats
    components: Floats
    #: Standardisation of the columns, each of shape (columns,).
    mean: Floats
    spread: Floats

    @classmethod
    def fit(
        cls,
        of: str,
        frame: pl.DataFrame,
        genres: Sequence[str],
        embeddings: pl.DataFrame | None = None,
        stats: pl.DataFrame | None = None,
    ) -> Facts:
        """Columns, means and text components of these rows."""
        values: dict[str, Any] = {}
        if of == "personas":
            for name in _CATEGORIES:
                if name in frame.columns:
                    values[name] = frame[name].drop_nulls().unique().sort().to_list()
            if "age" in frame.columns:
                values["age"] = _mean(frame["age"])
        else:
            for name in _NUMBERS:
                if name in frame.columns:
                    values[name] = _mean(_number(frame[name]))
            if stats is not None:
                values["rating"] = _mean(stats["train_mean_rating"])
        vectors = _vectors(of, frame, embeddings)
        known = vectors[vectors.any(axis=1)]
        centre = known.mean(axis=0) if len(known) else np.zeros(vectors.shape[1])
        axes = np.zeros((vectors.shape[1], 0))
        if len(known) > 1:
            off = known - centre
            _, found = np.linalg.eigh(off.T @ off)
            axes = found[:, ::-1][:, : min(_COMPONENTS, len(known) - 1)]
            # Signs of eigenvectors are arbitrary: the largest entry is positive.
            axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
        raw = cls(of, tuple(genres), values, centre, axes, np.zeros(0), np.ones(0))
        columns, complete = raw._columns(frame, embeddings, stats)
        used = columns[complete] if complete.any() else columns
        spread = used.std(axis=0)
        return replace(raw, mean=used.mean(axis=0), spread=np.where(spread > 1e-9, spread, 1.0))

    def read(
        self, frame: pl.DataFrame, embeddings: pl.DataFrame | None, stats: pl.DataFrame | None
    ) -> tuple[Floats, Bools]:
        """Standardised columns (rows, columns), and which rows have what they need.

        A row needs its text vector where the teacher's rows had one, else a genre.
        """
        columns, complete = self._columns(frame, embeddings, stats)
        # Facts far beyond the taught range are cut: a line is no guide out there.
        return np.clip((columns - self.mean) / self.spread, -5.0, 5.0), complete

    def _columns(
        self, frame: pl.DataFrame, embeddings: pl.DataFrame | None, stats: pl.DataFrame | None
    ) -> tuple[Floats, Bools]:
        blocks = self._personal(frame) if self.of == "personas" else self._of_items(frame, stats)
        complete = np.any([b.any(axis=1) for b in blocks[:2]], axis=0)
        if self.components.shape[1]:
            vectors = _vectors(self.of, frame, embeddings)
            if vectors.shape[1] != len(self.centre):
                vectors = np.zeros((frame.height, len(self.centre)))
            complete = vectors.any(axis=1)
            blocks.append((vectors - self.centre) @ self.components)
        return np.column_stack(blocks), np.asarray(complete)

    def _personal(self, frame: pl.DataFrame) -> list[Floats]:
        listed = [_listed(frame, name, self.genres) for name in ("likes", "dislikes")]
        blocks = [*listed, *(b.sum(axis=1, keepdims=True) for b in listed)]
        for name in _CATEGORIES:
            if name in self.values:
                own = frame[name] if name in frame.columns else _nulls(frame)
                blocks += [(own == v).fill_null(value=False).to_numpy()[:, None] for v in
                           self.values[name]]  # fmt: skip
        if "age" in self.values:
            age = frame["age"] if "age" in frame.columns else _nulls(frame)
            filled = age.cast(pl.Float64).fill_null(self.values["age"]).to_numpy()
            blocks += [filled[:, None], filled[:, None] ** 2]
        return [np.asarray(b, np.float64) for b in blocks]

    def _of_items(self, frame: pl.DataFrame, stats: pl.DataFrame | None) -> list[Floats]:
        listed = _listed(frame, "genres", self.genres)
        shares = listed / np.maximum(listed.sum(axis=1, keepdims=True), 1.0)
        blocks = [listed, shares]
        numbers: dict[str, Floats] = {}
        for name in _NUMBERS:
            if name in self.values:
                own = _number(frame[name] if name in frame.columns else _nulls(frame))
                numbers[name] = own.fill_null(self.values[name]).to_numpy()
                blocks += [numbers[name], numbers[name] ** 2, own.is_null().to_numpy()]
        for average, votes in (("vote_average", "vote_count"), ("average_rating", "rating_number")):
            if average in numbers and votes in numbers:
                count = np.expm1(numbers[votes])
                surplus = numbers[average] - self.values[average]
                blocks += [surplus * count / (count + half) for half in (20.0, 200.0)]
        if "rating" in self.values:
            known = frame.select("item_id").join(
                stats.select("item_id", "train_ratings", "train_mean_rating")
                if stats is not None
                else pl.DataFrame(schema=_STATS),
                on="item_id",
                how="left",
                maintain_order="left",
            )
            count = known["train_ratings"].fill_null(0).cast(pl.Float64).to_numpy()
            mean = known["train_mean_rating"].fill_null(self.values["rating"]).to_numpy()
            surplus = mean - self.values["rating"]
            logs = np.log1p(count)
            blocks += [surplus * count / (count + k) for k in _STRENGTHS]
            blocks += [logs, logs**2]
        return [np.asarray(b, np.float64).reshape(frame.height, -1) for b in blocks]


_STATS = {"item_id": pl.String, "train_ratings": pl.Int64, "train_mean_rating": pl.Float64}


def _listed(frame: pl.DataFrame, name: str, genres: Sequence[str]) -> Floats:
    if name not in frame.columns:
        return np.zeros((frame.height, len(genres)))
    return genre_matrix(frame[name].cast(pl.List(pl.String)), genres).astype(np.float64)


def _number(column: pl.Series) -> pl.Series:
    values = column.cast(pl.Float64)
    return values if column.name in _PLAIN else values.clip(lower_bound=0).log1p()


def _mean(column: pl.Series) -> float:
    value = column.cast(pl.Float64).mean()
    return float(value) if isinstance(value, float) else 0.0


def _nulls(frame: pl.DataFrame) -> pl.Series:
    return pl.Series([None] * frame.height, dtype=pl.Float64)


def _key(of: str) -> str:
    return "persona_id" if of == "personas" else "item_id"


def _vectors(of: str, frame: pl.DataFrame, embeddings: pl.DataFrame | None) -> Floats:
    return vector_matrix(frame[_key(of)], embeddings, _key(of)).astype(np.float64)


def _digests(of: str, frame: pl.DataFrame) -> U64:
    """Hashes of what is stated of each row: the same id with other facts is another one."""
    told = ("likes", "dislikes", "leniency", "manner", "description")
    names = told if of == "personas" else ("title", "genres", "year")
    lists = [frame[name].to_list() if name in frame.columns else None for name in names]
    return hash_ids(
        orjson.dumps([row and row[n] for row in lists]).decode() for n in range(frame.height)
    )


@dataclass(frozen=True)
class Side:
    """One side of the pairs: those that were taught, and the regression on facts for others."""

    #: Their columns.
    facts: Facts
    #: Taught ids and hashes of their facts, of shape (taught,).
    ids: tuple[str, ...]
    digests: U64
    #: Level, factors, and for personas logarithms of the gaps between cutpoints, of shape (taught,
    #: values).
    factors: Floats
    #: Weights of the same values, regressed on the columns and a constant, of shape (columns + 1,
    #: values).
    weights: Floats

    @classmethod
    def taught(cls, facts: Facts, frame: pl.DataFrame, factors: Floats, weights: Floats) -> Side:
        """The side of these rows, with a row of factors each."""
        ids = tuple(frame[_key(facts.of)].to_list())
        return cls(facts, ids, _digests(facts.of, frame), factors, weights)

    def of(
        self, frame: pl.DataFrame, embeddings: pl.DataFrame | None, stats: pl.DataFrame | None
    ) -> tuple[Floats, Bools, Bools]:
        """Values of each row, which rows were taught, and which have a value at all."""
        columns, complete = self.facts.read(frame, embeddings, stats)
        values = columns @ self.weights[:-1] + self.weights[-1]
        place = {name: n for n, name in enumerate(self.ids)}
        rows = np.array([place.get(i, -1) for i in frame[_key(self.facts.of)]], np.int64)
        seen = rows >= 0
        seen[seen] = self.digests[rows[seen]] == _digests(self.facts.of, frame)[seen]
        values[seen] = self.factors[rows[seen]]
        return values, seen, complete | seen


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
    def rank(self) -> int:
        """Factors (count)."""
        return int(self.items.factors.shape[1]) - 1

    def beats_floor(self, kind: str) -> bool:
        """Whether a kind's RMSE is below its baseline's, with the difference's 95 % interval."""
        rows = self.metadata.get("fidelity", ())
        found = [r for r in rows if (r["kind"], r["figure"]) == (kind, "rmse")]
        return bool(found) and found[0]["difference_high"] < 0

    def save(self, folder: Path) -> list[Path]:
        """Write arrays and metadata as plain files into a folder."""
        import io

        arrays: dict[str, Any] = {"anchor": np.array(self.anchor)}
        spec: dict[str, Any] = {}
        for name in ("personas", "items"):
            side: Side = getattr(self, name)
            facts = side.facts
            spec[name] = {"genres": facts.genres, "values": facts.values}
            arrays |= {
                f"{name}_ids": np.array(side.ids, dtype=np.str_),
                f"{name}_digests": side.digests,
                f"{name}_factors": side.factors.astype(np.float32),
                f"{name}_weights": side.weights,
                f"{name}_centre": facts.centre,
                f"{name}_components": facts.components,
                f"{name}_mean": facts.mean,
                f"{name}_spread": facts.spread,
            }
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)
        memory = None if self.memory is None else vars(self.memory)
        content = {"scale": self.scale.name, "facts": spec, "memory": memory, **self.metadata}
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
                sides = {}
                for name in ("personas", "items"):
                    spec = content["facts"][name]
                    facts = Facts(
                        name,
                        tuple(spec["genres"]),
                        spec["values"],
                        *(
                            arrays[f"{name}_{part}"]
                            for part in ("centre", "components", "mean", "spread")
                        ),
                    )
                    sides[name] = Side(
                        facts,
                        tuple(arrays[f"{name}_ids"].tolist()),
                        arrays[f"{name}_digests"],
                        arrays[f"{name}_factors"].astype(np.float64),
                        arrays[f"{name}_weights"],
                    )
                anchor = float(arrays["anchor"])
        except (OSError, ValueError, KeyError) as error:
            raise IntegrityError(
                "the surrogate can't be read", where=f"{folder}: {error}"
            ) from None
        memory = content.pop("memory")
        more = {k: v for k, v in content.items() if k not in ("scale", "facts")}
        return cls(
            scale_named(content["scale"]),
            **sides,
            anchor=anchor,
            memory=None if memory is None else Memory(**memory),
            metadata=more,
        )


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
    whole = np.concatenate([np.zeros((len(gaps), 1)), steps], axis=1)
    middle = gaps.shape[1] // 2
    return np.asarray(whole - whole[:, middle : middle + 1] + anchor)


def ordinal(cuts: Floats, location: Floats) -> Floats:
    """Probabilities (n, answers) of rows with cutpoints (n, answers - 1) at locations (n,)."""
    gap = cuts - location[:, None]
    out = np.empty((len(location), cuts.shape[1] + 1))
    # By symmetry: 1 - p loses every digit where p is near 1.
    out[:, -1] = expit(-gap[:, -1])
    below = expit(gap, out=gap)
    out[:, 0] = below[:, 0]
    np.subtract(below[:, 1:], below[:, :-1], out=out[:, 1:-1])
    return out


class SurrogateRater:
    """Answers as the teacher of a surrogate would, from facts and text vectors.

    A persona or item that was not taught is rated by its facts; one that lacks them has no rating
    (``invalid``, with a note). ``item_stats``, ``item_embeddings`` and ``persona_embeddings`` are
    the domain's tables.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    uses: ClassVar[tuple[str, ...]] = ("item_stats", "item_embeddings", "persona_embeddings")
    language_model = False

    def __init__(
        self,
        model: SurrogateModel,
        *,
        item_stats: pl.DataFrame | None = None,
        item_embeddings: pl.DataFrame | None = None,
        persona_embeddings: pl.DataFrame | None = None,
    ) -> None:
        self.model = model
        self._tables = item_stats, item_embeddings, persona_embeddings

    def for_personas(self, persona_embeddings: pl.DataFrame) -> SurrogateRater:
        """The same model with the vectors of other personas."""
        item_stats, item_embeddings, _ = self._tables
        return SurrogateRater(
            self.model,
            item_stats=item_stats,
            item_embeddings=item_embeddings,
            persona_embeddings=persona_embeddings,
        )

    @property
    def name(self) -> str:
        """``surrogate:`` and the teacher's name."""
        return f"surrogate:{self.model.metadata.get('teacher', {}).get('rater', '')}"

    @property
    def scale(self) -> RatingScale:
        """The teacher's scale."""
        return self.model.scale

    def rate(
        self,
        personas: pl.DataFrame,
        items: pl.DataFrame,
        histories: pl.DataFrame | None = None,
        *,
        pairs: npt.NDArray[np.integer[Any]] | None = None,
    ) -> RatingBatch:
        """Rate pairs; see :class:`pipelines.raters.Rater`."""
        chosen = all_pairs(personas.height, items.height) if pairs is None else pairs
        who, what = chosen.astype(np.int64).T
        past, ratings = np.zeros((len(who), 0), np.int64), np.zeros((len(who), 0))
        more: list[str] = []
        if histories is not None and histories.height and self.model.memory is not None:
            # Remembered items that are not rated here are known by what was taught of them.
            ids = items["item_id"].to_list()
            known = set(ids)
            more = [i for i in histories["item_id"].unique().sort() if i not in known]
            place = {name: n for n, name in enumerate([*ids, *more])}
            own = histories.group_by("persona_id", maintain_order=True).agg("item_id", "rating")
            lists = {p: (i, r) for p, i, r in own.select("persona_id", "item_id", "rating").rows()}
            wide = max(len(i) for i, _ in lists.values())
            rows, marks = np.full((personas.height, wide), -1), np.zeros((personas.height, wide))
            for n, name in enumerate(personas["persona_id"]):
                remembered, given = lists.get(name, ((), ()))
                rows[n, : len(remembered)] = [place[i] for i in remembered]
                marks[n, : len(given)] = given
            past, ratings = rows[who].astype(np.int64), marks[who]
        return BoundSurrogate(self, personas, items, more).rate(who, what, past, ratings)

    def bind(self, personas: pl.DataFrame, items: pl.DataFrame) -> BoundSurrogate:
        """Its array form."""
        return BoundSurrogate(self, personas, items)

    def sides(
        self, personas: pl.DataFrame, items: pl.DataFrame
    ) -> tuple[tuple[Floats, Bools, Bools], tuple[Floats, Bools, Bools]]:
        """:meth:`Side.of` of these personas and items."""
        stats, of_items, of_personas = self._tables
        model = self.model
        return model.personas.of(personas, of_personas, None), model.items.of(
            items, of_items, stats
        )

    def metadata(self) -> dict[str, Any]:
        """Teacher, its counts, and the fidelity on held-out pairs by kind."""
        made = self.model.metadata
        fidelity = [r for r in made.get("fidelity", ()) if r["figure"] == "rmse"]
        return {
            "rater": self.name,
            "scale": self.scale.name,
            "fitted": {"rank": self.model.rank, "histories": self.model.memory is not None},
            "by_hand": {},
            "teacher": made.get("teacher", {}),
            "fidelity": {
                r["kind"]: {k: r[k] for k in ("value", "low", "high", "floor", "pairs")}
                for r in fidelity
            },
        }


class BoundSurrogate(BoundRater):
    """A surrogate over fixed personas and items.

    ``below_floor`` names the kinds of pairs among them on which it is not shown to be better than a
    baseline.
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
        (people, seen, there), (things, met, here) = rater.sides(personas, items)
        self.below_floor = tuple(
            kind
            for number, kind in enumerate(KINDS)
            if ((~seen if number & 2 else seen) & there).any()
            and ((~met if number & 1 else met) & here).any()
            and not model.beats_floor(kind)
        )
        if more:
            place = {name: n for n, name in enumerate(model.items.ids)}
            rows = np.array([place.get(i, -1) for i in more])
            taught = np.where((rows >= 0)[:, None], model.items.factors[rows], 0.0)
            things, here = np.vstack([things, taught]), np.concatenate([here, rows >= 0])
        width = 1 + model.rank
        self._people, self._things = people[:, :width].copy(), things
        self._cuts = cuts_of(people[:, width:], model.anchor)
        self._person_ok, self._item_ok = there, here
        self._table: Floats | None = None
        if len(people) * len(things) <= _TABLE and not more:
            self._table = self._people[:, 1:] @ things[:, 1:].T
            self._table += self._people[:, :1] + things[None, :, 0]
        teacher = model.metadata.get("teacher", {}).get("rater", "")
        told = (
            "memories count as its answers with histories taught"
            if model.memory
            else "it was taught without histories, and memories change nothing"
        )
        self.note = (
            f"Ratings are a surrogate's of the rater {teacher} (a small statistical model of its "
            f"answers, no language model); {told}."
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
        remembers = self._model.memory is not None and past is not None and past.size > 0
        for start in range(0, len(personas), _CHUNK):
            rows = slice(start, start + _CHUNK)
            who, what = personas[rows], items[rows]
            location = self._location(who, what)
            if remembers:
                assert past is not None
                assert ratings is not None
                mean, along = self._surplus(who, what, past[rows], ratings[rows])
                memory = self._model.memory
                assert memory is not None
                location = location + memory.level * mean + memory.factors * along
            out[rows] = ordinal(self._cuts[who], location)
        ok = self._person_ok[personas] & self._item_ok[items]
        if ok.all():
            return RatingBatch(self.scale, out, [OK] * len(out))
        out[~ok] = np.nan
        status = np.where(ok, OK, "invalid").tolist()
        notes = [None if good else "the surrogate lacks facts or a text vector" for good in ok]
        return RatingBatch(self.scale, out, status, notes=notes)

    def surplus(
        self, personas: Ints, items: Ints, past: Ints, ratings: Floats, strength: float
    ) -> tuple[Floats, Floats]:
        """Memory effects (n,): shrunken mean surplus, and the same along the items' factors."""
        return self._surplus(personas, items, past, ratings, strength)

    def locations(self, personas: Ints, items: Ints) -> tuple[Floats, Floats]:
        """Locations (n,) and cutpoints (n, answers - 1) without a memory."""
        return self._location(personas, items), self._cuts[personas]

    def _location(self, personas: Ints, items: Ints) -> Floats:
        if self._table is not None:
            return self._table[personas, items]
        who, what = self._people[personas], self._things[items]
        return np.asarray(who[:, 0] + what[:, 0] + np.einsum("ij,ij->i", who[:, 1:], what[:, 1:]))

    def _surplus(
        self,
        personas: Ints,
        items: Ints,
        past: Ints,
        ratings: Floats,
        strength: float | None = None,
    ) -> tuple[Floats, Floats]:
        if not (self.scale.covers(ratings) | (past < 0)).all():
            raise ContractError("a past rating is not on the scale", where=self.scale.name)
        there = (past >= 0) & self._item_ok[past]
        again = np.broadcast_to(personas[:, None], past.shape)
        usual = np.zeros(past.shape)
        who, what = again[there], past[there]
        expected = ordinal(self._cuts[who], self._location(who, what)) @ self.scale.answers
        usual[there] = ratings[there] - expected
        if strength is None:
            assert self._model.memory is not None
            strength = self._model.memory.strength
        usual /= there.sum(axis=1, keepdims=True) + strength
        carried = np.einsum("nk,nkr->nr", usual, self._things[past, 1:])
        return usual.sum(axis=1), np.einsum("nr,nr->n", carried, self._things[items, 1:])
