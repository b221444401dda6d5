"""The real users that personas stand for: their interactions and traits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipelines.errors import ReleaseError
from pipelines.seeding import hash_ids
from sim.environment._catalogue import Cast, Catalogue

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from sim._release import Release


def split_rows(release: Release, splits: Sequence[str]) -> pl.DataFrame:
    """Interactions of the named splits: ``user_id``, ``item_id``, ``rating``."""
    import polars as pl

    release.require("interactions", "splits")
    selected = release["splits"].lazy().filter(pl.col("split").is_in(list(splits)))
    rows = release["interactions"].lazy().select("user_id", "item_id", "rating")
    return rows.join(selected.select("user_id", "item_id"), on=["user_id", "item_id"]).collect()


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


def known_items(release: Release, splits: Sequence[str] = ("train",)) -> npt.NDArray[np.int64]:
    """Items that matched personas have rated in the named splits: what to mask.

    Simulations mask ``train``, and ``test`` too where their feedback is trained on (as Agent4Rec
    does). Offline metrics mask ``train`` and ``validation``.

    Item numbers of shape (personas, h), padded with -1 at the end, in the form that ``seen`` of
    :meth:`sim.recommenders.Recommender.recommend` takes; h is 0 if no persona is matched.
    """
    users = persona_users(release)
    if not any(users):
        return np.zeros((len(users), 0), np.int64)
    return histories(split_rows(release, splits), users, Catalogue.read(release).ids)


def histories(
    rows: pl.DataFrame, users: Sequence[str | None], items: Sequence[str]
) -> npt.NDArray[np.int64]:
    """Item numbers of each user's rows, ascending, of shape (users, h), padded with -1."""
    import polars as pl

    numbers = pl.DataFrame({"item_id": items}).with_row_index("item")
    pairs = rows.select("user_id", "item_id").unique().join(numbers, on="item_id", how="left")
    if pairs["item"].null_count():
        item = pairs.filter(pl.col("item").is_null())["item_id"].sort()[0]
        raise ReleaseError("an interaction with an unknown item", where=f"interactions, {item}")
    lists = pairs.sort("user_id", "item").group_by("user_id", maintain_order=True).agg("item")
    per_user = pl.DataFrame({"user_id": users}, schema={"user_id": pl.String}).join(
        lists, on="user_id", how="left", maintain_order="left"
    )["item"]
    sizes = per_user.list.len().fill_null(0).to_numpy()
    out = np.full((len(users), int(sizes.max(initial=0))), -1, np.int64)
    out[np.arange(out.shape[1]) < sizes[:, None]] = per_user.explode().drop_nulls().to_numpy()
    return out


def persona_traits(release: Release) -> pl.DataFrame:
    """Traits of every persona: activity, conformity, diversity, mean rating, pickiness.

    A matched persona has those of its user. Any other borrows those of one person of
    ``training_traits``, chosen by a hash of its id: the same id has the same person as long as the
    table has the same users.

    One row per persona, in Cast order: ``persona_id``, ``user_id`` (whose traits they are),
    ``matched``, and the other columns of the table ``training_traits``.

    Raises
    ------
    ReleaseError
        If the release lacks ``training_traits``, or a matched user is not in it.
    """
    import polars as pl

    release.require("training_traits")
    people = release["training_traits"].polars().sort("user_id")
    if people.is_empty():
        raise ReleaseError("no user has traits to borrow", where=f"{release.ref}, training_traits")
    ids, users = Cast.read(release).ids, persona_users(release)
    borrowed = people["user_id"].gather((hash_ids(ids) % np.uint64(people.height)).astype(np.int64))
    matched = pl.Series(users, dtype=pl.String)
    frame = pl.DataFrame(
        {
            "persona_id": ids,
            "user_id": matched.fill_null(borrowed),
            "matched": matched.is_not_null(),
        }
    ).join(people, on="user_id", how="left", maintain_order="left")
    missing = frame.filter(pl.col("activity").is_null())["user_id"]
    if len(missing):
        raise ReleaseError("a matched user has no traits", where=f"training_traits, {missing[0]}")
    return frame
