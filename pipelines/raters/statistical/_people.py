"""Profiles of human users from their ratings, in the shape that personas have.

People have no persona text and state no genres. Their stand-ins: a genre is liked (disliked)
if the user's ratings of it lie above (below) what the items' quality and the user's leniency
explain; the taste vector is the mean text vector of the items rated above that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from pipelines.errors import ContractError
from pipelines.raters.protocol import Floats, Ints
from pipelines.raters.statistical._profiles import Catalogue, Profiles
from pipelines.raters.statistical._tastes import Tastes
from pipelines.scales import SCALES, RatingScale
from pipelines.seeding import hash_ids

#: Shrunken mean surplus (rating units) from which a genre counts as liked or disliked, and
#: the pseudo-ratings of surplus 0 that it is shrunk with (both set by hand).
GENRE_THRESHOLD = 0.1
GENRE_STRENGTH = 4.0


@dataclass(frozen=True)
class HumanRows:
    """Ratings of some users, sorted by user and time.

    ``user`` and ``item`` are rows in `users` (their ids) and in the catalogue, of shape (ratings,);
    ``rating`` is on the source's scale.
    """

    users: list[str]
    user: Ints
    item: Ints
    rating: Floats

    def __len__(self) -> int:
        return len(self.rating)

    def take(self, mask: np.ndarray) -> HumanRows:
        """The rows of the mask, with all users kept."""
        return HumanRows(self.users, self.user[mask], self.item[mask], self.rating[mask])


def source_scale(interactions: pl.DataFrame | pl.LazyFrame) -> RatingScale:
    """The one known scale that the interactions are on; ContractError if there is no such one."""
    names = interactions.lazy().select(pl.col("scale").unique().sort()).collect()["scale"].to_list()
    if len(names) != 1 or names[0] not in SCALES:
        raise ContractError("interactions must be on one known scale", where=f"scale: {names}")
    return SCALES[names[0]]


def collect_rows(
    interactions: pl.DataFrame | pl.LazyFrame,
    splits: pl.DataFrame | pl.LazyFrame,
    split: str,
    catalogue: Catalogue,
    *,
    most: int | None = None,
    users: list[str] | None = None,
) -> HumanRows:
    """Ratings of one split, of all users or of as many as `most` rows allow.

    Whole users are then taken in the order of their ids' hashes, which is arbitrary and the same
    every time. ``users`` restricts them.
    """
    # Ids are hashed and rows picked on the splits alone: the wide table is read only for the
    # users that are needed, so that 25 million ratings don't have to be joined.
    part = splits.lazy().filter(pl.col("split") == split).select("user_id", "item_id")
    if users is not None:
        part = part.filter(pl.col("user_id").is_in(users))
    counts = part.group_by("user_id").len().collect(engine="streaming")
    if most is not None and counts["len"].sum() > most:
        counts = counts.with_columns(pl.Series("rank", hash_ids(counts["user_id"]))).sort("rank")
        counts = counts.filter(pl.col("len").cast(pl.Int64).cum_sum() <= most)
    chosen = counts["user_id"].sort()
    rows = (
        interactions.lazy()
        .filter(pl.col("user_id").is_in(chosen.implode()))
        .select("user_id", "item_id", "rating", "rated_at")
        .join(
            part.filter(pl.col("user_id").is_in(chosen.implode())),
            on=["user_id", "item_id"],
            how="inner",
        )
        .sort("user_id", "rated_at", "item_id")
        .collect(engine="streaming")
    )
    place = {user: n for n, user in enumerate(chosen)}
    item = rows["item_id"].replace_strict(catalogue.index, default=-1, return_dtype=pl.Int64)
    user = rows["user_id"].replace_strict(place, default=-1, return_dtype=pl.Int64)
    unknown = rows.filter(item < 0)
    if unknown.height:
        raise ContractError(
            f"{unknown.height} interactions are of items that are not in `items`",
            where="interactions",
            details={"rows": unknown.select("user_id", "item_id").head(10).to_dicts()},
        )
    return HumanRows(chosen.to_list(), user.to_numpy(), item.to_numpy(), rows["rating"].to_numpy())


def genre_surplus(
    rows: HumanRows, catalogue: Catalogue, mean: float, leniency: Floats
) -> tuple[Floats, Floats]:
    """Shrunken mean surplus of people by genre, and the surplus of each rating (rating units).

    Shapes (users, genres) and (ratings,). ``leniency``: of each user, of shape (users,); the others
    as for :func:`stand_ins`.
    """
    # Residuals after leniency are taste.
    residual = rows.rating - mean - catalogue.quality[rows.item] - leniency[rows.user]
    listed = (catalogue.shares > 0).astype(np.float64)
    return group_surplus(rows, residual, listed)[0], np.asarray(residual)


def group_surplus(rows: HumanRows, rest: Floats, groups: Any) -> tuple[Floats, Floats]:
    """Shrunken mean surplus of people by group of items: genres, makers, decades.

    ``rest`` is the surplus of each rating over what is expected of user and item, of shape
    (ratings,); ``groups`` is 1 where an item is in a group, of shape (items, groups), dense or
    sparse. Returns the mean surplus, shrunk with `GENRE_STRENGTH` ratings of surplus 0, and rated
    items (count), both of shape (users, groups).
    """
    cells = (rows.user, rows.item)
    shape = (len(rows.users), groups.shape[0])
    total, seen = (
        _dense(csr_matrix((values, cells), shape=shape) @ groups)
        for values in (rest, np.ones(len(rows)))
    )
    return total / (seen + GENRE_STRENGTH), seen


def _dense(matrix: Any) -> Floats:
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix)


def stand_ins(rows: HumanRows, catalogue: Catalogue, mean: float, tastes: Tastes) -> Profiles:
    """Profiles of the users of `rows` as if they had stated their genres and described their taste.

    Users without rows are neutral. ``tastes`` are the beliefs about the users after these rows:
    their first column is the leniency. The profiles have no history: their `tastes` are 0.
    """
    size = len(rows.users)
    leniency = tastes.mean[:, 0]
    affinity, residual = genre_surplus(rows, catalogue, mean, leniency)
    cells = (rows.user, rows.item)
    shape = (size, len(catalogue.index))
    liked = csr_matrix(((residual > 0).astype(np.float32), cells), shape=shape)
    vectors = np.asarray(liked @ catalogue.vectors, dtype=np.float32)
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return Profiles(
        leniency=leniency,
        likes=(affinity > GENRE_THRESHOLD).astype(np.float32),
        dislikes=(affinity < -GENRE_THRESHOLD).astype(np.float32),
        vectors=np.asarray(vectors / np.where(length > 0, length, 1.0), dtype=np.float32),
        tastes=np.zeros((size, catalogue.taste.shape[1])),
        variance=tastes.variance,
    )
