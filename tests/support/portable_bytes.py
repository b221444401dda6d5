"""Digests of vectors, fits and scores of a small world: a program, for processes of their own."""

from __future__ import annotations

import hashlib
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
TEXTS = (
    "Heat (1995). Action, Crime. A thief and a detective meet over coffee.",
    "Zwei Brüder im Wald. " * 20,
    "映画",
)


def results() -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each result, as it is made."""
    import polars as pl

    from pipelines.config import ScoringSettings
    from pipelines.embeddings import BundledEmbedder
    from pipelines.raters import (
        fit_exposure,
        fit_rater,
        plan_pairs,
        rater_report,
        score_pairs,
    )

    yield "vectors", BundledEmbedder(threads=2).encode(TEXTS).tobytes()
    build_world = runpy.run_path(str(TESTS / "pipelines/raters/conftest.py"))["build_world"]
    world = build_world(users=60, films=40, per_user=20)
    rater = fit_rater("statistical", scale="1-10", **world.tables, **world.vectors)
    plan = plan_pairs(world.personas, world.items, world.item_stats, ScoringSettings())
    scores = pl.concat(list(score_pairs(rater, plan, world.personas, world.items)))
    yield "scores", scores.write_json().encode()
    statistical = fit_rater("statistical", scale="1-10", **world.tables)
    exposure = fit_exposure(statistical, world.interactions, world.splits)
    yield "exposure", exposure.columns.tobytes() + exposure.offsets.tobytes()
    judged = {"items": world.items, "interactions": world.interactions, "splits": world.splits}
    report = rater_report([rater], **judged)
    yield "report", report.table.write_json().encode()


if __name__ == "__main__":
    sys.path.insert(0, str(TESTS.parent))
    from pipelines import instructions

    if sys.argv[1:] != ["free"]:
        instructions.fix()
    for name, content in results():
        print(name, hashlib.sha256(content).hexdigest()[:16], flush=True)
