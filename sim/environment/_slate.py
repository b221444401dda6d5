"""The form that shows several items at a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from pipelines.errors import ConfigError
from sim._release import Release
from sim.environment._core import Core
from sim.environment._env import RecommendationEnv
from sim.environment._options import Options
from sim.environment._vector import RecommendationVectorEnv


class SlateEnv(RecommendationEnv):
    """Show a slate of items; the persona takes one of them and rates it.

    Registered as `Understudy/MoviesSlate-v0`, `…/BooksSlate-v0` and `…/GamesSlate-v0`.

    ## Description
    As `RecommendationEnv`, but at every step the agent shows `slate_size` items. The persona
    takes one: item i with probability proportional to exp(eᵢ / τ), eᵢ the expected rating of its
    distribution and τ the `choice_temperature` (the multinomial logit of McFadden, "Conditional
    logit analysis of qualitative choice behavior", 1974, with the expected rating as utility).
    A small τ takes the best, a large one any. It always takes one; an item that is shown twice
    counts once. Only the item that was taken is rated, remembered and rewarded.

    ## Action Space
    `MultiDiscrete([n_items] * slate_size)`: rows of the shown items in `env.catalogue`.

    ## Observation Space
    As `RecommendationEnv`.

    ## Rewards
    The rating of the item that was taken; as `RecommendationEnv`.

    ## Starting State
    As `RecommendationEnv`.

    ## Episode End
    As `RecommendationEnv`; a slate is unrated as soon as one of its items is.

    ## Arguments
    - `slate_size`: items shown at a step, at least 2.
    - `choice_temperature`: τ, in units of the scale, above 0.

    All others as `RecommendationEnv`. `info["place"]` says which place of the slate was taken.

    ## Version History
    - v0: first version; the interface may still change.
    """

    def __init__(
        self,
        release: Release | Path | str = "latest",
        *,
        slate_size: int = 5,
        choice_temperature: float = 1.0,
        **arguments: Any,
    ) -> None:
        _check_slate(slate_size, choice_temperature)
        self._slots, self._temperature = slate_size, choice_temperature
        super().__init__(release, **arguments)

    def _build(self, options: Options) -> None:
        self.core = Core(self.world, options, 1, slots=self._slots, temperature=self._temperature)

    def _action_space(self, items: int) -> spaces.Space[Any]:
        return spaces.MultiDiscrete([items] * self._slots)

    def _shown(self, action: Any) -> npt.NDArray[np.int64]:
        shown = np.asarray(action)
        valid = shown.shape == (self._slots,) and np.issubdtype(shown.dtype, np.integer)
        if not valid or not ((shown >= 0) & (shown < len(self.catalogue))).all():
            raise ConfigError(
                f"the action {action!r} is not a slate of items",
                where=f"{type(self).__name__}.step",
                hint=f"{self._slots} integers from 0 to {len(self.catalogue) - 1}",
            )
        return shown.astype(np.int64)[None]


class SlateVectorEnv(RecommendationVectorEnv):
    """Many independent :class:`SlateEnv`, stepped together as :class:`RecommendationVectorEnv`."""

    _slots = 2

    def __init__(
        self,
        num_envs: int = 1,
        release: Release | Path | str = "latest",
        *,
        slate_size: int = 5,
        choice_temperature: float = 1.0,
        **arguments: Any,
    ) -> None:
        _check_slate(slate_size, choice_temperature)
        self._slots = slate_size
        super().__init__(
            num_envs, release, slots=slate_size, temperature=choice_temperature, **arguments
        )

    def _action_space(self, items: int) -> spaces.Space[Any]:
        return spaces.MultiDiscrete([items] * self._slots)


def _check_slate(size: int, temperature: float) -> None:
    """Refuse a size below 2 or a temperature that is not above 0."""
    if size < 2:
        raise ConfigError(f"slate_size is {size}", where="environment", hint="at least 2")
    if not 0 < temperature < float("inf"):
        raise ConfigError(
            f"choice_temperature is {temperature}", where="environment", hint="above 0"
        )
