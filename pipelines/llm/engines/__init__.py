"""Language models behind one seam: requests in, answers out, in bulk.

An :class:`Engine` serves :class:`Request` objects lazily and yields an :class:`Answer` for
each in completion order.
"""

from pipelines.llm.engines._protocol import (
    Answer,
    Choice,
    Constraint,
    Engine,
    EngineIdentity,
    FormField,
    GrammarConstraint,
    Image,
    JsonSchema,
    Message,
    Regex,
    Request,
    Role,
    Sampling,
)
from pipelines.llm.engines._registry import TRIAL_RATING, check_engine, load_engine
from pipelines.llm.engines.choices import answer_fault
from pipelines.llm.engines.constraints import request_fault
from pipelines.statuses import STATUSES, Status

__all__ = [
    "STATUSES",
    "TRIAL_RATING",
    "Answer",
    "Choice",
    "Constraint",
    "Engine",
    "EngineIdentity",
    "FormField",
    "GrammarConstraint",
    "Image",
    "JsonSchema",
    "Message",
    "Regex",
    "Request",
    "Role",
    "Sampling",
    "Status",
    "answer_fault",
    "check_engine",
    "load_engine",
    "request_fault",
]
