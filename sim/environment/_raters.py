"""Raters as the environment asks them: a batch of live pairs, each with its memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from pipelines.errors import ConfigError, ContractError, ReleaseError
from pipelines.hints import nearest
from pipelines.renames import current_setting
from pipelines.scales import RatingScale, scale_named

if TYPE_CHECKING:
    from pipelines.llm.engines import Engine
    from pipelines.raters import LiveRater, LiveStatistical, Rater, RatingBatch
    from sim._release import Release
    from sim.environment._catalogue import Cast, Catalogue

__all__ = [
    "RATERS",
    "LiveStepRater",
    "StatisticalStepRater",
    "StepRater",
    "open_rater",
]

#: Names that :func:`open_rater` takes.
RATERS = ("statistical", "replay", "llm")

#: Raters that need no language model (the registry's built-in ones).
_WITHOUT_MODEL = frozenset({"statistical", "random", "mean"})

#: Tables that the statistical rater is fitted on; embeddings are used where there are any.
_FITTED_ON = ("items", "item_stats", "interactions", "splits")

#: Columns of `preference_scores` that are replayed.
_REPLAYED = (
    "persona_id",
    "item_id",
    "rater",
    "scale",
    "status",
    "probabilities",
    "prompt_version",
)

#: Pairs of a sweep over all items that are asked about at once (count).
_SWEPT = 4096

_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]


@runtime_checkable
class StepRater(Protocol):
    """The part of a rater that an environment needs; can be shared between environments.

    Attributes
    ----------
    name
        Who rates, such as ``statistical``.
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
        self, personas: _Ints, items: _Ints, past: _Ints, ratings: _Floats, met: _Ints | None = None
    ) -> RatingBatch:
        """Rate one pair per row; see :meth:`pipelines.raters.LiveRater.rate`."""
        ...

    def sweep(self, persona: int, past: _Ints, ratings: _Floats) -> _Floats:
        """Expected rating of every item with a memory of shape (k,); NaN where there is none."""
        ...

    def explain(self, persona: int, item: int, past: _Ints, ratings: _Floats) -> dict[str, float]:
        """What moves the expected rating, by name, in units of the scale; empty if unknown."""
        ...


def open_rater(
    rater: str | Rater | Engine | StepRater, release: Release, catalogue: Catalogue, cast: Cast
) -> StepRater:
    """A rater on a release.

    Parameters
    ----------
    rater
        ``statistical``, ``replay`` or ``llm`` (the engine that the settings name); or a rater, or
        an engine (its answers are asked for with the release's scoring settings), or what this
        function gave before.
    release, catalogue, cast
        The release and its items and personas as the environment numbers them.

    Raises
    ------
    ConfigError
        If there is no such rater, or its engine can't be opened.
    ReleaseError
        If the release lacks a table that the rater needs.
    """
    from pipelines.llm.engines import Engine
    from pipelines.raters import Rater

    named: Mapping[str, Callable[[Release, Catalogue, Cast], StepRater]] = {
        "statistical": StatisticalStepRater,
        "replay": _replayed,
        "llm": _from_settings,
    }
    if isinstance(rater, str):
        name: str = current_setting(rater, "rater")
        if name in named:
            return named[name](release, catalogue, cast)
        raise ConfigError("unknown rater", where=repr(name), hint=nearest(name, RATERS))
    if isinstance(rater, Engine):
        return _from_engine(rater, release, catalogue, cast)
    if isinstance(rater, StepRater):
        return rater
    if isinstance(rater, Rater):
        return LiveStepRater(_live(rater, release, cast))
    raise ConfigError(
        "neither a rater nor an engine", where=type(rater).__name__, hint="see open_rater"
    )


class LiveStepRater:
    """A live rater of the scoring stage."""

    def __init__(self, live: LiveRater, *, language_model: bool | None = None) -> None:
        self._live = live
        self.name, self.scale = live.name, live.scale
        self.language_model = (
            live.name not in _WITHOUT_MODEL if language_model is None else language_model
        )
        self.note = f"Ratings are those of the rater {self.name}" + (
            ", a language model." if self.language_model else ": no language model was used."
        )
        self._size = 0

    def rate(
        self, personas: _Ints, items: _Ints, past: _Ints, ratings: _Floats, met: _Ints | None = None
    ) -> RatingBatch:
        """Rate one pair per row."""
        return self._live.rate(personas, items, past, ratings, met)

    def sweep(self, persona: int, past: _Ints, ratings: _Floats) -> _Floats:
        """Expected rating of every item: as many questions as there are items."""
        everything = np.arange(self._live.items, dtype=np.int64)
        out = np.empty(len(everything))
        for start in range(0, len(everything), _SWEPT):
            part = everything[start : start + _SWEPT]
            again = (len(part), len(past))
            out[part] = self._live.rate(
                np.full(len(part), persona),
                part,
                np.broadcast_to(past, again),
                np.broadcast_to(ratings, again),
            ).expected
        return out

    def explain(self, persona: int, item: int, past: _Ints, ratings: _Floats) -> dict[str, float]:
        """Nothing: it doesn't say."""
        del persona, item, past, ratings
        return {}


