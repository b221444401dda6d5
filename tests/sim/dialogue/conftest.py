"""One generated book for all tests of dialogues."""

from __future__ import annotations

import pytest

from sim.dialogue import Book
from sim.dialogue.testing import sample_book


@pytest.fixture(scope="session")
def book() -> Book:
    return sample_book(personas=80, sets=16)
