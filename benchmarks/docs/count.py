"""Count words and pictures of README and of the pages of `docs/`, by revision.

python benchmarks/docs/count.py [REVISION ...]
"""

from __future__ import annotations

import re
import subprocess
import sys

#: A picture of a page: an image, or a diagram that is drawn from its text.
PICTURE = re.compile(r"!\[|^```mermaid", re.M)


def git(*words: str) -> str:
    """What a command of git prints."""
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Print a line for each revision."""
    print("| revision | README: words | pages | words | pages with a picture |")
    print("|---|--:|--:|--:|--:|")
    for revision in sys.argv[1:] or ["HEAD"]:
        names = git("ls-tree", "--name-only", revision, "docs/").split()
        pages = [git("show", f"{revision}:{n}") for n in names if n.endswith(".md")]
        readme = len(git("show", f"{revision}:README.md").split())
        words = sum(len(page.split()) for page in pages)
        drawn = sum(bool(PICTURE.search(page)) for page in pages)
        print(f"| {revision} | {readme:,} | {len(pages)} | {words:,} | {drawn} |")


if __name__ == "__main__":
    main()
