"""Every format that is measured."""

from __future__ import annotations

from collections.abc import Mapping

from _films_games import FILMS_AND_GAMES
from _formats import FORMATS as AMAZON
from _formats import Format

__all__ = ["FORMATS"]

#: By name, in the order in which they are measured.
FORMATS: Mapping[str, Format] = {**FILMS_AND_GAMES, **AMAZON}
