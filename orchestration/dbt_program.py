"""The dbt program, ended when the process that started it ends, however that went.

A step starts it as ``python -P -m orchestration.dbt_program <arguments of dbt>``, with a target
folder (``DBT_TARGET_PATH``) that :func:`prepared` made. A dbt that outlives a killed run would hold
the DuckDB file, and the next run could not build.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

if TYPE_CHECKING:
    from dbt.contracts.graph.manifest import Manifest

__all__ = ["main", "prepared"]

#: Process id of the parent, in the file of variables. `os.getppid` is that of another process if
#: the parent is killed before this program asks.
PARENT = "DBT_PROGRAM_PARENT"
#: File of the parsed project, in the file of variables.
PARSED = "DBT_PROGRAM_PARSED"
#: File in dbt's target folder with the environment variables of one invocation. Setting them in the
#: process that starts dbt would free memory that other threads of it (those of Polars) may be
#: reading the environment from.
VARIABLES = "environment.json"
#: File in dbt's target folder with the error of an invocation that ran nothing.
FAILURE = "failure.txt"
#: Interval between checks of the parent process (seconds).
_POLL = 0.25


def prepared(variables: Mapping[str, str], name: str, parsed: Path) -> Path:
    """The target folder of one invocation by this process, with its environment variables.

    Parameters
    ----------
    variables
        Those of :func:`pipelines.warehouse.dbt_environment`; the folder is below
        ``DBT_TARGET_PATH``.
    name
        Beginning of the folder's name.
    parsed
        File of the parsed project (:func:`orchestration.dbt_project.parsed_path`).
    """
    common = Path(variables["DBT_TARGET_PATH"])
    target = common / f"{name}-{uuid4().hex[:7]}"
    target.mkdir(parents=True)
    given = {**variables, PARENT: str(os.getpid()), PARSED: str(parsed)}
    # dagster-dbt sets both to the target folder.
    del given["DBT_TARGET_PATH"], given["DBT_LOG_PATH"]
    (target / VARIABLES).write_text(json.dumps(given), encoding="utf-8")
    return target


def main() -> None:
    """Run dbt's command line with the variables of the target folder (``DBT_TARGET_PATH``).

    The project is not parsed again. Of dbt's artefacts only ``run_results.json`` is written; where
    dbt could not run anything, its error is in the file :data:`FAILURE` instead.
    """
    target = Path(os.environ["DBT_TARGET_PATH"])
    try:
        code = _run(target)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the step quotes it
        (target / FAILURE).write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
        code = 2
    sys.exit(code)


def _run(target: Path) -> int:
    """Exit code of dbt: 1 for failed nodes, 2 for what it could not run."""
    os.environ.update(json.loads((target / VARIABLES).read_text(encoding="utf-8")))
    parent = int(os.environ[PARENT])

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
    from dbt.cli.main import dbtRunner

    # Two manifests of 2 MB each, before and after, would take more than a second.
    os.environ["DBT_WRITE_JSON"] = "false"
    done = dbtRunner(_parsed_project()).invoke(sys.argv[1:])
    results: Any = done.result
    if hasattr(results, "write"):
        results.write(str(target / "run_results.json"))
    elif done.exception:
        raise done.exception
    return 0 if done.success else 2 if done.exception else 1


def _parsed_project() -> Manifest:
    """The parsed project, its sources in the folder of this invocation."""
    from dbt.contracts.graph.manifest import Manifest
    from dbt.parser.manifest import extended_mashumuro_decoder

    content = Path(os.environ[PARSED]).read_bytes()
    manifest = Manifest.from_msgpack(content, decoder=extended_mashumuro_decoder)
    for source in manifest.sources.values():
        source.meta["folder"] = os.environ["WAREHOUSE_SOURCES"]
    return manifest


if __name__ == "__main__":
    main()
