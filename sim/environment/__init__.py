"""Gymnasium environments on a release: a recommender meets simulated users.

:class:`RecommendationEnv` is one user at a time, :class:`RecommendationVectorEnv` many at once;
:class:`SlateEnv` and :class:`SlateVectorEnv` show several items at a step. To share a release
between environments, open a :class:`World` once and pass it to each.
"""

from sim.environment._env import PersonaText, RecommendationEnv
from sim.environment._options import (
    check_arguments,
    check_keys,
    seeds_of,
    supported_render_mode,
)
from sim.environment._vector import RecommendationVectorEnv, SlateEnv, SlateVectorEnv
from sim.environment._world import (
    Catalogue,
    PersonaTable,
    World,
    histories,
    known_items,
    open_rater,
    persona_traits,
    persona_users,
    split_rows,
)

__all__ = [
    "Catalogue",
    "PersonaTable",
    "PersonaText",
    "RecommendationEnv",
    "RecommendationVectorEnv",
    "SlateEnv",
    "SlateVectorEnv",
    "World",
    "check_arguments",
    "check_keys",
    "histories",
    "known_items",
    "open_rater",
    "persona_traits",
    "persona_users",
    "seeds_of",
    "split_rows",
    "supported_render_mode",
]
