"""Exports read by the libraries that they are for, each in an environment where it installs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from support import small_release

from pipelines.exports import ExportOptions, export_release

pytestmark = pytest.mark.pipeline

#: Packages that are installed with what they need, and packages whose needs (torch, pyarrow and
#: others) are already in the environment that runs the tests.
READERS = {
    "lenskit": (
        ["pandas==2.3.3", "numpy==2.2.6", "mlcroissant==1.1.1"],
        [
            *("lenskit==2025.8.1", "lazy-loader", "humanize", "xopen", "backports.zstd"),
            *("datasets", "dill", "multiprocess", "xxhash"),
        ],
    ),
    "recbole": (
        ["pandas==2.2.3", "numpy==1.26.4", "scipy==1.12.0"],
        ["recbole==1.2.1", "colorlog", "colorama", "texttable", "thop", "tabulate"],
    ),
}


def environment(name: str, folder: Path) -> Path:
    """Python of an environment with a library, before the packages of the tests' own."""
    whole, alone = READERS[name]
    python = folder / "bin" / "python"
    install = ["pip", "install", "--python", python]
    for words in (
        ["venv", "--python", sys.executable, folder],
        [*install, *whole],
        [*install, "--no-deps", *alone],
    ):
        # uv links files from its cache and compiles none: a third of pip's processor time.
        done = subprocess.run(
            [Path(sys.executable).with_name("uv"), "--quiet", *words],
            capture_output=True, text=True, check=False, timeout=500,
        )  # fmt: skip
        if done.returncode:
            pytest.skip(f"{name} can't be installed: {done.stderr.strip()}")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / version / "site-packages"
    (site / "zz_own.pth").write_text(sysconfig.get_path("purelib"))
    return python


def read(python: Path, code: str, folder: Path) -> dict[str, object]:
    """What a script prints last, as JSON."""
    env = {**os.environ, "HF_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [python, "-c", code], cwd=folder, env=env, capture_output=True, text=True, check=False,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_lenskit_croissant_and_datasets_read_exports(tmp_path: Path) -> None:
    release = small_release.build(tmp_path / "home")
    for form in ("lenskit", "croissant", "huggingface", "movielens"):
        options = ExportOptions(users="people" if form == "movielens" else "personas")
        export_release(release, form, tmp_path / form, options)
    python = environment("lenskit", tmp_path / "venv")
    found = read(
        python,
        """
import json
import datasets, mlcroissant
from lenskit.data import Dataset, load_movielens_df
data = Dataset.load("lenskit/dataset")
rows = data.interactions().pandas(ids=True)
croissant = mlcroissant.Dataset("croissant/croissant.json")
vector = next(iter(croissant.records("item_embeddings")))["item_embeddings/vector"]
scores = datasets.load_dataset("huggingface", "preference_scores", split="full")
print(json.dumps({
    "lenskit": [data.user_count, data.item_count, data.interaction_count],
    "mean": float(rows[rows.user_id == "persona:default:2"].rating.mean()),
    "title": data.entities("item").attribute("title").pandas()["ml:5"],
    "movielens": len(load_movielens_df("movielens")),
    "issues": croissant.metadata.ctx.issues.report(),
    "vector": len(vector),
    "datasets": len(scores),
}))
""",
        tmp_path,
    )
    assert found == {
        "lenskit": [6, 24, 142],
        "mean": 3.0,
        "title": "Film 5",
        "movielens": 640,
        "issues": "",
        "vector": 8,
        "datasets": 143,
    }


def test_recbole_reads_its_atomic_files(tmp_path: Path) -> None:
    release = small_release.build(tmp_path / "home")
    export_release(release, "recbole", tmp_path / "movies")
    python = environment("recbole", tmp_path / "venv")
    found = read(
        python,
        """
import json, sys
sys.argv = sys.argv[:1]
from recbole.config import Config
from recbole.data.dataset import KnowledgeBasedDataset
columns = {
    "inter": ["user_id", "item_id", "rating"], "user": ["user_id", "age", "gender"],
    "item": ["item_id", "title", "genres", "year"],
    "kg": ["head_id", "relation_id", "tail_id"], "link": ["item_id", "entity_id"],
}
config = Config(model="CFKG", dataset="movies", config_dict={"data_path": ".", "load_col": columns})
data = KnowledgeBasedDataset(config)
print(json.dumps({
    "users": data.user_num - 1, "items": data.item_num - 1, "rows": data.inter_num,
    "triples": len(data.kg_feat), "mean": float(data.inter_feat["rating"].mean()),
}))
""",
        tmp_path,
    )
    # RecBole leaves out the film without a fact, ml:24. Personas give 1, 2 (two fewer), 3, 4, 5, 5.
    mean = (23 * (1 + 3 + 4 + 5 + 5) + 21 * 2) / 136
    expected = {"users": 6, "items": 24, "rows": 136, "triples": 40}
    assert {k: v for k, v in found.items() if k != "mean"} == expected
    assert found["mean"] == pytest.approx(mean)
