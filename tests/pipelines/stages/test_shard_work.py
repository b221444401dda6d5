"""What scoring sends to a worker, and how a worker that sees another store is told apart."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipelines.config import load_settings
from pipelines.stages.s70_scores import _Block, _ShardWork
from pipelines.store import Store


class Tables(dict):
    previous, domain, partition = None, "movies", "default"

    def __init__(self, home: Path) -> None:
        super().__init__(items_table=SimpleNamespace(dataset="movies.items", version="a1"))
        self.context = SimpleNamespace(store=Store(home))
        self.scratch = home / "scratch" / "movies.preference_scores" / "default"


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _ShardWork:
    monkeypatch.setenv("UNDERSTUDY_SERVING__API_KEY", "correct-horse")
    tables = Tables(tmp_path)
    opened = SimpleNamespace(inputs=tables, settings=load_settings(), block=_Block())
    return _ShardWork(opened)  # type: ignore[arg-type]


def test_a_worker_is_told_apart_by_the_file_beside_the_parts(
    work: _ShardWork, tmp_path: Path
) -> None:
    there: _ShardWork = pickle.loads(pickle.dumps(work))
    mark = tmp_path / "scratch" / "movies.preference_scores" / "default" / "mark"
    assert there.probe() == work.probe()
    here = work.probe()
    mark.write_text("of another home at the same path")
    assert there.probe()[str(mark)] != here[str(mark)]
    mark.unlink()  # the worker does not reach the volume
    assert there.probe()[str(mark)] == "absent"


def test_a_task_is_small_and_holds_no_secret(work: _ShardWork) -> None:
    sent = pickle.dumps(work)
    assert b"correct-horse" not in sent
    assert b"movies.items" in sent
    assert len(sent) < 20_000
