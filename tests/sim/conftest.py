"""A small release in a store of its own, made once for all tests of ``sim``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from sim import Release, open_release


def _load() -> ModuleType:
    path = Path(__file__).resolve().parents[1] / "support" / "small_release.py"
    spec = importlib.util.spec_from_file_location("small_release", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault("small_release", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def small() -> ModuleType:
    """The module that makes small releases."""
    return _load()


@pytest.fixture(scope="session")
def home(small: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that holds one release, ``movies``; shared, so never write to it."""
    folder = tmp_path_factory.mktemp("sim") / "home"
    small.build(folder)
    return folder


@pytest.fixture(scope="session")
def release(home: Path) -> Release:
    """The release, opened."""
    return open_release("movies@latest", home=home)
