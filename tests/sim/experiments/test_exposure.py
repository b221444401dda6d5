"""Exposure to genres."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from sim.agents import AgentWorld, Judgement, Opinion, Question
from sim.agents._baselines import AlwaysBrain
from sim.experiments import ExperimentContext
from sim.experiments._exposure import _effects, exposure, genre_effects
from sim.experiments.testing import fresh
from tests.sim.experiments.scripted import Studies


def test_difference_in_differences_of_the_worked_example() -> None:
    nan = float("nan")
    found = genre_effects(
        np.array([7, 7, 7, 7, 3]),
        np.array([True, True, False, False, True]),
        [5, 4, 3, nan, 4],
        [4, 2, 4, 5, 4],
    )
    assert found.row(1, named=True) == {
        "person": 7, "exposed": 1.5, "others": -1.0, "difference": 2.5,
        "exposed_films": 2, "other_films": 1, "failed": 1,
    }  # fmt: skip
    assert found.row(0, named=True)["others"] is None


def test_brains_without_memory_of_a_visit_are_placebos(studies: Studies) -> None:
    found = studies("exposure")
    still = [row for row in found.rows if row.labels["brain"] in ("random", "statistical")]
    assert len(still) == 4
    for row in still:
        for figure in row.figures.values():
            assert figure is not None
            assert (figure.low, figure.value, figure.high) == (0, 0, 0)  # type: ignore[union-attr]
    assert sum("exactly 0" in note for note in found.notes) == 2


class Exposed(AlwaysBrain):
    """Rates a film by how many films of its first genre the visit has shown, up to 5."""

    name = "exposed"
    note = "Grows fond of genres."

    def open(self, world: AgentWorld) -> Self:
        self._first = world.genres.argmax(axis=1)
        return super().open(world)

    def judge(self, questions: Sequence[Question]) -> list[Judgement]:
        return [
            Judgement(opinions=tuple(
                Opinion(True, min(1 + self._shown(question, item), 5)) for item in question.items
            ))
            for question in questions
        ]  # fmt: skip

    def _shown(self, question: Question, item: int) -> int:
        earlier = [
            i for view in question.visit.views for i in view.items if i not in question.items
        ]
        return sum(self._first[i] == self._first[item] for i in earlier)


def test_an_effect_that_is_there_is_found(context: ExperimentContext) -> None:
    mine = fresh(context)
    brain = mine.brain(f"{__name__}:Exposed", mine.world(pages=2))
    study = exposure.study(mine)
    genres = ("comedy", "horror")
    frame = _effects(study, mine, brain, [1, 2], 24, genres, "random", (20, 10))
    means = frame.drop("persona_id").group_by("pages").mean().sort("pages")
    assert means["exposed"][1] > 0.5
    assert means["others"][1] < 0
    assert means["difference"][1] > means["difference"][0]


def test_learning_within_the_visit_is_called_no_placebo(studies: Studies) -> None:
    found = studies("exposure")
    assert [r.labels["pages"] for r in found.rows if "learning" in r.labels["brain"]] == ["1", "2"]
    assert not any("`statistical, learning` keeps nothing" in note for note in found.notes)
