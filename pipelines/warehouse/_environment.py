"""Configuration of a dbt process: paths and limits by environment, settings by variables."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.warehouse._layout import WarehouseLayout

if TYPE_CHECKING:
    from pipelines.config import Settings

#: Models and tests in flight at once; DuckDB's own threads come on top.
_JOBS = 4
#: Bytes in memory of a row in a join or a window over all rows of a source (an estimate): keys as
#: text, values and pointers.
_ROW_BYTES = 64


def dbt_environment(settings: Settings) -> dict[str, str]:
    """Environment variables for a dbt process; add them to those of the caller.

    The names don't start with ``UNDERSTUDY_`` (but for the home), because those are settings and an
    unknown one is an error: ``UNDERSTUDY_HOME``, what ``dbt/profiles.yml`` and the sources read
    (``WAREHOUSE_*``), where dbt puts artefacts and logs (``DBT_TARGET_PATH``, ``DBT_LOG_PATH``),
    and how much it logs (``DBT_LOG_LEVEL_FILE``, the caller's or ``info``). The folders exist when
    this returns.
    """
    layout = WarehouseLayout(settings.runtime.folder)
    for folder in (layout.folder, layout.spill, layout.target, layout.logs):
        folder.mkdir(parents=True, exist_ok=True)
    return {
        "UNDERSTUDY_HOME": str(layout.home),
        "WAREHOUSE_FILE": str(layout.database),
        "WAREHOUSE_SOURCES": sql_glob(layout.sources),
        "WAREHOUSE_TEMP": str(layout.spill),
        "WAREHOUSE_MEMORY_LIMIT": f"{settings.runtime.memory_limit_mb}MiB",
        "WAREHOUSE_THREADS": str(settings.runtime.threads or os.cpu_count() or 1),
        "WAREHOUSE_JOBS": str(_jobs(layout, settings.runtime.memory_limit_mb)),
        "DBT_TARGET_PATH": str(layout.target),
        "DBT_LOG_PATH": str(layout.logs),
        # dbt's default, debug, takes a tenth of its time on small tables.
        "DBT_LOG_LEVEL_FILE": os.environ.get("DBT_LOG_LEVEL_FILE", "info"),
    }


def _jobs(layout: WarehouseLayout, limit: int) -> int:
    """Models and tests at a time: one where it would fill the memory (``limit``, MiB) by itself."""
    import pyarrow.parquet as pq

    rows = max(
        (
            sum(pq.read_metadata(file).num_rows for file in folder.glob("**/*.parquet"))
            for folder in layout.sources.glob("*")
        ),
        default=0,
    )
    return 1 if rows * _ROW_BYTES > limit << 20 else _JOBS


#: Tiers of human users (Agent4Rec 2.1.1 and its code, SimUSER 3.2.1 and appendix A): quantiles of
#: users at which the low and the medium tier of activity and of both diversities end; those of the
#: mean squared difference at which the high and the medium tier of conformity end; mean ratings
#: (1-5) from which a user is moderately picky and not picky.
TIER_ENDS = {
    "activity": (0.6, 0.9),
    "conformity": (0.25, 0.8),
    "diversity": (0.33, 0.66),
    "pickiness": (3.5, 4.5),
}


def dbt_vars(settings: Settings) -> dict[str, Any]:
    """Values of dbt's variables: the settings that change what the models make.

    >>> from pipelines.config import Settings
    >>> dbt_vars(Settings())["split_min_interactions"]
    5
    """
    splits, books = settings.splits, settings.books
    return {
        "split_validation": splits.validation,
        "split_test": splits.test,
        "split_min_interactions": splits.min_interactions,
        **{f"trait_{name}": list(ends) for name, ends in TIER_ENDS.items()},
        "games_review_year": settings.games.review_year or 0,
        "books_categories": list(books.categories),
        "books_min_category_size": books.min_category_size,
        "books_full_catalogue": books.full_catalogue,
    }


def sql_glob(path: Path) -> str:
    """A folder's path as it must stand in a DuckDB glob within quotes.

    >>> sql_glob(Path("/o'h/a[1]*"))
    "/o''h/a[[]1][*]"
    """
    return re.sub(r"[\[*?]", lambda m: f"[{m[0]}]", str(path)).replace("'", "''")
