"""`understudy train`: what it prints, writes and refuses."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from pipelines.cli.main import app
from sim.training._checkpoint import checkpoints

SHORT = [
    "--algo", "a2c", "--steps", "320", "--seed", "0", "--users", "6", "--evaluate-every", "160",
    "--set", "training.length_limit=20",
]  # fmt: skip


def run(home: Path, *words: str) -> Any:
    return CliRunner().invoke(app, ["train", "--home", str(home), *words])


def test_it_prints_baselines_as_rows_with_intervals_and_says_who_rated(
    home: Path, tmp_path: Path
) -> None:
    result = run(home, *SHORT, "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    for row in ("random", "popular", "mean-rating", "content", "a2c"):
        assert row in result.stdout
    assert "no language model was used" in result.stdout
    assert "over at least 3 seeds (95 %, Student's t); values: means over 1 seed" in result.stdout
    assert (tmp_path / "out" / "seed-0" / "policy.safetensors").is_file()


def test_a_pair_without_a_stored_score_stops_a_replay_and_is_named(
    home: Path, tmp_path: Path
) -> None:
    # Two films have no score of persona:default:1.
    result = run(home, *SHORT, "--steps", "3200", "--out", str(tmp_path), "--rater", "replay")
    assert result.exit_code == 7
    # One score was refused, one was never made; training meets either first.
    assert re.search(
        r"no rating \((refused|invalid).*: persona:default:1 for ml:[23]", result.output
    )


def test_a_report_is_written_as_printed(home: Path, tmp_path: Path) -> None:
    result = run(home, *SHORT, "--out", str(tmp_path / "out"), "--json")
    printed = orjson.loads(result.stdout)
    written = orjson.loads((tmp_path / "out" / "report.json").read_bytes())
    assert printed == written
    assert [row["recommender"] for row in printed["rows"] if row["trained"]] == ["a2c"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--algo", "sac"], 2, "one of a2c, ppo, trpo, dqn"),
        (["--release", "films"], 6, "films"),
        (["--rater", "statisticl"], 2, "training.rater: one of statistical"),
        (["--seed", "1", "--seed", "1"], 2, "every seed once"),
        (["--checkpoint", "nowhere/step-0000000001.pt"], 5, "no such checkpoint"),
    ],
)
def test_bad_options_are_errors_of_one_line(
    home: Path, tmp_path: Path, words: list[str], code: int, says: str
) -> None:
    seed = [] if "--seed" in words else ["--seed", "0"]
    done = run(home, "--out", str(tmp_path), "--steps", "32", *seed, *words)
    assert done.exit_code == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_release_without_ratings_is_refused_naming_the_table(
    small: ModuleType, tmp_path: Path
) -> None:
    small.build(tmp_path / "home", without=("interactions",))
    done = run(tmp_path / "home")
    assert done.exit_code == 6
    assert "interactions" in done.stderr


@pytest.mark.faults
@pytest.mark.pipeline
def test_ctrl_c_leaves_a_checkpoint_that_resume_goes_on_from(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [
        sys.executable, "-m", "pipelines.cli.main", "train", "--home", str(home), "--out", str(out),
        *SHORT, "--steps", "1000000", "--evaluate-every", "1000000",
    ]  # fmt: skip
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (out / "seed-0" / "curve.csv").exists():  # the first evaluation is at step 0
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    _, printed = process.communicate(timeout=120)
    assert process.returncode == 130, printed
    assert "--resume continues" in printed
    (kept,) = checkpoints(out / "seed-0" / "checkpoints")
    assert str(kept.path) in printed.replace("\n", "")
    wanted = ["--steps", str(kept.steps + 256), "--evaluate-every", "1000000", "--resume"]
    result = run(home, *SHORT, *wanted, "--out", str(out), "--json")
    assert result.exit_code == 0, result.output
    (curve,) = [r["curve"] for r in orjson.loads(result.stdout)["runs"]]
    assert curve[-1]["steps"] == kept.steps + 256


@pytest.mark.pipeline
def test_help_needs_no_torch() -> None:
    code = (
        "import sys\nfrom pipelines.cli.main import main\n"
        "try:\n    main(['train', '--help'])\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('torch', 'stable_baselines3') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
