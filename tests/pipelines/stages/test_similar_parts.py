"""The table of similar items by an executor: ranges of items as parts, the same rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import small_release

from pipelines.execution import LocalExecutor
from pipelines.graph import SimilarItems
from pipelines.stages import PipelineContext, build, s60_graph, stage_of

TRIPLES, SIMILAR = "movies.graph_triples", "movies.item_similarity"


class Worker(LocalExecutor):
    """Gets its work as another process would."""

    def map(self, work: Any, parts: Iterable[Any]) -> Iterator[Any]:
        return super().map(pickle.loads(pickle.dumps(work)), parts)


def made(home: Path, executor: str) -> str:
    small_release.build(home)
    context = PipelineContext({"runtime": {"home": str(home)}, "execution": {"executor": executor}})
    build(stage_of(TRIPLES), context)
    return build(stage_of(SIMILAR), context).snapshots[SIMILAR].version


@pytest.mark.pipeline
def test_parts_decide_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = made(tmp_path / "alone", "local")
    starts, rows = [], SimilarItems.rows

    def noting(self: SimilarItems, first: int = 0, *args: Any, **options: Any) -> Any:
        starts.append(first)
        return rows(self, first, *args, **options)

    monkeypatch.setattr(SimilarItems, "rows", noting)
    monkeypatch.setattr(s60_graph, "open_executor", Worker)
    monkeypatch.setattr(s60_graph, "ITEMS_PER_PART", 5)
    assert made(tmp_path / "home", "ray") == alone
    # The release has 24 items.
    assert starts == [0, 5, 10, 15, 20]
