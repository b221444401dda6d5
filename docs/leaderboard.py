"""Write the tables of docs/leaderboard.md.

understudy leaderboard movies@latest --json > movies.json
python docs/leaderboard.py "ml-latest-small=movies.json" ...
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("leaderboard.md")
BLOCK = re.compile(r"(?<=<!-- docs/leaderboard\.py -->\n\n)\|.*?\|(?=\n\n[^|])", re.S)


def cell(figure: Mapping[str, float] | None) -> str:
    """A value with its interval."""
    if figure is None:
        return "–"
    return f"{figure['value']:.3f} [{figure['low']:.2f}, {figure['high']:.2f}]"


def lines(boards: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Recommenders by world, then the agreement by world."""
    heads = [f"{world}: {side}" for world in boards for side in ("people", "personas")]
    yield f"| recommender | {' | '.join(heads)} |"
    yield f"|---|{'--:|' * len(heads)}"
    rows = [{row["recommender"]: row for row in board["rows"]} for board in boards.values()]
    for name in rows[0]:
        cells = [cell(by_name[name][key]) for by_name in rows for key in ("ndcg", "score")]
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""
    yield "| world | people | personas | release | agreement (Kendall's tau) | by chance |"
    yield "|---|--:|--:|---|--:|--:|"
    for world, board in boards.items():
        tau = board["agreement"]
        yield (
            f"| {world} | {board['people']:,} | {board['personas']:,} | `{board['release']}` | "
            f"{tau['value']:.2f} [{tau['low']:.2f}, {tau['high']:.2f}] | ±{board['chance']:.2f} |"
        )


def main() -> None:
    """Replace the tables on the page."""
    boards = {}
    for word in sys.argv[1:]:
        world, _, path = word.rpartition("=")
        boards[world] = json.loads(Path(path).read_text("utf-8"))
    text, count = BLOCK.subn(lambda _: "\n".join(lines(boards)), PAGE.read_text("utf-8"))
    assert count == 1, f"{PAGE} has no tables"
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
