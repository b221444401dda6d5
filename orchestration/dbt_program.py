"""The dbt program, ended when the process that started it ends, however that went.

Run as ``python -P -m orchestration.dbt_program <arguments of dbt>``. A dbt that outlives a killed
run would hold the DuckDB file, and the next run could not build.
"""

from __future__ import annotations

import os
import signal
import threading
import time

__all__ = ["PARENT", "main"]

#: Environment variable with the process id of the parent. `os.getppid` is that of another process
#: if the parent is killed before this program asks.
PARENT = "DBT_PROGRAM_PARENT"
#: Interval between checks of the parent process (seconds).
_POLL = 0.25


def main() -> None:
    """Run dbt's command line."""
    parent = int(os.environ.get(PARENT) or os.getppid())

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
    from dbt.cli.main import cli

    cli()


if __name__ == "__main__":
    main()
