"""An engine on workers: they answer, the caller stores."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from pipelines.config import EngineSettings, ServingSettings
from pipelines.execution import LocalExecutor
from pipelines.llm.answers import AnswerStore, Tally, ask
from pipelines.llm.engines import Message, Request, load_engine
from pipelines.llm.engines.cluster import ClusterEngine

SETTINGS = EngineSettings(kind="scripted")


class Worker(LocalExecutor):
    """Gets its work as another process would; parts and their sizes are noted."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.sizes: list[int] = []

    def map(self, work: Any, parts: Iterable[Any]) -> Iterator[Any]:
        for part in parts:
            self.sent.append(pickle.dumps((work, part)))
            self.sizes.append(len(part))
            there, requests = pickle.loads(self.sent[-1])
            yield pickle.loads(pickle.dumps(there(requests)))


def test_answers_are_those_of_an_engine_here_and_are_stored_once(tmp_path: Path) -> None:
    serving, worker = ServingSettings(commit_every=4), Worker()
    here, engine = load_engine(SETTINGS, serving), ClusterEngine(SETTINGS, serving, worker)
    assert engine.identity == here.identity
    assert dict(engine.metadata()) == dict(here.metadata())
    requests = [Request((Message("user", f"Film {n}?"),), tag=n) for n in range(10)]
    for calls in (10, 0):
        tally = Tally()
        with AnswerStore(tmp_path) as store:
            rows = list(ask(engine, requests, store, serving=serving, tally=tally))
        assert {r.tag: a.text for r, _, a in rows} == {
            a.request.tag: a.text for a in here.submit(iter(requests))
        }
        assert tally.calls == calls
    # Once for the identity, then four at a time.
    assert worker.sizes == [0, 4, 4, 2]


def test_secrets_do_not_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    serving, worker = ServingSettings(api_key=SecretStr("correct-horse")), Worker()
    engine = ClusterEngine(SETTINGS, serving, worker)
    assert len(list(engine.submit([Request((Message("user", "Well?"),))]))) == 1
    assert not [sent for sent in worker.sent if b"correct-horse" in sent]
