"""Assumed constants of agents, read once from a YAML file."""

from typing import Any

from pipelines.packaged import packaged_yaml

#: The file, as reports name it.
ASSUMED_FILE = "sim/agents/data/assumed.yaml"


def assumed() -> dict[str, Any]:
    """The content of ``data/assumed.yaml``."""
    return dict(packaged_yaml("sim.agents", "assumed.yaml"))
