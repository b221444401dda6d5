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

from pipelines.llm.answers._ask import ANSWERS, Asking, Row, Tally, ask
from pipelines.llm.answers._key import (
    EXCLUDED,
    INCLUDED,
    KEY_SCHEME,
    answer_key,
    answer_keys,
    canonical_request,
)
from pipelines.llm.answers._record import StoredAnswer
from pipelines.llm.answers._rules import serves
from pipelines.llm.answers._scope import Scope, answers_of
from pipelines.llm.answers._stats import AnswerStats, GcReport, ModelStats, Problem, UnusedReport
from pipelines.llm.answers._store import AnswerStore

__all__ = [
    "ANSWERS",
    "EXCLUDED",
    "INCLUDED",
    "KEY_SCHEME",
    "AnswerStats",
    "AnswerStore",
    "Asking",
    "GcReport",
    "ModelStats",
    "Problem",
    "Row",
    "Scope",
    "StoredAnswer",
    "Tally",
    "UnusedReport",
    "answer_key",
    "answer_keys",
    "answers_of",
    "ask",
    "canonical_request",
    "serves",
]
