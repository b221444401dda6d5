"""The dbt program, ended when the process that started it ends, however that went.

A step starts it as ``python -P -m orchestration.dbt_program <arguments of dbt>``, with a target
folder (``DBT_TARGET_PATH``) that :func:`prepared` made. A dbt that outlives a killed run would hold
the DuckDB file, and the next run could not build.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

__all__ = ["main", "prepared"]

#: Process id of the parent, in the file of variables. `os.getppid` is that of another process if
#: the parent is killed before this program asks.
PARENT = "DBT_PROGRAM_PARENT"
#: File in dbt's target folder with the environment variables of one invocation. Setting them in the
#: process that starts dbt would free memory that other threads of it (those of Polars) may be
#: reading the environment from.
VARIABLES = "environment.json"
#: Interval between checks of the parent process (seconds).
_POLL = 0.25


def prepared(variables: Mapping[str, str], name: str) -> Path:
    """The target folder of one invocation by this process, with its environment variables.

    Parameters
    ----------
    variables
        Those of :func:`pipelines.warehouse.dbt_environment`; the folder is below
        ``DBT_TARGET_PATH``, and dbt's parse of the project there is copied to it.
    name
        Beginning of the folder's name.
    """
    common = Path(variables["DBT_TARGET_PATH"])
    target = common / f"{name}-{uuid4().hex[:7]}"
    target.mkdir(parents=True)
    # dagster-dbt does this where the variable is set in its own process, which it is not here.
    parsed = common / "partial_parse.msgpack"
    if parsed.exists():
        shutil.copyfile(parsed, target / parsed.name)
    given = {**variables, PARENT: str(os.getpid())}
    # dagster-dbt sets both to the target folder.
    del given["DBT_TARGET_PATH"], given["DBT_LOG_PATH"]
    (target / VARIABLES).write_text(json.dumps(given), encoding="utf-8")
    return target


def main() -> None:
    """Run dbt's command line with the variables of the target folder (``DBT_TARGET_PATH``)."""
    given = Path(os.environ["DBT_TARGET_PATH"], VARIABLES)
    os.environ.update(json.loads(given.read_text(encoding="utf-8")))
    parent = int(os.environ[PARENT])

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
    from dbt.cli.main import cli

    cli()


if __name__ == "__main__":
    main()
