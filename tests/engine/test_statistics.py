"""Statistics: counting, histograms and quantiles."""

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onerow.core import rules
from onerow.core.rules.attempts import Done, Failed, Outcome, Snoozed, Stopped, Unstarted, decide
from onerow.engine.control.stats import STATS, add_up, bucket, middle, quantile
from onerow.engine.events.events import Events, TaskRescued
from onerow.engine.worker.roles.stats_recorder import StatsRecorder
from onerow.stores.memory import MemoryStore
from tests.samples import BROKEN, HOPELESS, NOW, PLAN, SECOND, a_task, claimed


@given(st.integers(0, 10**10))
def test_the_middle_of_a_bucket_is_close_to_its_durations(millis: int) -> None:
    assert abs(middle(bucket(millis)) - millis) <= millis * 0.07
    assert bucket(millis) <= bucket(millis + 1) <= bucket(millis) + 1


def test_quantiles_are_read_from_a_histogram() -> None:
    histogram = {bucket(10): 94, bucket(1000): 5, bucket(60_000): 1}
    assert quantile(histogram, 0.5) == 10
    assert quantile(histogram, 0.95) == pytest.approx(1000, rel=0.07)
    assert quantile(histogram, 1.0) == pytest.approx(60_000, rel=0.07)
    assert quantile({}, 0.5) is None


def settle(stats_recorder: StatsRecorder, outcome: Outcome, *, cancel: bool = False) -> None:
    before = msgspec.structs.replace(
        claimed(a_task(run_at=NOW - 3 * SECOND)), started_at=NOW - SECOND, cancel_requested=cancel
    )
    after = decide(before, PLAN, outcome, NOW, "w1")
    assert after is not None
    stats_recorder.count(before, after, outcome)


def test_each_outcome_is_counted_once_and_flushes_of_a_minute_add_up() -> None:
    store, events = MemoryStore(), Events()
    one, other = StatsRecorder(store, "w1", events), StatsRecorder(store, "w2", Events())
    for stats_recorder in (one, other):
        settle(stats_recorder, Done(None))
        settle(stats_recorder, Failed(HOPELESS))
        stats_recorder.flush(NOW)
    settle(one, Failed(BROKEN))
    settle(one, Snoozed(timedelta(seconds=5)))
    settle(one, Stopped("drain"))
    settle(one, Stopped("cancel"), cancel=True)
    settle(one, Stopped("timeout"))
    settle(one, Unstarted())
    rescued = rules.rescue(claimed(a_task()), NOW)
    events.send(TaskRescued(rescued, "w9"))
    one.flush(NOW)
    one.flush(NOW)
    settle(one, Done(None))
    one.flush(NOW + timedelta(minutes=1))
    notes = store.notes(STATS)
    assert [note.name.rpartition("/")[0] for note in notes] == [
        "2026-11-15T02:29/videos/script",
        "2026-11-15T02:29/videos/script",
        "2026-11-15T02:30/videos/script",
    ]
    (found,) = add_up(notes).values()
    assert (found.done, found.failed, found.retried, found.put_off) == (3, 3, 1, 2)
    assert (found.cancelled, found.rescued, found.attempts) == (1, 1, 10)
    assert sum(found.run.values()) == sum(found.wait.values()) == 10
    assert quantile(found.run, 0.5) == pytest.approx(1000, rel=0.07)
    assert quantile(found.wait, 0.5) == pytest.approx(2000, rel=0.07)


def test_statistics_older_than_a_day_are_removed() -> None:
    store = MemoryStore()
    for age in (timedelta(days=2), timedelta(hours=23)):
        stats_recorder = StatsRecorder(store, "w1", Events())
        settle(stats_recorder, Done(None))
        stats_recorder.flush(NOW - age)
    StatsRecorder(store, "w2", Events()).tick(NOW)
    assert [note.name[:16] for note in store.notes(STATS)] == ["2026-11-14T03:29"]
