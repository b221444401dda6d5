"""A release with case tables small enough to work out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.ablation_release import RULE, Opened, build_with_series, settings_of

from pipelines.store import Store
from sim.ablations import SuiteContext


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the release; tests of a module share it and what it keeps."""
    folder = tmp_path_factory.mktemp("suite")
    build_with_series(folder)
    return folder


@pytest.fixture
def opened(home: Path) -> Opened:
    """Opens the suite of films on the release."""

    def open_(where: Path = home, **options: Any) -> SuiteContext:
        store = Store(where)
        settings = options.pop("settings", None) or settings_of(where)
        return SuiteContext.open(
            store, store.release("movies@latest"), "movies", settings, rule=RULE, **options
        )

    return open_
