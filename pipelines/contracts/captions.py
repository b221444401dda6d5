"""Contracts of captions. A release holds them where they were made from its own items."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl

from pipelines.contracts._base import Contract, contracts
from pipelines.contracts._columns import ITEM, Model
from pipelines.statuses import CAPTION_STATUSES

__all__ = ["CAPTIONED_DOMAINS", "CAPTIONS"]

#: Domains whose worlds may have posters.
CAPTIONED_DOMAINS = ("movies",)


class Captions(Model):
    """Captions of items' posters (SimUSER, section 3.2.2): one row per item."""

    item_id: pl.String = pa.Field(unique=True, description=ITEM)
    caption: pl.String = pa.Field(
        nullable=True,
        str_length={"min_value": 1},
        description="Caption, in one line; null unless `ok`.",
    )
    captioner: pl.String = pa.Field(
        description="Captioner: `statistical` (pixel statistics), a model's id, or a "
        "plug-in's name."
    )
    image_sha256: pl.String = pa.Field(
        nullable=True,
        str_matches=r"^[0-9a-f]{64}$",
        description="SHA-256 (hex) of the poster's file; null if there is none or it is too large "
        "to read.",
    )
    status: pl.String = pa.Field(
        isin=list(CAPTION_STATUSES),
        description="`ok`, or why there is no caption: `missing`, `corrupt`, `too_large`, "
        "`animated`, `cmyk` (inks without a profile), or the status of a model's answer.",
    )

    @pa.dataframe_check(description="An `ok` row has a caption, and no other row has one.")
    def caption_by_status(cls, data: pa.PolarsData) -> pl.LazyFrame:  # noqa: N805
        """One truth value per row."""
        return data.lazyframe.select(pl.col("caption").is_not_null() == (pl.col("status") == "ok"))


#: The tables by dataset name.
CAPTIONS: dict[str, Contract] = {
    name: contract
    for domain in CAPTIONED_DOMAINS
    for name, contract in contracts(domain, captions=(Captions, "item_id")).items()
}
