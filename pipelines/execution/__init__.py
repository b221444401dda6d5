"""Executors run the pieces of a large step: in this process, or on the workers of a Ray cluster.

A step cuts its work into pieces, each named by a hash of what decides its result. A piece's result
goes to the store, not through the executor, so a piece whose worker died is simply run again.
Importing this loads no Ray.
"""

from pipelines.execution._local import LocalExecutor
from pipelines.execution._pieces import run_pieces
from pipelines.execution._protocol import Advance, Done, Executor, Piece, Work
from pipelines.execution._registry import EXECUTORS, open_executor

__all__ = [
    "EXECUTORS",
    "Advance",
    "Done",
    "Executor",
    "LocalExecutor",
    "Piece",
    "Work",
    "open_executor",
    "run_pieces",
]
