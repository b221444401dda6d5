"""Stored scores as a rater."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from pipelines.errors import ConfigError, ContractError
from pipelines.raters.protocol import (
    OK,
    BoundRater,
    Floats,
    Ints,
    RatingBatch,
    TableRater,
    asks_model,
)
from pipelines.renames import RENAMED
from pipelines.scales import scale_named

_KEY = ("persona_id", "item_id")


class ReplayRater(TableRater):
    """Answers from a table of `preference_scores`; needs no model.

    Histories are ignored: a stored score stands for the history that it was made with. A pair that
    is not stored is `invalid`, with a note. ``rater`` selects the scores if the table holds several
    raters' (else ConfigError). ContractError if the table is on several scales, holds
    a pair twice or a distribution of the wrong length.
    """

    needs = ("preference_scores",)

    def __init__(self, scores: pl.DataFrame, *, rater: str | None = None) -> None:
        scores = scores.with_columns(pl.col("rater").replace(RENAMED))
        names = scores["rater"].unique().sort().to_list()
        if (rater is None and len(names) != 1) or (rater is not None and rater not in names):
            raise ConfigError(
                "there are no scores to replay" if not names else "no single rater to replay",
                where=f"rater {rater}",
                hint=f"the table has {', '.join(names) or 'no rows'}",
            )
        #: Rater of the scores.
        self.of = rater or names[0]
        self.name = f"replay:{self.of}"
        scores = scores.filter(pl.col("rater") == self.of)
        scales = scores["scale"].unique().sort().to_list()
        if len(scales) != 1:
            raise ContractError("scores must be on one scale", where=f"scale: {scales}")
        self.scale = scale_named(scales[0])
        twice = scores.select(_KEY).is_duplicated()
        if twice.any():
            raise ContractError(
                f"{int(twice.sum())} rows score a pair that another row scores too",
                where="preference_scores",
                details={"rows": scores.filter(twice).select(_KEY).head(10).to_dicts()},
            )
        ok = scores["status"] == OK
        wrong = scores.filter(ok)["probabilities"].list.len().fill_null(0) != len(self.scale)
        if wrong.any():
            raise ContractError(
                f"{int(wrong.sum())} distributions do not have {len(self.scale)} answers",
                where=f"preference_scores, scale {self.scale.name}",
            )
        self._probabilities = np.full((scores.height, len(self.scale)), np.nan)
        stored = scores.filter(ok)["probabilities"].explode().to_numpy()
        self._probabilities[ok.to_numpy()] = stored.reshape(-1, len(self.scale))
        self._status = scores["status"].to_list()
        self._keys = _column(scores, "answer_key")
        self._keyed = self._keys is not None if "answer_key" in scores.columns else None
        versions = scores["prompt_version"].drop_nulls().unique().to_list()
        self._version = versions[0] if len(versions) == 1 else None
        self.places = scores.select(_KEY).with_row_index("place")

    def rate_pairs(
        self, personas: pl.DataFrame, items: pl.DataFrame, past: pl.DataFrame | None, pairs: Ints
    ) -> RatingBatch:
        """Stored distributions."""
        del past
        return self.bind(personas, items).rate(*pairs.T)

    def bind(self, personas: pl.DataFrame, items: pl.DataFrame) -> _BoundReplay:
        """Its array form: a look-up."""
        return _BoundReplay(self, personas, items)

    @property
    def language_model(self) -> bool:
        """True if a language model made the scores; judged by the rater name without keys."""
        return asks_model(self.of) if self._keyed is None else self._keyed

    def at(self, place: Ints) -> RatingBatch:
        """Scores of stored rows, of shape (n,); -1 stands for a pair that is not stored."""
        stored = place >= 0
        probabilities = np.full((len(place), len(self.scale)), np.nan)
        probabilities[stored] = self._probabilities[place[stored]]
        places = place.tolist()
        return RatingBatch(
            self.scale,
            probabilities,
            [self._status[p] if p >= 0 else "invalid" for p in places],
            None if self._keys is None else [self._keys[p] if p >= 0 else None for p in places],
            [None if p >= 0 else "no score of this pair is stored" for p in places],
            prompt_version=self._version,
        )

    def metadata(self) -> dict[str, Any]:
        """Rater of the scores, their number, and the failures among them."""
        failed = sum(status != OK for status in self._status)
        replayed = {"rater": self.of, "pairs": len(self._status), "failed": failed}
        return self.described(replayed=replayed)


class _BoundReplay(BoundRater):
    """Stored scores by row numbers of fixed personas and items; memories play no part."""

    def __init__(self, rater: ReplayRater, personas: pl.DataFrame, items: pl.DataFrame) -> None:
        super().__init__(rater, personas, items)
        self.name = f"replay of {rater.of}"
        self.language_model = rater.language_model
        self.note = f"Ratings are drawn from the stored scores of the rater {rater.of}" + (
            "." if self.language_model else ": no language model was used."
        )
        self._stored = rater
        self._size = items.height
        rows = rater.places
        for key, frame in (("persona_id", personas), ("item_id", items)):
            rows = rows.join(frame.select(key).with_row_index(f"{key}_row"), on=key, how="inner")
        pair = rows["persona_id_row"].cast(pl.Int64) * self._size + rows["item_id_row"]
        order = pair.arg_sort()
        self._pairs = pair.gather(order).to_numpy()
        self._place = rows["place"].gather(order).cast(pl.Int64).to_numpy()

    def rate(
        self,
        personas: Ints,
        items: Ints,
        past: Ints | None = None,  # noqa: ARG002 (base)
        ratings: Floats | None = None,  # noqa: ARG002 (base)
        met: Ints | None = None,  # noqa: ARG002 (base)
    ) -> RatingBatch:
        """Stored distributions; `invalid`, with a note, where a pair is not stored."""
        pairs = personas * self._size + items
        place = np.full(len(pairs), -1, np.int64)
        if len(self._pairs):
            at = np.minimum(np.searchsorted(self._pairs, pairs), len(self._pairs) - 1)
            place = np.where(self._pairs[at] == pairs, self._place[at], -1)
        return self._stored.at(place)


def _column(scores: pl.DataFrame, name: str) -> list[str | None] | None:
    if name not in scores.columns or scores[name].null_count() == scores.height:
        return None
    return list(scores[name])
