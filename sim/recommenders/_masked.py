"""Recommenders with further masked items, and interactions with feedback to fit them on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from pipelines.errors import ConfigError
from sim.environment import Cast, Catalogue, split_rows
from sim.recommenders._protocol import Ints, Recommender

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from sim._release import Release

Bools = npt.NDArray[np.bool_]
#: Users whose lists are filtered at once (count): bounds the memory of whole lists.
_AT_ONCE = 256


class MaskedRecommender:
    """Another recommender, fitted or not, without some items: the next best ones move up.

    ``mask`` is true for items that are left out, of shape (items,) for everybody or (personas,
    items). A masked item is no history: unlike a seen one it is not folded in. ``note`` is appended
    to the note of `inner`.
    """

    def __init__(self, inner: Recommender, mask: npt.ArrayLike, *, note: str = "") -> None:
        self._inner, self._mask = inner, np.asarray(mask, np.bool_)
        self.name = inner.name
        self.note = f"{inner.note} {note}".strip()

    def fit(self, release: Release, *, interactions: pl.DataFrame | None = None) -> Self:
        """Fit the inner recommender; see :class:`Recommender`.

        Raises ConfigError if the mask has another shape than items or personas and items.
        """
        items, personas = len(Catalogue.read(release)), len(Cast.read(release))
        if self._mask.shape not in ((items,), (personas, items)):
            raise ConfigError(
                f"a mask of shape {self._mask.shape}",
                where=f"recommender {self.name}",
                hint=f"({items},) or ({personas}, {items})",
            )
        self._inner = self._inner.fit(release, interactions=interactions)
        return self

    def recommend(
        self,
        users: npt.ArrayLike,
        k: int,
        *,
        seen: npt.ArrayLike | None = None,
        ratings: npt.ArrayLike | None = None,
    ) -> Ints:
        """See :class:`Recommender`; -1 where nothing unseen and unmasked is left."""
        who = np.asarray(users, np.int64).reshape(-1)
        out = np.full((len(who), k), -1, np.int64)
        for start in range(0, len(who), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            masked = self._of(who[part])
            longer = min(k + int(masked.sum(axis=1).max(initial=0)), self._mask.shape[-1])
            lists = self._inner.recommend(
                who[part],
                max(longer, k),
                seen=None if seen is None else np.asarray(seen)[part],
                ratings=None if ratings is None else np.asarray(ratings)[part],
            )
            valid = (lists >= 0) & ~np.take_along_axis(masked, np.maximum(lists, 0), axis=1)
            first = np.argsort(~valid, axis=1, kind="stable")[:, :k]
            out[part] = np.where(
                np.take_along_axis(valid, first, axis=1),
                np.take_along_axis(lists, first, axis=1),
                -1,
            )
        return out

    def _of(self, users: Ints) -> Bools:
        if self._mask.ndim == 1:
            return np.broadcast_to(self._mask, (len(users), len(self._mask)))
        # A user that does not exist is named by the inner recommender.
        return np.asarray(self._mask[np.clip(users, 0, len(self._mask) - 1)])


def with_feedback(
    release: Release, users: Sequence[str], items: Any, *, rating: float | None = None
) -> pl.DataFrame:
    """The training split and further positive interactions, to fit a recommender on.

    ``users`` and ``items`` are one interaction each: ``user_id`` (or a persona's id, without a
    match) and item number. A pair that is in the training split is added once. ``rating`` is on the
    source's scale, by default the best one. Returns ``user_id``, ``item_id`` and ``rating``,
    ordered by user and item.
    """
    import polars as pl

    from pipelines.raters import source_scale

    train = split_rows(release, ("train",))
    scale = source_scale(release["interactions"].lazy())
    best = scale.high if rating is None else rating
    ids = pl.Series("item_id", Catalogue.read(release).ids, dtype=pl.String)
    numbers = pl.Series(np.asarray(items, np.int64))
    added = pl.DataFrame(
        {"user_id": pl.Series(list(users), dtype=pl.String), "item_id": ids.gather(numbers)}
    ).unique(maintain_order=True)
    added = added.join(train, on=["user_id", "item_id"], how="anti", maintain_order="left")
    rows = added.with_columns(rating=pl.lit(best, train.schema["rating"]))
    return pl.concat([train, rows.select(train.columns)]).sort("user_id", "item_id")
