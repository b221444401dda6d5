"""Prompt that asks for the caption of a poster (SimUSER, appendix C.3; the wording is ours)."""

from __future__ import annotations

from pipelines.llm.engines import Image, Message
from pipelines.prompts._templates import render_template, template_digest

#: Bumped with every change of wording; the digest of the templates changes with it.
CAPTION_PROMPT_VERSION = "1"
_TEMPLATES = ("caption_system", "caption_user")


def caption_prompt_digest() -> str:
    """SHA-256 (hex) of the templates."""
    return template_digest(*_TEMPLATES)


def caption_messages(image: Image) -> tuple[Message, ...]:
    """Ask for a caption of a picture; its title is left out, so that nothing is recited of it."""
    return (
        Message("system", render_template("caption_system")),
        Message("user", render_template("caption_user"), (image,)),
    )
