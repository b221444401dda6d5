"""Shopping dialogues: agents that question a customer and sell one product per episode.

After BIEL, "Benchmarking In-Context Experiential Learning Through Repeated Product
Recommendations" (sections 3-5).
"""

from sim.dialogue._book import MIN_BEST, SPLITS, Book, ChoiceSet, Facet
from sim.dialogue._lifetimes import CELLS, SETTINGS, Cell, Lifetimes, Setting
from sim.dialogue._protocol import (
    CONFIDENCES,
    FAILED,
    FEEDBACK,
    LEAKED,
    MAX_QUESTIONS,
    NO_PREFERENCE,
    OK,
    REGRET_LEVELS,
    STATUSES,
    UNMATCHED,
    Actions,
    Agent,
    Answers,
    Customer,
    Feedback,
    Outcomes,
    PastEpisode,
    Questions,
    Replies,
    Sales,
    Views,
)
from sim.dialogue._run import BLOCK, Played, play
from sim.dialogue.agents import AGENTS, open_agent
from sim.dialogue.customers import CUSTOMERS, open_customer

__all__ = [
    "AGENTS",
    "BLOCK",
    "CELLS",
    "CONFIDENCES",
    "CUSTOMERS",
    "FAILED",
    "FEEDBACK",
    "LEAKED",
    "MAX_QUESTIONS",
    "MIN_BEST",
    "NO_PREFERENCE",
    "OK",
    "REGRET_LEVELS",
    "SETTINGS",
    "SPLITS",
    "STATUSES",
    "UNMATCHED",
    "Actions",
    "Agent",
    "Answers",
    "Book",
    "Cell",
    "ChoiceSet",
    "Customer",
    "Facet",
    "Feedback",
    "Lifetimes",
    "Outcomes",
    "PastEpisode",
    "Played",
    "Questions",
    "Replies",
    "Sales",
    "Setting",
    "Views",
    "open_agent",
    "open_customer",
    "play",
]
