"""Products of a world without a category tree, from Amazon's files to a release."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.running import run_understudy

from pipelines.config import Settings
from pipelines.worlds import prepare_world
from sim import open_release

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_products_publish_without_choice_sets(understudy: Path, tmp_path: Path) -> None:
    sample = prepare_world(Settings(runtime={"home": tmp_path / "sample"})).folder  # type: ignore[arg-type]
    for path in (sample / "amazon" / "2023").glob("*Toys_and_Games*"):
        target = tmp_path / "data" / path.relative_to(sample)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    home = tmp_path / "home"
    done = run_understudy(
        understudy, "run", "--home", str(home), "--data", str(tmp_path / "data"), "--json"
    )
    assert done.returncode == 0, done.stderr
    payload = json.loads(done.stdout)
    (released,) = payload["releases"]
    assert released["domain"] == "products"
    assert payload["checks"]["failed"] == []
    release = open_release("products@latest", home=home, verify=True)
    assert release["items"].rows
    assert not {"products", "categories", "product_category"} & set(released["tables"])
