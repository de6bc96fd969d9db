"""Cron: one task per nominal time, with any number of workers and restarts. The clock is an argument."""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypedDict

import pytest
from msgspec.structs import replace

from onerow import Pipeline, Status
from onerow.core import schedule
from onerow.core.errors import StoreUnavailable
from onerow.core.filters import Filter
from onerow.core.plan import Plan
from onerow.core.schedule import Cron
from onerow.core.times import read
from onerow.engine.control import definitions
from onerow.engine.control.schedules import PROGRESS
from onerow.engine.events.events import ScheduleFailed
from onerow.engine.queue.queue import Queue
from onerow.engine.worker.roles.scheduler import Scheduler
from tests.conformance.stores import Entry
from tests.engine.conftest import until, working

HOUR = timedelta(hours=1)


def reports(**more: Any) -> Pipeline:
    pipeline = Pipeline("reports")

    @pipeline.phase
    def write(job: Any) -> Any:
        return job

    pipeline.cron("0 * * * *", name="hourly", payload={"kind": "hourly"}, **more)
    return pipeline


def scheduler(queue: Queue, pipeline: Pipeline) -> Scheduler:
    queue.serve(pipeline)
    return Scheduler(queue, {pipeline.name: pipeline.plan})


def fired(queue: Queue) -> list[datetime]:
    return sorted(read(task.metadata["nominal"]) for task in queue.find(Filter(), limit=1000).tasks)


def hours(start: datetime, count: int) -> list[datetime]:
    (first,) = {schedule.next_time(cron, start) for cron in reports().plan.crons}
    return [first + number * HOUR for number in range(count)]


def test_each_due_time_adds_one_task(queue: Queue) -> None:
    role, start = scheduler(queue, reports(user_id="u1")), queue.store.now()
    role.tick(start)
    assert fired(queue) == []
    (nominal,) = hours(start, 1)
    role.tick(nominal)
    role.tick(nominal + timedelta(minutes=10))
    (task,) = queue.find().tasks
    assert (task.payload, task.user_id, task.scheduled_time, task.run_at) == (
        {"kind": "hourly"},
        "u1",
        nominal,
        nominal,
    )
    (line,) = queue.crons.all()
    assert (line.last, line.task_id) == (nominal, task.task_id)


