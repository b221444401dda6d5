"""One generated book for all tests of dialogues."""

from __future__ import annotations

import pytest

from sim.dialogue import Book
from sim.dialogue.testing import sample_book

#: A program of its own, run where TRL is installed.
collect_ignore = ["grpo_step.py"]


@pytest.fixture(scope="session")
def book() -> Book:
    return sample_book(personas=80, sets=16)
