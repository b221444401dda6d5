"""Hook of the documentation site: links out of `docs/` become paths of the repository."""

from __future__ import annotations

import posixpath
import re
from typing import Any

#: A link to a file, not to an address or to a place on the page.
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace what the site does not hold: other folders, and folders without a page."""
    folder = posixpath.dirname(page.file.src_uri)

    def shown(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", folder, link[2]))
        if target.startswith("docs/") and target.endswith((".md", ".png")):
            return link[0]
        return f"{link[1]} (`{target}` in the repository)"

    return _LINK.sub(shown, markdown)
