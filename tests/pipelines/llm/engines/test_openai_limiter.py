"""Laws of the concurrency limit, its pauses and its order, and of back-off."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import EngineError
from pipelines.llm.engines.openai._limits import RateLimiter
from pipelines.retrying import backoff, retry_after


def limiter(slots: int = 8, *, max_wait: float = 60.0, max_cooldowns: int = 1_000) -> RateLimiter:
    return RateLimiter(slots, max_wait=max_wait, max_cooldowns=max_cooldowns, where="here")


_EVENTS = st.lists(
    st.tuples(st.sampled_from(["answered", "throttled"]), st.floats(0.001, 5.0)), max_size=120
)


@given(_EVENTS, st.integers(1, 300))
def test_limit_moves_between_one_and_the_most(events: list[tuple[str, float]], most: int) -> None:
    limit, now = limiter(most), 100.0
    for event, gap in events:
        now += gap
        before = limit.limit
        if event == "throttled":
            limit.throttled(0.0, started=now - gap / 2, now=now)
            assert limit.limit <= before
        else:
            limit.answered()
            assert limit.limit >= before
        assert 1 <= limit.limit <= most


@given(st.integers(2, 60), st.floats(0.01, 10.0))
def test_requests_sent_together_halve_the_limit_once(count: int, latency: float) -> None:
    limit = limiter(8)
    for n in range(count):
        limit.throttled(0.0, started=10.0, now=10.0 + latency + n * 1e-3)
    assert limit.limit == 4
    limit.throttled(0.0, started=10.0 + latency + count, now=11.0 + latency + count)
    assert limit.limit == 2


@given(_EVENTS, st.integers(1, 40))
def test_limit_is_the_most_again_after_enough_answers(
    events: list[tuple[str, float]], most: int
) -> None:
    limit, now = limiter(most), 100.0
    for _, gap in events:
        now += gap
        limit.throttled(0.0, started=now - gap / 2, now=now)
    for _ in range(most * (most + 1) // 2):
        limit.answered()
    assert limit.limit == most


def test_overlapping_pauses_hold_once_until_the_last_ends() -> None:
    limit = limiter()
    limit.throttled(2.0, started=9.0, now=10.0)
    limit.throttled(1.0, started=9.0, now=10.5)
    limit.throttled(3.0, started=9.0, now=11.0)
    assert limit.cooldown_left(11.0) == pytest.approx(3.0)
    assert limit.cooldown_left(14.5) == 0.0
    assert limit.paused == pytest.approx(4.0)


def test_a_pause_that_is_too_long_ends_the_run() -> None:
    with pytest.raises(EngineError, match="asks to wait 61 s"):
        limiter().throttled(61.0, started=0.0, now=0.0)


def test_too_many_pauses_without_an_answer_end_the_run() -> None:
    limit = limiter(max_cooldowns=3)
    for n in range(3):
        limit.throttled(1.0, started=10.0 * n, now=10.0 * n)
    limit.answered()
    for n in range(3, 6):
        limit.throttled(1.0, started=10.0 * n, now=10.0 * n)
    with pytest.raises(EngineError, match="after 3 pauses"):
        limit.throttled(1.0, started=100.0, now=100.0)


@given(st.integers(1, 200))
def test_a_pause_of_unknown_length_is_never_longer_than_is_honoured(many: int) -> None:
    limit = limiter(max_wait=4.0)
    for n in range(many):
        limit.throttled(None, started=100.0 * n, now=100.0 * n)
        assert 0.0 < limit.cooldown_left(100.0 * n) <= 4.0


def test_requests_wait_for_the_end_of_a_cooldown() -> None:
    async def work() -> None:
        limit, loop = limiter(2), asyncio.get_running_loop()
        began = loop.time()
        limit.throttled(0.05, started=began, now=began)
        async with limit.slot():
            assert loop.time() - began >= 0.05

    asyncio.run(asyncio.wait_for(work(), 10.0))


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
