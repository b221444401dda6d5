"""Checks of every reading: log-probabilities, distributions and masses that can't be."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.calls import STARS, LineEngine, answer, question

from pipelines.config import ServingSettings
from pipelines.errors import AnswerError
from pipelines.llm.answers import ask
from pipelines.llm.engines.choices import OptionTree, check_logprobs

_TREE = OptionTree.of([(1,), (2,), (1, 0)])


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=50))
def test_shares_of_one_are_possible_log_probabilities(weights: list[float]) -> None:
    total = math.fsum(weights) or 1.0
    check_logprobs([math.log(w / total) if w / total else -math.inf for w in weights])


@pytest.mark.parametrize("bad", [5.0, 0.01, math.nan, math.inf])
@pytest.mark.parametrize("node", [0, 1])
def test_impossible_log_probabilities_give_no_distribution(bad: float, node: int) -> None:
    steps = [{1: math.log(0.5), 2: math.log(0.3)}, {0: math.log(0.2)}]
    _TREE.distribution(steps)
    steps[node] = dict.fromkeys(steps[node], bad)
    with pytest.raises(AnswerError):
        _TREE.distribution(steps)


def test_probabilities_that_add_up_to_more_than_one_give_no_distribution() -> None:
    with pytest.raises(AnswerError, match=r"add up to 1\.8"):
        _TREE.distribution([{1: math.log(0.9), 2: math.log(0.9)}, {0: math.log(0.2)}])


@pytest.mark.parametrize("mass", [-0.1, 1.5, math.nan, math.inf])
def test_a_mass_out_of_bounds_is_invalid_from_any_engine(mass: float) -> None:
    engine = LineEngine(lambda r: replace(answer(r), mass=mass))
    asked = [question(1, constraint=STARS)]
    [row] = ask(engine, asked, None, serving=ServingSettings())
    assert (row[2].status, row[2].probabilities, row[2].mass) == ("invalid", None, None)
    assert "mass" in row[2].detail
