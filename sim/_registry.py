"""Registration of the environments with gymnasium."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Entry:
    """Registration of an environment."""

    #: Its class and that of its vector form, as ``module:name``.
    entry_point: str
    vector_entry_point: str
    #: Arguments that its id stands for.
    kwargs: dict[str, Any]


def _entry(form: str, domain: str) -> Entry:
    vector = "Slate" if form == "SlateEnv" else "Recommendation"
    release = "latest" if domain == "movies" else f"{domain}@latest"
    return Entry(
        f"sim.environment:{form}",
        f"sim.environment:{vector}VectorEnv",
        {"domain": domain, "release": release},
    )


#: Every environment of the project by id.
ENVIRONMENTS: dict[str, Entry] = {
    "Understudy/Movies-v0": _entry("RecommendationEnv", "movies"),
    "Understudy/Books-v0": _entry("RecommendationEnv", "books"),
    "Understudy/Games-v0": _entry("RecommendationEnv", "games"),
    "Understudy/MoviesSlate-v0": _entry("SlateEnv", "movies"),
    "Understudy/BooksSlate-v0": _entry("SlateEnv", "books"),
    "Understudy/GamesSlate-v0": _entry("SlateEnv", "games"),
    "Understudy/Dialogue-v0": Entry(
        "sim.dialogue:DialogueEnv", "sim.dialogue:DialogueVectorEnv", {"release": "products@latest"}
    ),
}


def register_environments() -> None:
    """Register every environment with gymnasium, if it is installed; idempotent.

    The length limit is the environment's own argument, so no time-limit wrapper is added, and
    the check that gymnasium runs on the first steps stays on.
    """
    if importlib.util.find_spec("gymnasium") is None:
        return
    import gymnasium

    for name, entry in ENVIRONMENTS.items():
        if name not in gymnasium.registry:
            gymnasium.register(
                id=name,
                entry_point=entry.entry_point,
                vector_entry_point=entry.vector_entry_point,
                kwargs=entry.kwargs,
            )
