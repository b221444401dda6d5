"""Training histories of a domain's users, and the lists that are drawn from them.

Only rows of the training split are read, so that nothing about a matched persona depends on a
held-out rating (SimUSER, appendix A: the other splits are kept from the agent's memory).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.config import GraphSettings
from pipelines.errors import ConfigError, ContractError
from pipelines.packaged import packaged_yaml
from pipelines.scales import SCALES, rescale
from pipelines.seeding import U64, combine, hash_ids

#: The file, as reports name it.
ASSUMED_FILE = "pipelines/matching/data/assumed.yaml"


def assumed() -> dict[str, Any]:
    """The content of ``data/assumed.yaml``."""
    return dict(packaged_yaml("pipelines.matching", "assumed.yaml"))


Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Frame: TypeAlias = pl.DataFrame | pl.LazyFrame

#: Age bands (SimUSER, appendix B; the codes of MovieLens-1M), ascending.
AGE_BANDS = ("under 18", "18-24", "25-34", "35-44", "45-49", "50-55", "56+")
#: Seed of folds, lists, candidates and the sample of users.
SEED = 17
#: Attributes that a source may state of its users.
STATED = ("age_band", "occupation")
_STUDENT_SPLIT = AGE_BANDS[0]


def occupation_values() -> tuple[str, ...]:
    """The 21 occupations of SimUSER, appendix B."""
    return tuple(packaged_yaml("pipelines.matching", "occupations.yaml")["values"])


def occupations_of(age_band: pl.Series, occupation: pl.Series) -> pl.Series:
    """Published occupations as values of :func:`occupation_values`; null where there is none.

    The age band decides between the two kinds of students.

    >>> bands = pl.Series(["under 18", "18-24", None, "25-34"])
    >>> words = pl.Series(["student", "student", "writer", "astronaut"])
    >>> occupations_of(bands, words).to_list()
    ['K-12 student', 'college/grad student', 'writer', None]
    """
    loaded = packaged_yaml("pipelines.matching", "occupations.yaml")
    published = {value: value for value in occupation_values()} | dict(loaded["ml-100k"])
    young = dict(loaded[_STUDENT_SPLIT])
    frame = pl.DataFrame({"band": age_band, "word": occupation})
    usual = pl.col("word").replace_strict(published, default=None, return_dtype=pl.String)
    other = pl.col("word").replace_strict(young, default=None, return_dtype=pl.String)
    young_one = (pl.col("band") == _STUDENT_SPLIT) & other.is_not_null()
    return frame.select(pl.when(young_one).then(other).otherwise(usual).alias("occupation"))[
        "occupation"
    ]


@dataclass(frozen=True)
class Lists:
    """Lists of interactions, in compressed rows."""

    #: First entry of each list in `rows`, of shape (lists + 1,).
    start: Ints
    #: Rows of the history, of shape (entries,).
    rows: Ints

    def __len__(self) -> int:
        return len(self.start) - 1

    def of(self, number: int) -> Ints:
        """Rows of one list."""
        return self.rows[self.start[number] : self.start[number + 1]]


@dataclass(frozen=True)
class History:
    """Training interactions of every user of a domain."""

    #: `movies`, `books` or `games`.
    domain: str
    #: Ids, ascending; everybody with a training interaction.
    users: list[str]
    #: The table `items`, by id; item n is its n-th row.
    items: pl.DataFrame
    #: First row of each user, of shape (users + 1,).
    start: Ints
    #: Item numbers, ascending within a user, of shape (rows,).
    item: Ints
    #: Ratings on 1-5, of shape (rows,).
    rating: Floats
    #: 1 liked, -1 disliked, 0 neither, by ``graph.liked_from`` and ``graph.disliked_to``.
    opinion: Ints
    #: Value numbers of each user's attributes, -1 where the source does not tell, by attribute.
    stated: dict[str, Ints]
    #: Users whose occupation is in no line of the mapping (count).
    unmapped: int = 0
    #: Share of the most frequent occupation before the mapping, of those who tell one.
    published_majority: float = float("nan")

    @classmethod
    def read(
        cls,
        domain: str,
        *,
        interactions: Frame,
        splits: Frame,
        items: pl.DataFrame,
        human_users: pl.DataFrame,
        graph: GraphSettings | None = None,
    ) -> History:
        """Histories from the tables of those names.

        Raises ContractError if there is no training interaction, or one of an item that is not in
        `items`.
        """
        train = splits.lazy().filter(pl.col("split") == "train").select("user_id", "item_id")
        rows = (
            interactions.lazy()
            .select("user_id", "item_id", "rating", "scale")
            .join(train, on=["user_id", "item_id"], how="inner")
            .collect(engine="streaming")
        )
        return cls.build(domain, rows, items=items, human_users=human_users, graph=graph)

    @classmethod
    def build(
        cls,
        domain: str,
        rows: pl.DataFrame,
        *,
        items: pl.DataFrame,
        human_users: pl.DataFrame,
        graph: GraphSettings | None = None,
    ) -> History:
        """Histories from rows of ``user_id, item_id, rating, scale``."""
        graph, where = graph or GraphSettings(), f"{domain}.interactions"
        if rows.is_empty():
            raise ContractError("there is no training interaction", where=where)
        items = items.sort("item_id")
        numbers = pl.DataFrame({"item_id": items["item_id"]}).with_row_index("item")
        rows = rows.join(numbers, on="item_id", how="left")
        unknown = rows.filter(pl.col("item").is_null())
        if unknown.height:
            raise ContractError(
                f"{unknown.height:,} training interactions are of items that are not in `items`",
                where=where,
                details={"rows": unknown.select("user_id", "item_id").head(10).to_dicts()},
            )
        rows = rows.sort("user_id", "item")
        counts = rows.group_by("user_id", maintain_order=True).len()
        rating = np.empty(rows.height)
        for (name,), part in rows.with_row_index("row").group_by("scale"):
            if name not in SCALES:
                raise ContractError("unknown rating scale", where=f"{where}, scale {name}")
            rating[part["row"].to_numpy()] = rescale(
                part["rating"].to_numpy(), SCALES[str(name)], SCALES["1-5"]
            )
        stated, unmapped, majority = _stated(counts["user_id"], human_users)
        return cls(
            domain,
            counts["user_id"].to_list(),
            items,
            np.concatenate([[0], np.cumsum(counts["len"].to_numpy())]).astype(np.int64),
            rows["item"].to_numpy().astype(np.int64),
            rating,
            (rating >= graph.liked_from).astype(np.int64) - (rating <= graph.disliked_to),
            stated,
            unmapped,
            majority,
        )

    @cached_property
    def keys(self) -> U64:
        """A hash of each user's id, of shape (users,)."""
        return hash_ids(self.users)

    @cached_property
    def item_keys(self) -> U64:
        """A hash of each item's id, of shape (items,)."""
        return hash_ids(self.items["item_id"])

    @cached_property
    def counts(self) -> Ints:
        """Training interactions of each user, of shape (users,)."""
        return np.diff(self.start)

    def numbers(self, users: Sequence[str]) -> Ints:
        """Numbers of users by id.

        Raises ConfigError if one has no training interaction.
        """
        place = {user: n for n, user in enumerate(self.users)}
        missing = [user for user in users if user not in place]
        if missing:
            raise ConfigError(
                "a user without a training interaction can't be matched",
                where=f"{self.domain} {missing[0]}",
                hint=f"{len(missing):,} of {len(users):,} users have none",
            )
        return np.array([place[user] for user in users], np.int64)

    def sample(self, count: int, seed: int) -> Ints:
        """Numbers of `count` users, ascending; independent of the other users.

        All users if there are no more than `count`.
        """
        order = np.argsort(combine(seed, self.keys), kind="stable")
        return np.sort(order[:count])

    def draw(self, users: Ints, sizes: Ints, *keys: int) -> Lists:
        """Draw a list of interactions per user, without replacement.

        ``users`` and ``sizes`` (at most all that a user has) are of shape (n,); equal ``keys``,
        seed and purpose, give equal lists.
        """
        counts = self.counts[users]
        owner = np.repeat(np.arange(len(users)), counts)
        offset = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = self.start[users][owner] + offset
        draws = combine(*keys, self.keys[users][owner], self.item_keys[self.item[rows]])
        order = np.lexsort((draws, owner))
        # Sorted by owner again, so a position minus its owner's first one is its rank.
        drawn = order[offset < np.minimum(sizes, counts)[owner]]
        taken = np.minimum(sizes, counts)
        return Lists(np.concatenate([[0], np.cumsum(taken)]).astype(np.int64), rows[drawn])

    def titles(self, rows: Ints) -> list[dict[str, object]]:
        """Items of some rows as records."""
        return self.items[self.item[rows]].to_dicts()


