"""Cron: nominal times, daylight saving, and what becomes of times that were missed."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onerow import Pipeline
from onerow.core import schedule
from onerow.core.errors import PipelineError
from onerow.core.schedule import Cron

HOUR = timedelta(hours=1)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]


def cron(expression: str, tz: str = "UTC", **more: Any) -> Cron:
    return Cron(name="c", expression=expression, tz=tz, **more)


def test_times_are_those_of_the_zones_clock() -> None:
    office = cron("0 9 * * 1-5", "Asia/Seoul")
    friday = utc(2026, 11, 13)
    assert schedule.next_time(office, friday) == utc(2026, 11, 16)  # Monday 09:00 in Seoul is midnight in UTC
    assert schedule.latest_time(office, friday) == friday


def test_a_time_that_the_clock_skips_is_kept_once_and_one_that_it_repeats_too() -> None:
    daily = cron("30 2 * * *", "Europe/Berlin", catch_up="all")
    spring = schedule.due(daily, utc(2026, 3, 28, 12), utc(2026, 3, 30, 12))
    assert spring == [utc(2026, 3, 29, 1), utc(2026, 3, 30, 0, 30)]
    autumn = schedule.due(daily, utc(2026, 10, 24, 12), utc(2026, 10, 26, 12))
    assert autumn == [utc(2026, 10, 25, 0, 30), utc(2026, 10, 26, 1, 30)]
    # A worker that comes up between the two half past twos of that night has missed nothing.
    assert schedule.due(daily, utc(2026, 10, 25, 0, 50), utc(2026, 10, 25, 3)) == []


def test_hourly_work_goes_on_through_both_changes_of_the_clock() -> None:
    hourly = cron("0 * * * *", "Europe/Berlin", catch_up="all")
    for start in (utc(2026, 3, 28, 22), utc(2026, 10, 24, 22)):
        found = schedule.due(hourly, start, start + 6 * HOUR)
        assert found == [start + number * HOUR for number in range(1, 7)]


def test_of_missed_times_the_last_all_or_none_are_made_up_for() -> None:
    last, now = utc(2026, 11, 1), utc(2026, 11, 1, 5, 30)
    assert schedule.due(cron("0 * * * *"), last, now) == [utc(2026, 11, 1, 5)]
    assert schedule.due(cron("0 * * * *", catch_up="all"), last, now) == [utc(2026, 11, 1, n) for n in range(1, 6)]
    assert schedule.due(cron("0 * * * *", catch_up="skip"), last, now) == []
    late = utc(2026, 11, 1, 5, 0, 20)
    assert schedule.due(cron("0 * * * *", catch_up="skip"), last, late) == [utc(2026, 11, 1, 5)]


def test_a_year_of_missed_minutes_costs_no_year() -> None:
    minutely = cron("* * * * *")
    assert schedule.due(minutely, utc(2025, 1, 1), utc(2026, 1, 1)) == [utc(2026, 1, 1)]
    some = schedule.due(cron("* * * * *", catch_up="all"), utc(2025, 1, 1), utc(2026, 1, 1))
    assert (len(some), some[0]) == (schedule.MOST_AT_ONCE, utc(2025, 1, 1, 0, 1))


@given(
    st.sampled_from(["*/7 * * * *", "30 2 * * *", "0 9 * * 1-5", "15 1,3 * * *", "0 0 1 * *"]),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Seoul", "Australia/Lord_Howe"]),
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31), timezones=st.just(UTC)),
)
def test_looking_back_finds_what_looking_ahead_promised(expression: str, tz: str, moment: datetime) -> None:
    each = cron(expression, tz)
    promised = schedule.next_time(each, moment)
    assert promised > moment
    assert schedule.latest_time(each, promised) == promised
    latest = schedule.latest_time(each, moment)
    assert latest is not None
    assert latest <= moment
    assert schedule.next_time(each, latest) == promised


@pytest.mark.parametrize(
    "given_wrong",
    [
        {"expression": "0 25 * * *"},
        {"expression": "often"},
        {"expression": "0 0 30 2 *"},
        {"tz": "Middle/Earth"},
        {"catch_up": "maybe"},
        {"overlap": "maybe"},
    ],
)
def test_a_schedule_that_can_not_be_kept_is_an_error_when_built(given_wrong: dict[str, Any]) -> None:
    pipeline = Pipeline("reports")
    with pytest.raises(PipelineError):
        pipeline.cron(**{"expression": "0 9 * * *", **given_wrong})


def test_two_schedules_of_one_name_are_an_error() -> None:
    pipeline = Pipeline("reports")
    pipeline.cron("0 9 * * *")
    with pytest.raises(PipelineError, match="already has a schedule"):
        pipeline.cron("0 9 * * *")
