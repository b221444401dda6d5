"""Opening the rater that the settings name."""

import numpy as np
import polars as pl
import pytest

from pipelines.config import Settings, load_settings
from pipelines.contracts import PUBLISHED
from pipelines.errors import ConfigError
from pipelines.llm.answers import AnswerStore
from pipelines.raters import SCALES, EnsembleRater, LLMRater, ReplayRater, open_rater, score_pairs
from pipelines.raters.testing import contract_items, contract_personas

STATS = pl.DataFrame(
    {
        "item_id": ["ml:1", "ml:2"],
        "train_ratings": [3, 3],
        "train_mean_rating": [5.0, 0.5],
    }
)
HUMAN = pl.DataFrame({"scale": ["0.5-5"]})
TABLES = {"item_stats": STATS, "interactions": HUMAN, "splits": HUMAN}


def settings(**scoring):
    return Settings(engine={"kind": "scripted"}, scoring=scoring)


def prompt(rater):
    return next(rater.requests(contract_personas(), contract_items())).messages


def test_settings_of_prompts_reach_the_model():
    wanted = settings(
        rater="llm", scale="one-ten", shots=1, system="Be Ana.", system_role=False, history=3
    )
    rater = open_rater(wanted, items=contract_items(), domain="games", **TABLES)
    assert isinstance(rater, LLMRater)
    assert (rater.scale, rater.style.shots) == (SCALES["one-ten"], 1)
    messages = prompt(rater)
    assert [m.role for m in messages] == ["user", "assistant", "user", "assistant"]
    assert messages[0].content.startswith("Be Ana.\n\nRatings go from one")
    assert "Average rating: 10.0 (from 1 to 10)" in messages[2].content
    assert rater.metadata()["by_hand"] == {
        "shots": 1,
        "system": "custom",
        "history": 3,
        "layout": "letter",
    }


def test_an_ensemble_is_opened_with_its_members():
    wanted = settings(
        rater="ensemble",
        scale="1-5",
        ensemble=[
            {"rater": "llm"},
            {"rater": "mean"},
            {"rater": "llm", "engine": {"kind": "scripted", "model": "support.rules:fives"}},
        ],
    )
    with pytest.raises(ConfigError, match="rule can't be found"):
        open_rater(wanted, items=contract_items(), **TABLES)
    wanted = settings(rater="ensemble", scale="1-5", ensemble=[{}, {"rater": "mean"}])
    rater = open_rater(wanted, items=contract_items(), **TABLES)
    assert isinstance(rater, EnsembleRater)
    assert [r.name for r in rater.raters] == ["llm:scripted", "mean"]
    rater.close()


def test_scores_of_a_model_meet_the_contract_and_can_be_replayed(tmp_path):
    personas, items = contract_personas(), contract_items()
    plan = personas.select("persona_id").join(items.select("item_id"), how="cross")
    with AnswerStore(tmp_path) as store:
        rater = open_rater(settings(rater="llm", scale="0-100"), items=items, store=store)
        scores = pl.concat(score_pairs(rater, plan, personas, items))
    PUBLISHED["movies.preference_scores"].validate(scores)
    replay = open_rater(settings(rater="replay"), items=items, preference_scores=scores)
    assert isinstance(replay, ReplayRater)
    np.testing.assert_array_equal(
        replay.rate(personas, items).probabilities, np.stack(scores["probabilities"].to_list())
    )


def test_what_is_missing_is_named():
    items = contract_items()
    with pytest.raises(ConfigError, match="needs preference_scores"):
        open_rater(settings(rater="replay"), items=items)
    with pytest.raises(ConfigError, match="needs item_stats, interactions, splits"):
        open_rater(settings(rater="statistical"), items=items)
    with pytest.raises(ConfigError):
        open_rater(Settings(scoring={"rater": "llm"}), items=items)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rater": "ensemble"},
        {"rater": "ensemble", "ensemble": [{}]},
        {"rater": "llm", "ensemble": [{}, {}]},
        {"scale": "0.5-5"},
        {"shots": 3},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ConfigError):
        load_settings(overrides={"scoring": wrong}, environ={})
