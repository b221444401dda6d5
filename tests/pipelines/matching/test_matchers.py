"""Every matcher of the registry, and one from a foreign file, meets the contract."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.config import MatchingSettings, ServingSettings, Settings
from pipelines.errors import ConfigError, ContractError
from pipelines.llm.answers import AnswerStore
from pipelines.llm.engines import Choice
from pipelines.llm.engines.scripted import ScriptedEngine, draw_reply
from pipelines.matching import (
    BIG_FIVE,
    History,
    ModelMatcher,
    StatisticalMatcher,
    match_users,
    open_matcher,
)
from pipelines.matching.testing import SETTINGS, check_matcher, small_world

FOREIGN = '''
from pipelines.matching import StatisticalMatcher


class Mine(StatisticalMatcher):
    """Proposes nothing of its own."""

    name = "mine"
'''


@pytest.mark.parametrize("name", ["statistical", "model"])
def test_registered_matchers_keep_the_contract(name: str) -> None:
    check_matcher(
        lambda settings: open_matcher(
            Settings(matching=settings, engine={"kind": "scripted"}), name
        )
    )


def test_matcher_of_a_file_keeps_the_contract(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FOREIGN)
    check_matcher(lambda settings: open_matcher(Settings(matching=settings), f"{path}:Mine"))


def scripted(history, world, rule=None, *, store=None, **changes):
    settings = SETTINGS.model_copy(update=changes)
    matcher = ModelMatcher(ScriptedEngine(rule), settings, store=store)
    return match_users(history, world["training_traits"], matcher, settings), matcher


def test_a_rerun_makes_no_model_call(history, world, tmp_path: Path) -> None:
    with AnswerStore(tmp_path) as store:
        first, asked = scripted(history, world, store=store)
        second, again = scripted(history, world, store=store)
    assert asked.tally.calls > 0
    assert again.tally.calls == 0
    assert first.personas.equals(second.personas)


def test_ratings_are_expected_values_of_the_distribution(history, world) -> None:
    def rule(request):
        if isinstance(request.constraint, Choice):
            return {"1": 0.25, "9": 0.75}
        return draw_reply(request)

    found, _ = scripted(history, world, rule)
    assert set(found.candidates["own"]) == {7.0}
    assert set(found.candidates["score"]) == {0.0}
    # Equal scores: the lower number.
    assert found.candidates.filter("chosen")["candidate"].to_list() == [0] * 6


def test_prompts_put_the_persona_before_its_lists(history, world) -> None:
    seen: dict[str, set[str]] = {}

    def rule(request):
        if isinstance(request.constraint, Choice):
            text = request.messages[1].content
            assert text.startswith("You are a person aged ")
            seen.setdefault(request.group, set()).add(text.split("Here is a list")[0])
        return draw_reply(request)

    scripted(history, world, rule)
    assert all(len(beginnings) == 1 for beginnings in seen.values())
    assert len(seen) == 12


def test_refused_replies_are_statuses_and_never_personas(history, world) -> None:
    def rule(request):
        answer = draw_reply(request)
        if isinstance(request.constraint, Choice):
            return answer
        return "{no}" if request.replicate == 0 else answer

    found, _ = scripted(history, world, rule)
    first = found.candidates.filter(pl.col("candidate") == 0)
    assert set(first["status"]) == {"invalid"}
    assert first["attributes"].null_count() == first["score"].null_count() == 6
    assert found.candidates.filter("chosen")["candidate"].to_list() == [1] * 6
    assert set(found.personas["candidates"]) == {1}
    # The summaries were refused as well, and are the statistical ones.
    assert set(found.personas["taste_writer"]) == {"statistical"}
    assert found.metadata["taste_status"] == {"invalid": 6}


def test_a_failed_rating_is_no_rating(history, world) -> None:
    from pipelines.errors import AnswerError

    def rule(request):
        if isinstance(request.constraint, Choice):
            raise AnswerError("no answer")
        return draw_reply(request)

    settings = SETTINGS
    matcher = ModelMatcher(
        ScriptedEngine(rule), settings, serving=ServingSettings(error_budget=1.0)
    )
    found = match_users(history, world["training_traits"], matcher, settings)
    assert set(found.candidates["status"]) == {"invalid"}
    assert not found.candidates["chosen"].any()
    assert set(found.personas["basis"]) == {"none"}
    assert found.personas["age_band"].null_count() == found.personas["score"].null_count() == 6


def test_unknown_matchers_are_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown matcher: 'statistcal'.*statistical"):
        open_matcher(Settings(), "statistcal")


def test_a_plug_in_that_is_no_class_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.py"
    path.write_text("Mine = 3\n\n\nclass Half:\n    pass\n")
    with pytest.raises(ConfigError, match=r"Mine is not a class \(int\): matcher .*none.py:Mine"):
        open_matcher(Settings(), f"{path}:Mine")
    with pytest.raises(ConfigError, match=r"the class has no fit and no tastes .*none.py:Half"):
        open_matcher(Settings(), f"{path}:Half")
    assert "none" not in sys.modules


def test_a_plug_in_with_too_few_candidates_is_named(history, world) -> None:
    class Lazy(StatisticalMatcher):
        name = "lazy"

        def candidates(self, users, lists, tastes, count):
            return super().candidates(users, lists, tastes, count).head(1)

    settings = SETTINGS
    with pytest.raises(
        ContractError, match=r"1 candidates and 6 summaries for 6 users: matcher lazy"
    ):
        match_users(history, world["training_traits"], Lazy(settings), settings)


def test_attributes_are_fitted_on_other_people_only() -> None:
    tables = small_world()
    tables.pop("training_traits")
    history = History.read("movies", **tables)
    users = np.array([4])
    lists = history.draw(users, np.array([6]), 1)
    changed = {name: values.copy() for name, values in history.stated.items()}
    for values in changed.values():
        values[4] = 6
    one = StatisticalMatcher(SETTINGS).fit(history)
    other = StatisticalMatcher(SETTINGS).fit(replace(history, stated=changed))
    before, after = (m.posterior(users, lists) for m in (one, other))
    for name in before:
        assert before[name].tolist() == after[name].tolist()


def test_kinds_of_people_are_told_apart_where_their_items_differ(history, world) -> None:
    settings = MatchingSettings(users=30, items=20, subset_size=4, others=10)
    matcher = StatisticalMatcher(settings)
    found = match_users(history, world["training_traits"], matcher, settings)
    truth = found.personas.select("user_id").join(
        world["human_users"], on="user_id", maintain_order="left"
    )
    share = (truth["age_band"] == found.personas["age_band"]).mean()
    assert share > 0.6  # a third by chance
    assert found.personas.select(BIG_FIVE).null_count().sum_horizontal().item() == 30 * 5
    assert set(found.personas["basis"]) == {"fitted"}
