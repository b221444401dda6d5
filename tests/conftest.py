"""Fixtures every test may use."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import settings as hypothesis_settings
from support.fork_server import ForkServer
from support.running import run_understudy
from support.tiny_models import tiny_checkpoint

# Hypothesis times each example by default; no test here asserts wall time.
hypothesis_settings.register_profile("untimed", deadline=None)
hypothesis_settings.load_profile("untimed")

REPOSITORY = Path(__file__).resolve().parents[1]

# A background job of a script starts with SIGINT ignored, and so would every process that a test
# starts and interrupts.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take minutes go first, or one worker would end long after the other.

    With xdist this is the order of its queue (``--dist loadfile --no-loadscope-reorder``).
    """
    weight: dict[Path, int] = {}
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        heavy = 2 * ("integration" in marks) + ("slow" in marks)
        weight[item.path] = max(weight.get(item.path, 0), heavy)
    items.sort(key=lambda item: -weight[item.path])


def _shared_data_folder() -> Path:
    given = os.environ.get("UNDERSTUDY_SHARED_DATA")
    return Path(given) if given else REPOSITORY.parent / "shared" / "data"


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real source files, or skip: a user's clone does not have them."""
    folder = _shared_data_folder()
    if not (folder / "movielens").is_dir():
        pytest.skip(f"no real source files at {folder}: set UNDERSTUDY_SHARED_DATA to have them")
    return folder


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test reads the developer's own settings, tokens or store."""
    for key in list(os.environ):
        if key.startswith("UNDERSTUDY_") and key != "UNDERSTUDY_SHARED_DATA":
            monkeypatch.delenv(key)
    monkeypatch.delenv("TMDB_TOKEN", raising=False)
    monkeypatch.setenv("UNDERSTUDY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def understudy() -> Path:
    """The installed console script."""
    return Path(sys.executable).with_name("understudy")


@pytest.fixture(scope="session")
def forked() -> Iterator[ForkServer]:
    """`understudy` in forks of a process that has imported everything: for commands whose start
    is not what a test is about."""
    with ForkServer() as server:
        yield server


@pytest.fixture(scope="session")
def published_home(tmp_path_factory: pytest.TempPathFactory, understudy: Path) -> Path:
    """A home in which `understudy run` has published the default sample world.

    Made once per session by the real command, also when several workers run the tests; what the
    command printed as JSON is beside it in `run.json`. Tests may add to it, never take away.
    """
    shared = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        shared = shared.parent
    home = shared / "published"
    with FileLock(str(home) + ".lock"):
        done = home / "run.json"
        if not done.exists():
            result = run_understudy(understudy, "run", "--home", str(home), "--json")
            assert result.returncode == 0, result.stdout + result.stderr
            done.write_text(result.stdout, encoding="utf-8")
    return home


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny language model, as any Hugging Face checkpoint; tests only read it.

    Made once per session, also when several workers run the tests.
    """
    shared = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        shared = shared.parent
    folder = shared / "tiny-model"
    with FileLock(str(folder) + ".lock"):
        done = shared / "tiny-model.done"
        if not done.exists():
            tiny_checkpoint(folder)
            done.touch()
    return folder
