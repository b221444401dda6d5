"""Constrained decoding: what a model may reply, declared once as a Guidance grammar.

A :class:`Grammar` is run by Guidance's own loop (the engine `guidance`, one reply at a time), by
llguidance as a logits processor for batches and by vLLM's structured outputs
(:attr:`Grammar.constraint`, the same text), and its replies are read back here.
"""

from pipelines.llm.grammars._dialogues import dialogue_action, dialogue_percentages, dialogue_text
from pipelines.llm.grammars._grammar import Grammar
from pipelines.llm.grammars._parts import Blank, TextLimits
from pipelines.llm.grammars._records import (
    DOMAINS,
    ClosedChoice,
    PersonaGrammar,
    PersonaRecord,
    Who,
    closed_choice,
    closed_record,
    explanation,
    persona_record,
    prose,
    rated_list,
    sentence_plan,
)
from pipelines.llm.grammars._vocabulary import Vocabulary, vocabulary

__all__ = [
    "DOMAINS",
    "Blank",
    "ClosedChoice",
    "Grammar",
    "PersonaGrammar",
    "PersonaRecord",
    "TextLimits",
    "Vocabulary",
    "Who",
    "closed_choice",
    "closed_record",
    "dialogue_action",
    "dialogue_percentages",
    "dialogue_text",
    "explanation",
    "persona_record",
    "prose",
    "rated_list",
    "sentence_plan",
    "vocabulary",
]
