"""Prompts of experiments on agents (SimUSER, section 4.6 and appendix F.5; the wording is ours)."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.llm.engines import Message
from pipelines.prompts._subjects import subject_of
from pipelines.prompts._templates import one_line, render_template, template_digest

_TEMPLATES = ("genre_system", "genre_user", "log_system", "log_user")


def experiment_prompt_digest() -> str:
    """SHA-256 (hex) of the templates."""
    return template_digest(*_TEMPLATES)


def genre_messages(domain: str, title: str, genres: Sequence[str]) -> tuple[Message, ...]:
    """Ask for the genre of an item by its title (with its year) alone.

    ``domain`` is `movies`, `books` or `games`; ``genres`` are the possible answers.
    """
    words = subject_of(domain)
    names = [one_line(name) for name in genres]
    return (
        Message("system", render_template("genre_system", words=words)),
        Message(
            "user", render_template("genre_user", words=words, title=one_line(title), genres=names)
        ),
    )


def log_line(title: str, genres: Sequence[str], rating: float) -> str:
    """An entry of a log: an item that was watched, and its rating on 1-5.

    >>> log_line("Alien (1979)", ["Horror", "Sci-Fi"], 4.0)
    'watched "Alien (1979)" (Horror, Sci-Fi), rated 4 of 5'
    """
    kinds = f" ({', '.join(one_line(genre) for genre in genres)})" if genres else ""
    return f'watched "{one_line(title)}"{kinds}, rated {rating:g} of 5'


def log_messages(domain: str, history: Sequence[str], log: Sequence[str]) -> tuple[Message, ...]:
    """Ask how much a log looks like that of a real person, without its source.

    ``domain`` is `movies`, `books` or `games`; ``history`` (what the person rated before) and
    ``log`` (what is judged) are lines of :func:`log_line`.
    """
    words = subject_of(domain)
    asked = render_template("log_user", history=list(history), log=list(log))
    return (Message("system", render_template("log_system", words=words)), Message("user", asked))
