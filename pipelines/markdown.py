"""Tables and text of unknown origin as Markdown that can't break out of its cell."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping

__all__ = ["code_span", "escape_markdown", "html_page", "plain_text", "terminal_text"]

#: Markup of Markdown, HTML or TeX; each character becomes a numeric entity, which they don't read.
#: Underscores within words are not markup, and names would be hard to read without them.
_MARKUP = re.compile(r"[&<>|`*~\[\]\\$@]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
#: Control, format, surrogate and separator characters: line breaks, bidirectional overrides.
_UNPRINTABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)
#: Text that viewers turn into links: its last character but the slashes is escaped.
_AUTOLINK = re.compile(r"\bwww\.|:(?=//)", re.IGNORECASE)
#: An escaped character: those of `_MARKUP` and `_AUTOLINK` are below 128.
_ENTITY = re.compile(r"&#(\d{2,3});")


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no HTML, no links, one line.

    >>> escape_markdown("a|b <i>`x`")
    'a&#124;b &#60;i&#62;&#96;x&#96;'
    """
    one_line = " ".join(_UNPRINTABLE.sub(" ", text).split())
    escaped = _MARKUP.sub(lambda m: f"&#{ord(m.group())};", one_line)
    return _AUTOLINK.sub(lambda m: f"{m.group()[:-1]}&#{ord(m.group()[-1])};", escaped)


def plain_text(text: str, length: int | None = None) -> str:
    r"""One line of text without control characters, cut to ``length`` characters if it is given.

    >>> plain_text("a\x1b[31m\nb", 6)
    'a [31…'
    """
    line = " ".join(_UNPRINTABLE.sub(" ", text).split())
    return line if length is None or len(line) <= length else f"{line[: length - 1]}…"


def code_span(text: str) -> str:
    """Text for a code span in a table cell: one line, no back-ticks, no cell breaks.

    >>> code_span("a`b|c")
    "a'b/c"
    """
    return " ".join(_UNPRINTABLE.sub(" ", text).replace("`", "'").replace("|", "/").split())


def terminal_text(markdown: str) -> str:
    """Markdown with escaped characters as they are, and without control characters.

    >>> terminal_text(escape_markdown("R&D [beta]"))
    'R&D [beta]'
    """
    lines = (_ENTITY.sub(lambda m: chr(int(m[1])), line) for line in markdown.split("\n"))
    return "\n".join(_UNPRINTABLE.sub(" ", line) for line in lines)


_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:100rem;padding:0 1rem;"
    "overflow-wrap:break-word}p,h1,h2,h3{max-width:75rem}"
    "table{border-collapse:collapse;font-size:12px}td,th{border:1px solid #bbb;"
    "padding:.25rem .35rem;text-align:left}td span{white-space:nowrap}"
    # On a narrow screen tables and pictures scroll sideways; the name of a row stays in view.
    ".wide,figure{overflow-x:auto}td:first-child,th:first-child{position:sticky;left:0;"
    "background:Canvas;box-shadow:inset 0 0 0 .5px #bbb}figure{margin:1rem 0}img{max-width:100%}"
    "@media(max-width:48rem){img{min-width:44rem}}"
)
#: An interval, which is not broken over lines.
_INTERVAL = re.compile(r"\[[^\[\]]*\d, [^\[\]]*\d\]")


def html_page(title: str, text: str, pictures: Mapping[str, bytes]) -> str:
    """A report as one HTML file that needs nothing else.

    ``text`` is Markdown of headings, paragraphs and tables; ``pictures`` are PNG by title, shown
    below the first heading.
    """
    body: list[str] = []
    rows: list[list[str]] = []

    def flush() -> None:
        if rows:
            head, *others = [r for r in rows if not all(c.strip("-:") == "" for c in r)]
            cells = "".join(f"<th>{html.escape(c)}</th>" for c in head)
            lines = "".join(
                "<tr>" + "".join(f"<td>{_unbroken(c)}</td>" for c in r) + "</tr>" for r in others
            )
            body.append(
                f"<div class='wide'><table><thead><tr>{cells}</tr></thead>"
                f"<tbody>{lines}</tbody></table></div>"
            )
            rows.clear()

    for line in text.splitlines():
        if line.startswith("| "):
            rows.append([c.strip().replace("\\|", "|") for c in line[2:-2].split(" | ")])
            continue
        flush()
        level = len(line) - len(line.lstrip("#"))
        if level:
            body.append(f"<h{level}>{html.escape(line[level:].strip())}</h{level}>")
            if level == 1:
                body += [
                    f"<figure><img alt='{html.escape(name)}' src='data:image/png;base64,"
                    f"{base64.b64encode(png).decode()}'></figure>"
                    for name, png in pictures.items()
                ]
        elif line:
            body.append(f"<p>{html.escape(line).replace('**', '').replace('`', '')}</p>")
    flush()
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


def _unbroken(cell: str) -> str:
    """A cell as HTML, with intervals that stay on one line."""
    return _INTERVAL.sub(r"<span>\g<0></span>", html.escape(cell))
