"""One generated world for all tests of dialogues."""

from __future__ import annotations

import pytest

from sim.dialogue import DialogueWorld
from sim.dialogue.testing import sample_world

#: A program of its own, run where TRL is installed.
collect_ignore = ["grpo_step.py"]


@pytest.fixture(scope="session")
def world() -> DialogueWorld:
    return sample_world(personas=80, sets=16)
