"""Parts that the single and the vector environment share: properties, spaces, observations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from pipelines.scales import RatingScale
from sim._release import Release
from sim.environment._core import Core
from sim.environment._world import Catalogue, PersonaTable, World

if TYPE_CHECKING:
    from pipelines.raters import BoundRater


class WorldViews:
    """Properties of an environment over a world."""

    world: World
    core: Core

    def _action_space(self, items: int) -> spaces.Space[Any]:
        return spaces.Discrete(items)

    def _masks(self) -> npt.NDArray[np.bool_]:
        """Items that are new to each persona, once per place of a slate: (size, actions)."""
        return np.tile(self.core.unseen(), (1, self.core.slots))

    @property
    def release(self) -> Release:
        """The release."""
        return self.world.release

    @property
    def catalogue(self) -> Catalogue:
        """Items by action."""
        return self.world.catalogue

    @property
    def cast(self) -> PersonaTable:
        """Personas by number."""
        return self.world.cast

    @property
    def rater(self) -> BoundRater:
        """The rater; can be shared with other environments."""
        return self.world.rater

    @property
    def scale(self) -> RatingScale:
        """The scale of the ratings."""
        return self.core.scale

    @property
    def length_limit(self) -> int:
        """Longest episode (steps)."""
        return self.core.options.length_limit

    @property
    def history_length(self) -> int:
        """Past items in an observation (count)."""
        return self.core.options.history_length


def observation_space(core: Core) -> spaces.Dict:
    """The space of one environment's observations."""
    items, highest = len(core.world.catalogue), float(core.scale.answers[-1])
    k = core.options.history_length
    parts: dict[str, spaces.Space[Any]] = {
        "persona": spaces.Discrete(len(core.world.cast)),
        "age": spaces.Box(0, 120, (1,), np.float32),
        "gender": spaces.Discrete(len(PersonaTable.GENDERS)),
    }
    if core.options.observation == "ratings":
        lowest = min(0.0, float(core.scale.low))
        parts["ratings"] = spaces.Box(lowest, highest, (items,), np.float32)
    else:
        parts["recent_items"] = spaces.Box(-1, items - 1, (k,), np.int64)
        parts["recent_ratings"] = spaces.Box(-1, highest, (k,), np.float32)
    if core.options.observation != "compact":
        parts["seen"] = spaces.MultiBinary(items)
    return spaces.Dict(parts)


def observe(core: Core, rows: npt.NDArray[np.int64] | None = None) -> dict[str, npt.NDArray[Any]]:
    """Observations of some environments (default all), the first axis.

    They are copies, so that they stay as they are.
    """
    chosen: Any = slice(None) if rows is None else rows
    persona, cast = core.persona[chosen], core.world.cast
    observations: dict[str, npt.NDArray[Any]] = {
        "persona": persona.copy(),
        "age": cast.ages[persona][:, None],
        "gender": cast.genders[persona],
    }
    if core.rated is not None:
        observations["ratings"] = core.rated[chosen].copy()
    else:
        items, ratings = core.memory.newest(core.options.history_length, rows)
        observations["recent_items"] = items
        observations["recent_ratings"] = ratings.astype(np.float32)
    if core.seen is not None:
        observations["seen"] = core.seen[chosen].copy()
    return observations
