"""Results that a rule may give, and their answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pipelines.config import EngineSettings, ServingSettings
from pipelines.errors import AnswerError, ConfigError, EngineError
from pipelines.llm.engines import Answer, Choice, JsonSchema, Regex, Request, Sampling
from pipelines.llm.engines.constraints import constraint_fault, obeys, request_fault
from pipelines.llm.engines.scripted import ScriptedEngine
from pipelines.llm.engines.testing import CONSTRAINTS, question

YES_NO = Choice(("yes", "no"))


def one(rule: Callable[[Request], Any], request: Request) -> Answer:
    [answer] = ScriptedEngine(rule).submit([request])
    return answer


def always_yes(request: Request) -> str:
    return "yes"


def test_weights_become_a_distribution_and_their_sum_the_mass() -> None:
    answer = one(lambda _: {"no": 0.3, "yes": 0.1}, question("?", YES_NO))
    assert answer.probabilities == pytest.approx((0.25, 0.75))
    assert (answer.text, answer.mass) == ("no", pytest.approx(0.4))
    assert one(lambda _: {"no": 3, "yes": 1}, question("?", YES_NO)).mass is None
    assert one(lambda _: "no", question("?", YES_NO)).probabilities == (0.0, 1.0)


@pytest.mark.parametrize(
    ("reply", "constraint", "detail"),
    [
        ("maybe", YES_NO, "not an option"),
        ({"yes": 0.0}, YES_NO, "all 0"),
        ({"yes": -1.0, "no": 2.0}, YES_NO, "negative"),
        ("abc", Regex("[0-9]+"), "breaks the constraint"),
        ({"yes": 1.0}, None, "weights where a text"),
    ],
)
def test_a_rule_that_errs_is_an_invalid_answer(reply: Any, constraint: Any, detail: str) -> None:
    answer = one(lambda _: reply, question("?", constraint))
    assert answer.status == "invalid"
    assert detail in answer.detail


def test_a_rule_may_refuse_a_row_or_end_the_run() -> None:
    def row(_: Request) -> str:
        raise AnswerError("not this one")

    def run(_: Request) -> str:
        raise EngineError("the model died")

    assert one(row, question("?")).detail == "not this one"
    with pytest.raises(EngineError, match="died"):
        one(run, question("?"))


def test_a_rule_may_give_the_whole_answer() -> None:
    other = question("another")
    answer = one(lambda _: Answer(other, "refused", detail="will not"), question("this"))
    assert (answer.status, answer.request) == ("refused", question("this"))


def test_four_characters_are_a_token() -> None:
    sampling = Sampling(max_tokens=2, stop=("!",))
    cut = one(lambda _: "123456789", question("12345", sampling=sampling))
    assert (cut.status, cut.text, cut.completion_tokens, cut.prompt_tokens) == (
        "truncated",
        "12345678",
        2,
        2,
    )
    assert one(lambda _: "123!56789", question("?", sampling=sampling)).text == "123"


def test_answers_do_not_come_in_the_order_of_the_requests() -> None:
    asked = [question(str(n), tag=n) for n in range(40)]
    tags = [a.request.tag for a in ScriptedEngine(always_yes, window=8).submit(asked)]
    assert sorted(tags) == list(range(40))
    assert tags != sorted(tags)


def test_settings_name_a_rule() -> None:
    place = f"{__name__}:always_yes"
    engine = ScriptedEngine.open(
        EngineSettings(kind="scripted", model=place), ServingSettings(window=3)
    )
    assert engine.identity.model == place
    assert engine.metadata()["window"] == 3
    for wrong in ("no.such.module:rule", "pipelines.errors:no_rule", "no colon"):
        with pytest.raises(ConfigError, match="rule can't be found"):
            ScriptedEngine.open(EngineSettings(kind="scripted", model=wrong), ServingSettings())


def test_the_built_in_rule_obeys_any_constraint() -> None:
    engine = ScriptedEngine()
    for constraint in CONSTRAINTS.values():
        for answer in engine.submit(question(f"{n}", constraint, seed=n) for n in range(20)):
            assert obeys(constraint, answer.text or "")


@pytest.mark.parametrize(
    ("request_", "fault"),
    [
        (Request(), "neither"),
        (Request(tokens=(-1,)), "token id"),
        (question("?", sampling=Sampling(top_p=0.0)), "top_p"),
        (question("?", sampling=Sampling(min_p=1.5)), "min_p"),
        (question("?", sampling=Sampling(repetition_penalty=0.0)), "repetition penalty"),
        (question("?", sampling=Sampling(temperature=float("nan"))), "temperature"),
        (question("?", sampling=Sampling(stop=("",))), "stop string"),
        (question("?", Choice(("a", "a"))), "twice"),
        (question("?", JsonSchema("[1]")), "JSON schema"),
    ],
)
def test_what_no_engine_can_serve_is_named(request_: Request, fault: str) -> None:
    assert fault in request_fault(request_)


def test_sound_requests_have_no_fault() -> None:
    for constraint in (None, YES_NO, *CONSTRAINTS.values()):
        assert request_fault(question("?", constraint)) == ""
        assert constraint_fault(constraint) == ""


def test_json_is_compact_but_for_one_space() -> None:
    schema = CONSTRAINTS["json"]
    assert obeys(schema, '{"genre": "drama", "liked": true}')
    assert not obeys(schema, '{ "genre":"drama","liked":true }')
    assert not obeys(schema, '{"genre": "drama", "liked": true} ')
