"""Registration of the environments with gymnasium."""

from __future__ import annotations

import importlib.util

__all__ = ["ENVIRONMENTS", "register_environments"]

#: Id → entry point of every environment of the project.
ENVIRONMENTS: dict[str, str] = {"Understudy/Movies-v0": "sim.environment:MoviesEnv"}


def register_environments() -> None:
    """Register every environment with gymnasium, if it is installed; idempotent.

    The length limit is the environment's own argument, so no time-limit wrapper is added, and
    the check that gymnasium runs on the first steps stays on.
    """
    if importlib.util.find_spec("gymnasium") is None:
        return
    import gymnasium

    for name, entry_point in ENVIRONMENTS.items():
        if name not in gymnasium.registry:
            gymnasium.register(id=name, entry_point=entry_point)
