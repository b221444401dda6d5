"""The answer store: model calls are made once, found by content, and survive a kill.

>>> import tempfile
>>> from pipelines.config import ServingSettings
>>> from pipelines.llm.engines import Message, Request
>>> from pipelines.llm.engines.scripted import ScriptedEngine
>>> engine = ScriptedEngine(lambda request: "Yes.", name="agrees")
>>> questions = [Request((Message("user", f"Film {n}?"),), tag=n) for n in (1, 2, 1)]
>>> tally = Tally()
>>> with tempfile.TemporaryDirectory() as home, AnswerStore(home) as store:
...     for _ in range(2):
...         rows = list(ask(engine, questions, store, serving=ServingSettings(), tally=tally))
>>> [answer.text for _, _, answer in rows]
['Yes.', 'Yes.', 'Yes.']
>>> tally.calls, tally.hits, tally.duplicates
(2, 3, 1)
"""

from pipelines.llm.answers._ask import Asking, Row, Tally, ask
from pipelines.llm.answers._catalogue import Found, Problem
from pipelines.llm.answers._key import (
    EXCLUDED,
    INCLUDED,
    KEY_SCHEME,
    answer_key,
    answer_keys,
    canonical_request,
)
from pipelines.llm.answers._merge import GcReport
from pipelines.llm.answers._places import Scope
from pipelines.llm.answers._record import StoredAnswer
from pipelines.llm.answers._rules import serves
from pipelines.llm.answers._stats import AnswerStats, ModelStats
from pipelines.llm.answers._store import AnswerStore
from pipelines.llm.answers._uses import USES, UnusedReport, Uses, files_named, recorded_uses

__all__ = [
    "EXCLUDED",
    "INCLUDED",
    "KEY_SCHEME",
    "USES",
    "AnswerStats",
    "AnswerStore",
    "Asking",
    "Found",
    "GcReport",
    "ModelStats",
    "Problem",
    "Row",
    "Scope",
    "StoredAnswer",
    "Tally",
    "UnusedReport",
    "Uses",
    "answer_key",
    "answer_keys",
    "ask",
    "canonical_request",
    "files_named",
    "recorded_uses",
    "serves",
]
