"""Three public shapes of anybody's data, each from its files to a release of its own name."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.fork_server import ForkServer

from sim import open_release

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "own_data.py"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("recipes", marks=pytest.mark.pipeline),
        pytest.param("crossing", marks=pytest.mark.night),
        pytest.param("films", marks=pytest.mark.night),
    ],
)
def test_own_data_becomes_a_release(
    forked: ForkServer, word_encoder: Path, tmp_path: Path, name: str
) -> None:
    made = subprocess.run(
        [sys.executable, str(EXAMPLE), str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=True,
    )
    (command,) = [line for line in made.stdout.splitlines() if f"--domain {name} " in line]
    few = ("personas.count=12", f"embedding.model={word_encoder}")
    done = forked.run(
        *shlex.split(command)[1:],
        *("--home", str(tmp_path / "home"), "--json"),
        *(word for setting in few for word in ("--set", setting)),
    )
    assert done.returncode == 0, done.stderr
    payload = json.loads(done.stdout)
    assert payload["checks"]["failed"] == []
    release = open_release(f"{name}@latest", home=tmp_path / "home", verify=True)
    assert release["items"].rows == 48
    assert release["personas"].rows == 12
    assert release["preference_scores"].polars()["status"].unique().to_list() == ["ok"]
    assert release["graph_triples"].polars()["relation"].is_in(["belongs-to"]).any()
    card = Path(tmp_path / "home" / "releases" / f"{release.name}@{release.version}.md").read_text()
    assert "Terms of the data's owner" in card
    assert "GroupLens" not in card
