"""The conformance class over the registry and a plug-in, and what baselines answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipelines.errors import ConfigError
from sim.agents import BRAINS, AgentWorld, Brain, open_brain
from sim.agents.testing import BrainContract, sample_questions

PLUGIN = """
from sim.agents._baselines import AlwaysBrain

class Eager(AlwaysBrain):
    name = "eager"
"""


class TestEveryBrain(BrainContract):
    # The brain `model` needs an engine: tests/sim/agents/test_model_brain.py.
    @pytest.fixture(params=[*sorted({*BRAINS} - {"model"}), "plug-in"], autouse=True)
    def _named(self, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        self.name = str(request.param)
        if self.name == "plug-in":
            path = tmp_path / "eager_brain.py"
            path.write_text(PLUGIN)
            self.name = f"{path}:Eager"

    def make(self, world: AgentWorld) -> Brain:
        return open_brain(self.name).open(world)


def test_random_brain_rates_as_people_do(world: AgentWorld) -> None:
    brain = open_brain("random").open(world)
    judged = [
        reply
        for seed in range(100)
        for reply in brain.judge(sample_questions(world, range(len(world)), "judge", seed=seed))
    ]
    opinions = [opinion for reply in judged for opinion in reply.opinions]
    # 12,000 draws: three standard errors are 0.0126; 3,600 ratings: 0.025 for a share.
    assert abs(np.mean([o.watched for o in opinions]) - 0.3) < 0.0126
    ratings = np.array([o.rating for o in opinions if o.watched])
    shares = np.bincount(ratings, minlength=6)[1:] / len(ratings)
    assert np.abs(shares - world.histogram).max() < 0.025


def test_always_brain_watches_all_and_never_leaves(world: AgentWorld) -> None:
    brain = open_brain("always").open(world)
    (judged,), (decided,), (interviewed,) = (
        getattr(brain, kind)(sample_questions(world, [0], kind))
        for kind in ("judge", "decide", "interview")
    )
    assert all(opinion.watched for opinion in judged.opinions)
    assert (decided.action, interviewed.score) == ("NEXT", 10)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("randm", r"unknown brain: 'randm' \(.*random.*\)"),
        ("sim.agents:open_brain", r"open_brain is not a class \(function\)"),
        ("sim.agents:ItemDisplay", "has no open and no judge"),
        ("nowhere.at_all:Brain", "can't be imported"),
    ],
)
def test_what_is_no_brain_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_brain(name)
