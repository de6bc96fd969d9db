"""The scaling signal as each store gives it: counts up to a bound, and only work that can run."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from onerow import Pipeline, Queue
from onerow.core.errors import UnknownName
from onerow.core.scaling import PhaseSignal, ScaleSettings, ScaleState, Signal, decide
from onerow.engine.control.definitions import WORKER
from onerow.engine.control.rates import Rates
from onerow.engine.control.stats import STATS, minute_of, note_name
from onerow.engine.views import Views
from onerow.ports import Claim, Note, PhaseClaim
from tests.engine.kit import until

MINUTE = timedelta(minutes=1)
SETTINGS = ScaleSettings(slots=2, maximum=5)


def clips(**options: Any) -> Pipeline:
    pipeline = Pipeline("clips")

    @pipeline.phase(**options)
    def video(job: dict[str, Any]) -> None: ...

    @pipeline.phase
    def upload(job: dict[str, Any]) -> None: ...

    return pipeline


def signal(queue: Queue, settings: ScaleSettings = SETTINGS, scope: tuple[str, ...] = ()) -> Signal:
    return Views(queue).scale_signal(settings, scope)


def video(queue: Queue, settings: ScaleSettings = SETTINGS) -> PhaseSignal:
    return next(phase for phase in signal(queue, settings).phases if phase.phase == "video")


def lease(queue: Queue, count: int, worker: str = "w1", lease_for: timedelta = MINUTE) -> None:
    want = PhaseClaim(pipeline="clips", phase="video", limit=count, lease_for=lease_for)
    assert len(queue.store.claim(Claim(worker, [want]))) == count


def register(queue: Queue, name: str, **body: Any) -> None:
    entry = {"phases": [["clips", "video"]], "concurrency": 2} | body
    assert queue.store.write_notes([Note(WORKER, name, entry)]) == [True]


def test_ready_soon_running_and_workers_are_counted(queue: Queue) -> None:
    pipeline = clips()
    queue.publish(pipeline)
    queue.add_many(pipeline, [{"n": n} for n in range(5)])
    queue.add(pipeline, {}, run_at=queue.store.now() + timedelta(seconds=30))
    queue.add(pipeline, {}, run_at=queue.store.now() + timedelta(hours=1))
    lease(queue, 2)
    register(queue, "w1")
    register(queue, "idle")
    register(queue, "leaving", draining=True)
    register(queue, "elsewhere", phases=[["other", "video"]])
    register(queue, "puller", kind="puller")
    found = signal(queue)
    assert (found.ready, found.soon, found.running, found.busy, found.count) == (3, 1, 2, 1, 2)
    assert sorted((worker.name, worker.running, worker.draining) for worker in found.workers) == [
        ("idle", 0, False),
        ("leaving", 0, True),
        ("w1", 2, False),
    ]
    assert found.upkeep == 0
    assert found.phases[0].oldest_for is not None
    decided = decide(found, SETTINGS, ScaleState())
    assert (decided.decision, decided.workers) == ("scale_out", 3)


def test_leases_beyond_the_slots_of_a_live_worker_are_claimed_ahead(queue: Queue) -> None:
    pipeline = clips()
    queue.publish(pipeline)
    queue.add_many(pipeline, [{"n": n} for n in range(14)])
    lease(queue, 7)
    lease(queue, 1, "w2")
    lease(queue, 3, "dead")
    register(queue, "w1")
    register(queue, "w2")
    found = video(queue)
    assert (found.running, found.ahead, found.slots_used) == (11, 5, 6)  # of a dead worker none is claimed ahead
    register(queue, "elsewhere", concurrency=1, phases=[["other", "video"]])
    queue.store.claim(Claim("elsewhere", [PhaseClaim(pipeline="clips", phase="video", limit=2, lease_for=MINUTE)]))
    assert video(queue).ahead == 6


def test_a_batch_uses_one_slot_and_its_backlog_is_counted_up_to_the_maximum(queue: Queue) -> None:
    pipeline = Pipeline("clips")

    @pipeline.batch("video", size=10)
    def video(jobs: list[dict[str, Any]]) -> None: ...

    queue.publish(pipeline)
    queue.add_many(pipeline, [{"n": n} for n in range(150)])
    lease(queue, 20)
    register(queue, "w1")
    (found,) = signal(queue).phases
    assert (found.running, found.ahead, found.per_slot, found.slots_used) == (20, 0, 10, 2)
    assert (found.ready, found.capped) == (110, True)
    decided = decide(signal(queue), SETTINGS, ScaleState())
    assert (decided.decision, decided.workers, decided.raw) == ("scale_out", 5, 7)


def test_a_large_backlog_is_counted_up_to_one_more_than_all_workers_can_run(queue: Queue) -> None:
    pipeline = clips()
    queue.publish(pipeline)
    queue.add_many(pipeline, [{"n": n} for n in range(40)])
    found = video(queue)
    assert (found.ready, found.capped) == (11, True)
    decided = decide(msgspec.structs.replace(signal(queue), current=5), SETTINGS, ScaleState())
    assert decided.decision == "at_max"


def test_a_full_key_adds_no_worker_and_does_not_hide_other_keys(queue: Queue) -> None:
    pipeline = clips(per_key=1)
    queue.publish(pipeline)
    queue.add_many(pipeline, [{"n": n} for n in range(30)], limit_key="a")
    lease(queue, 1)
    assert (video(queue).runnable, video(queue).held_back_by) == (0, "key")
    queue.add_many(pipeline, [{"n": n} for n in range(3)], limit_key="b")
    assert video(queue).runnable == 1


def test_a_full_phase_a_pause_and_a_spent_rate_add_no_worker(queue: Queue) -> None:
    pipeline = clips(concurrency=1, rate="1/h")
    queue.publish(pipeline)
    queue.add_many(pipeline, [{"n": n} for n in range(4)])
    assert video(queue).runnable == 1
    lease(queue, 1)
    assert (video(queue).runnable, video(queue).held_back_by) == (0, "concurrency")
    queue.set_limit("clips", "video", concurrency=None)
    held = queue.store.fetch([each.task_id for each in queue.store.leases(limit=10)])
    Rates(queue.store).admit("clips", pipeline.plan.phase("video"), held)
    assert (video(queue).runnable, video(queue).held_back_by) == (0, "rate")
    queue.pause("clips", "video", reason="테스트")
    assert (video(queue).runnable, video(queue).held_back_by) == (0, "paused")


def test_an_expired_lease_a_due_wait_and_a_schedule_keep_one_worker(queue: Queue) -> None:
    pipeline = clips()
    queue.publish(pipeline)
    queue.add(pipeline, {})
    lease(queue, 1, lease_for=timedelta(0))
    until(lambda: signal(queue).upkeep == 1, "the end of the lease")  # it ends within the same millisecond
    waiting = Pipeline("waits")
    waiting.wait_until("due", field="at")

    @waiting.phase
    def after(job: dict[str, Any]) -> None: ...

    waiting.cron("* * * * *", payload={"at": "2020-01-01T00:00:00Z"})
    queue.publish(waiting)
    queue.add(waiting, {"at": "2020-01-01T00:00:00Z"})
    assert signal(queue, scope=("waits",)).upkeep == 2


def test_only_the_named_phases_count(queue: Queue) -> None:
    pipeline = clips()
    queue.publish(pipeline)
    queue.add(pipeline, {})
    assert signal(queue, scope=("clips.video",)).ready == 1
    assert signal(queue, scope=("clips.upload",)).ready == 0
    with pytest.raises(UnknownName, match="clip"):
        signal(queue, scope=("clip",))


def test_a_target_wait_uses_the_measured_durations(queue: Queue) -> None:
    pipeline = clips()
    queue.publish(pipeline)
    queue.add_many(pipeline, [{"n": n} for n in range(40)])
    now = minute_of(queue.store.now())
    body = {"done": 10, "run": {"10": 10}}  # 10 ms each
    queue.store.write_notes([Note(STATS, note_name(now, "clips", "video", "w1"), body)])
    found = video(queue, ScaleSettings(slots=1, maximum=20, target_wait=0.1))
    assert (found.ready, found.capped, found.run_for) == (40, False, 0.01)
    assert found.more_slots(0.1) == 4
