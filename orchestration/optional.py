"""The code location of tables that no release waits for: suites, agents, training, matching, ..."""

import dagster as dg

from orchestration.definitions import shared_defs

__all__ = ["defs"]


@dg.definitions
def defs() -> dg.Definitions:
    """Settings from the file and the environment."""
    return shared_defs(part="optional")
