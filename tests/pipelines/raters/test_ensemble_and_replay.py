"""Raters made of other raters, and of stored scores."""

import numpy as np
import polars as pl
import pytest

from pipelines.errors import ConfigError, ContractError
from pipelines.llm.engines import Answer
from pipelines.llm.engines.scripted import ScriptedEngine
from pipelines.raters import (
    SCALES,
    EnsembleRater,
    LLMRater,
    RandomRater,
    ReplayRater,
    score_pairs,
)
from pipelines.raters.testing import check_rater, contract_items, contract_personas

FIVE = SCALES["1-5"]


def always(text, name):
    return LLMRater(ScriptedEngine(lambda _: text, name=name), FIVE)


def stored(rater, personas=None, items=None):
    personas = contract_personas() if personas is None else personas
    items = contract_items() if items is None else items
    plan = personas.select("persona_id").join(items.select("item_id"), how="cross")
    return pl.concat(score_pairs(rater, plan, personas, items))


def test_ensemble_conforms():
    check_rater(EnsembleRater([RandomRater(FIVE), LLMRater(ScriptedEngine(), FIVE)]))


def test_replay_with_and_without_stored_pairs_conforms():
    check_rater(ReplayRater(stored(LLMRater(ScriptedEngine(), FIVE))[:7]))


def test_an_ensemble_is_the_mean_and_says_how_far_its_members_are_apart():
    both = EnsembleRater([always("5", "glad"), always("2", "sad"), RandomRater(FIVE)])
    batch = both.rate(contract_personas()[:1], contract_items()[:1])
    np.testing.assert_allclose(batch.probabilities, [[1 / 15, 0.4, 1 / 15, 1 / 15, 0.4]])
    # Two certain members are 1 apart, each is 0.8 from the uniform one.
    assert batch.disagreement == pytest.approx([(1 + 0.8 + 0.8) / 3])
    # Expected ratings 5, 2 and 3.
    assert batch.spread == pytest.approx([np.std([5, 2, 3])])
    facts = both.metadata()
    assert facts["disagreement"]["pairs"] == 1
    assert facts["disagreement"]["mean_total_variation"] == pytest.approx(2.6 / 3)
    assert set(facts["members"]) == {"llm:glad", "llm:sad", "random"}
    assert batch.answer_keys[0].count("+") == 1


def test_a_pair_that_one_member_failed_has_no_rating_and_names_it():
    def rule(request):
        if "Title: Two" in request.messages[1].content:
            return Answer(request, "refused", detail="policy")
        return "5"

    picky = LLMRater(ScriptedEngine(rule, name="picky"), FIVE)
    both = EnsembleRater([RandomRater(FIVE), picky])
    batch = both.rate(contract_personas()[:1], contract_items())
    assert batch.status == ["ok", "refused", "ok", "ok"]
    assert np.isnan(batch.probabilities[1]).all()
    assert np.isnan([batch.disagreement[1], batch.spread[1]]).all()
    assert batch.notes[1] == "llm:picky: policy"
    assert both.metadata()["disagreement"]["pairs"] == 3


def test_members_share_a_scale_and_have_names():
    with pytest.raises(ConfigError, match="two"):
        EnsembleRater([RandomRater(FIVE)])
    with pytest.raises(ConfigError, match="1-10, 1-5"):
        EnsembleRater([RandomRater(FIVE), LLMRater(ScriptedEngine(), SCALES["1-10"])])
    with pytest.raises(ConfigError, match="random, random"):
        EnsembleRater([RandomRater(FIVE), RandomRater(FIVE)])


def test_replay_repeats_scores_statuses_and_keys_in_any_order():
    def rule(request):
        if "Title: Three" in request.messages[1].content:
            return Answer(request, "truncated")
        return {"1": 0.2, "4": 0.6}

    rater = LLMRater(ScriptedEngine(rule, name="model"), FIVE)
    original = rater.rate(contract_personas(), contract_items())
    scores = stored(rater).with_columns(
        answer_key=pl.Series(original.answer_keys), prompt_version=pl.lit("1")
    )
    replay = ReplayRater(scores.sample(fraction=1.0, shuffle=True, seed=3))
    assert replay.name == "replay:llm:model"
    batch = replay.rate(contract_personas(), contract_items())
    np.testing.assert_array_equal(batch.probabilities, original.probabilities)
    assert batch.status == original.status
    assert batch.answer_keys == original.answer_keys
    assert batch.prompt_version == "1"
    assert replay.metadata()["replayed"] == {"rater": "llm:model", "pairs": 12, "failed": 3}


@pytest.mark.parametrize(("key", "model"), [(None, False), ("k1", True)])
def test_replayed_ensembles_are_a_models_if_answers_are_behind_them(key, model):
    scores = stored(always("5", "glad")).with_columns(
        rater=pl.lit("ensemble"), answer_key=pl.lit(key, pl.String)
    )
    replay = ReplayRater(scores)
    assert replay.language_model == model
    bound = replay.bind(contract_personas(), contract_items())
    assert bound.language_model == model
    assert bound.note.endswith("no language model was used.") == (not model)


def test_a_pair_that_is_not_stored_is_invalid_and_says_so():
    replay = ReplayRater(stored(always("5", "glad"), items=contract_items()[:2]))
    batch = replay.rate(contract_personas()[:1], contract_items())
    assert batch.status == ["ok", "ok", "invalid", "invalid"]
    assert np.isnan(batch.probabilities[2:]).all()
    assert batch.notes[2] == "no score of this pair is stored"


def test_what_cant_be_replayed_is_refused():
    glad, sad = stored(always("5", "glad")), stored(always("1", "sad"))
    with pytest.raises(ConfigError, match="llm:glad, llm:sad"):
        ReplayRater(pl.concat([glad, sad]))
    assert ReplayRater(pl.concat([glad, sad]), rater="llm:sad").name == "replay:llm:sad"
    with pytest.raises(ConfigError, match="no scores to replay"):
        ReplayRater(glad.clear())
    with pytest.raises(ContractError, match="2 rows score a pair"):
        ReplayRater(pl.concat([glad, glad[:1]]))
    with pytest.raises(ContractError, match="do not have 5 answers"):
        ReplayRater(glad.with_columns(probabilities=pl.lit([1.0]).cast(pl.List(pl.Float64))))
