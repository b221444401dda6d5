"""A consumer with the core packages alone trains in a loop while releases are published."""

from __future__ import annotations

import json
import subprocess
import time
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from support import small_release
from support.core_only import core_program

from pipelines.errors import LockedError
from pipelines.store import Store

pytestmark = [pytest.mark.faults, pytest.mark.pipeline]

RELEASES = 12

#: Reads what `published` wrote, fits a ridge regression of the scores on the items' vectors, and
#: prints the release and the number that each of its tables says.
CONSUMER = """
import json, sys
from pathlib import Path
import numpy as np
import understudy

home, end = sys.argv[1:]
seen = {}
while not Path(end).exists():
    release = understudy.open_release("movies@latest", home=home)
    items = release["items"].polars(["item_id", "title"])
    scores = release["preference_scores"].polars(["item_id", "sample", "status", "note"])
    vectors = release["item_embeddings"].numpy("vector").astype(np.float64)
    order = {item: n for n, item in enumerate(items["item_id"])}
    rated = scores.filter(scores["status"] == "ok")
    x = vectors[[order[item] for item in rated["item_id"]]]
    weights = np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T @ rated["sample"].to_numpy())
    assert np.isfinite(weights).all()
    train = release.split("train").collect()
    numbers = {
        int(items["title"][0].split()[-1]),
        int(scores["note"][0].split()[-1]),
        int(round(vectors[0, 0] * 1000)),
        int(train["rated_at"].dt.second()[0]),
        int(release.settings["number"]),
        int(release.card.split()[-1]),
    }
    seen.setdefault(release.ref, []).append(sorted(numbers))
print(json.dumps(seen))
print("loaded:", *sorted({"pandas", "duckdb", "torch", "dagster", "matplotlib"} & set(sys.modules)))
"""


def publish(home: Path, number: int) -> str:
    """A release whose tables, settings and card all say a number."""
    tables = small_release.frames()
    said = pl.lit(f"number {number}")
    vectors = tables["movies.item_embeddings"].with_columns(
        vector=pl.concat_list(pl.lit(number / 1000), *([pl.lit(0.1)] * 7)).cast(pl.List(pl.Float32))
    )
    replaced = {
        "movies.items": tables["movies.items"].with_columns(title=said),
        "movies.preference_scores": tables["movies.preference_scores"].with_columns(note=said),
        "movies.item_embeddings": vectors,
        "movies.interactions": tables["movies.interactions"].with_columns(
            rated_at=pl.col("rated_at").dt.truncate("1m") + pl.duration(seconds=number)
        ),
    }
    release = small_release.build(
        home, replace=replaced, settings={"number": number}, card=f"# Movies\n\nnumber {number}\n"
    )
    return str(release)


def test_consumer_never_sees_a_mixed_release(tmp_path: Path, repository: Path) -> None:
    home, end = tmp_path / "home", tmp_path / "end"
    numbers = {publish(home, 0): 0}
    command = [*core_program(CONSUMER), str(home), str(end)]
    consumer = subprocess.Popen(
        command, cwd=repository, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    store = Store(home)
    try:
        for number in range(1, RELEASES):
            assert consumer.poll() is None
            # Every other release is an older state: `latest` goes back and forth.
            state = number if number % 2 else number - 1
            numbers[publish(home, state)] = state
            try:
                # Tables become current before they are pinned; others are removed meanwhile.
                store.collect_garbage(grace=timedelta(0))
            except LockedError:
                continue
            time.sleep(0.1)
    finally:
        end.touch()
    output, errors = consumer.communicate(timeout=120)
    assert consumer.returncode == 0, errors
    lines = output.splitlines()
    seen = json.loads(lines[0])
    assert len(seen) >= 3
    for reference, rounds in seen.items():
        assert all(found == [numbers[reference]] for found in rounds), reference
    assert lines[1] == "loaded:"
