"""Assumed constants of matching, read once from a YAML file."""

from typing import Any

from pipelines.packaged import packaged_yaml

#: The file, as reports name it.
ASSUMED_FILE = "pipelines/matching/data/assumed.yaml"


def assumed() -> dict[str, Any]:
    """The content of ``data/assumed.yaml``."""
    return dict(packaged_yaml("pipelines.matching", "assumed.yaml"))
