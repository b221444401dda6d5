"""Accuracy of the readers of persona texts on the bank of statements; prints Markdown rows.

python benchmarks/personas/read_statements.py                              # the open half
python benchmarks/personas/read_statements.py --sealed                     # final runs only
python benchmarks/personas/read_statements.py --sealed --model smollm2-135m
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from pipelines.personas import ModelReader, Reading

# After `pipelines`: the tests have a folder of that name.
sys.path.append(str(Path(__file__).parents[2] / "tests"))

from support.statements import (  # type: ignore[import-not-found]
    FILM_GENRES,
    Tally,
    statements,
    tally,
)


def interval(rows: list[Tally], value: str, of: str) -> tuple[float, float, float]:
    """Share and its 95 % interval of a bootstrap over statements (1,000 draws, seed 0)."""
    top = np.array([getattr(r, value) for r in rows], dtype=float)
    base = np.array([getattr(r, of) for r in rows], dtype=float)
    draws = np.random.default_rng(0).integers(0, len(rows), (1_000, len(rows)))
    shares = top[draws].sum(axis=1) / np.maximum(base[draws].sum(axis=1), 1)
    low, high = np.quantile(shares, [0.025, 0.975])
    return float(top.sum() / max(base.sum(), 1)), float(low), float(high)


def main() -> None:
    """Read one half with one reader."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sealed", action="store_true", help="the sealed half")
    parser.add_argument("--nothing", action="store_true", help="baseline that reads nothing")
    parser.add_argument("--model", help="name or folder of a checkpoint; default: the rules")
    parser.add_argument("--models", help="folder of the checkpoints")
    given = parser.parse_args()
    rows = statements("sealed" if given.sealed else "open")
    name = "rules"
    if given.nothing:
        name, found = "nothing", [Reading() for _ in rows]
        tallies = [tally([r], lambda *_, f=f: f) for r, f in zip(rows, found, strict=True)]
    elif given.model:
        from pipelines.config import EngineSettings, ServingSettings
        from pipelines.llm.engines import load_engine

        name = given.model
        serving = ServingSettings(**({"models": given.models} if given.models else {}))
        engine = load_engine(EngineSettings(kind="transformers", model=given.model), serving)
        with ModelReader(engine) as reader:
            found = reader.read([r["text"] for r in rows], FILM_GENRES)
        tallies = [tally([r], lambda *_, f=f: f) for r, f in zip(rows, found, strict=True)]
    else:
        tallies = [tally([r]) for r in rows]
    cells = []
    for value, of in (
        ("right", "labels"),
        ("whole", "statements"),
        ("unread", "labelled"),
        ("inverted", "statements"),
        ("invented", "statements"),
    ):
        share, low, high = interval(tallies, value, of)
        cells.append(f"{share:.3f} [{low:.3f}, {high:.3f}]")
    half = "sealed" if given.sealed else "open"
    print(f"| {half}, {len(rows)} | {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
