"""Hook of the documentation site: the site of the sample world beside the pages.

The release is the one that comes with the package, or the newest of the folder that
SITE_HOME names, with the results in it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pipelines

#: Folder of the site, as the page on it names it.
_SITE = "explore/index.html"


def _home() -> Path | None:
    packaged = Path(pipelines.__file__).with_name("sample_release")
    home = Path(os.environ.get("SITE_HOME") or packaged)
    return home if (home / "releases").is_dir() else None


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Link the site where there is one."""
    if page.file.src_uri != "explore.md" or _home() is None:
        return markdown
    return markdown.replace(f"`{_SITE}`", f'<a href="{_SITE}">{_SITE}</a>')


def on_post_build(config: Any, **_: Any) -> None:
    """Write the site into the built documentation."""
    home = _home()
    if home is None:
        return
    from pipelines.config import Settings
    from sim import open_release
    from sim.explore import explore

    release = open_release("movies@latest", home=home)
    folder = Path(config["site_dir"]) / Path(_SITE).parent
    explore(release, folder, Settings(runtime={"home": home}), number=60)
