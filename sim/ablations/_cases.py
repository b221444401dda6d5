"""The questions of a suite, as arrays over the release's items."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipelines.scales import RatingScale, rescale, scale_named
from pipelines.seeding import hash_text, uniform

if TYPE_CHECKING:
    import polars as pl

    from pipelines.ablations import Suite
    from pipelines.store import Snapshot

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: Tests in the order in which they are reported.
TESTS = ("genres", "raters", "collections", "similarity")
_TABLES = {
    "genres": ("personas", "item_sets"),
    "raters": ("personas", "item_sets"),
    "collections": ("series_cases",),
    "similarity": ("human_cases",),
}
_WANT = {"low": 0, "high": 1}


@dataclass(frozen=True)
class Cases:
    """Questions of one test, each independent of the others."""

    #: Its name.
    test: str
    #: Personas of the cases, rows like those of `personas`.
    personas: pl.DataFrame
    #: Row of `personas` and number of the item (in the order of the items' ids), (n,).
    person: Ints
    item: Ints
    #: 1 if a high rating is a success, 0 if a low one, -1 if neither, of shape (n,).
    want: Ints
    #: Group of the case: a genre, a series, ..., of shape (n,).
    group: list[str]
    #: Items rated before, oldest first, -1 padding at the end, of shape (n, h); h may be 0.
    history: Ints
    #: Their ratings on `scale`, of shape (n, h).
    ratings: Floats
    #: Scale of `ratings`.
    scale: RatingScale

    def __len__(self) -> int:
        return len(self.person)

    @property
    def users(self) -> list[str]:
        """Person of each case, of shape (n,): the same in every wording."""
        named = "user" if "user" in self.personas.columns else "persona_id"
        ids = self.personas[named].to_list()
        return [ids[p] for p in self.person]

    def sample(self, count: int | None) -> Cases:
        """At most `count` of the cases, evenly over users and wants; all of them for None.

        The same cases in every wording. Within a user and want they are drawn by hash.
        """
        if count is None or count >= len(self):
            return self
        luck = uniform(0, hash_text(self.test), 0, np.arange(len(self)))
        _, user = np.unique(self.users, return_inverse=True)
        order = np.lexsort((luck, self.want, user))
        first = np.empty(len(self), dtype=np.int64)
        # Cases of a user and want stand together: the turn of each is its place behind the first.
        apart = np.flatnonzero(
            np.diff(user[order], prepend=-1).astype(bool)
            | np.diff(self.want[order], prepend=-2).astype(bool)
        )
        starts = np.repeat(apart, np.diff(apart, append=len(self)))
        first[order] = np.arange(len(self)) - starts
        chosen = np.sort(np.lexsort((luck, first))[:count])
        return replace(
            self,
            person=self.person[chosen],
            item=self.item[chosen],
            want=self.want[chosen],
            group=[self.group[n] for n in chosen],
            history=self.history[chosen],
            ratings=self.ratings[chosen],
        )


@dataclass(frozen=True)
class Human:
    """People's ratings: an item uniform, then one of its ratings.

    ``scale`` is the source's, ``shares`` the share of each of its answers, ascending, of shape
    (answers,).
    """

    scale: RatingScale
    shares: Floats


def tables_of(test: str) -> tuple[str, ...]:
    """Case tables that a test is made of."""
    return _TABLES[test]


def human_distribution(cases: Snapshot) -> Human | None:
    """The distribution noted with `human_cases`; None if there are no cases."""
    noted: dict[str, Any] = cases.manifest.stats.get("human", {})
    if not noted.get("shares"):
        return None
    scale = scale_named(noted["scale"])
    return Human(scale, np.array([noted["shares"][f"{a:g}"] for a in scale.answers]))


def load_cases(
    test: str,
    draw: int,
    tables: Mapping[str, Snapshot],
    suite: Suite,
    frame: Callable[[str], pl.DataFrame],
    wording: str = "own",
) -> Cases:
    """The questions of a test, with a draw (number) of `series_cases` and `human_cases`.

    ``test`` is one of :data:`TESTS`, ``tables`` are the case tables of ``suite`` by short name.
    ``frame`` returns tables of the domain: `items` in the order of their ids, `personas`,
    `human_users`. ``wording`` is that of hand-made personas; see
    :data:`pipelines.ablations.WORDINGS`.
    """
    index = {item: n for n, item in enumerate(frame("items")["item_id"])}
    if test == "collections":
        return _collections(tables["series_cases"], draw, suite, frame("personas"), index)
    if test == "similarity":
        return _similarity(tables["human_cases"], draw, suite, frame("human_users"), index)
    import polars as pl

    from pipelines.ablations import worded_personas

    people = tables["personas"].read().filter(pl.col("suite") == test).sort("persona_id")
    rows = tables["item_sets"].read().filter(pl.col("suite") == test)
    place = {p: n for n, p in enumerate(people["persona_id"])}
    return Cases(
        test,
        worded_personas(people, wording, draw),
        _places(rows["persona_id"], place),
        _places(rows["item_id"], index),
        np.array([_WANT[w] for w in rows["want"]], dtype=np.int64),
        rows["group"].to_list(),
        np.empty((rows.height, 0), dtype=np.int64),
        np.empty((rows.height, 0)),
        suite.scale,
    )


def _collections(
    table: Snapshot, draw: int, suite: Suite, personas: pl.DataFrame, index: dict[str, int]
) -> Cases:
    import polars as pl

    rows = table.scan().filter(pl.col("draw") == draw).collect()
    people = personas.join(rows.select("persona_id"), on="persona_id", how="semi")
    people = people.sort("persona_id")
    place = {p: n for n, p in enumerate(people["persona_id"])}
    person, item = _places(rows["persona_id"], place), _places(rows["item_id"], index)
    history = _padded(rows["history"], -1, index)
    others = _padded(rows["ratings"], np.nan)
    sides = [
        np.where(np.isnan(side), others, side)
        for side in (_padded(rows["low"], np.nan), _padded(rows["high"], np.nan))
    ]
    return Cases(
        "collections",
        people,
        np.tile(person, 2),
        np.tile(item, 2),
        np.repeat(np.array([0, 1], dtype=np.int64), rows.height),
        rows["series"].to_list() * 2,
        np.tile(history, (2, 1)),
        np.concatenate(sides),
        suite.scale,
    )


def _similarity(
    table: Snapshot, draw: int, suite: Suite, human_users: pl.DataFrame, index: dict[str, int]
) -> Cases:
    import polars as pl

    from pipelines.raters import persona_rows

    rows = table.scan().filter(pl.col("draw") == draw).collect()
    users = rows["user_id"].unique().sort().to_list()
    place = {u: n for n, u in enumerate(users)}
    ratings = _padded(rows["ratings"], np.nan)
    if rows.height:
        ratings = rescale(ratings, scale_named(rows["scale"][0]), suite.scale)
    return Cases(
        "similarity",
        persona_rows(users, human_users),
        _places(rows["user_id"], place),
        _places(rows["item_id"], index),
        np.full(rows.height, -1, dtype=np.int64),
        ["people"] * rows.height,
        _padded(rows["history"], -1, index),
        np.asarray(ratings, dtype=np.float64),
        suite.scale,
    )


def _places(ids: pl.Series, place: dict[str, int]) -> Ints:
    return np.array([place[i] for i in ids], dtype=np.int64)


def _padded(lists: pl.Series, blank: float, index: dict[str, int] | None = None) -> Any:
    """A column of lists as one array, padded at the end."""
    import polars as pl

    lengths = lists.list.len().to_numpy().astype(np.int64)
    longest = int(lengths.max()) if len(lengths) else 0
    out = np.full((len(lengths), longest), blank, dtype=np.float64 if index is None else np.int64)
    if not out.size:
        return out
    flat = lists.explode(empty_as_null=False, keep_nulls=False)
    if index is None:
        flat = flat.cast(pl.Float64).fill_null(float("nan"))
    else:
        flat = flat.replace_strict(index, return_dtype=pl.Int64)
    out[np.arange(longest)[None, :] < lengths[:, None]] = flat.to_numpy()
    return out
