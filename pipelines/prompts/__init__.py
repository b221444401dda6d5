"""Prompts: Jinja templates of our own, versioned, with the code that fills them."""

from pipelines.prompts._agents import (
    AGENT_PROMPT_VERSION,
    ShownItem,
    agent_messages,
    agent_prompt_digest,
    agent_system,
    memory_text,
    page_block,
)
from pipelines.prompts._captions import (
    CAPTION_PROMPT_VERSION,
    caption_messages,
    caption_prompt_digest,
)
from pipelines.prompts._experiments import (
    experiment_prompt_digest,
    genre_messages,
    log_line,
    log_messages,
)
from pipelines.prompts._matching import (
    MATCHING_PROMPT_VERSION,
    candidate_messages,
    history_block,
    likeness_messages,
    matching_prompt_digest,
    taste_messages,
)
from pipelines.prompts._personas import (
    DOMAIN_WORDS,
    PERSONA_PROMPT_VERSION,
    DomainWords,
    persona_messages,
    persona_prompt_digest,
    rating_habits,
)
from pipelines.prompts._ratings import (
    RATING_PROMPT_VERSION,
    Past,
    PromptStyle,
    answer_start,
    explain_messages,
    item_block,
    person_block,
    rating_messages,
    rating_options,
    rating_prompt_digest,
    scale_report,
)
from pipelines.prompts._subjects import SUBJECTS
from pipelines.prompts._templates import one_line, render_template, template_digest, template_text

__all__ = [
    "AGENT_PROMPT_VERSION",
    "CAPTION_PROMPT_VERSION",
    "DOMAIN_WORDS",
    "MATCHING_PROMPT_VERSION",
    "PERSONA_PROMPT_VERSION",
    "RATING_PROMPT_VERSION",
    "SUBJECTS",
    "DomainWords",
    "Past",
    "PromptStyle",
    "ShownItem",
    "agent_messages",
    "agent_prompt_digest",
    "agent_system",
    "answer_start",
    "candidate_messages",
    "caption_messages",
    "caption_prompt_digest",
    "experiment_prompt_digest",
    "explain_messages",
    "genre_messages",
    "history_block",
    "item_block",
    "likeness_messages",
    "log_line",
    "log_messages",
    "matching_prompt_digest",
    "memory_text",
    "one_line",
    "page_block",
    "person_block",
    "persona_messages",
    "persona_prompt_digest",
    "rating_habits",
    "rating_messages",
    "rating_options",
    "rating_prompt_digest",
    "render_template",
    "scale_report",
    "taste_messages",
    "template_digest",
    "template_text",
]
