"""The Dagster layer: thin assets, checks, jobs and schedules over the functions of `pipelines`."""

from pipelines import instructions

# Before anything loads NumPy: Dagster's processes import this package first, too.
instructions.fix()
