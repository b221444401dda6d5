"""The error tree: one line each, an exit code each, and they survive a process boundary."""

from __future__ import annotations

import copy

import pytest

from pipelines import errors
from pipelines.errors import UnderstudyError


def _all(cls: type[UnderstudyError] = UnderstudyError) -> list[type[UnderstudyError]]:
    """Every error but a study's `TooFew`, which states counts and not a text."""
    subclasses = [sub for sub in cls.__subclasses__() if sub.__name__ != "TooFew"]
    return [cls] + [c for sub in subclasses for c in _all(sub)]


@pytest.mark.parametrize("cls", _all(), ids=lambda c: c.__name__)
def test_every_error_is_exported_documented_and_one_line(cls: type[UnderstudyError]) -> None:
    assert cls.__name__ in errors.__all__
    assert cls.__doc__
    text = str(cls("it\nbroke", where="here\n", hint="do  this"))
    assert text == "it broke: here (do this)"
    assert 1 <= cls.exit_code <= 7


@pytest.mark.parametrize("cls", _all(), ids=lambda c: c.__name__)
def test_an_error_keeps_its_parts_when_copied_to_another_process(
    cls: type[UnderstudyError],
) -> None:
    error = cls("w", where="x", hint="y", details={"rows": [1]})
    again = copy.copy(error)  # goes through __reduce__, as sending it to a process does
    assert type(again) is cls
    assert (again.what, again.where, again.hint, again.details) == ("w", "x", "y", {"rows": [1]})


def test_only_faults_of_the_moment_may_be_retried() -> None:
    assert {c.__name__ for c in _all() if not c.permanent} == {
        "LockedError",
        "SourceUnavailableError",
    }
