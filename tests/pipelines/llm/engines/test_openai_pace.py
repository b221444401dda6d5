"""When the engine sends: laws of the limit, the pause, the waits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import EngineError
from pipelines.llm.engines.openai import Gate, Pace
from pipelines.retrying import backoff, retry_after

_EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["answered", "idle", "slow", "throttled"]),
        st.floats(0.001, 5.0),
        st.floats(0.0, 3.0),
    ),
    max_size=120,
)


def _tell(pace: Pace, event: str, seconds: float, now: float) -> None:
    if event == "throttled":
        pace.throttled(started=now - seconds, now=now)
    elif event == "slow":
        pace.answered(seconds + 60.0, started=now - seconds - 60.0, now=now)
    else:
        pace.answered(seconds, started=now - seconds, now=now, busy=event == "answered")


@given(_EVENTS, st.integers(1, 300))
def test_the_limit_stays_between_one_and_the_most(
    events: list[tuple[str, float, float]], most: int
) -> None:
    pace, now = Pace(most, patience=60.0), 100.0
    for event, seconds, gap in events:
        now += gap
        _tell(pace, event, seconds, now)
        assert 1 <= pace.limit <= most


@given(_EVENTS)
def test_trouble_never_raises_the_limit_and_answers_in_time_never_lower_it(
    events: list[tuple[str, float, float]],
) -> None:
    pace, now = Pace(64, patience=60.0), 100.0
    for event, seconds, gap in events:
        now += gap
        before = pace.limit
        _tell(pace, event, seconds, now)
        if event in ("throttled", "slow"):
            assert pace.limit <= before
        else:
            assert pace.limit >= before


@given(st.integers(2, 60), st.floats(0.01, 10.0))
def test_requests_sent_together_cut_the_limit_once(count: int, latency: float) -> None:
    pace = Pace(64, patience=60.0)
    for n in range(count):
        pace.throttled(started=10.0, now=10.0 + latency + n * 1e-3)
    assert pace.limit == 4
    pace.throttled(started=10.0 + latency + count, now=11.0 + latency + count)
    assert pace.limit == 2


@settings(max_examples=25, deadline=None)
@given(_EVENTS, st.integers(1, 40))
def test_after_enough_answers_in_time_the_limit_is_the_most_again(
    events: list[tuple[str, float, float]], most: int
) -> None:
    pace, now = Pace(most, patience=60.0), 100.0
    for event, seconds, gap in events:
        now += gap
        _tell(pace, event, seconds, now)
    for _ in range(most * most + 3_000):
        now += 1.0
        pace.answered(1.0, started=now - 1.0, now=now)
    assert pace.limit == most


def test_the_limit_doubles_per_round_trip_until_the_first_trouble_and_then_grows_by_one() -> None:
    pace = Pace(1_000, patience=60.0)
    for _ in range(8):
        pace.answered(1.0, started=0.0, now=1.0)
    assert pace.limit == 16
    pace.throttled(started=2.0, now=3.0)
    assert pace.limit == 8
    for _ in range(9):
        pace.answered(1.0, started=4.0, now=5.0)
    assert pace.limit == 9


def test_a_limit_that_nobody_uses_is_not_raised() -> None:
    pace = Pace(64, patience=60.0)
    for _ in range(50):
        pace.answered(0.1, started=0.0, now=0.1, busy=False)
    assert pace.limit == 8


def test_the_limit_stays_while_each_answer_takes_many_times_as_long_as_the_best() -> None:
    pace = Pace(64, patience=60.0)
    for _ in range(4):
        pace.answered(0.1, started=0.0, now=0.1)
    before = pace.limit
    for n in range(20):
        pace.answered(5.0, started=float(n), now=n + 5.0)
    assert before <= pace.limit <= before + 1, "the first slow answer may still be within the mean"


def test_a_longer_answer_is_no_slower_server() -> None:
    pace = Pace(64, patience=600.0)
    for n in range(40):
        long = 50 if n % 2 else 1
        pace.answered(0.1 * long, started=float(n), now=n + 1.0, work=long)
    assert pace.limit == 48


def test_overlapping_pauses_hold_once_and_until_the_last_ends() -> None:
    gate = Gate(60.0, 3, "here")
    gate.pause(2.0, now=10.0)
    gate.pause(1.0, now=10.5)
    gate.pause(3.0, now=11.0)
    assert gate.left(11.0) == pytest.approx(3.0)
    assert gate.left(14.5) == 0.0
    assert gate.paused == pytest.approx(4.0)


def test_a_pause_that_is_too_long_ends_the_run() -> None:
    with pytest.raises(EngineError, match="asks to wait 61 s"):
        Gate(60.0, 3, "here").pause(61.0, now=0.0)


def test_pauses_without_an_answer_between_them_end_the_run_when_they_are_too_many() -> None:
    gate = Gate(60.0, 3, "here")
    for n in range(3):
        gate.pause(1.0, now=10.0 * n)
    gate.answered()
    for n in range(3, 6):
        gate.pause(1.0, now=10.0 * n)
    with pytest.raises(EngineError, match="after 3 pauses"):
        gate.pause(1.0, now=100.0)


@given(st.integers(1, 200))
def test_a_pause_of_unknown_length_is_never_longer_than_is_honoured(many: int) -> None:
    gate = Gate(4.0, 1_000, "here")
    for n in range(many):
        gate.pause(None, now=100.0 * n)
        assert 0.0 < gate.left(100.0 * n) <= 4.0


@given(st.integers(0, 100_000))
def test_retry_after_reads_seconds_and_dates_alike(seconds: int) -> None:
    now = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    date = format_datetime(now + timedelta(seconds=seconds), usegmt=True)
    assert retry_after(str(seconds), now) == retry_after(date, now) == float(seconds)


@pytest.mark.parametrize("value", ["", "soon", "nan", "inf", "-inf", "1e999"])
def test_a_retry_after_that_says_nothing_counts_as_absent(value: str) -> None:
    assert retry_after(value) is None


def test_a_retry_after_in_the_past_means_now() -> None:
    assert retry_after("-5") == 0.0
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0


@given(st.integers(1, 10_000), st.floats(0.001, 5.0))
def test_backoff_is_jittered_and_bounded(attempt: int, base: float) -> None:
    whole = min(30.0, base * 2.0 ** min(attempt - 1, 16))
    assert whole / 2 <= backoff(attempt, base) <= whole
