"""Scores in shards: any split, any stop and any rerun give the same table, at no call too many."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
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
    LLMRater,
    RatingBatch,
    Shards,
    prompt_examples,
    score_pairs,
    scoring_facts,
    shard_numbers,
)
from pipelines.seeding import hash_ids, uniform
from pipelines.store import Store

DATASET = "movies.preference_scores"
SCALE = SCALES["1-5"]


class Counting:
    """Rates by hashes of the ids, counts every pair that it is asked, and can stop dead."""

    name, scale = "counting", SCALE

    def __init__(self, stop_after: int | None = None, failing: str | None = None) -> None:
        self.asked: Counter[tuple[str, str]] = Counter()
        self.stop_after, self.failing = stop_after, failing

    def rate(self, personas, items, histories=None, *, pairs=None) -> RatingBatch:
        people, films = personas["persona_id"].to_list(), items["item_id"].to_list()
        named = [(people[p], films[i]) for p, i in pairs.tolist()]
        if self.stop_after is not None and self.asked.total() + len(named) > self.stop_after:
            raise EngineError("the engine died", where="counting")
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
    plan = plan.with_columns(stratum=pl.lit("all"))
    return {"plan": plan, "personas": personas, "items": items}


def shards(folder, world, *, count=4, previous=None, decides=None, cohort="a", **more) -> Shards:
    return Shards(cohort, **world, decides=decides or {}, count=count, folder=folder / "parts",
                  previous=previous, **more)  # fmt: skip


def table_of(made: Shards) -> pl.DataFrame:
    return pl.concat(made.rows())


def at_once(world: dict[str, pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(score_pairs(Counting(), world["plan"], world["personas"], world["items"]))


def commit(store: Store, made: Shards):
    with store.write(DATASET, code_version="1") as writer:
        for frame in made.rows():
            writer.append(frame)
        writer.note(
            shards={made.cohort: {"count": made.count, "keys": made.keys, "failed": made.failed}}
        )
    made.clear()
    return writer.snapshot


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    persons=st.integers(1, 7),
    films=st.integers(1, 12),
    count=st.integers(1, 9),
    batch=st.integers(1, 30),
    stops=st.lists(st.integers(0, 40), max_size=3),
    thin=st.integers(0, 3),
)
def test_any_split_and_any_stop_give_the_table_of_one_go(
    tmp_path_factory, persons, films, count, batch, stops, thin
):
    world, folder = tables(persons, films), tmp_path_factory.mktemp("split")
    kept = (pl.int_range(pl.len()) % 4 >= thin) | (pl.int_range(pl.len()) == 0)
    world["plan"] = world["plan"].filter(kept)
    whole_parts: set[tuple[str, str]] = set()
    for stop in stops:
        made, rater = shards(folder, world, count=count), Counting(stop_after=stop)
        try:
            made.score(rater, batch=batch)
        except EngineError:
            assert not list((folder / "parts").glob("*.making"))
        assert not whole_parts & set(rater.asked)
        whole_parts |= {
            (p, i)
            for part in (folder / "parts").glob("*.parquet")
            for p, i in pl.read_parquet(part, columns=["persona_id", "item_id"]).iter_rows()
        }
    made, rater = shards(folder, world, count=count), Counting()
    made.score(rater, batch=batch)
    assert set(rater.asked) == set(world["plan"].select("persona_id", "item_id").rows()) - (
        whole_parts
    )
    assert set(rater.asked.values()) <= {1}
    assert table_of(made).equals(at_once(world))


def test_a_plan_of_two_by_two_is_what_it_is_by_hand(tmp_path):
    world = tables(2, 2)
    made = shards(tmp_path, world, count=2)
    numbers = shard_numbers(world["items"]["item_id"], 2).to_list()
    assert [s.number for s in made.shards] == sorted(set(numbers))
    pairs = {s.number: world["plan"][s.rows]["item_id"].unique().to_list() for s in made.shards}
    for item, number in zip(["ml:0", "ml:1"], numbers, strict=True):
        assert item in pairs[number]
    made.score(Counting())
    assert table_of(made).select("persona_id", "item_id").rows() == [
        ("persona:a:0000000", "ml:0"), ("persona:a:0000000", "ml:1"),
        ("persona:a:0000001", "ml:0"), ("persona:a:0000001", "ml:1"),
    ]  # fmt: skip
    assert (made.scored, dict(made.statuses)) == (4, {"ok": 4})
    CONTRACTS[DATASET].validate(table_of(made))


def test_what_the_table_holds_is_asked_for_no_more(tmp_path):
    world, store = tables(5, 20), Store(tmp_path / "home")
    first = shards(tmp_path, world)
    first.score(Counting())
    snapshot = commit(store, first)
    assert list((tmp_path / "parts").iterdir()) == []
    again, rater = shards(tmp_path, world, previous=snapshot), Counting()
    assert again.missing() == []
    again.score(rater)
    assert rater.asked.total() == 0
    assert commit(store, again).version == snapshot.version


def test_a_changed_item_asks_only_for_the_pairs_of_its_shard(tmp_path):
    world, store = tables(5, 20), Store(tmp_path / "home")
    first = shards(tmp_path, world)
    first.score(Counting())
    snapshot = commit(store, first)
    title = pl.when(pl.col("item_id") == "ml:7").then(pl.lit("Other")).otherwise("title")
    changed = world | {"items": world["items"].with_columns(title=title)}
    made, rater = shards(tmp_path, changed, previous=snapshot), Counting()
    made.score(rater)
    number = dict(zip(world["items"]["item_id"],
                      shard_numbers(world["items"]["item_id"], 4), strict=True))  # fmt: skip
    mates = {item for item, n in number.items() if n == number["ml:7"]}
    assert {item for _, item in rater.asked} == mates
    assert rater.asked.total() == 5 * len(mates) < 100
    assert table_of(made).equals(at_once(world))


@pytest.mark.parametrize("what", ["decides", "persona", "about", "pairs"])
def test_whatever_decides_a_score_is_in_the_key(tmp_path, what):
    world = tables(3, 10)
    stats = pl.DataFrame({"item_id": ["ml:3"], "mean": [3.0]})
    base = shards(tmp_path, world, about={"item_stats": stats}).keys
    assert shards(tmp_path, world, about={"item_stats": stats}).keys == base
    other = dict(world)
    if what == "decides":
        keys = shards(tmp_path, world, decides={"x": 1}, about={"item_stats": stats}).keys
    elif what == "persona":
        other["personas"] = world["personas"].with_columns(description=pl.lit("Other."))
        keys = shards(tmp_path, other, about={"item_stats": stats}).keys
    elif what == "about":
        stats = stats.with_columns(mean=pl.lit(4.0))
        keys = shards(tmp_path, world, about={"item_stats": stats}).keys
        changed = {n for n in base if keys[n] != base[n]}
        assert changed == {str(shard_numbers(pl.Series(["ml:3"]), 4).item())}
        return
    else:
        other["plan"] = world["plan"].filter(pl.col("persona_id") != "persona:a:0000000")
        keys = shards(tmp_path, other, about={"item_stats": stats}).keys
    assert all(keys[n] != base[n] for n in base)


def test_keys_follow_values_not_files_or_orders_of_rows(tmp_path):
    world = tables(6, 10)
    world["plan"].write_parquet(tmp_path / "plan.parquet", row_group_size=7)
    read = world | {
        "plan": pl.read_parquet(tmp_path / "plan.parquet"),
        "items": pl.concat([world["items"].tail(4), world["items"].head(6)]),
        "personas": world["personas"].reverse(),
    }
    assert shards(tmp_path, read).keys == shards(tmp_path, world).keys


def test_notes_of_a_cohort_whose_rows_are_gone_are_not_believed(tmp_path):
    world, store = tables(3, 10), Store(tmp_path / "home")
    first = shards(tmp_path, world)
    first.score(Counting())
    other = shards(tmp_path, tables(3, 10, "b"), cohort="b")
    other.score(Counting())
    with store.write(DATASET, code_version="1") as writer:
        for frame in other.rows():
            writer.append(frame)
        writer.note(shards={"a": {"count": 4, "keys": first.keys}})
    first.clear()
    again = shards(tmp_path, world, previous=writer.snapshot)
    assert len(again.missing()) == len(again.shards)
    again.score(Counting())
    assert table_of(again).equals(at_once(world))


def test_a_failed_call_is_a_row_now_and_a_question_again_next_time(tmp_path):
    world, store = tables(4, 12), Store(tmp_path / "home")
    first, broken = shards(tmp_path, world), Counting(failing="ml:5")
    first.score(broken)
    assert dict(first.statuses) == {"ok": 44, "engine_error": 4}
    number = shard_numbers(pl.Series(["ml:5"]), 4).item()
    assert first.failed == [number]
    snapshot = commit(store, first)
    failed = snapshot.read().filter(status="engine_error")
    assert failed["item_id"].unique().to_list() == ["ml:5"]
    assert failed["expected"].null_count() == 4
    again, rater = shards(tmp_path, world, previous=snapshot), Counting()
    assert [s.number for s in again.missing()] == [number]
    again.score(rater)
    assert again.failed == []
    assert table_of(again).equals(at_once(world))


def test_a_part_with_failed_calls_does_not_outlive_its_run(tmp_path):
    world = tables(4, 12)
    shards(tmp_path, world).score(Counting(failing="ml:5"))
    again, rater = shards(tmp_path, world), Counting()
    again.score(rater)
    assert ("persona:a:0000000", "ml:5") in rater.asked
    assert table_of(again).equals(at_once(world))


def test_what_a_killed_run_left_half_written_is_removed(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "0123.making").write_bytes(b"PAR1 and no more")
    made = shards(tmp_path, tables(2, 5))
    made.score(Counting())
    assert not list((tmp_path / "parts").glob("*.making"))
    made.clear()
    assert list((tmp_path / "parts").iterdir()) == []


def test_a_part_that_is_not_what_was_planned_is_refused(tmp_path):
    made = shards(tmp_path, tables(3, 10))
    made.score(Counting())
    part = next((tmp_path / "parts").glob("*.parquet"))
    pl.read_parquet(part).head(1).write_parquet(part)
    with pytest.raises(ContractError, match="planned pairs"):
        table_of(made)


def test_nothing_to_score_and_scores_too_early_are_errors(tmp_path):
    world = tables(2, 5)
    with pytest.raises(ContractError, match="nothing to score"):
        shards(tmp_path, world | {"plan": world["plan"].head(0)})
    with pytest.raises(ContractError, match="not scored"):
        next(shards(tmp_path, world).rows())


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
        made, rater = shards(tmp_path, world), model.rater()
        made.score(rater)
        facts = scoring_facts(rater, made)
        made.clear()
        rater.close()
        assert model.calls == facts["calls"] == calls
        assert facts["pairs"] == facts["scored_now"] == world["plan"].height
        assert facts["hit_rate"] == pytest.approx(1 - calls / world["plan"].height, abs=1e-6)
        assert facts["gpu_seconds"] is None


def test_examples_are_prompts_of_the_table_with_their_answers(tmp_path):
    world, model = tables(3, 4), Model(tmp_path)
    rater, made = model.rater(), shards(tmp_path, world)
    made.score(rater)
    scores = table_of(made)
    examples = prompt_examples(rater, scores, world["personas"], world["items"], count=2)
    assert len(examples) == 2
    for shown in examples:
        row = scores.filter(persona_id=shown["persona_id"], item_id=shown["item_id"])
        assert shown["expected"] == row["expected"].item()
        title = f"Film {shown['item_id']}"
        assert title in "".join(m["text"] for m in shown["prompt"])
    assert prompt_examples(Counting(), scores, world["personas"], world["items"]) == []
    assert scores["prompt_version"].null_count() == scores["answer_key"].null_count() == 0
    rater.close()


def test_beyond_the_error_budget_the_run_stops_with_a_summary_and_goes_on_later(tmp_path):
    world = tables(20, 20)

    def failing(text: str) -> Any:
        if "Film ml:1" in text:
            from pipelines.llm.engines import Request

            return Answer(Request(), "engine_error", detail="HTTP 500")
        return {"4": 1.0}

    broken = Model(tmp_path, failing)
    rater, made = broken.rater(), shards(tmp_path, world, count=2)
    with pytest.raises(EngineError, match=r"of \d+ calls? failed|pairs failed") as caught:
        made.score(rater)
    rater.close()
    assert "run again" in str(caught.value)
    assert caught.value.details["tally"]["failures"]["engine_error"] > 0
    before = broken.calls
    healed = Model(tmp_path)
    rater, made = healed.rater(), shards(tmp_path, world, count=2)
    made.score(rater)
    rater.close()
    assert table_of(made)["status"].unique().to_list() == ["ok"]
    assert 400 - before <= healed.calls < 400
