"""The pulse and the phases: series for charts, and how each phase is configured and performs."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onerow.core.plan import PhasePlan, Plan
from onerow.core.retry import Retry
from onerow.engine.control import definitions
from onerow.engine.control.definitions import WORKER
from onerow.engine.control.stats import STATS, bucket, minute_of, note_name
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views
from onerow.engine.views.board import Board
from onerow.engine.views.phases import spell_retry
from onerow.engine.views.pulse import LONGEST, MOST_POINTS, MinuteCache, bounded, build_pulse, step_of
from onerow.ports import Note, Store
from onerow.stores.memory import MemoryStore
from tests.samples import NOW, a_task, claimed

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
PLAN = Plan(
    name="videos",
    phases=(
        PhasePlan(name="script", concurrency=2, rate="60/min", retry=Retry(3, wait="5s", factor=3)),
        PhasePlan(name="image", kind="wait_for", signal="go"),
        PhasePlan(name="video", isolated=True, retry=Retry(0)),
    ),
)


def count(store: Store, ago: timedelta, phase: str = "script", worker: str = "w", **outcomes: object) -> None:
    name = note_name(minute_of(store.now() - ago), "videos", phase, worker)
    store.write_notes([Note(STATS, name, outcomes)])


@pytest.fixture
def views(queue: Queue) -> Views:
    store, now = queue.store, queue.store.now()
    definitions.publish(store, [PLAN, Plan(name="posts", phases=(PhasePlan(name="post"),))])
    store.insert(
        [a_task("a", run_at=now - HOUR), claimed(a_task("r", run_at=now - HOUR), now), a_task("b", phase="video")]
    )
    for worker in ("w1", "w2"):
        run = {str(bucket(100)): 9, str(bucket(4000)): 1}
        count(store, 10 * MINUTE, worker=worker, done=9, failed=1, run=run, wait={"3": 10})
    count(store, 30 * MINUTE, "film", retried=2, rescued=1)
    return Views(queue)


def test_series_have_the_outcomes_of_each_minute(queue: Queue, views: Views) -> None:
    pulse = views.pulse(HOUR)
    assert (pulse.step, len(pulse.times)) == (MINUTE, 60)
    assert pulse.times[-1] <= pulse.at < pulse.times[-1] + MINUTE
    assert [each.phase for each in pulse.phases] == ["post", "script", "image", "video", "film"]
    script, film = pulse.phases[1], pulse.phases[4]
    assert (script.waiting, script.processing, film.waiting) == (1, 1, 0)
    point = script.series.done.index(18)
    assert pulse.times[point] == pulse.times[-1] - 10 * MINUTE
    assert (sum(script.series.done), sum(script.series.failed), sum(film.series.retried)) == (18, 2, 2)
    assert script.series.run_p50[point] == pytest.approx(100, rel=0.07)
    assert script.series.run_p99[point] == pytest.approx(4000, rel=0.07)
    assert (script.series.wait_p95[point], script.series.wait_p95[point - 1]) == (3, None)
    assert (sum(pulse.total.done), sum(pulse.total.rescued)) == (18, 1)
    assert [each.phase for each in views.pulse(HOUR, "posts").phases] == ["post"]


def test_p13_one_users_pulse_has_that_users_backlog_and_no_statistics(queue: Queue, views: Views) -> None:
    queue.store.insert([a_task("mine", user_id="u1")])
    pulse = Views(queue.for_user("u1")).pulse(HOUR)
    assert sum(pulse.total.done) == 0
    assert [each.waiting for each in pulse.phases] == [0, 1, 0, 0]


def test_phases_show_configuration_performance_and_workers(queue: Queue, views: Views) -> None:
    workers = {"w1": {"phases": [["videos", "script"]]}, "w2": {"phases": [["videos", "script"]], "draining": True}}
    queue.store.write_notes([Note(WORKER, name, body) for name, body in workers.items()])
    queue.pause("videos", "video", by="ann", reason="broken")
    script, image, video = views.phases(pipeline="videos")
    assert (script.kind, script.used, script.lane.limit, script.rate, script.starts_left) == ("run", 1, 2, "60/min", 60)
    assert (script.retry, script.retry_delays[:2]) == ("3 retries, after 5s, 15s, 45s", [timedelta(seconds=5), timedelta(seconds=15)])  # fmt: skip
    assert (script.failure_share, script.workers) == (0.1, ["w1"])
    assert script.run_p50 == pytest.approx(100, rel=0.07)
    assert (image.kind, image.signal, image.failure_share) == ("wait_for", "go", None)
    assert (video.isolated, video.retry, video.workers) == (True, "no retry", [])
    assert video.lane.paused is not None
    assert (video.lane.paused.by, video.lane.paused.reason) == ("ann", "broken")


def test_retries_in_words() -> None:
    assert spell_retry(Retry(1, wait="1m")) == "1 retry, after 1m"
    assert spell_retry(Retry(1000, wait="1h", factor=30)) == "1000 retries, after 1h, 1d, 1d, 1d, 1d, …"


@given(st.timedeltas(timedelta(0), timedelta(days=400)), st.integers(0, 10**6))
def test_a_range_has_at_most_120_points_that_end_now(over: timedelta, seconds: int) -> None:
    over, now = bounded(over), NOW + timedelta(seconds=seconds)
    pulse = build_pulse({}, Board(now, [], now, over), now, over, None)
    assert 1 <= len(pulse.times) <= MOST_POINTS
    assert pulse.times[-1] <= now < pulse.times[-1] + pulse.step
    assert {b - a for a, b in zip(pulse.times, pulse.times[1:], strict=False)} <= {step_of(over)}
    assert len(pulse.times) * pulse.step > over - pulse.step


class CountingStore(MemoryStore):
    read = 0

    def notes(self, kind: str, *, since: str = "", before: str = "") -> list[Note]:
        found = super().notes(kind, since=since, before=before)
        self.read += len(found)
        return found


def test_minutes_that_have_passed_are_read_once() -> None:
    now = [NOW]
    store, cache = CountingStore(lambda: now[0]), MinuteCache()
    for ago in range(60):
        count(store, ago * MINUTE, done=1)
    assert len(cache.read(store, NOW, HOUR)) == 60
    store.read = 0
    count(store, timedelta(0), worker="other", done=5)
    found = cache.read(store, NOW, HOUR)
    assert found[minute_of(NOW)]["videos", "script"].done == 6
    assert store.read <= 7
    now[0] += 30 * MINUTE
    count(store, timedelta(0), done=1)
    assert len(cache.read(store, now[0], MINUTE)) == 1
    assert len(cache.read(store, now[0], 2 * HOUR)) == 61
    assert len(cache.read(store, now[0], HOUR)) == 32
    now[0] += 2 * LONGEST
    assert cache.read(store, now[0], HOUR) == {}
