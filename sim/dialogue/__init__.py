"""Shopping dialogues: agents that question a customer and sell one product per episode.

After BIEL, "Benchmarking In-Context Experiential Learning Through Repeated Product
Recommendations" (sections 3-5).
"""

from typing import TYPE_CHECKING, Any

from sim.dialogue._lifetimes import CELLS, SETTINGS, Cell, Lifetimes, Setting
from sim.dialogue._protocol import (
    CONFIDENCES,
    FAILED,
    FEEDBACK,
    LEAKED,
    NO_PREFERENCE,
    OK,
    STATUSES,
    UNMATCHED,
    Action,
    Agent,
    Answer,
    Batched,
    Comment,
    Customer,
    Dialogue,
    Feedback,
    Outcome,
    PastEpisode,
    Question,
    Sale,
    Turn,
)
from sim.dialogue._run import Played, play
from sim.dialogue._sessions import MAX_FACETS, Rules, Session
from sim.dialogue._world import SPLITS, ChoiceSet, DialogueWorld, Facet
from sim.dialogue.agents import AGENTS, agent, open_agent
from sim.dialogue.customers import CUSTOMERS, customer, open_customer
from sim.dialogue.tools import ShoppingTools, tasks

if TYPE_CHECKING:
    from sim.dialogue._env import DialogueEnv, DialogueVectorEnv

__all__ = [
    "AGENTS",
    "CELLS",
    "CONFIDENCES",
    "CUSTOMERS",
    "FAILED",
    "FEEDBACK",
    "LEAKED",
    "MAX_FACETS",
    "NO_PREFERENCE",
    "OK",
    "SETTINGS",
    "SPLITS",
    "STATUSES",
    "UNMATCHED",
    "Action",
    "Agent",
    "Answer",
    "Batched",
    "Cell",
    "ChoiceSet",
    "Comment",
    "Customer",
    "Dialogue",
    "DialogueEnv",
    "DialogueVectorEnv",
    "DialogueWorld",
    "Facet",
    "Feedback",
    "Lifetimes",
    "Outcome",
    "PastEpisode",
    "Played",
    "Question",
    "Rules",
    "Sale",
    "Session",
    "Setting",
    "ShoppingTools",
    "Turn",
    "agent",
    "customer",
    "open_agent",
    "open_customer",
    "play",
    "tasks",
]

#: Environments need gymnasium and the packages of raters, which running dialogues does not.
_LAZY = {"DialogueEnv": "_env", "DialogueVectorEnv": "_env"}


def __getattr__(name: str) -> Any:
    """An environment's class, imported on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