class StatisticalStepRater:
    """The statistical rater, fitted on the release's training ratings; needs no language model.

    The scale and the seed are those that the release was scored with (its settings), so that a
    persona here is as lenient as in ``preference_scores``.
    """

    language_model = False
    note = "The rater is statistical: a model fitted on human ratings; no language model was used."

    def __init__(self, release: Release, catalogue: Catalogue, cast: Cast) -> None:
        from pipelines.raters import LiveStatistical, fit_statistical

        del catalogue
        release.require(*_FITTED_ON)
        scoring: Mapping[str, Any] = release.settings.get("scoring", {})
        items = release["items"].polars().sort("item_id")
        optional: dict[str, Any] = {
            name: release[name].polars()
            for name in ("item_embeddings", "persona_embeddings")
            if name in release
        }
        rater = fit_statistical(
            scale=scale_named(scoring.get("scale", "1-10")),
            items=items,
            item_stats=release["item_stats"].polars(),
            interactions=release["interactions"].lazy(),
            splits=release["splits"].lazy(),
            seed=int(scoring.get("seed", 0)),
            taste=str(scoring.get("taste", "drawn")),
            **optional,
        )
        self._live: LiveStatistical = LiveStatistical(rater, cast.frame, items)
        self.scale = rater.scale
        self.name = rater.name

    def rate(
        self, personas: _Ints, items: _Ints, past: _Ints, ratings: _Floats, met: _Ints | None = None
    ) -> RatingBatch:
        """Rate one pair per row."""
        return self._live.rate(personas, items, past, ratings, met)

    def sweep(self, persona: int, past: _Ints, ratings: _Floats) -> _Floats:
        """Expected rating of every item."""
        return self._live.sweep(persona, past, ratings).expected

    def explain(self, persona: int, item: int, past: _Ints, ratings: _Floats) -> dict[str, float]:
        """How far each effect of the model moves the expected rating."""
        return self._live.effects(persona, item, past, ratings)


def _live(rater: Rater, release: Release, cast: Cast) -> LiveRater:
    from pipelines.raters import live_rater

    return live_rater(rater, cast.frame, release["items"].polars().sort("item_id"))


def _replayed(release: Release, catalogue: Catalogue, cast: Cast) -> StepRater:
    """The release's stored scores; a pair that was not scored has no rating."""
    from pipelines.raters import ReplayRater

    del catalogue
    release.require("preference_scores")
    try:
        stored = ReplayRater(release["preference_scores"].polars(_REPLAYED))
    except (ConfigError, ContractError) as error:
        raise ReleaseError(str(error), where=f"{release.ref} preference_scores") from error
    rater = LiveStepRater(
        _live(stored, release, cast), language_model=stored.of not in _WITHOUT_MODEL
    )
    rater.name = f"replay of {stored.of}"
    rater.note = f"Ratings are drawn from the stored scores of the rater {stored.of}" + (
        "." if rater.language_model else ": no language model was used."
    )
    return rater


def _tables(release: Release) -> dict[str, Any]:
    """What a language model's rater may be told of the items besides their own rows."""
    both = "item_stats" in release and "interactions" in release
    return {
        "items": release["items"].polars().sort("item_id"),
        "item_stats": release["item_stats"].polars() if both else None,
        "interactions": release["interactions"].lazy() if both else None,
        "domain": release.domain,
    }


def _from_settings(release: Release, catalogue: Catalogue, cast: Cast) -> StepRater:
    """The language model that the settings name, on the scale the release was scored on."""
    from pipelines.config import load_settings
    from pipelines.raters import open_rater as open_scoring

    del catalogue
    made = release.settings
    scoring = {**made.get("scoring", {}), "rater": "llm", "ensemble": ()}
    named = made.get("engine", {}).get("kind", "none") != "none"
    # A release that was scored without a model names none: the present settings do.
    engine = {"engine": made["engine"]} if named else {}
    settings = load_settings(overrides={"scoring": scoring, **engine})
    return LiveStepRater(
        _live(open_scoring(settings, **_tables(release)), release, cast), language_model=True
    )


def _from_engine(engine: Engine, release: Release, catalogue: Catalogue, cast: Cast) -> StepRater:
    from pipelines.config import ScoringSettings
    from pipelines.raters import LLMRater, source_scale
    from pipelines.scales import SCALES

    del catalogue
    scoring = ScoringSettings.model_validate(dict(release.settings.get("scoring", {})))
    tables = _tables(release)
    interactions = tables.pop("interactions")
    rater = LLMRater(
        engine,
        scale_named(scoring.scale),
        domain=tables["domain"],
        shots=scoring.shots,
        system=scoring.system,
        system_role=scoring.system_role,
        history=scoring.history,
        catalogue=tables["items"],
        item_stats=tables["item_stats"],
        source=SCALES["0.5-5"] if interactions is None else source_scale(interactions),
    )
    return LiveStepRater(_live(rater, release, cast), language_model=True)