def _stated(users: pl.Series, human_users: pl.DataFrame) -> tuple[dict[str, Ints], int, float]:
    """Value numbers by attribute, `unmapped` and `published_majority`."""
    columns = ["user_id", *STATED]
    missing = [column for column in columns if column not in human_users.columns]
    if missing:
        raise ContractError(f"no column {', '.join(missing)}", where="human_users")
    frame = pl.DataFrame({"user_id": users}).join(
        human_users.select(columns), on="user_id", how="left", maintain_order="left"
    )
    mapped = occupations_of(frame["age_band"], frame["occupation"])
    unmapped = int((frame["occupation"].is_not_null() & mapped.is_null()).sum())
    values: Mapping[str, tuple[Sequence[str], pl.Series]] = {
        "age_band": (AGE_BANDS, frame["age_band"]),
        "occupation": (occupation_values(), mapped),
    }
    stated = {
        name: column.replace_strict(
            {value: n for n, value in enumerate(options)}, default=-1, return_dtype=pl.Int64
        )
        .fill_null(-1)
        .to_numpy()
        for name, (options, column) in values.items()
    }
    words = frame["occupation"].drop_nulls()
    counts = words.value_counts()["count"].to_numpy()
    return stated, unmapped, float(counts.max() / counts.sum()) if len(counts) else float("nan")
