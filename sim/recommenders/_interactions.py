"""Interactions as a matrix of users and items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pipelines.errors import ConfigError, ReleaseError
from sim.environment import Catalogue, PersonaTable, persona_users, split_rows
from sim.recommenders._protocol import Ints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim._release import Release


@dataclass(frozen=True)
class InteractionMatrix:
    """Interactions of users with items, each pair once."""

    #: 1 where a user has rated an item, of shape (users, items), CSR, float32, with sorted item
    #: numbers in each row.
    matrix: Any
    #: User ids by row, in alphabetical order.
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
        from scipy import sparse

        items = Catalogue.read(release).ids
        if interactions is None:
            rows, where = split_rows(release, ("train",)), f"training split of {release.ref}"
        else:
            rows, where = checked_rows(interactions, ("user_id", "item_id")), "interactions"
        if rows.is_empty():
            raise ReleaseError("no interactions to fit on", where=where)
        numbers = pl.DataFrame({"item_id": items}).with_row_index("item")
        pairs = rows.select("user_id", "item_id").unique()
        pairs = pairs.join(numbers, on="item_id", how="left")
        unknown = pairs.filter(pl.col("item").is_null())["item_id"]
        if len(unknown):
            raise ConfigError(
                f"{len(unknown):,} interactions with unknown items, such as {unknown.sort()[0]}",
                where=where,
                hint="every item_id must be in the table items",
            )
        users = pairs["user_id"].unique().sort()
        people = pl.DataFrame({"user_id": users}).with_row_index("user")
        pairs = pairs.join(people, on="user_id")
        index = (pairs["user"].to_numpy(), pairs["item"].to_numpy())
        shape = (len(users), len(items))
        matrix = sparse.csr_matrix((np.ones(pairs.height, np.float32), index), shape=shape)
        matrix.sort_indices()
        return cls(matrix, users.to_list())

    def rows_of(self, release: Release) -> Ints:
        """Row of each persona, in PersonaTable order; -1 for a persona without one.

        A persona's row is that of the user it is matched to, or else that of interactions of its
        own, whose ``user_id`` is the persona's id.
        """
        number = {user: n for n, user in enumerate(self.users)}
        ids = zip(PersonaTable.read(release).ids, persona_users(release), strict=True)
        return np.array([number.get(user or persona, -1) for persona, user in ids], np.int64)


def checked_rows(rows: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """The interactions, once they have the columns.

    Raises :class:`ConfigError`: naming the columns that are missing.
    """
    missing = [column for column in columns if column not in rows.columns]
    if missing:
        raise ConfigError(
            f"interactions lack {', '.join(missing)}",
            where="fit",
            hint=f"columns {', '.join(columns)}",
        )
    return rows
