"""Rate limits: at most `count` starts in any span of the given length."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onerow.core import rates
from onerow.core.errors import BadInput
from onerow.core.rates import Rate, Window, parse_rate


@pytest.mark.parametrize(
    "text, rate",
    [
        ("60/min", Rate(60, 60_000)),
        ("5/s", Rate(5, 1000)),
        ("10 / 30s", Rate(10, 30_000)),
        ("1000/day", Rate(1000, 86_400_000)),
        ("2/hour", Rate(2, 3_600_000)),
    ],
)
def test_rates_are_parsed(text: str, rate: Rate) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "0/s", "60", "60/", "/min", "1/1ms", "-1/s", "1/parsec"])
def test_an_invalid_rate_is_rejected(text: str) -> None:
    with pytest.raises(BadInput):
        parse_rate(text)


@given(
    st.integers(1, 20),
    st.integers(100, 10_000),
    st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 10)), max_size=60),
)
def test_no_span_contains_more_starts_than_the_rate_allows(count: int, per: int, asks: list[tuple[int, int]]) -> None:
    rate, window, now = Rate(count, per), Window(), 1_000_000
    begun: list[int] = []
    for wait, wanted in asks:
        now += wait
        verdict = rates.admit(window, [""] * wanted, rate, None, now)
        window = verdict.window
        begun += [now] * len(verdict.admitted)
    for end in begun:
        assert sum(end - per < at <= end for at in begun) <= count


def test_starts_that_are_counted_together_count_until_the_latest_of_them_expires() -> None:
    """If they expired with the earliest, a span could contain more starts than the rate allows."""
    rate, first, last = Rate(2, 60_000), 1_020_000, 1_020_900
    window = Window()
    for now in (first, last):
        verdict = rates.admit(window, ["k"], rate, rate, now)
        assert verdict.admitted == [0]
        window = verdict.window
    assert (len(window.starts), len(window.keys["k"])) == (1, 1), "they are counted together"
    for now, admitted in ((first + rate.per, []), (last + rate.per - 1, []), (last + rate.per, [0])):
        assert rates.admit(window, [""], rate, None, now).admitted == admitted
        assert rates.admit(window, ["k"], None, rate, now).admitted == admitted
    assert rates.free_at(rate, window.starts, last) == last + rate.per


@given(st.integers(1, 20), st.integers(100, 10_000), st.integers(0, 3))
def test_a_delayed_task_may_start_at_the_time_it_was_given(count: int, per: int, more: int) -> None:
    rate, now = Rate(count, per), 1_000_000
    full = rates.admit(Window(), [""] * (count + more), rate, None, now)
    assert len(full.admitted) == count
    later = rates.free_at(rate, full.window.starts, now)
    assert now < later <= now + per
    assert rates.admit(full.window, [""], rate, None, later).admitted == [0]


def test_an_exhausted_key_does_not_delay_another() -> None:
    each = Rate(1, 1000)
    verdict = rates.admit(Window(), ["a", "a", "b", "a", ""], None, each, 5000)
    assert verdict.admitted == [0, 2, 4]
    # Each delayed task of a key gets a later time than the one before.
    assert verdict.put_off == [(1, 6000), (3, 7000)]


def test_both_rates_apply_together() -> None:
    verdict = rates.admit(Window(), ["a", "a", "b", "c"], Rate(2, 1000), Rate(1, 1000), 5000)
    assert (verdict.admitted, verdict.put_off) == ([0, 2], [(1, 6000), (3, 0)])


def test_a_window_stays_small() -> None:
    rate, window = Rate(1_000_000, 60_000), Window()
    for number in range(5000):
        window = rates.admit(window, [""], rate, None, 1_000_000 + number * 10).window
    assert len(window.starts) <= 61
    keyed = Window()
    for number in range(500):
        keyed = rates.admit(keyed, [f"k{number}"], None, Rate(1, 100), 1_000_000 + number).window
    assert len(keyed.keys) <= 100
