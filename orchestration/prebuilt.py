"""Definitions, built when the server that steps are forked from imports this module.

Without the environment variable ``SOURCE``, settings are those of file and environment.
"""

import json
import os
from contextlib import suppress

from orchestration.definitions import SOURCE, shared_defs

__all__: list[str] = []

# On a fault each step builds them itself, and reports it.
with suppress(Exception):
    source = os.environ.get(SOURCE)
    definitions = shared_defs(*json.loads(source)) if source else shared_defs(part="pipeline")
    definitions.get_repository_def().get_job("__ASSET_JOB")
