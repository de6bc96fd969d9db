"""The segments of a task's life: whatever happened, they cover it without gaps, overlaps and negative lengths."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from onerow.core import rules
from onerow.core.errors import OnerowError
from onerow.core.failure import ERROR_CLASSES, Failure
from onerow.core.history import Entry
from onerow.core.rules.attempts import (
    CancelledItself,
    Crashed,
    Done,
    Failed,
    Interrupted,
    Outcome,
    Skipped,
    Sleeping,
    Snoozed,
    Stopped,
    Waiting,
    decide,
)
from onerow.core.status import Status
from onerow.core.task import Task
from onerow.core.times import spell
from onerow.engine.control.definitions import Pause
from onerow.engine.views.segments import Segment, segments, spans
from tests.samples import BROKEN, HOPELESS, LEASE, NOW, PLAN, SECOND, a_task

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def covers_the_life(task: Task, found: list[Segment], now: datetime) -> None:
    """Assert that the segments follow each other from the addition to the end."""
    end = (task.completed_at or now) if task.ended else now
    end = max(end, task.created_at)
    at = task.created_at
    for segment in found:
        assert segment.began_at == at, "no gap, no overlap"
        assert segment.ended_at >= segment.began_at
        assert segment.kind == "running" or segment.ended_at > segment.began_at
        at = segment.ended_at
    assert at == end
    assert [each.open for each in found[:-1]] == [False] * len(found[:-1])


# ── lives made by the rules ──


def act(task: Task, number: int, now: datetime) -> Task:
    """Apply the act of this number, if the task allows it."""
    outcomes: list[Outcome] = [
        Done(None), Failed(BROKEN), Failed(HOPELESS), Failed(Failure("429", "limit", after=40 * SECOND)), Snoozed(HOUR),
        Waiting("wait:a", "signal:go", None), Waiting("join", "children", HOUR), Sleeping("sleep:1", 9 * SECOND),
        Stopped("drain"), Stopped("cancel"), Stopped("timeout"), Crashed(Failure("died", "crash")), Interrupted("killed"),
        Skipped("not needed"), CancelledItself("no use"),
    ]  # fmt: skip
    acts: list[Any] = [
        lambda: rules.claimed(task, "w1", now + LEASE, now, None, None),
        lambda: rules.rescue(task, now, by="w2"),
        lambda: rules.signal(task, "go", "1", spell(now), now, by="ann"),
        lambda: rules.signal(task, "images.ready", "1", spell(now), now, by="ann"),
        lambda: rules.pass_(task, PLAN, now),
        lambda: rules.expire(task, PLAN, now),
        lambda: rules.retry(task, PLAN, now, by="ann", note="again"),
        lambda: rules.replay(task, PLAN, None, now, by="ann"),
        lambda: rules.finish_by_hand(task, PLAN, now, by="ann", phase_only=bool(now.second % 2)),
        lambda: rules.reschedule(task, now + 7 * SECOND, now, by="ann"),
        lambda: rules.set_priority(task, 5, now, by="ann"),
        lambda: rules.cancel(task, now, by="ann", note="not needed"),
        *(lambda outcome=outcome: decide(task, PLAN, outcome, now, "w1") for outcome in outcomes),
        lambda: rules.claimed(task, "w1", now + LEASE, now, None, None),
        lambda: decide(task, PLAN, Done(None), now, "w1"),
    ]
    try:
        return acts[number % len(acts)]() or task
    except OnerowError:
        return task


@given(
    st.lists(st.tuples(st.integers(0, 28), st.sampled_from([0, 1, 400, 3_000, 70_000, 90_000_000])), max_size=40),
    st.sampled_from(["schedule", "script", "image"]),
    st.booleans(),
    st.booleans(),
)
def test_segments_cover_every_life_that_the_rules_allow(
    acts: list[tuple[int, int]], phase: str, known: bool, paused: bool
) -> None:
    task, now = a_task(phase=phase, scheduled_time=NOW + MINUTE if paused else None), NOW
    for number, millis in acts:
        now += timedelta(milliseconds=millis)
        task = act(task, number, now)
    pause = Pause("videos", "*", "ann", "", spell(NOW + HOUR)) if paused else None
    found = segments(task, PLAN if known else None, now, pause)
    covers_the_life(task, found, now)
    attempts = sum(entry.ms is not None for entry in task.history) + (task.status is Status.PROCESSING)
    assert sum(segment.kind == "running" for segment in found) == attempts
    assert sum(span.share for span in spans(task, [each.name for each in PLAN.phases], found, {})) <= 1.001


# ── lives that other programs wrote ──

WHATS = ["failed", "advanced", "completed", "cancelled", "parked", "sleeping", "snoozed", "rescued", "handed back",
         "signal", "cancel", "fail", "retry", "replay", "finish", "reschedule", "passed", "expired", "dropped", "odd"]  # fmt: skip
_moments = st.integers(-(10**9), 10**9).map(lambda millis: NOW + timedelta(milliseconds=millis))
_entries = st.builds(
    Entry,
    at=_moments.map(spell),
    what=st.sampled_from(WHATS),
    phase=st.sampled_from(["", "schedule", "script", "image", "video", "film", "gone"]),
    attempt=st.integers(0, 5),
    ms=st.none() | st.integers(-(10**6), 10**12),
    error_class=st.sampled_from(["", *ERROR_CLASSES]),
    note=st.sampled_from(["", "signal:go", "children", "go", "until 2026-11-15T03:00:00.000Z", "2026-11-15T03:00:00Z"]),
)


@given(
    st.lists(_entries, max_size=12),
    st.sampled_from(list(Status)),
    _moments,
    st.none() | _moments,
    st.none() | _moments,
    st.sampled_from([None, "signal:go", "children"]),
    _moments,
)
def test_segments_of_any_history_never_overlap_and_never_are_negative(
    entries: list[Entry],
    status: Status,
    run_at: datetime,
    started_at: datetime | None,
    completed_at: datetime | None,
    awaiting: str | None,
    now: datetime,
) -> None:
    task = replace(
        a_task(
            run_at=run_at, started_at=started_at, completed_at=completed_at, awaiting=awaiting, scheduled_time=run_at
        ),
        status=status,
        logs_json=msgspec.json.encode(entries).decode(),
    )
    covers_the_life(task, segments(task, PLAN, now), now)


# ── examples ──


def shape(task: Task, now: datetime, pause: Pause | None = None) -> list[tuple[str, str, int]]:
    return [(each.kind, each.phase, each.ms // 1000) for each in segments(task, PLAN, now, pause)]


def run(task: Task, began_at: datetime, outcome: Outcome, at: datetime) -> Task:
    task = rules.claimed(task, "w1", began_at + LEASE, began_at, None, None)
    after = decide(task, PLAN, outcome, at, "w1")
    assert after is not None
    return after


def test_a_failure_is_followed_by_its_back_off_and_by_waiting_in_line() -> None:
    task = run(a_task(), NOW + 2 * SECOND, Failed(BROKEN), NOW + 5 * SECOND)
    assert shape(task, NOW + 8 * SECOND) == [
        ("waiting", "script", 2),
        ("running", "script", 3),
        ("back-off", "script", 3),
    ]
    again = run(task, NOW + 20 * SECOND, Done(None), NOW + 21 * SECOND)
    assert shape(again, NOW + 30 * SECOND) == [
        ("waiting", "script", 2),
        ("running", "script", 3),
        ("back-off", "script", 5),
        ("waiting", "script", 9),
        ("running", "script", 1),
        ("signal", "image", 9),
    ]


def test_a_running_attempt_is_open_and_marks_within_it_end_nothing() -> None:
    task = rules.claimed(a_task(), "w1", NOW + HOUR, NOW + SECOND, None, None)
    task = rules.cancel(task, NOW + 3 * SECOND, by="ann")
    found = segments(task, PLAN, NOW + 10 * SECOND)
    assert [(each.kind, each.open, each.ms) for each in found] == [("waiting", False, 1000), ("running", True, 9000)]


def test_a_long_wait_for_a_signal_can_be_folded() -> None:
    task = run(a_task(), NOW, Done(None), NOW + 30 * SECOND)
    task = rules.signal(task, "images.ready", "1", "s1", NOW + 38 * MINUTE, by="api")
    task = rules.pass_(task, PLAN, NOW + 38 * MINUTE + SECOND)
    found = segments(task, PLAN, NOW + 39 * MINUTE)
    assert [(each.kind, each.awaiting, each.foldable) for each in found] == [
        ("running", "", False),
        ("signal", "images.ready", True),
        ("waiting", "", False),
        ("waiting", "", False),
    ]


def test_the_time_between_an_end_and_a_retry_is_ended_and_a_pause_is_shown() -> None:
    task = run(a_task(), NOW, Failed(HOPELESS), NOW + SECOND)
    task = rules.retry(task, PLAN, NOW + HOUR, by="ann")
    pause = Pause("videos", "script", "ann", "", spell(NOW + HOUR + 5 * SECOND))
    assert shape(task, NOW + HOUR + 9 * SECOND, pause) == [
        ("running", "script", 1),
        ("ended", "script", 3599),
        ("waiting", "script", 5),
        ("paused", "script", 4),
    ]


@pytest.mark.parametrize("later", [timedelta(0), HOUR])
def test_a_scheduled_task_waits_in_line_only_from_its_time_on(later: timedelta) -> None:
    task = a_task(scheduled_time=NOW + MINUTE, run_at=NOW + MINUTE)
    plan = replace(PLAN, phases=PLAN.phases[1:])
    found = segments(task, plan, NOW + 30 * SECOND + later)
    assert [each.kind for each in found] == (["scheduled", "waiting"] if later else ["scheduled"])


def test_spans_sum_up_the_phases() -> None:
    task = run(a_task(), NOW + SECOND, Done(None), NOW + 3 * SECOND)
    found = segments(task, PLAN, NOW + 10 * SECOND)
    script, image, video = list(spans(task, ["script", "image", "video"], found, {"script": 1500}))
    assert (script.state, script.attempts, script.run_ms, script.idle_ms, script.p50_ms) == (
        "done",
        1,
        2000,
        1000,
        1500,
    )
    assert (image.state, image.idle_ms, image.share) == ("here", 7000, 0.7)
    assert (video.state, video.p50_ms) == ("not-reached", None)
