"""Interactions as a matrix of users and items, and the users that personas stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.errors import ConfigError, ReleaseError
from sim.environment import Cast, Catalogue
from sim.recommenders._protocol import Ints

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from sim._release import Release

__all__ = ["InteractionMatrix", "known_items", "persona_users", "split_rows"]

#: Columns that given interactions must have; ``rating`` is needed by mean-rating alone.
REQUIRED = ("user_id", "item_id")


def split_rows(release: Release, splits: Sequence[str]) -> pl.DataFrame:
    """Interactions of the named splits: ``user_id``, ``item_id``, ``rating``.

    Raises
    ------
    ReleaseError
        If the release lacks ``interactions`` or ``splits``.
    """
    import polars as pl

    release.require("interactions", "splits")
    wanted = release["splits"].lazy().filter(pl.col("split").is_in(list(splits)))
    rows = release["interactions"].lazy().select("user_id", "item_id", "rating")
    return rows.join(wanted.select("user_id", "item_id"), on=["user_id", "item_id"]).collect()


def persona_users(release: Release) -> list[str | None]:
    """The ``user_id`` that each persona is matched to, in Cast order; None for the others.

    Matches are the rows of the table ``matched_personas``; a release without it has none.
    """
    ids = Cast.read(release).ids
    if "matched_personas" not in release:
        return [None] * len(ids)
    rows = release["matched_personas"].polars(["persona_id", "user_id"])
    users = dict(zip(rows["persona_id"].to_list(), rows["user_id"].to_list(), strict=True))
    return [users.get(persona) for persona in ids]


def known_items(release: Release, splits: Sequence[str] = ("train",)) -> Ints:
    """Items that matched personas have rated in the named splits: what to mask.

    Simulations mask ``train``, and ``test`` too where their feedback is trained on. Offline
    metrics mask ``train`` and ``validation``.

    Returns
    -------
    Item numbers of shape (personas, h), padded with -1 at the end, in the form that ``seen`` of
    :meth:`Recommender.recommend` takes; h is 0 if no persona is matched.
    """
    users = persona_users(release)
    if not any(users):
        return np.zeros((len(users), 0), np.int64)
    return histories(split_rows(release, splits), users, Catalogue.read(release).ids)


def histories(rows: pl.DataFrame, users: Sequence[str | None], items: list[str]) -> Ints:
    """Item numbers of each user's rows, of shape (users, h), padded with -1."""
    found = InteractionMatrix.build(rows, items, where="interactions")
    number = {user: n for n, user in enumerate(found.users)}
    lengths = np.diff(found.matrix.indptr)
    own = np.array([number.get(user, -1) if user else -1 for user in users], np.int64)
    sizes = np.where(own >= 0, lengths[own], 0)
    out = np.full((len(users), int(sizes.max(initial=0))), -1, np.int64)
    for row, user in enumerate(own):
        if user >= 0:
            start = found.matrix.indptr[user]
            out[row, : sizes[row]] = found.matrix.indices[start : start + sizes[row]]
    return out


@dataclass(frozen=True)
class InteractionMatrix:
    """Interactions of users with items, each pair once.

    Attributes
    ----------
    matrix
        1 where a user has rated an item, of shape (users, items), CSR, float32, with sorted
        item numbers in each row.
    users
        User ids by row, in alphabetical order.
    """

    matrix: Any
    users: list[str]

    @classmethod
    def read(cls, release: Release, interactions: pl.DataFrame | None) -> InteractionMatrix:
        """The given interactions, or the release's training split.

        Raises
        ------
        ConfigError
            If given interactions lack a column or name an unknown item.
        ReleaseError
            If there are no interactions, or the release lacks their tables.
        """
        items = Catalogue.read(release).ids
        given = interactions is not None
        rows = interactions if interactions is not None else split_rows(release, ("train",))
        where = "interactions" if given else f"training split of {release.ref}"
        return cls.build(checked_rows(rows, REQUIRED), items, where=where)

    @classmethod
    def build(cls, rows: pl.DataFrame, items: list[str], *, where: str) -> InteractionMatrix:
        """From rows of ``user_id`` and ``item_id``; items in the order of their numbers."""
        import polars as pl
        from scipy import sparse

        if rows.is_empty():
            raise ReleaseError("no interactions to fit on", where=where)
        numbers = pl.DataFrame({"item_id": items}).with_row_index("item")
        found = rows.select("user_id", "item_id").unique()
        found = found.join(numbers, on="item_id", how="left")
        unknown = found.filter(pl.col("item").is_null())["item_id"]
        if len(unknown):
            raise ConfigError(
                f"{len(unknown):,} interactions with unknown items, such as {unknown.sort()[0]}",
                where=where,
                hint="every item_id must be in the table items",
            )
        users = found["user_id"].unique().sort()
        people = pl.DataFrame({"user_id": users}).with_row_index("user")
        found = found.join(people, on="user_id")
        index = (found["user"].to_numpy(), found["item"].to_numpy())
        shape = (len(users), len(items))
        matrix = sparse.csr_matrix((np.ones(found.height, np.float32), index), shape=shape)
        matrix.sort_indices()
        return cls(matrix, users.to_list())

    def rows_of(self, release: Release) -> Ints:
        """Row of each persona, in Cast order; -1 for a persona without one.

        A persona's row is that of the user it is matched to, or else that of interactions of its
        own, whose ``user_id`` is the persona's id.
        """
        number = {user: n for n, user in enumerate(self.users)}
        ids = zip(Cast.read(release).ids, persona_users(release), strict=True)
        return np.array([number.get(user or persona, -1) for persona, user in ids], np.int64)


def checked_rows(rows: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """The interactions, once they have the columns.

    Raises
    ------
    ConfigError
        Naming the columns that are missing.
    """
    missing = [column for column in columns if column not in rows.columns]
    if missing:
        raise ConfigError(
            f"interactions lack {', '.join(missing)}",
            where="fit",
            hint=f"columns {', '.join(columns)}",
        )
    return rows
