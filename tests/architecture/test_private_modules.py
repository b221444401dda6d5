"""A private module (`_name.py`) belongs to its package: nobody else imports it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def modules(root: Path) -> dict[str, Path]:
    """Modules of the three packages by dotted name."""
    found = {}
    for top in ("pipelines", "sim", "orchestration"):
        for path in (root / top).rglob("*.py"):
            name = ".".join(path.relative_to(root).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


def imported(tree: ast.AST) -> Iterator[str]:
    """Dotted names that a module's import statements may mean, wherever they stand."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def intrusions(known: dict[str, Path]) -> set[tuple[str, str]]:
    """Pairs (importer, private module of another package).

    ``a.b._c`` may be imported by ``a.b`` and by modules below ``a.b``.
    """
    found = set()
    for importer, path in known.items():
        for name in imported(ast.parse(path.read_text("utf-8"))):
            owner, _, last = name.rpartition(".")
            if name in known and last.startswith("_") and not last.startswith("__"):
                inside = importer == owner or importer.startswith(f"{owner}.")
                if not inside:
                    found.add((importer, name))
    return found


def test_private_modules_stay_in_their_package(repository: Path) -> None:
    assert intrusions(modules(repository)) == set()


def test_intruder_is_found(tmp_path: Path) -> None:
    for name, text in {
        "pipelines/store/_disk.py": "",
        "pipelines/store/api.py": "from pipelines.store import _disk\n",
        "sim/train.py": "def f():\n    from pipelines.store._disk import x\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert intrusions(modules(tmp_path)) == {("sim.train", "pipelines.store._disk")}
