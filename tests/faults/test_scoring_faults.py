"""A server that misbehaves while a cohort is scored: rows say so, the run goes on or stops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support.llm_client import connect
from support.llm_faults import Fault, hang_up, raw, reset, status, truncated
from support.llm_server import LlmServer

from pipelines.config import ServingSettings
from pipelines.contracts import CONTRACTS
from pipelines.errors import EngineError
from pipelines.llm.answers import AnswerStore
from pipelines.raters import SCALES, CohortScores, LLMRater, Part, ScorePart

pytestmark = pytest.mark.faults

BROKEN = "The Unlucky Film"


@pytest.fixture
def server(tiny_model: Path) -> Iterator[LlmServer]:
    import torch

    torch.set_num_threads(1)
    with LlmServer(tiny_model) as started:
        yield started


def world(films: int, unlucky: int = 1) -> dict[str, pl.DataFrame]:
    """The last films are the unlucky ones."""
    people = [f"persona:a:{n:07d}" for n in range(2)]
    ids = [f"ml:{n:03d}" for n in range(films)]
    titles = [BROKEN if n >= films - unlucky else f"Film {n}" for n in range(films)]
    personas = pl.DataFrame({"persona_id": people, "description": ["Likes trains."] * 2})
    items = pl.DataFrame({"item_id": ids, "title": titles, "year": range(1900, 1900 + films)})
    plan = personas.select("persona_id").join(items.select("item_id"), how="cross")
    return {"plan": plan, "personas": personas, "items": items}


def about(server: LlmServer, text: str) -> Callable[[Any], bool]:
    """Whether a request's prompt, sent as token ids, holds a text."""

    def holds(body: Any) -> bool:
        prompt = body.get("prompt", [])
        # Some requests carry several prompts.
        ids = [n for p in prompt for n in (p if isinstance(p, list) else [p])]
        return text in (prompt if isinstance(prompt, str) else server.model.tokenizer.decode(ids))

    return holds


def score(
    folder: Path,
    server: LlmServer,
    tables: dict[str, pl.DataFrame],
    *,
    then: Callable[[], object] = lambda: None,
    **serving: Any,
) -> pl.DataFrame:
    """The table; ``then`` comes after the engine has looked at the server."""
    settings = ServingSettings(**{"error_budget": 1.0} | serving)
    scores = CohortScores("a", tables["plan"].height, settings.error_budget)
    part = Part(tables["plan"], tables["personas"], pl.DataFrame())
    rater = LLMRater(
        connect(server, retries=1, pause=0.001),
        SCALES["1-5"],
        store=AnswerStore(folder / "home", settings),
        serving=settings,
    )
    try:
        then()
        return pl.concat(scores.rows(ScorePart(rater, tables["items"]), [part]))
    finally:
        rater.close()


@pytest.mark.parametrize(
    "fault",
    [
        status(500),
        raw(b"\x00\xff garbage"),
        raw(b""),
        raw(b"{}"),
        truncated(),
        reset(),
        hang_up(),
    ],
    ids=["500", "garbage", "empty", "nothing", "cut", "reset", "hang_up"],
)
def test_a_row_that_can_not_be_had_is_marked_and_never_a_rating(
    tmp_path: Path, server: LlmServer, fault: Fault
) -> None:
    tables = world(4)
    down = about(server, BROKEN)
    made = score(tmp_path, server, tables, then=lambda: server.break_where(down, *[fault] * 50))
    table = CONTRACTS["movies.preference_scores"].validate(made)
    failed = table.filter(pl.col("status") != "ok")
    # A reply that can't be read takes the pairs along that were sent with the unlucky one.
    assert failed.filter(item_id="ml:003").height == 2
    if fault.status == 500:
        assert failed.height == 2
    assert set(failed["status"]) <= {"engine_error", "invalid"}
    for column in ("probabilities", "expected", "mode", "sample", "entropy"):
        assert failed[column].null_count() == failed.height
    assert failed["note"].null_count() == 0
    for row in table.filter(status="ok").iter_rows(named=True):
        assert sum(row["probabilities"]) == pytest.approx(1)


def test_a_fault_that_passes_leaves_no_trace(tmp_path: Path, server: LlmServer) -> None:
    tables = world(3, unlucky=0)
    calm = score(tmp_path / "calm", server, tables)
    faults = (status(500), None, reset(), status(429, retry_after=0.001), None, raw(b""))
    rough = score(tmp_path / "rough", server, tables, then=lambda: server.break_next(*faults))
    assert rough["status"].to_list() == ["ok"] * 6
    assert rough.equals(calm)


@pytest.mark.pipeline
def test_over_the_error_budget_the_run_stops_with_a_summary_and_goes_on(
    tmp_path: Path, server: LlmServer
) -> None:
    tables, down = world(80, unlucky=20), about(server, BROKEN)
    with pytest.raises(EngineError, match="failed") as caught:
        score(
            tmp_path, server, tables, error_budget=0.05,
            then=lambda: server.break_where(down, *[raw(b"\x00 garbage")] * 500),
        )  # fmt: skip
    message = str(caught.value)
    assert "run again" in message
    assert "5%" in message
    for _, faults in server._where:
        faults.clear()
    before = Counter(entry.status for entry in server.asked())
    table = score(tmp_path, server, tables, error_budget=0.05)
    assert table.height == 160
    assert table["status"].unique().to_list() == ["ok"]
    # Requests answered before the stop are not asked again.
    more = Counter(entry.status for entry in server.asked())[200] - before[200]
    assert 0 < more < 160 - before[200] + 16
