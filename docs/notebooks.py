"""Run the notebooks of `examples/` on the packaged release and store what their cells show.

python docs/notebooks.py [NAME ...]
"""

from __future__ import annotations

import base64
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.pylabtools import select_figure_formats
from IPython.utils.capture import capture_output

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def executed(shell: InteractiveShell, source: str, number: int) -> list[dict[str, Any]]:
    """Outputs of a cell as the notebook format stores them: what it prints, then what it shows."""
    with capture_output() as captured:
        done = shell.run_cell(source, store_history=True)
        done.raise_error()
    outputs: list[dict[str, Any]] = []
    if printed := captured.stdout.partition(f"Out[{number}]: ")[0]:
        lines = printed.splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": lines})
    if done.result is not None:
        shown, _ = shell.display_formatter.format(done.result)
        data = {
            kind: base64.b64encode(value).decode() if isinstance(value, bytes) else value
            for kind, value in shown.items()
            if kind in ("text/plain", "image/png")
        }
        result = {"output_type": "execute_result", "execution_count": number, "metadata": {}}
        outputs.append({**result, "data": data})
    return outputs


def main() -> None:
    """Store outputs of the named notebooks, or of all."""
    for name in [name for name in os.environ if name.startswith("UNDERSTUDY_")]:
        del os.environ[name]
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        if sys.argv[1:] and path.stem not in sys.argv[1:]:
            continue
        notebook = json.loads(path.read_text("utf-8"))
        shell = InteractiveShell()
        select_figure_formats(shell, {"png"}, dpi=72)
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
            for number, cell in enumerate(cells, 1):
                cell["outputs"] = executed(shell, "".join(cell["source"]), number)
                cell["execution_count"] = number
            os.chdir(EXAMPLES)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
