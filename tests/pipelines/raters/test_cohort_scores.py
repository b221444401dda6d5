"""Scores of a cohort in parts: any cut and any rerun give the same table, at no call too many."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.cohorts import in_cohort
from pipelines.config import ServingSettings
from pipelines.contracts import CONTRACTS
from pipelines.errors import ContractError, EngineError
from pipelines.llm.answers import AnswerStore
from pipelines.llm.engines import Answer
from pipelines.llm.engines.scripted import ScriptedEngine
from pipelines.raters import (
    SCALES,
    CohortScores,
    LLMRater,
    Part,
    Rater,
    RatingBatch,
    ScorePart,
    prompt_examples,
    score_pairs,
    scoring_metadata,
)
from pipelines.seeding import hash_ids, uniform

SCALE = SCALES["1-5"]


class Counting:
    """Rates by hashes of the ids, counts every pair that it is asked, and can fail at an item."""

    name, scale = "counting", SCALE

    def __init__(self, failing: str | None = None) -> None:
        self.asked: Counter[tuple[str, str]] = Counter()
        self.failing = failing

    def rate(self, personas, items, histories=None, *, pairs=None) -> RatingBatch:
        people, films = personas["persona_id"].to_list(), items["item_id"].to_list()
        named = [(people[p], films[i]) for p, i in pairs.tolist()]
        self.asked.update(named)
        draw = uniform(3, hash_ids(p for p, _ in named), hash_ids(i for _, i in named))
        weight = np.exp(-((np.arange(1, 6) - 1 - 4 * draw[:, None]) ** 2))
        p = weight / weight.sum(axis=1, keepdims=True)
        bad = np.array([i == self.failing for _, i in named])
        p[bad] = np.nan
        return RatingBatch(SCALE, p, ["engine_error" if b else "ok" for b in bad])

    def metadata(self) -> dict[str, Any]:
        return {"rater": self.name}


def tables(persons: int, films: int, cohort: str = "a") -> dict[str, pl.DataFrame]:
    people = [f"persona:{cohort}:{n:07d}" for n in range(persons)]
    ids = sorted(f"ml:{n}" for n in range(films))
    personas = pl.DataFrame(
        {"persona_id": people, "description": [f"Number {n}." for n in range(persons)]}
    )
    items = pl.DataFrame({"item_id": ids, "title": [f"Film {i}" for i in ids]})
    plan = personas.select("persona_id").join(items.select("item_id"), how="cross")
    return {"plan": plan, "personas": personas, "items": items}


def scored(
    world: dict[str, pl.DataFrame], rater: Rater, *, persons: int = 100, **options: Any
) -> tuple[pl.DataFrame, CohortScores]:
    """The table of a cohort by parts of so many personas, and its counts."""
    budget = options.pop("error_budget", 1.0)
    scores = CohortScores("a", world["plan"].height, budget)
    parts = [
        Part(world["plan"].join(people, on="persona_id", how="semi"), people, pl.DataFrame())
        for people in world["personas"].iter_slices(persons)
    ]
    rows = list(scores.rows(ScorePart(rater, world["items"], **options), parts))
    return pl.concat(rows), scores


def at_once(world: dict[str, pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(score_pairs(Counting(), world["plan"], world["personas"], world["items"]))


@settings(max_examples=25, deadline=None)
@given(
    persons=st.integers(1, 7),
    films=st.integers(1, 12),
    each=st.integers(1, 9),
    batch=st.integers(1, 30),
)
def test_any_cut_gives_the_table_of_one_go(persons, films, each, batch):
    world, rater = tables(persons, films), Counting()
    table, scores = scored(world, rater, persons=each, batch=batch)
    assert table.equals(at_once(world))
    assert set(rater.asked.values()) == {1}
    assert (scores.scored, dict(scores.statuses)) == (persons * films, {"ok": persons * films})


def test_a_plan_of_two_by_two_is_what_it_is_by_hand():
    table, _ = scored(tables(2, 2), Counting(), persons=1)
    assert table.select("persona_id", "item_id").rows() == [
        ("persona:a:0000000", "ml:0"), ("persona:a:0000000", "ml:1"),
        ("persona:a:0000001", "ml:0"), ("persona:a:0000001", "ml:1"),
    ]  # fmt: skip
    CONTRACTS["movies.preference_scores"].validate(table)


def test_a_failed_call_is_a_row_and_no_rating():
    table, scores = scored(tables(4, 12), Counting(failing="ml:5"))
    assert dict(scores.statuses) == {"ok": 44, "engine_error": 4}
    failed = table.filter(status="engine_error")
    assert failed["item_id"].unique().to_list() == ["ml:5"]
    assert failed["expected"].null_count() == 4


def test_beyond_the_error_budget_scoring_stops_with_a_summary():
    told = r"40 of 200 pairs failed \(40 engine_error\), more than the 19%.*: cohort a"
    with pytest.raises(EngineError, match=told):
        scored(tables(40, 5), Counting(failing="ml:4"), persons=40, error_budget=0.19)
    with pytest.raises(EngineError, match=r"20 of 100 pairs"):
        scored(tables(40, 5), Counting(failing="ml:4"), persons=20, error_budget=0.1)


def test_nothing_to_score_and_pairs_without_scores_are_errors():
    world = tables(2, 5)
    with pytest.raises(ContractError, match="nothing to score"):
        scored(world | {"plan": world["plan"].head(0)}, Counting())
    world["personas"] = world["personas"].head(1)
    with pytest.raises(ContractError, match="5 scores for 10 planned pairs"):
        scored(world, Counting())


@given(st.sampled_from(["a", "a-1", "ab", "a1"]))
@settings(deadline=None)
def test_a_range_of_ids_is_exactly_a_cohort(cohort):
    every = pl.concat([tables(2, 1, c)["personas"] for c in ("a", "a-1", "ab", "a1", "b")])
    found = every.filter(in_cohort(cohort))["persona_id"].to_list()
    assert found == tables(2, 1, cohort)["personas"]["persona_id"].to_list()


# -- raters that ask a model ---------------------------------------------------------------------


class Model:
    """A scripted model behind the answer store, and how often it is called."""

    def __init__(self, home, rule=None) -> None:
        self.calls = 0
        self.home, self.rule = home, rule or (lambda text: {"4": 0.7, "2": 0.2})

    def _answer(self, request) -> Any:
        self.calls += 1
        return self.rule(request.messages[-2].content + request.messages[-1].content)

    def rater(self) -> LLMRater:
        serving = ServingSettings(commit_every=5)
        return LLMRater(
            ScriptedEngine(self._answer), SCALE, store=AnswerStore(self.home, serving),
            serving=serving,
        )  # fmt: skip


def test_a_new_persona_and_a_new_item_cost_only_the_new_pairs(tmp_path):
    model, small, large = Model(tmp_path), tables(3, 8), tables(4, 9)
    for world, calls in ((small, 24), (small, 0), (large, 36 - 24)):
        model.calls = 0
        rater = model.rater()
        facts = scoring_metadata(rater, scored(world, rater)[1], readings={})
        rater.close()
        assert model.calls == facts["calls"] == calls
        assert facts["pairs"] == facts["scored_now"] == world["plan"].height
        assert facts["hit_rate"] == pytest.approx(1 - calls / world["plan"].height, abs=1e-6)
        assert facts["gpu_seconds"] is None


def test_examples_are_prompts_of_the_table_with_their_answers(tmp_path):
    world, model = tables(3, 4), Model(tmp_path)
    rater = model.rater()
    scores, _ = scored(world, rater)
    examples = prompt_examples(rater, scores[[3, 8]], world["personas"], world["items"])
    assert len(examples) == 2
    for shown in examples:
        row = scores.filter(persona_id=shown["persona_id"], item_id=shown["item_id"])
        assert shown["expected"] == row["expected"].item()
        title = f"Film {shown['item_id']}"
        assert title in "".join(m["text"] for m in shown["prompt"])
    assert prompt_examples(Counting(), scores, world["personas"], world["items"]) == []
    assert scores["prompt_version"].null_count() == scores["answer_key"].null_count() == 0
    rater.close()


def test_a_run_that_the_model_stopped_goes_on_where_it_was(tmp_path):
    world = tables(20, 20)

    def failing(text: str) -> Any:
        if "Film ml:1" in text:
            from pipelines.llm.engines import Request

            return Answer(Request(), "engine_error", detail="HTTP 500")
        return {"4": 1.0}

    broken = Model(tmp_path, failing)
    rater = broken.rater()
    with pytest.raises(EngineError, match=r"of \d+ calls? failed|pairs failed") as caught:
        scored(world, rater)
    rater.close()
    assert "run again" in str(caught.value)
    assert caught.value.details["tally"]["failures"]["engine_error"] > 0
    before = broken.calls
    healed = Model(tmp_path)
    rater = healed.rater()
    table, _ = scored(world, rater)
    rater.close()
    assert table["status"].unique().to_list() == ["ok"]
    assert 400 - before <= healed.calls < 400
