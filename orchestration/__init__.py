"""The Dagster layer: thin assets, checks, jobs and schedules over the functions of `pipelines`."""
