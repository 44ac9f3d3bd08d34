"""At most 60 requests a minute for one case."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from assent.service.rate import REQUESTS, WINDOW_SECONDS, CaseRate


class Timer:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_sixty_then_wait_until_the_first_is_a_minute_ago() -> None:
    timer = Timer()
    rate = CaseRate(timer=timer)
    assert [rate.allow("a") for _ in range(60)] == [None] * 60
    timer.now += 0.5
    assert rate.allow("a") == 60
    assert rate.allow("b") is None
    timer.now += 59.4
    assert rate.allow("a") == 1
    timer.now += 0.1
    assert rate.allow("a") is None


def test_who_is_refused_is_not_kept_waiting_for_it() -> None:
    timer = Timer()
    rate = CaseRate(timer=timer)
    for _ in range(60):
        rate.allow("a")
    for _ in range(59):
        timer.now += 1
        assert rate.allow("a") is not None
    timer.now += 1
    assert rate.allow("a") is None


def test_memory_is_bounded_and_given_back() -> None:
    timer = Timer()
    rate = CaseRate(cases=100, timer=timer)
    for number in range(1000):
        rate.allow(f"case-{number}")
    assert len(rate._asked) == 100
    timer.now += 61
    rate.allow("another")
    assert list(rate._asked) == ["another"]


def test_a_case_in_use_is_not_forgotten_for_others() -> None:
    rate = CaseRate(cases=10, timer=Timer())
    for number in range(59):
        assert rate.allow("busy") is None
        rate.allow(f"case-{number}")
    assert rate.allow("busy") is None
    assert rate.allow("busy") is not None


@given(st.lists(st.tuples(st.floats(0, 5), st.sampled_from("ab")), max_size=300))
def test_no_minute_has_more_than_sixty_and_waiting_as_told_helps(asked: list[tuple[float, str]]) -> None:
    timer = Timer()
    rate = CaseRate(timer=timer)
    allowed: dict[str, list[float]] = {"a": [], "b": []}
    for pause, case_id in asked:
        timer.now += pause / 10
        wait = rate.allow(case_id)
        if wait is None:
            allowed[case_id].append(timer.now)
        else:
            assert wait >= 1
            assert sum(time > timer.now - WINDOW_SECONDS for time in allowed[case_id]) == REQUESTS
    for times in allowed.values():
        for first, beyond in zip(times, times[REQUESTS:], strict=False):
            assert beyond - first >= WINDOW_SECONDS
    for case_id in allowed:
        wait = rate.allow(case_id)
        timer.now += wait or 0
        assert wait is None or rate.allow(case_id) is None
