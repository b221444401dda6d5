"""Every script and notebook of `examples/` runs on the sample world, with its extra alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from support.environments import python_with

pytestmark = pytest.mark.pipeline

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
#: Extra of each file, from the list of examples.
EXTRAS = dict(
    re.findall(
        r"^\| \[[^]]*\]\((.+?)\) .* `(\w+)` \|$",
        (EXAMPLES / "README.md").read_text("utf-8"),
        re.MULTILINE,
    )
)
#: Arguments of the scripts.
ARGUMENTS = {
    "language_model_rater.py": ["{model}"],
    "own_data.py": ["{folder}/data"],
    "own_source.py": ["{folder}/data"],
}
SAYS = {
    "first_recommender.py": "mean-rating  mean rating ",
    "language_model_rater.py": "a language model.",
    "own_data.py": "understudy run --domain recipes --items ",
    "own_experiment.py": "Do agents watch more of what is popular?",
    "own_rater.py": ".0",
    "own_recommender.py": "newest   NDCG@20 ",
    "own_source.py": "'raw.own_ratings': 3",
}


def code_of(notebook: Path) -> str:
    """Code cells of a notebook as one program."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    return "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")


def test_cells_of_notebooks_were_run() -> None:
    notebooks = [json.loads(path.read_text("utf-8")) for path in EXAMPLES.glob("*.ipynb")]
    ran = [cell.get("execution_count", 1) for notebook in notebooks for cell in notebook["cells"]]
    assert all(ran), "run docs/notebooks.py"


def test_every_example_is_in_the_list() -> None:
    files = {file.name for file in EXAMPLES.iterdir()} - {"README.md", "__pycache__"}
    assert set(EXTRAS) == files
    assert {name for name in files if name.endswith(".py")} == set(SAYS)


@pytest.mark.parametrize("name", sorted(EXTRAS))
def test_example_runs_with_its_extra_alone(
    name: str, working_home: Path, tiny_model: Path, tmp_path: Path
) -> None:
    path = EXAMPLES / name
    python = python_with(EXTRAS[name])
    home = tmp_path / "home" if name == "own_data.py" else working_home
    words = [word.format(folder=tmp_path, model=tiny_model) for word in ARGUMENTS.get(name, [])]
    run = ["-c", code_of(path)] if path.suffix == ".ipynb" else [str(path), *words]
    done = subprocess.run(
        [python, *run],
        env={
            "HF_HUB_OFFLINE": "1",
            "HOME": str(tmp_path),
            "MPLBACKEND": "agg",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{python.parent}:{os.environ['PATH']}",
            "STEPS": "320",
            "UNDERSTUDY_HOME": str(home),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert SAYS.get(name, "") in done.stdout
