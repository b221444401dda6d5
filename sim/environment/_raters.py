"""Raters as the environment asks them: one persona, one item, the memory of the episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from pipelines.errors import ConfigError, ReleaseError
from pipelines.scales import RatingScale, scale_named

if TYPE_CHECKING:
    import polars as pl

    from sim._release import Release
    from sim.environment._catalogue import Cast, Catalogue

__all__ = ["EmbeddedStepRater", "Rated", "ReplayStepRater", "StepRater", "open_rater"]

#: Raters that need no language model (the registry's built-in ones).
_WITHOUT_MODEL = frozenset({"embedded", "random", "mean"})

#: Tables that the embedded rater is fitted on; embeddings are used where there are any.
_FITTED_ON = ("items", "item_stats", "interactions", "splits")

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rated:
    """What a rater says about one persona and one item.

    Attributes
    ----------
    status
        ``ok``, or why there is no rating: ``truncated``, ``invalid``, ``refused``,
        ``engine_error``, ``missing``.
    probabilities
        Probability of each answer of the scale, ascending; ``None`` unless ``ok``.
    expected
        Mean of the distribution, on the scale; ``None`` unless ``ok``.
    """

    status: str
    probabilities: _Floats | None = None
    expected: float | None = None


class StepRater(Protocol):
    """The part of a rater that an environment needs.

    Attributes
    ----------
    name
        Who rates, such as ``embedded``.
    language_model
        Whether a language model made the ratings.
    note
        One sentence on that, for people.
    scale
        The scale of its answers.
    """

    name: str
    language_model: bool
    note: str
    scale: RatingScale

    def rate(
        self, persona: int, item: int, items: Sequence[int], ratings: Sequence[float]
    ) -> Rated:
        """Rate one item, given the episode so far (oldest first)."""
        ...

    def expected(self, persona: int, items: Sequence[int], ratings: Sequence[float]) -> _Floats:
        """Expected rating of every item, of shape (n_items,); NaN where there is no rating."""
        ...

    def explain(
        self, persona: int, item: int, items: Sequence[int], ratings: Sequence[float]
    ) -> dict[str, float]:
        """What moves the expected rating, by name, in units of the scale; empty if unknown."""
        ...


def open_rater(name: str, release: Release, catalogue: Catalogue, cast: Cast) -> StepRater:
    """A rater on a release.

    Parameters
    ----------
    name
        ``embedded`` or ``replay``.
    release, catalogue, cast
        The release and its items and personas as the environment numbers them.

    Raises
    ------
    ConfigError
        If there is no such rater.
    ReleaseError
        If the release lacks a table that the rater needs.
    """
    if name == "embedded":
        return EmbeddedStepRater(release, catalogue, cast)
    if name == "replay":
        return ReplayStepRater(release, catalogue, cast)
    raise ConfigError("unknown rater", where=repr(name), hint="one of 'embedded', 'replay'")


class EmbeddedStepRater:
    """The embedded rater, fitted on the release's training ratings; needs no language model.

    The scale and the seed are those that the release was scored with (its settings), so that a
    persona here is as lenient as in ``preference_scores``.
    """

    language_model = False
    note = "The rater is embedded: a model fitted on human ratings; no language model was used."

    def __init__(self, release: Release, catalogue: Catalogue, cast: Cast) -> None:
        from pipelines.raters import fit_embedded

        release.require(*_FITTED_ON)
        scoring: Mapping[str, Any] = release.settings.get("scoring", {})
        self._items = release["items"].polars().sort("item_id")
        self._personas = cast.frame
        self._ids = catalogue.ids
        optional = {
            name: release[name].polars()
            for name in ("item_embeddings", "persona_embeddings")
            if name in release
        }
        self._rater = fit_embedded(
            scale=scale_named(scoring.get("scale", "1-10")),
            items=self._items,
            item_stats=release["item_stats"].polars(),
            interactions=release["interactions"].lazy(),
            splits=release["splits"].lazy(),
            seed=int(scoring.get("seed", 0)),
            **optional,
        )
        self.scale = self._rater.scale
        self.name = self._rater.name

    def rate(
        self, persona: int, item: int, items: Sequence[int], ratings: Sequence[float]
    ) -> Rated:
        """The distribution for one item."""
        who = self._personas.slice(persona, 1)
        what = self._items.slice(item, 1)
        past = self._history(persona, items, ratings)
        batch = self._rater.rate(who, what, past)
        status = str(batch.status[0])
        if status != "ok":
            return Rated(status)
        return Rated("ok", batch.probabilities[0], float(batch.expected[0]))

    def explain(
        self, persona: int, item: int, items: Sequence[int], ratings: Sequence[float]
    ) -> dict[str, float]:
        """How far each effect of the model moves the expected rating."""
        effects = self._rater.effects(
            self._personas.slice(persona, 1),
            self._items.slice(item, 1),
            self._history(persona, items, ratings),
        )
        return {name: float(values[0]) for name, values in effects.items()}

    def expected(self, persona: int, items: Sequence[int], ratings: Sequence[float]) -> _Floats:
        """Expected rating of every item."""
        who = self._personas.slice(persona, 1)
        past = self._history(persona, items, ratings)
        return self._rater.rate(who, self._items, past).expected

    def _history(
        self, persona: int, items: Sequence[int], ratings: Sequence[float]
    ) -> pl.DataFrame:
        import polars as pl

        return pl.DataFrame(
            {
                "persona_id": [self._personas["persona_id"][persona]] * len(items),
                "item_id": [self._ids[item] for item in items],
                "rating": list(ratings),
            },
            schema={"persona_id": pl.String, "item_id": pl.String, "rating": pl.Float64},
        )


class ReplayStepRater:
    """Distributions stored in the release's ``preference_scores``; the memory plays no part.

    A pair that was not scored, and one whose answer failed, has no rating.
    """

    def __init__(self, release: Release, catalogue: Catalogue, cast: Cast) -> None:
        import polars as pl

        release.require("preference_scores")
        scores = release["preference_scores"].lazy()
        self._items = len(catalogue)
        rows = (
            scores.select(
                "persona_id", "item_id", "rater", "scale", "status", "probabilities", "expected"
            )
            .join(_numbered("persona_id", cast.ids), on="persona_id", how="inner")
            .join(_numbered("item_id", catalogue.ids), on="item_id", how="inner")
            .with_columns(pair=pl.col("persona_id_n") * self._items + pl.col("item_id_n"))
            .sort("pair")
            .collect()
        )
        raters, scales = rows["rater"].unique().sort(), rows["scale"].unique().sort()
        if len(raters) != 1 or len(scales) != 1:
            raise ReleaseError(
                f"replay needs scores of one rater on one scale, not of {len(raters)} "
                f"on {len(scales)}",
                where=f"{release.ref} preference_scores",
            )
        self.scale = scale_named(scales[0])
        self.name = f"replay of {raters[0]}"
        self.language_model = raters[0] not in _WITHOUT_MODEL
        self.note = f"Ratings are drawn from the stored scores of the rater {raters[0]}" + (
            "." if self.language_model else ": no language model was used."
        )
        self._pairs = rows["pair"].to_numpy()
        self._status = rows["status"]
        self._expected = rows["expected"].to_numpy().astype(np.float64)
        ok = (self._status == "ok").to_numpy()
        self._row = np.where(ok, np.cumsum(ok) - 1, -1)
        self._probabilities = self._distributions(rows.filter(ok), release)

    def _distributions(self, rows: pl.DataFrame, release: Release) -> _Floats:
        answers = len(self.scale)
        lengths = rows["probabilities"].list.len()
        if not bool((lengths == answers).all()):
            raise ReleaseError(
                f"scores without {answers} probabilities",
                where=f"{release.ref} preference_scores",
                hint=f"scale {self.scale.name} has {answers} answers",
            )
        flat = rows["probabilities"].explode().to_numpy()
        return np.asarray(flat, np.float64).reshape(rows.height, answers)

    def rate(
        self, persona: int, item: int, items: Sequence[int], ratings: Sequence[float]
    ) -> Rated:
        """The stored distribution, or the reason why there is none."""
        del items, ratings
        pair = persona * self._items + item
        at = int(np.searchsorted(self._pairs, pair))
        if at == len(self._pairs) or self._pairs[at] != pair:
            return Rated("missing")
        if self._row[at] < 0:
            return Rated(str(self._status[at]))
        return Rated("ok", self._probabilities[self._row[at]], float(self._expected[at]))

    def expected(self, persona: int, items: Sequence[int], ratings: Sequence[float]) -> _Floats:
        """Stored means by item; NaN where there is none."""
        del items, ratings
        low, high = np.searchsorted(
            self._pairs, [persona * self._items, (persona + 1) * self._items]
        )
        out = np.full(self._items, np.nan)
        known = self._pairs[low:high] - persona * self._items
        usable = self._row[low:high] >= 0
        out[known[usable]] = self._expected[low:high][usable]
        return out

    def explain(
        self, persona: int, item: int, items: Sequence[int], ratings: Sequence[float]
    ) -> dict[str, float]:
        """Nothing: reasons are not stored."""
        del persona, item, items, ratings
        return {}


def _numbered(key: str, ids: list[str]) -> pl.LazyFrame:
    import polars as pl

    return pl.LazyFrame({key: ids}).with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).alias(f"{key}_n")
    )
