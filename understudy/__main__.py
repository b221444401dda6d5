"""The console scripts ``understudy`` and ``sim``."""

from __future__ import annotations

import sys

from pipelines.extras import missing_package

__all__ = ["main", "sim"]


def main() -> None:
    """Run the command line and exit."""
    _run("pipelines.cli.main", "understudy")


def sim() -> None:
    """Run the commands of ``sim`` and exit."""
    _run("sim.main", "sim")


def _run(module: str, program: str) -> None:
    from importlib import import_module

    try:
        run = import_module(module).main
    except ModuleNotFoundError as error:
        fault = missing_package(error, where=program)
        print(f"error: {fault}", file=sys.stderr)
        sys.exit(fault.exit_code)
    run()


if __name__ == "__main__":
    main()
