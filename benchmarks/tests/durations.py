"""Costs of tests from a log of the tiers' plug-in, as tables.

``TEST_TIER_LOG=FILE make test``, then ``python benchmarks/tests/durations.py FILE``.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import harness


def main(log: Path, rows: int = 10) -> None:
    """Print totals, the most expensive tests and the most expensive files."""
    records = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    tests = [record for record in records if "test" in record]
    files: dict[str, list[float]] = defaultdict(list)
    for test in tests:
        test["cost"] = test["cpu_s"] + test["children_cpu_s"]
        files[test["test"].partition("::")[0]].append(test["cost"])
    total = sum(test["cost"] for test in tests)
    shared = sum(test["shared_cpu_s"] for test in tests)
    print(f"{len(tests):,} tests, {total:,.0f} s of processor time, {shared:,.0f} s in fixtures\n")
    expensive = sorted(tests, key=lambda t: -t["cost"])[:rows]
    print(harness.table(expensive, {"test": "`{test}`", "CPU s": "{cost:.1f}"}), end="\n\n")
    sums = [{"file": f, "tests": len(c), "cost": sum(c)} for f, c in files.items()]
    expensive = sorted(sums, key=lambda row: -row["cost"])[:rows]
    print(
        harness.table(expensive, {"file": "`{file}`", "tests": "{tests:,}", "CPU s": "{cost:.1f}"})
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
