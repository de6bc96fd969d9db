"""Cron schedules: nominal times, daylight saving time, and missed times."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onerow import Item, Pipeline
from onerow.core import schedule
from onerow.core.errors import PipelineError
from onerow.core.schedule import Cron

HOUR = timedelta(hours=1)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]


def cron(expression: str, tz: str = "UTC", **more: Any) -> Cron:
    return Cron(name="c", expression=expression, tz=tz, **more)


def test_nominal_times_follow_the_time_zone() -> None:
    office = cron("0 9 * * 1-5", "Asia/Seoul")
    friday = utc(2026, 11, 13)
    assert schedule.next_time(office, friday) == utc(2026, 11, 16)  # Monday 09:00 in Seoul is midnight in UTC
    assert schedule.latest_time(office, friday) == friday


def test_a_skipped_and_a_repeated_local_time_each_fire_once() -> None:
    daily = cron("30 2 * * *", "Europe/Berlin", catch_up="all")
    spring = schedule.due(daily, utc(2026, 3, 28, 12), utc(2026, 3, 30, 12))
    assert spring == [utc(2026, 3, 29, 1), utc(2026, 3, 30, 0, 30)]
    autumn = schedule.due(daily, utc(2026, 10, 24, 12), utc(2026, 10, 26, 12))
    assert autumn == [utc(2026, 10, 25, 0, 30), utc(2026, 10, 26, 1, 30)]
    # A worker that starts between the two occurrences of 02:30 in that night has missed nothing.
    assert schedule.due(daily, utc(2026, 10, 25, 0, 50), utc(2026, 10, 25, 3)) == []


def test_an_hourly_schedule_fires_every_hour_through_both_clock_changes() -> None:
    hourly = cron("0 * * * *", "Europe/Berlin", catch_up="all")
    for start in (utc(2026, 3, 28, 22), utc(2026, 10, 24, 22)):
        found = schedule.due(hourly, start, start + 6 * HOUR)
        assert found == [start + number * HOUR for number in range(1, 7)]


def test_catch_up_fires_the_last_all_or_none_of_the_missed_times() -> None:
    last, now = utc(2026, 11, 1), utc(2026, 11, 1, 5, 30)
    assert schedule.due(cron("0 * * * *"), last, now) == [utc(2026, 11, 1, 5)]
    assert schedule.due(cron("0 * * * *", catch_up="all"), last, now) == [utc(2026, 11, 1, n) for n in range(1, 6)]
    assert schedule.due(cron("0 * * * *", catch_up="skip"), last, now) == []
    late = utc(2026, 11, 1, 5, 0, 20)
    assert schedule.due(cron("0 * * * *", catch_up="skip"), last, late) == [utc(2026, 11, 1, 5)]


def test_a_year_of_missed_minutes_is_computed_quickly() -> None:
    minutely = cron("* * * * *")
    assert schedule.due(minutely, utc(2025, 1, 1), utc(2026, 1, 1)) == [utc(2026, 1, 1)]
    some = schedule.due(cron("* * * * *", catch_up="all"), utc(2025, 1, 1), utc(2026, 1, 1))
    assert (len(some), some[0]) == (schedule.MOST_AT_ONCE, utc(2025, 1, 1, 0, 1))


@given(
    st.sampled_from(["*/7 * * * *", "30 2 * * *", "0 9 * * 1-5", "15 1,3 * * *", "0 0 1 * *"]),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Seoul", "Australia/Lord_Howe"]),
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31), timezones=st.just(UTC)),
)
def test_latest_time_and_next_time_agree(expression: str, tz: str, moment: datetime) -> None:
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
def test_an_invalid_schedule_is_an_error_when_built(given_wrong: dict[str, Any]) -> None:
    pipeline = Pipeline("reports")
    with pytest.raises(PipelineError):
        pipeline.cron(**{"expression": "0 9 * * *", **given_wrong})


def test_two_schedules_with_one_name_are_an_error() -> None:
    pipeline = Pipeline("reports")
    pipeline.cron("0 9 * * *")
    with pytest.raises(PipelineError, match="already has a schedule"):
        pipeline.cron("0 9 * * *")


@dataclass
class Report:
    kind: str


@pytest.mark.parametrize("declared", ["by the pipeline", "by the handler", "as a plain type", "by a batch"])
@pytest.mark.parametrize("first", [True, False])
def test_a_schedule_whose_payload_does_not_fit_is_an_error_when_built(declared: str, first: bool) -> None:
    pipeline: Pipeline[Any] = Pipeline("reports", payload=Report if declared == "by the pipeline" else None)

    def add_cron() -> None:
        pipeline.cron("0 9 * * *", name="daily", payload={"kin": "daily"})

    if first:
        if declared == "by the pipeline":
            with pytest.raises(PipelineError):
                add_cron()
            return
        add_cron()
    if declared == "by a batch":

        @pipeline.batch("write", size=2)
        def write_all(items: list[Item[Report]]) -> None: ...

    elif declared == "as a plain type":

        @pipeline.phase(name="write")
        def write_number(number: int) -> None: ...

    else:

        @pipeline.phase
        def write(report: Report) -> None: ...

    build = (lambda: pipeline.plan) if first else add_cron
    with pytest.raises(PipelineError, match="schedule 'daily' of pipeline 'reports': payload is not a valid") as found:
        build()
    assert "payload=" in (found.value.fix or "")


def test_a_schedule_without_the_time_that_its_pipeline_waits_for_is_an_error_when_built() -> None:
    pipeline = Pipeline("reports")
    pipeline.wait_until("wait", field="at")

    @pipeline.phase
    def write(report: dict[str, Any]) -> None: ...

    pipeline.cron("0 9 * * *", name="daily", payload={"at": "soon"})
    with pytest.raises(PipelineError, match=r"schedule 'daily' of pipeline 'reports': .*'soon'"):
        _ = pipeline.plan


def test_a_schedule_needs_only_the_payload_that_its_first_phase_takes() -> None:
    pipeline = Pipeline("reports")

    @pipeline.phase
    def choose(report: Any) -> None: ...

    @pipeline.phase
    def count(number: int) -> None: ...  # reached only by a Jump of other tasks

    pipeline.cron("0 9 * * *", payload="daily")
    assert len(pipeline.plan.crons) == 1
