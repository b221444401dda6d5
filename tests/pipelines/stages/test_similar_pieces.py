"""The table of similar items by an executor: ranges of items as pieces, the same rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support import small_release

from pipelines.errors import EngineError
from pipelines.execution import Advance, Done, LocalExecutor, Piece, Work
from pipelines.graph import SimilarItems
from pipelines.stages import Built, PipelineContext, build, s60_graph, stage_of

TRIPLES, SIMILAR = "movies.graph_triples", "movies.item_similarity"
#: The release has 24 items.
PIECE = 5


class Worker(LocalExecutor):
    """Gets its work as another process would."""

    def map(self, work: Work, pieces: Sequence[Piece], advance: Advance) -> Iterator[Done]:
        return super().map(pickle.loads(pickle.dumps(work)), pieces, advance)


def made(home: Path, executor: str) -> Built:
    context = PipelineContext({"runtime": {"home": str(home)}, "execution": {"executor": executor}})
    build(stage_of(TRIPLES), context)
    return build(stage_of(SIMILAR), context)


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the executor ``ray`` be one that needs no cluster."""
    monkeypatch.setattr(s60_graph, "open_executor", Worker)
    monkeypatch.setattr(s60_graph, "ITEMS_PER_PIECE", PIECE)
    s60_graph._indexed.cache_clear()


@pytest.mark.pipeline
@pytest.mark.usefixtures("workers")
def test_pieces_decide_no_byte(tmp_path: Path) -> None:
    home = tmp_path / "home"
    small_release.build(tmp_path / "alone")
    alone = made(tmp_path / "alone", "local").snapshots[SIMILAR]
    small_release.build(home)
    snapshot = made(home, "ray").snapshots[SIMILAR]
    assert snapshot.version == alone.version
    assert snapshot.rows > 0
    assert not (home / "scratch" / SIMILAR).exists()


@pytest.mark.usefixtures("workers")
def test_finished_pieces_outlive_a_failure_and_the_graph_is_indexed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, ranges, indexed = tmp_path / "home", [], []
    small_release.build(home)
    rows, init = SimilarItems.rows, SimilarItems.__init__

    def counting(self: SimilarItems, *args: Any, **options: Any) -> None:
        indexed.append(self)
        init(self, *args, **options)

    def failing(self: SimilarItems, first: int = 0, *args: Any, **options: Any) -> Any:
        ranges.append(first)
        if len(ranges) == 3:
            raise EngineError("no more")
        return rows(self, first, *args, **options)

    monkeypatch.setattr(SimilarItems, "__init__", counting)
    monkeypatch.setattr(SimilarItems, "rows", failing)
    with pytest.raises(EngineError, match="no more"):
        made(home, "ray")
    assert made(home, "ray").snapshots[SIMILAR].rows > 0
    assert ranges == [0, 5, 10, 10, 15, 20]
    # By the worker of each run.
    assert len(indexed) == 2


@pytest.mark.pipeline
@pytest.mark.usefixtures("workers")
def test_a_graph_with_fewer_items_than_were_counted_has_empty_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_release.build(tmp_path / "alone")
    alone = made(tmp_path / "alone", "local").snapshots[SIMILAR]
    monkeypatch.setattr(s60_graph.graph, "items_of", lambda *_: 31)
    small_release.build(tmp_path / "home")
    assert made(tmp_path / "home", "ray").snapshots[SIMILAR].version == alone.version