def test_many_workers_add_one_task_per_time(entry: Entry, request: pytest.FixtureRequest) -> None:
    address = entry.fresh(request)
    queues = [Queue(entry.open(address, None)) for _ in range(6)]
    start = queues[0].store.now()
    pipeline = reports()
    scheduler(queues[0], pipeline).tick(start)
    times = hours(start, 5)
    barrier = threading.Barrier(len(queues))
    trouble: list[BaseException] = []

    def worker(queue: Queue) -> None:
        role = scheduler(queue, pipeline)
        for nominal in times:
            barrier.wait(900)
            try:
                role.tick(nominal)
            except BaseException as error:
                trouble.append(error)

    threads = [threading.Thread(target=worker, args=(queue,)) for queue in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert trouble == []
    assert fired(queues[0]) == times
    for queue in queues:
        queue.close()


def test_a_restart_neither_skips_nor_repeats_a_time(queue: Queue) -> None:
    start = queue.store.now()
    times = hours(start, 3)
    pipeline = reports(catch_up="all")
    for moment in (start, times[0], times[0], times[2]):
        scheduler(queue, pipeline).tick(moment)
    assert fired(queue) == times


class Killed(BaseException):
    """Simulates the death of the worker at this point."""


@pytest.mark.parametrize("point", ["before the task is in", "after the task is in"])
def test_a_time_whose_worker_died_while_firing_is_caught_up_once(
    queue: Queue, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, start = reports(), queue.store.now()
    scheduler(queue, pipeline).tick(start)
    dying = scheduler(queue, pipeline)
    add: Callable[..., Any] = dying._add

    def die(*given: Any) -> Any:
        if point == "after the task is in":
            add(*given)
        raise Killed

    monkeypatch.setattr(dying, "_add", die)
    times = hours(start, 2)
    with pytest.raises(Killed):
        dying.tick(times[0])
    scheduler(queue, pipeline).tick(times[0] + timedelta(minutes=1))
    assert fired(queue) == times[:1]
    scheduler(queue, pipeline).tick(times[1])
    assert fired(queue) == times


def test_missed_times_are_caught_up_according_to_the_policy(queue: Queue) -> None:
    start = queue.store.now()
    times = hours(start, 4)
    for policy in ("one", "all", "skip"):
        pipeline = Pipeline(policy)
        pipeline.wait_for("never", signal="never")
        pipeline.cron("0 * * * *", catch_up=policy)
        scheduler(queue, pipeline).tick(start)
        scheduler(queue, pipeline).tick(times[3] + timedelta(minutes=30))
    found = [(task.pipeline, task.scheduled_time) for task in queue.find(Filter(), limit=1000).tasks]
    assert sorted(time for name, time in found if name == "all") == times  # type: ignore[type-var]
    assert [time for name, time in found if name == "one"] == times[3:]
    assert [time for name, time in found if name == "skip"] == []


def test_a_time_is_skipped_while_the_last_task_is_open_if_configured(queue: Queue) -> None:
    role, start = scheduler(queue, reports(overlap="skip")), queue.store.now()
    times = hours(start, 3)
    role.tick(start)
    role.tick(times[0])
    role.tick(times[1])
    assert fired(queue) == times[:1]
    queue.cancel(queue.find().tasks[0].task_id)
    role.tick(times[2])
    assert fired(queue) == [times[0], times[2]]


def test_a_pause_of_a_schedule_records_the_user_of_the_process(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "kim")
    queue.serve(reports())
    queue.crons.pause("reports", "hourly")
    (line,) = queue.crons.all()
    assert line.pause is not None
    assert line.pause.by == "kim"


def test_a_paused_schedule_neither_fires_nor_catches_up(queue: Queue) -> None:
    role, start = scheduler(queue, reports(catch_up="all")), queue.store.now()
    times = hours(start, 3)
    role.tick(start)
    queue.crons.pause("reports", "hourly", by="ann", reason="holidays")
    (line,) = queue.crons.all()
    assert line.pause is not None
    assert (line.pause.by, line.pause.reason) == ("ann", "holidays")
    role.tick(times[1])
    assert queue.crons.resume("reports", "hourly")
    role.tick(times[1] + timedelta(minutes=1))
    assert fired(queue) == []
    role.tick(times[2])
    assert fired(queue) == times[2:]


def test_a_worker_runs_the_schedules_of_its_pipelines(queue: Queue) -> None:
    pipeline = Pipeline("ticks")

    @pipeline.phase
    def tick(job: Any) -> Any:
        return job

    pipeline.cron("* * * * * *", payload="every second")
    with working(queue, pipeline):
        until(lambda: len(queue.find(Filter(statuses=frozenset({Status.COMPLETED}))).tasks) >= 2)
    found = fired(queue)
    assert len(found) == len(set(found))


def test_a_scheduler_with_a_stale_note_adds_nothing_even_if_the_task_was_removed(queue: Queue) -> None:
    start = queue.store.now()
    pipeline = reports()
    first, second = scheduler(queue, pipeline), scheduler(queue, pipeline)
    first.tick(start)
    (nominal,) = hours(start, 1)
    (old,) = queue.store.notes(PROGRESS)  # as read by a second scheduler just before the first one fired
    first.tick(nominal)
    (task,) = queue.find().tasks
    queue.store.remove([task])  # so that the existing id does not prevent a second task
    (cron,) = pipeline.plan.crons
    second._keep("reports", cron, old, nominal, paused=False)
    assert fired(queue) == []
    (line,) = queue.crons.all()
    assert (line.last, line.task_id) == (nominal, task.task_id)


class Report(TypedDict):
    kind: str


def with_crons(**payloads: Any) -> tuple[Pipeline, Plan]:
    """Return a pipeline, and its definition with these schedules, as other code may have published it."""
    pipeline = Pipeline("reports", payload=Report)

    @pipeline.phase
    def write(report: Report) -> None: ...

    crons = [Cron(name=name, expression="0 * * * *", payload=payload) for name, payload in payloads.items()]
    return pipeline, replace(pipeline.plan, crons=tuple(crons))


def test_a_schedule_that_cannot_add_its_task_keeps_no_other_from_it(queue: Queue) -> None:
    pipeline, plan = with_crons(bad={"kin": "x"}, good={"kind": "y"})
    queue.serve(pipeline)
    definitions.publish(queue.store, [plan])
    said: list[ScheduleFailed] = []
    queue.events.on(ScheduleFailed, said.append)
    role, start = Scheduler(queue, {"reports": plan}), queue.store.now()
    times = hours(start, 3)
    for moment in (start, *times, times[-1] + timedelta(minutes=1)):
        role._look(moment)
    assert fired(queue) == times
    assert {task.metadata["cron"] for task in queue.find().tasks} == {"good"}
    bad, good = queue.crons.all()
    assert "kind" in bad.error
    assert (bad.last, good.last, good.error) == (None, times[-1], "")
    assert [(each.schedule, each.error) for each in said] == [("bad", bad.error)], "once, not at every look"

    # With the right payload, the time that it missed last is caught up.
    _, plan = with_crons(bad={"kind": "x"}, good={"kind": "y"})
    Scheduler(queue, {"reports": plan})._look(times[-1] + timedelta(minutes=2))
    assert fired(queue) == [*times, times[-1]]
    assert [each.error for each in queue.crons.all()] == ["", ""]


def test_a_schedule_whose_note_is_damaged_keeps_no_other_from_its_task(queue: Queue) -> None:
    pipeline, plan = with_crons(bad={"kind": "x"}, good={"kind": "y"})
    queue.serve(pipeline)
    role, start = Scheduler(queue, {"reports": plan}), queue.store.now()
    role._look(start)
    (nominal,) = hours(start, 1)
    (note,) = [each for each in queue.store.notes(PROGRESS) if each.name == "reports/bad"]
    queue.store.write_notes([replace(note, body={"last": 7})])
    role._look(nominal)
    assert {task.metadata["cron"] for task in queue.find().tasks} == {"good"}


def test_an_outage_is_no_error_of_a_schedule(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, plan = with_crons(good={"kind": "y"})
    queue.serve(pipeline)
    definitions.publish(queue.store, [plan])
    role, start = Scheduler(queue, {"reports": plan}), queue.store.now()
    role._look(start)
    (nominal,) = hours(start, 1)

    def unavailable(*given: Any, **more: Any) -> Any:
        raise StoreUnavailable("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(queue, "add", unavailable)
        with pytest.raises(StoreUnavailable):
            role._look(nominal)
    role._look(nominal + timedelta(minutes=1))
    assert fired(queue) == [nominal]
    assert [each.error for each in queue.crons.all()] == [""]
