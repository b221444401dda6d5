"""Properties shared by the single and the vector environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnasium import spaces

from pipelines.scales import RatingScale
from sim._release import Release
from sim.environment._catalogue import Cast, Catalogue
from sim.environment._core import Core
from sim.environment._world import World

if TYPE_CHECKING:
    from pipelines.raters import BoundRater


class WorldViews:
    """Properties of an environment over a world."""

    world: World
    core: Core

    def _action_space(self, items: int) -> spaces.Space[Any]:
        return spaces.Discrete(items)

    @property
    def release(self) -> Release:
        """The release."""
        return self.world.release

    @property
    def catalogue(self) -> Catalogue:
        """Items by action."""
        return self.world.catalogue

    @property
    def cast(self) -> Cast:
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
