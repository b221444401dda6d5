"""Variables say what they hold: vague words are rare among their names."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Words that say nothing of what a variable holds.
VAGUE = {"found", "made", "own", "known", "told", "kept", "asked", "wanted", "there", "one"}
VAGUE |= {"whole", "rest"}
#: Largest share of the assignments and parameters that may be called so.
LIMIT = 0.005


def assigned(source: str) -> list[str]:
    """Names that a module's assignments, loops and parameters bind, without underscores."""
    names = [
        node.arg if isinstance(node, ast.arg) else node.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.arg)
        or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    ]
    return [name.strip("_") for name in names]


def test_loops_parameters_and_assignments_are_names() -> None:
    source = "def f(own):\n    for _known in own:\n        found = print(made)\n"
    assert assigned(source) == ["own", "known", "found"]


def test_vague_names_are_rare() -> None:
    names = [
        name
        for top in ("pipelines", "sim", "orchestration")
        for path in (ROOT / top).rglob("*.py")
        for name in assigned(path.read_text(encoding="utf-8"))
    ]
    vague = sum(name in VAGUE for name in names)
    assert vague <= LIMIT * len(names), (
        f"{vague} of {len(names)} variables are called {', '.join(sorted(VAGUE))}: name them after "
        "what they hold"
    )
