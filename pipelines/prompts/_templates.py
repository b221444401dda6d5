"""Prompt templates: Jinja files beside this module, rendered strictly."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from jinja2 import Environment, Template

__all__ = ["render_template", "template_digest", "template_text"]


@cache
def template_text(name: str) -> str:
    """The source of a template.

    Parameters
    ----------
    name
        File name without ``.jinja``.

    Raises
    ------
    ConfigError
        If there is none of that name.
    """
    file = files("pipelines.prompts").joinpath(f"{name}.jinja")
    if not file.is_file():
        raise ConfigError("no such prompt template", where=f"{name}.jinja")
    return file.read_text("utf-8")


def template_digest(*names: str) -> str:
    """SHA-256 (hex) of templates, in this order: part of what says how a text came to be."""
    digest = hashlib.sha256()
    for name in names:
        # Names and lengths keep two templates apart from one that is both.
        text = template_text(name).encode()
        digest.update(f"{name}\0{len(text)}\0".encode() + text)
    return digest.hexdigest()


def render_template(name: str, /, **values: Any) -> str:
    """A template with its values put in; white space at both ends is dropped.

    Values are data: what looks like template syntax in them stays as it is.

    Raises
    ------
    ConfigError
        If a value is missing.
    """
    from jinja2 import UndefinedError

    try:
        return _template(name).render(**values).strip()
    except UndefinedError as error:
        raise ConfigError(
            "a prompt lacks a value", where=f"{name}.jinja", hint=str(error)
        ) from None


@cache
def _template(name: str) -> Template:
    return _environment().from_string(template_text(name))


@cache
def _environment() -> Environment:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # Prompts are text for a model, not HTML: escaping would change names.
    return ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, autoescape=False, keep_trailing_newline=False
    )
