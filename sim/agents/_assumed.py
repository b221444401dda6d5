"""Assumed constants of agents, read once from a YAML file."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml

#: The file, as reports name it.
ASSUMED_FILE = "sim/agents/data/assumed.yaml"


@cache
def assumed() -> dict[str, Any]:
    """The content of ``data/assumed.yaml``."""
    file = files("sim.agents").joinpath("data", "assumed.yaml")
    loaded: dict[str, Any] = yaml.safe_load(file.read_text("utf-8"))
    return loaded
