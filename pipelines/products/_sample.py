"""Drawing products over categories in proportion to their sizes (BIEL, appendix C)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from pipelines.seeding import U64, combine

__all__ = ["quotas", "row_keys", "sample_mask"]


def quotas(sizes: Mapping[str, int], total: int) -> dict[str, int]:
    """How many to draw of each category: its share of ``total``, to within one.

    Largest remainders, ties by name; all of everything if there are no more than ``total``.

    >>> quotas({"Books": 60, "Toys": 30, "Games": 10}, 9)
    {'Books': 5, 'Toys': 3, 'Games': 1}
    """
    everything = sum(sizes.values())
    if total >= everything:
        return dict(sizes)
    shares = {name: divmod(size * total, everything) for name, size in sizes.items()}
    drawn = {name: whole for name, (whole, _) in shares.items()}
    order = sorted(shares, key=lambda name: (-shares[name][1], name))
    for name in order[: total - sum(drawn.values())]:
        drawn[name] += 1
    return drawn


def row_keys(ids: pl.Series, seed: int) -> U64:
    """A pseudo-random number for each (ASCII) id, from (seed, id) alone; of shape (n,).

    The same for the same id whatever other ids there are, and on every machine.
    """
    if ids.is_empty():
        return np.zeros(0, dtype=np.uint64)
    width = -(-int(ids.str.len_bytes().max()) // 8) * 8  # type: ignore[arg-type]  # not empty
    raw = str(ids.str.pad_end(width, "\0").str.join("").item()).encode()
    blocks = np.frombuffer(raw, dtype="<u8").reshape(len(ids), width // 8)
    keys = combine(seed, np.zeros(len(ids), dtype=np.uint64))
    for column in blocks.T:
        # A block of padding changes nothing, so that a longer id elsewhere changes no key.
        keys = np.where(column == 0, keys, combine(keys, column))
    return keys


def sample_mask(ids: pl.Series, categories: pl.Series, total: int, seed: int) -> pl.Series:
    """Which products are drawn: of each category its quota, those with the least keys.

    Parameters
    ----------
    ids, categories
        Of each product, of shape (n,); ids are unique.
    total
        Products to draw over all categories (count); 0 draws all.
    seed
        Seed of the draw.

    Returns
    -------
    Boolean series of shape (n,).
    """
    if not total or total >= len(ids):
        return pl.Series("drawn", [True], dtype=pl.Boolean).new_from_index(0, len(ids))
    frame = pl.DataFrame({"category": categories.cast(pl.String), "key": row_keys(ids, seed)})
    sizes = dict(frame.group_by("category").len().sort("category").iter_rows())
    allowed = pl.DataFrame(
        list(quotas(sizes, total).items()),
        schema={"category": pl.String, "quota": pl.UInt32},
        orient="row",
    )
    return (
        frame.with_columns(rank=pl.col("key").rank("ordinal").over("category"))
        .join(allowed, on="category", how="left", maintain_order="left")
        .select(drawn=pl.col("rank") <= pl.col("quota"))
        .to_series()
    )
