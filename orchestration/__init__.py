"""The Dagster layer: thin assets, checks, jobs and schedules over the functions of `pipelines`."""

from pipelines import instructions
from pipelines.paths import ensure_user_home

# Before anything loads NumPy or looks for caches: Dagster's processes import this package first.
instructions.fix()
ensure_user_home()
