"""A release to make case tables of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.ablation_release import build_with_series

from pipelines.store import Release


@pytest.fixture
def small_release() -> Callable[[Path], Release]:
    return build_with_series
