"""Agents that meet a recommender page by page: they watch, rate, feel, leave and say why.

After SimUSER (sections 3.2 and 3.3) and Agent4Rec (sections 2 and 3). A :class:`Brain` decides;
everything else is the same for all brains.
"""

from sim.agents._asking import Asked, Classified, classify_items, judge_pairs
from sim.agents._assumed import ASSUMED_FILE, assumed
from sim.agents._baselines import RandomBrain
from sim.agents._choice import genre_shares, logistic
from sim.agents._figures import FIGURES, source_of, visit_rows, visit_study, visit_values
from sim.agents._log import TABLES
from sim.agents._matching import match_people
from sim.agents._minari import write_visits
from sim.agents._pages import SIMILAR, ItemDisplay, ItemDisplays, page_lists
from sim.agents._protocol import (
    ACTIONS,
    EMOTIONS,
    FATIGUE,
    MOODS,
    Brain,
    Classification,
    Decision,
    Entry,
    Interview,
    Judgement,
    Opinion,
    Question,
    Reflection,
    Reply,
    seeds_of,
)
from sim.agents._registry import BRAINS, brain, open_brain
from sim.agents._remarks import RemarkReport, fault_of, remark_report
from sim.agents._rules import VisitRules
from sim.agents._run import CODE_VERSION, Simulation, default_folder, simulate, visit
from sim.agents._visit import View, Visit, browse, play, visits_of
from sim.agents._world import AgentWorld, History, ItemTexts

__all__ = [
    "ACTIONS",
    "ASSUMED_FILE",
    "BRAINS",
    "CODE_VERSION",
    "EMOTIONS",
    "FATIGUE",
    "FIGURES",
    "MOODS",
    "SIMILAR",
    "TABLES",
    "AgentWorld",
    "Asked",
    "Brain",
    "Classification",
    "Classified",
    "Decision",
    "Entry",
    "History",
    "Interview",
    "ItemDisplay",
    "ItemDisplays",
    "ItemTexts",
    "Judgement",
    "Opinion",
    "Question",
    "RandomBrain",
    "Reflection",
    "RemarkReport",
    "Reply",
    "Simulation",
    "View",
    "Visit",
    "VisitRules",
    "assumed",
    "brain",
    "browse",
    "classify_items",
    "default_folder",
    "fault_of",
    "genre_shares",
    "judge_pairs",
    "logistic",
    "match_people",
    "open_brain",
    "page_lists",
    "play",
    "remark_report",
    "seeds_of",
    "simulate",
    "source_of",
    "visit",
    "visit_rows",
    "visit_study",
    "visit_values",
    "visits_of",
    "write_visits",
]
