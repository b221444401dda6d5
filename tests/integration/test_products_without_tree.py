"""Products of a world without a category tree, from Amazon's files to a release."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.fork_server import ForkServer

from pipelines.domains import DOMAINS
from sim import open_release

pytestmark = pytest.mark.night


def test_products_publish_without_choice_sets(
    forked: ForkServer, published_home: Path, word_encoder: Path, tmp_path: Path
) -> None:
    (sample,) = (published_home / "worlds").glob("sample-*")
    for path in (sample / "amazon" / "2023").glob("*Toys_and_Games*"):
        target = tmp_path / "data" / path.relative_to(sample)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    home = tmp_path / "home"
    few = ("personas.count=12", "scoring.max_pairs=400", f"embedding.model={word_encoder}")
    done = forked.run(
        *("run", "--home", str(home), "--data", str(tmp_path / "data"), "--json"),
        *(word for setting in few for word in ("--set", setting)),
    )
    assert done.returncode == 0, done.stderr
    payload = json.loads(done.stdout)
    (released,) = payload["releases"]
    assert released["domain"] == "products"
    assert payload["checks"]["failed"] == []
    release = open_release("products@latest", home=home, verify=True)
    assert release["items"].rows
    optional = {name.removeprefix("products.") for name in DOMAINS["products"].optional}
    assert not optional & set(released["tables"])
