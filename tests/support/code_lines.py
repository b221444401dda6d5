"""Lines of code: not blank, no comment, no docstring.

As a program it prints today's figures in the form of ``tests/architecture/budget.toml``:
``python tests/support/code_lines.py``.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

__all__ = ["PACKAGES", "code_lines", "package_lines"]

#: Folders with a budget for each of their packages; modules of their own count as the folder.
SPLIT = ("pipelines", "sim", "tests")
PACKAGES = (*SPLIT, "orchestration", "understudy")


def code_lines(text: str) -> int:
    """Count the lines of a Python source that are not blank, comment or docstring."""
    strings: set[int] = set()
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and node.end_lineno != node.lineno:
            strings.update(range(node.lineno, (node.end_lineno or 0) + 1))
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                docstrings.update(range(first.lineno, (first.end_lineno or 0) + 1))
    return sum(
        number not in docstrings
        and (number in strings or (line.strip() != "" and not line.lstrip().startswith("#")))
        for number, line in enumerate(text.splitlines(), 1)
    )


def package_lines(repository: Path, top: str) -> dict[str, int]:
    """Lines of code of a top-level folder's packages, by path: ``pipelines/store``, ``sim``."""
    lines: Counter[str] = Counter()
    for path in (repository / top).rglob("*.py"):
        parts = path.relative_to(repository).parts
        package = "/".join(parts[: 2 if top in SPLIT and len(parts) > 2 else 1])
        lines[package] += code_lines(path.read_text(encoding="utf-8"))
    return dict(sorted(lines.items()))


if __name__ == "__main__":
    for folder in PACKAGES:
        for name, count in package_lines(Path(__file__).resolve().parents[2], folder).items():
            print(f'"{name}" = {count}')
