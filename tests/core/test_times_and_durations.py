"""Times to the millisecond in a text format that sorts, and durations like '1h30m'."""

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onerow.core.durations import parse_duration, spell_duration
from onerow.core.errors import BadInput
from onerow.core.times import FAR, parse_moment, parse_time, read, since_epoch, spell, to_millis
from tests.samples import moments

KST = timezone(timedelta(hours=9))


@given(moments)
def test_a_time_is_parsed_back_unchanged(moment: datetime) -> None:
    assert read(spell(moment)) == moment
    assert parse_time(spell(moment), "at") == moment


@given(moments, moments)
def test_times_as_text_sort_by_time(one: datetime, other: datetime) -> None:
    assert (spell(one) < spell(other)) == (one < other)


def test_a_time_has_one_text_format() -> None:
    assert spell(datetime(2026, 11, 15, 2, 29, 57, 123000, tzinfo=UTC)) == "2026-11-15T02:29:57.123Z"
    assert spell(FAR) == "9999-12-31T23:59:59.999Z"
    assert read(spell(FAR)) == FAR


def test_a_time_is_truncated_to_the_millisecond_in_utc() -> None:
    assert to_millis(datetime(2026, 1, 1, 9, 0, 0, 123999, tzinfo=KST)) == datetime(
        2026, 1, 1, 0, 0, 0, 123000, tzinfo=UTC
    )
    assert since_epoch(datetime(1970, 1, 1, 0, 0, 1, 5000, tzinfo=UTC)) == 1005


def test_a_caller_s_time_is_converted_from_any_time_zone() -> None:
    expected = datetime(2026, 11, 15, tzinfo=UTC)
    for given_ in (datetime(2026, 11, 15, 9, tzinfo=KST), "2026-11-15T09:00:00+09:00", "2026-11-15T00:00:00Z"):
        assert parse_time(given_, "run_at") == expected


NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "text, moment",
    [
        ("now", NOON),
        ("+10m", NOON + timedelta(minutes=10)),
        ("1h30m", NOON + timedelta(minutes=90)),
        ("2026-11-15T09:00:00+09:00", NOON - timedelta(hours=12)),
        ("20261115T000000Z", NOON - timedelta(hours=12)),
        (NOON, NOON),
    ],
)
def test_a_moment_is_now_or_in_a_while_or_a_time(text: str | datetime, moment: datetime) -> None:
    assert parse_moment(text, NOON) == moment


@pytest.mark.parametrize("wrong", ["", "soon", "+soon", "+", "12", 5, None, b"now", "2026-11-15", "-10m"])
def test_a_moment_that_is_none_is_rejected_with_its_field(wrong: Any) -> None:
    with pytest.raises(BadInput, match="run_at") as refused:
        parse_moment(wrong, NOON, "run_at")
    assert refused.value.field == "run_at"
    assert refused.value.fix or "ISO text" in str(refused.value)


@pytest.mark.parametrize(
    "wrong",
    [
        datetime(2026, 1, 1),
        "2026-01-01T00:00:00",
        "2026-01-01",
        "tomorrow",
        "",
        "2026-13-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        1_700_000_000,
        True,
        date(2026, 1, 1),
        None,
        datetime(1969, 12, 31, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=KST),
        datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5))),
        datetime(9999, 1, 1, tzinfo=UTC),
    ],
    ids=str,
)
def test_an_invalid_time_is_rejected_with_its_field(wrong: Any) -> None:
    with pytest.raises(BadInput, match="run_at") as caught:
        parse_time(wrong, "run_at")
    assert caught.value.field == "run_at"


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("5s", 5),
        ("500ms", 0.5),
        ("15m", 900),
        ("15min", 900),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        (" 2 D ", 172800),
        ("1w", 604800),
        ("1.5s", 1.5),
        (90, 90),
        (0.25, 0.25),
        (0, 0),
        ("0s", 0),
        (timedelta(minutes=1), 60),
    ],
)
def test_a_duration_is_parsed(text: Any, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "wrong",
    ["", "5", "s", "five", "-5s", "5s5", "1y", "5 s x", "1e3s", -1, float("nan"), float("inf"), True, None, [], 10**12,
     "9" * 400 + "s", "101000w", timedelta(seconds=-1), timedelta.max],
)  # fmt: skip
def test_an_invalid_duration_is_rejected_with_its_field(wrong: Any) -> None:
    with pytest.raises(BadInput, match="timeout") as caught:
        parse_duration(wrong, "timeout")
    assert caught.value.field == "timeout"


@given(st.integers(0, 36_500 * 86_400_000 - 1))
def test_a_formatted_duration_is_parsed_back_unchanged(millis: int) -> None:
    span = timedelta(milliseconds=millis)
    assert parse_duration(spell_duration(span)) == span


def test_a_duration_is_formatted_in_its_shortest_form() -> None:
    assert spell_duration(timedelta(minutes=90)) == "1h30m"
    assert spell_duration(timedelta(milliseconds=250)) == "250ms"
    assert spell_duration(timedelta(0)) == "0s"
