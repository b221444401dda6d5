"""Two runs on one table at once: one wins, the other is told so and changes nothing."""

from __future__ import annotations

import pytest

from orchestration.defs.scoring import _alone
from pipelines.context import PipelineContext
from pipelines.errors import LockedError


def test_the_second_run_is_refused_until_the_first_is_done(tmp_path) -> None:
    first, second = (PipelineContext({"runtime": {"home": str(tmp_path)}}) for _ in range(2))
    table = "movies.preference_scores"
    with _alone(first, table, "default"):
        with (
            pytest.raises(LockedError, match="another process is writing"),
            _alone(second, table, "movies-2026"),
        ):
            pytest.fail("two runs write one table")
        with _alone(second, "books.preference_scores", "books"):
            pass
    with _alone(second, table, "default"):
        pass
