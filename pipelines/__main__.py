"""The console script ``understudy``: here, to import the command line alone."""

from __future__ import annotations

import sys

from pipelines.extras import missing_package
from pipelines.paths import ensure_user_home

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit."""
    ensure_user_home()
    try:
        from pipelines.cli.main import main as run
    except ModuleNotFoundError as error:
        fault = missing_package(error, where="understudy")
        print(f"error: {fault}", file=sys.stderr)
        sys.exit(fault.exit_code)
    run()


if __name__ == "__main__":
    main()
