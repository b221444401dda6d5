"""The warehouse: what dbt reads and leaves behind, and how its marts enter the store.

dbt itself runs elsewhere (a command, or Dagster); this package never imports it. It points
dbt's sources at raw snapshots, passes it paths and limits, records what dbt's artefacts
say was built and tested, and exports a mart only if its tests passed on exactly what is there.

>>> from pipelines.warehouse import MARTS
>>> MARTS["movies.items"]
'movies_items'
"""

from pipelines.warehouse._builds import (
    GROUPS,
    MartEvidence,
    MartTest,
    Outcome,
    Project,
    code_versions,
    mart_tests,
    record_dbt_run,
    up_to_date_outcomes,
)
from pipelines.warehouse._export import (
    CODE_VERSION,
    MARTS,
    ModelView,
    describe_models,
    failing_rows,
    mart_build,
)
from pipelines.warehouse._folder import (
    SOURCES,
    TIER_ENDS,
    WarehouseLayout,
    database_fault,
    dbt_environment,
    dbt_vars,
    link_sources,
    linked_sources,
    warehouse_lock,
)

__all__ = [
    "CODE_VERSION",
    "GROUPS",
    "MARTS",
    "SOURCES",
    "TIER_ENDS",
    "MartEvidence",
    "MartTest",
    "ModelView",
    "Outcome",
    "Project",
    "WarehouseLayout",
    "code_versions",
    "database_fault",
    "dbt_environment",
    "dbt_vars",
    "describe_models",
    "failing_rows",
    "link_sources",
    "linked_sources",
    "mart_build",
    "mart_tests",
    "record_dbt_run",
    "up_to_date_outcomes",
    "warehouse_lock",
]
