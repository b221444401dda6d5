"""Conversations as token ids, built here so that every engine sees the same prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from pipelines.errors import AnswerError, ConfigError
from pipelines.hints import first_line
from pipelines.llm.engines._protocol import Message
from pipelines.llm.engines.tokens import encode, encode_on

__all__ = ["PLAIN", "PromptMeasure", "read_template", "render", "render_text", "template_of"]

#: For models without a chat template: the texts one after the other, with an empty line between.
PLAIN = (
    "{{- bos_token if bos_token else '' }}"
    "{%- for message in messages %}"
    "{{- message['content'] + '\n\n' }}"
    "{%- endfor %}"
)

#: Tokens that a chat template may add to a conversation and to each message (bounds for the
#: quick check; a prompt near the context is measured exactly).
_FRAME, _TURN = 64, 32
#: Stands for a stretch of hostile text while the template runs (private-use characters).
_MARK = ("\ue0f0", "\ue0f1")


def read_template(file: Path | None) -> str | None:
    """The chat template of a file, or None; :class:`ConfigError` if it can't be read."""
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "the chat template can't be read", where=f"serving.chat_template is {file}: {error}"
        ) from error


def template_of(tokenizer: Any, template: str | None = None) -> tuple[str, str]:
    """The template that is used, and whose it is: ``given``, ``model`` or ``plain``."""
    if template is not None:
        return template, "given"
    default = getattr(tokenizer, "chat_template", None)
    return (default, "model") if isinstance(default, str) else (PLAIN, "plain")


def render_text(tokenizer: Any, messages: Sequence[Message], template: str | None = None) -> str:
    """The prompt as text: the conversation in the model's chat template, up to the answer.

    A last `assistant` message is the beginning of the answer: its text stands right behind the
    mark that opens the model's turn. ``template`` replaces the model's own; without either,
    :data:`PLAIN` is used. The tokenizer is one of transformers or of
    :mod:`pipelines.llm.engines.tokens`.

    Raises AnswerError if the template refuses the messages (some know no system role).
    """
    from jinja2 import TemplateError

    conversation, start = list(messages), ""
    if conversation and conversation[-1].role == "assistant":
        start = conversation.pop().content
    chosen, _ = template_of(tokenizer, template)
    turns = [{"role": m.role, "content": m.content} for m in conversation]
    try:
        if hasattr(tokenizer, "apply_chat_template") and turns:
            text = tokenizer.apply_chat_template(
                turns, chat_template=chosen, tokenize=False, add_generation_prompt=True
            )
        else:
            text = _fill(chosen, turns, tokenizer)
    except (TemplateError, ValueError, TypeError) as error:
        line = first_line(error)
        raise AnswerError("the chat template refuses the messages", where=line) from error
    return str(text) + start


def _fill(template: str, turns: list[dict[str, str]], tokenizer: Any) -> str:
    """A template without a tokenizer of transformers, or without a turn."""
    from transformers.utils.chat_template_utils import render_jinja_template

    begin = getattr(tokenizer, "bos_token", None)
    rendered: Any = render_jinja_template(
        conversations=[turns],
        chat_template=template,
        add_generation_prompt=True,
        bos_token=begin or "",
        eos_token=getattr(tokenizer, "eos_token", None) or "",
    )
    # One text per conversation, and where the assistant's turns are.
    texts, _ = rendered
    return str(texts[0])


def render(
    tokenizer: Any,
    messages: Sequence[Message],
    template: str | None = None,
    *,
    apart: str | None = None,
) -> list[int]:
    """The prompt as token ids.

    Special tokens of the model that stand in a message are read as the characters they are
    made of: a film's plot can't end the user's turn.

    Parameters
    ----------
    tokenizer, messages, template
        As :func:`render_text`.
    apart
        The end of the last message, with the space before it if there is one. It is cut into
        tokens apart from what stands before it, so that all prompts with the same beginning have
        the same first tokens whatever follows.

    Raises
    ------
    AnswerError
        If the template refuses the messages, or ``apart`` is not in the prompt.
    """
    hostile = _Hostile(tokenizer)
    text = render_text(tokenizer, hostile.hide(messages), template)
    begin = tokenizer.bos_token_id if _adds_begin_itself(tokenizer) else None
    ids = [] if begin is None else [begin]
    cuts = [text] if apart is None else _cut(text, hostile.hide_text(apart))
    for cut in cuts:
        for piece, plain in hostile.pieces(cut):
            ids += _encode_piece(tokenizer, piece, plain=plain, first=not ids)
    return ids


@dataclass(frozen=True)
class PromptMeasure:
    """Measures whether a prompt and the longest ``answer`` fit the ``context`` (tokens).

    ``template`` replaces the tokenizer's own chat template.
    """

    tokenizer: Any
    template: str | None
    context: int
    answer: int

    def fits(self, messages: Sequence[Message]) -> bool:
        """True if prompt and answer fit the context; AnswerError if the template refuses them."""
        # No tokenizer makes more tokens than there are bytes.
        most = _FRAME + sum(len(m.content.encode()) + _TURN for m in messages)
        if most + self.answer < self.context:
            return True
        size = len(render(self.tokenizer, messages, self.template))
        return size + self.answer < self.context


def _adds_begin_itself(tokenizer: Any) -> bool:
    """Whether the beginning-of-text token has no spelling that a template could use."""
    return not hasattr(tokenizer, "apply_chat_template")


def _cut(text: str, end: str) -> list[str]:
    """A rendered text before and from the part that ends its last message."""
    for part in (end, end.rstrip(), end.strip()):  # many templates strip a message
        place = text.rfind(part) if part else -1
        if place >= 0:
            return [text[:place], text[place:]]
    raise AnswerError("the part to split off is not in the prompt")


def _encode_piece(tokenizer: Any, piece: str, *, plain: bool, first: bool) -> list[int]:
    if plain:
        return list(tokenizer.encode(piece, add_special_tokens=False, split_special_tokens=True))
    return encode(tokenizer, piece) if first else encode_on(tokenizer, piece)


#: Special tokens by tokenizer, longest first.
_NAMES: WeakKeyDictionary[Any, list[str]] = WeakKeyDictionary()


def _special_names(tokenizer: Any) -> list[str]:
    special = _NAMES.get(tokenizer)
    if special is None:
        names = {str(t) for t in getattr(tokenizer, "all_special_tokens", ())}
        added = getattr(tokenizer, "added_tokens_decoder", {}).values()
        names |= {str(token) for token in added if getattr(token, "special", False)}
        special = _NAMES[tokenizer] = sorted(names, key=len, reverse=True)
    return special


class _Hostile:
    """Special tokens inside messages: hidden while the template runs, then plain text."""

    def __init__(self, tokenizer: Any) -> None:
        self._names = _special_names(tokenizer)

    def hide(self, messages: Sequence[Message]) -> list[Message]:
        return [Message(m.role, self.hide_text(m.content)) for m in messages]

    def hide_text(self, text: str) -> str:
        for number, name in enumerate(self._names):
            if name in text:
                text = text.replace(name, f"{_MARK[0]}{number}{_MARK[1]}")
        return text

    def pieces(self, text: str) -> Iterator[tuple[str, bool]]:
        """Stretches of a rendered text, and whether each is to be read as plain characters."""
        while text:
            before, opening, tail = text.partition(_MARK[0])
            number, closed, after = tail.partition(_MARK[1])
            if not (opening and closed and number.isdecimal() and int(number) < len(self._names)):
                yield text, False
                return
            if before:
                yield before, False
            yield self._names[int(number)], True
            text = after
