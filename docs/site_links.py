"""Hook of the documentation site: README is its front page; links out of `docs/` become paths."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

#: The front page.
_README = Path(__file__).resolve().parents[1] / "README.md"

#: A link to a file, not to an address or to a place on the page.
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def _beside(link: re.Match[str]) -> str:
    """A link of README as seen from `docs/`."""
    outside = not link[2].startswith("docs/")
    return f"[{link[1]}]({'../' * outside}{link[2]}{link[3] or ''})"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace what the site does not hold: other folders, and folders without a page."""
    folder = posixpath.dirname(page.file.src_uri)
    if page.file.src_uri == "index.md":
        markdown = _LINK.sub(_beside, _README.read_text("utf-8")).replace("](docs/", "](")

    def shown(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", folder, link[2]))
        if target.startswith("docs/") and target.endswith((".md", ".png", ".svg")):
            return link[0]
        return f"{link[1]} (`{target}` in the repository)"

    return _LINK.sub(shown, markdown)
