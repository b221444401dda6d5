"""Exports read by the libraries that they are for, each in an environment where it installs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from clients.environments import client_environment
from support import small_release

from pipelines.exports import ExportOptions, export_release
from pipelines.store import Release

pytestmark = [pytest.mark.pipeline, pytest.mark.timeout(1_800)]

#: Requirements of a library's environment, and packages that are installed alone.
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
#: 6 personas times 24 films, one pair never scored and one refused; 40 people rate 16 films each.
PERSONA_RATINGS, PEOPLE_RATINGS = 6 * 24 - 2, 40 * 16


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return small_release.build(tmp_path_factory.mktemp("home"))


def read(library: str, code: str, folder: Path) -> Any:
    """What a script prints last, as JSON."""
    requirements, alone = READERS[library]
    python = client_environment(library, requirements, alone=alone)
    env = {**os.environ, "HF_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [python, "-c", code], cwd=folder, env=env, capture_output=True, text=True, check=False,
        timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_lenskit_and_croissant_and_datasets_read_exports(release: Release, tmp_path: Path) -> None:
    for form in ("lenskit", "croissant", "huggingface"):
        export_release(release, form, tmp_path / form)
    found = read(
        "lenskit",
        """
import json
import datasets, mlcroissant
from lenskit.data import Dataset
data = Dataset.load("lenskit/dataset")
rows = data.interactions().pandas(ids=True)
croissant = mlcroissant.Dataset("croissant/croissant.json")
vector = next(iter(croissant.records("item_embeddings")))["item_embeddings/vector"]
scores = datasets.load_dataset("huggingface", "preference_scores", split="full")
print(json.dumps({
    "lenskit": [data.user_count, data.item_count, data.interaction_count],
    "mean": float(rows[rows.user_id == "persona:default:2"].rating.mean()),
    "title": data.entities("item").attribute("title").pandas()["ml:5"],
    "issues": croissant.metadata.ctx.issues.report(),
    "vector": len(vector),
    "datasets": len(scores),
}))
""",
        tmp_path,
    )
    assert found == {
        "lenskit": [6, 24, PERSONA_RATINGS],
        "mean": 3.0,
        "title": "Film 5",
        "issues": "",
        "vector": 8,
        "datasets": PERSONA_RATINGS + 1,
    }


def test_lenskit_loads_movielens_exports(release: Release, tmp_path: Path) -> None:
    export_release(release, "movielens", tmp_path / "people", ExportOptions(users="people"))
    export_release(release, "movielens", tmp_path / "personas")
    counts = read(
        "lenskit",
        """
import json
from lenskit.data import load_movielens
data = [load_movielens(folder) for folder in ("people", "personas")]
print(json.dumps([[d.user_count, d.item_count, d.interaction_count] for d in data]))
""",
        tmp_path,
    )
    assert counts == [[40, 24, PEOPLE_RATINGS], [6, 24, PERSONA_RATINGS]]


def test_recbole_reads_its_atomic_files(release: Release, tmp_path: Path) -> None:
    export_release(release, "recbole", tmp_path / "movies")
    found = read(
        "recbole",
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


def test_recbole_trains_on_personas_who_rated_everything(tmp_path: Path) -> None:
    scores = small_release.frames()["movies.preference_scores"]
    persona, film = pl.col("persona_id").str.slice(-1), pl.col("item_id").str.slice(3)
    even = (persona.cast(pl.Int64) + film.cast(pl.Int64)) % 2 == 0
    rated = pl.when(pl.col("status") == "ok").then(pl.when(even).then(5).otherwise(2))
    release = small_release.build(
        tmp_path / "home",
        replace={"movies.preference_scores": scores.with_columns(sample=rated)},
    )
    export_release(release, "recbole", tmp_path / "movies")
    found = read(
        "recbole",
        """
import json, sys
sys.argv = sys.argv[:1]
from recbole.config import Config
from recbole.data import create_dataset, data_preparation
from recbole.utils import get_model, get_trainer, init_seed

def fit(model, **settings):
    shared = {
        "data_path": ".", "load_col": {"inter": ["user_id", "item_id", "rating"]}, "epochs": 2,
        "show_progress": False,
    }
    config = Config(model=model, dataset="movies", config_dict={**shared, **settings})
    init_seed(7, True)
    data = create_dataset(config)
    train, valid, test = data_preparation(config, data)
    network = get_model(model)(config, train.dataset).to(config["device"])
    trainer = get_trainer(config["MODEL_TYPE"], model)(config, network)
    trainer.fit(train, valid, saved=False)
    return data.inter_num, dict(trainer.evaluate(test, load_best_model=False))

try:
    fit("BPR")
except ValueError as error:
    refused = str(error)
liked = fit("BPR", val_interval={"rating": "[4,inf)"})
labelled = fit(
    "DeepFM", threshold={"rating": 4}, train_neg_sample_args=None,
    eval_args={"mode": "labeled"}, metrics=["AUC", "LogLoss"], valid_metric="AUC",
)
print(json.dumps({"refused": refused, "liked": liked, "labelled": labelled}, default=float))
""",
        tmp_path,
    )
    assert "interacted with all items" in found["refused"]
    # Twelve films of each persona are liked; one of these pairs has no answer.
    rows, metrics = found["liked"]
    assert rows == 6 * 12 - 1
    assert 0 < metrics["recall@10"] <= 1
    rows, metrics = found["labelled"]
    assert rows == PERSONA_RATINGS
    assert 0 < metrics["auc"] <= 1
