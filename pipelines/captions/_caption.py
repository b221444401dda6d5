"""Captions of a domain's items, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.captions._posters import read_posters
from pipelines.captions._protocol import Captioner
from pipelines.errors import ContractError
from pipelines.progress import advance
from pipelines.statuses import CAPTION_STATUSES

#: Posters in memory at a time (count).
_AT_ONCE = 256
_SCHEMA: dict[str, Any] = {
    "item_id": pl.String,
    "caption": pl.String,
    "captioner": pl.String,
    "image_sha256": pl.String,
    "status": pl.String,
}


def caption_items(
    folder: Path,
    items: Sequence[str],
    captioner: Captioner,
) -> pl.DataFrame:
    """One row per item: ``item_id, caption, captioner, image_sha256, status``, sorted by item.

    Posters are those of the world's folder (:func:`read_posters`); the captioner is shown pictures
    only.

    Raises ContractError if the captioner returns another number of captions than there are posters,
    a status that is not known, or an `ok` one without text.
    """
    rows: list[tuple[str, str | None, str, str | None, str]] = []
    ordered = sorted(items)
    for start in range(0, len(ordered), _AT_ONCE):
        posters = list(read_posters(folder, ordered[start : start + _AT_ONCE]))
        pictures = [poster for poster in posters if poster.status == "ok"]
        captions = captioner.caption(pictures) if pictures else []
        if len(captions) != len(pictures):
            raise ContractError(
                f"{len(captions)} captions of {len(pictures)} posters",
                where=f"captioner {captioner.name}",
            )
        made = {p.item_id: c for p, c in zip(pictures, captions, strict=True)}
        for poster in posters:
            caption = made.get(poster.item_id)
            status = poster.status if caption is None else caption.status
            text = None
            if caption is not None and status == "ok":
                text = " ".join((caption.text or "").split())
            if status not in CAPTION_STATUSES or (status == "ok" and not text):
                raise ContractError(
                    f"status {status!r} with {'no text' if not text else 'a text'}",
                    where=f"captioner {captioner.name}, {poster.item_id}",
                    hint=f"a status is one of {', '.join(CAPTION_STATUSES)}; `ok` has a text",
                )
            rows.append((poster.item_id, text, captioner.name, poster.sha256, status))
        advance("captions", len(rows), len(ordered))
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")
