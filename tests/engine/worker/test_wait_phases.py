"""Phases without code: they wait for a time or a signal, and hold no slot."""

import threading
from datetime import timedelta

import pytest

from onerow import Pipeline, Queue, Status, TaskCompleted
from tests.engine.kit import ended, history_of, reached, until, work, working


def scheduled() -> Pipeline:
    pipeline = Pipeline("scheduled")
    pipeline.wait_until("when", field="due")
    pipeline.phase(name="run")(lambda job: "ran")
    return pipeline


def test_a_task_passes_when_the_time_in_its_payload_has_come(queue: Queue) -> None:
    moment = queue.store.now() + timedelta(seconds=1)
    soon = queue.add(scheduled(), {"due": moment.isoformat()})
    later = queue.add(scheduled(), {"due": "2035-01-01T00:00:00+09:00"})
    assert (soon.run_at, soon.scheduled_time) == (moment, moment)
    with working(queue, scheduled()):
        done = ended(queue, soon)
    assert done.started_at is not None
    assert done.started_at >= moment
    assert history_of(done) == [("passed", "when"), ("completed", "run")]
    assert (queue.get(later.task_id).phase, queue.get(later.task_id).status) == ("when", Status.WAITING)


def test_a_payload_without_the_time_passes_at_once(queue: Queue) -> None:
    tasks = [queue.add(scheduled(), payload) for payload in ({}, {"due": None}, "no fields", None)]
    work(queue, scheduled())
    assert {queue.get(task.task_id).status for task in tasks} == {Status.COMPLETED}


def test_the_later_of_run_at_and_the_time_in_the_payload_counts(queue: Queue) -> None:
    task = queue.add(scheduled(), {"due": "2020-01-01T00:00:00Z"}, run_at="2035-01-01T00:00:00Z")
    work(queue, scheduled())
    assert queue.get(task.task_id).phase == "when"


def reviewed(timeout: str | None = None, on_timeout: str = "") -> Pipeline:
    pipeline = Pipeline("reviewed")

    @pipeline.phase(concurrency=1)
    def write(job: object) -> str:
        return "text"

    pipeline.wait_for("review", signal="reviewed", timeout=timeout, on_timeout=on_timeout)

    @pipeline.phase
    def publish(job: object, review: object) -> object:
        return {"review": review}

    @pipeline.phase
    def remind(job: object, review: object) -> object:
        return {"reminded": review is None}

    return pipeline


def test_a_task_waits_for_its_signal_and_gets_its_payload(queue: Queue) -> None:
    task = queue.add(reviewed())
    with working(queue, reviewed(), interval=60):
        until(lambda: queue.get(task.task_id).parked)
        assert queue.get(task.task_id).awaiting == "signal:reviewed"
        queue.signal(task.task_id, "other", "nothing to it")
        queue.signal(task.task_id, "reviewed", {"stars": 5})
        done = ended(queue, task)
    assert done.results["publish"] == {"review": {"stars": 5}}
    assert [signal["name"] for signal in done.signals] == ["other"]


def test_an_early_signal_counts(queue: Queue) -> None:
    task = queue.add(reviewed())
    queue.signal(task.task_id, "reviewed", "early")
    work(queue, reviewed())
    assert queue.get(task.task_id).results["publish"] == {"review": "early"}


def test_of_two_early_signals_the_first_is_taken_and_the_second_kept(queue: Queue) -> None:
    task = queue.add(reviewed())
    for payload in ("one", "two"):
        queue.signal(task.task_id, "reviewed", payload)
    work(queue, reviewed())
    done = queue.get(task.task_id)
    assert done.results["review"] == "one"
    assert [signal["payload"] for signal in done.signals] == ["two"]


def test_a_signal_to_a_running_task_waits_until_it_is_wanted(queue: Queue) -> None:
    go = threading.Event()
    pipeline = Pipeline("reviewed")
    pipeline.phase(name="write")(lambda job: go.wait(900) and None)
    pipeline.wait_for("review", signal="reviewed")
    task = queue.add(pipeline)
    with working(queue, pipeline):
        reached(queue, task, Status.PROCESSING)
        queue.signal(task.task_id, "reviewed", 7)
        go.set()
        done = ended(queue, task)
    assert (done.status, done.results) == (Status.COMPLETED, {"review": 7})


def test_a_waiting_phase_holds_no_slot(queue: Queue) -> None:
    tasks = queue.add_many(reviewed(), range(10))
    work(queue, reviewed(), concurrency=1)
    assert [queue.get(task.task_id).awaiting for task in tasks] == ["signal:reviewed"] * 10


def test_a_task_without_its_signal_in_time_fails(queue: Queue) -> None:
    pipeline = reviewed("300ms")
    task = queue.add(pipeline)
    with working(queue, pipeline):
        done = ended(queue, task)
    assert (done.status, done.phase, done.error_class, done.awaiting) == (Status.FAILED, "review", "timeout", None)
    assert "reviewed" in (done.error or "")
    assert history_of(done)[-1] == ("expired", "review")


def test_a_task_without_its_signal_in_time_continues_at_the_phase_for_timeouts(queue: Queue) -> None:
    pipeline = reviewed("300ms", on_timeout="remind")
    task = queue.add(pipeline)
    with working(queue, pipeline):
        done = ended(queue, task)
    assert (done.status, done.results["remind"]) == (Status.COMPLETED, {"reminded": True})
    assert "publish" not in done.results


def test_a_worker_expires_only_tasks_of_pipelines_it_knows(queue: Queue) -> None:
    pipeline = reviewed("5s", on_timeout="remind")  # longer than the first worker needs, also under load
    task = queue.add(pipeline)
    work(queue, pipeline)
    other = Pipeline("other")
    other.phase(name="run")(lambda job: None)
    elsewhere = type(queue)(queue.store)
    until(lambda: queue.store.now() > queue.get(task.task_id).run_at)
    work(elsewhere, other)
    assert queue.get(task.task_id).parked
    with working(queue, pipeline):
        assert ended(queue, task).results.get("remind") == {"reminded": True}


def test_a_signalled_task_does_not_expire(queue: Queue) -> None:
    pipeline = reviewed("1h", on_timeout="remind")
    task = queue.add(pipeline)
    work(queue, pipeline)
    queue.signal(task.task_id, "reviewed", "in time")
    work(queue, pipeline)
    assert queue.get(task.task_id).results["publish"] == {"review": "in time"}


def test_a_failed_wait_can_be_retried_and_waits_again(queue: Queue) -> None:
    pipeline = reviewed("300ms")
    task = queue.add(pipeline)
    with working(queue, pipeline):
        ended(queue, task)
    after = queue.retry(task.task_id)
    assert (after.awaiting, after.status) == ("signal:reviewed", Status.WAITING)
    queue.signal(task.task_id, "reviewed", "at last")
    work(queue, pipeline)
    assert queue.get(task.task_id).results["review"] == "at last"


@pytest.mark.parametrize("first", ["wait_until", "wait_for"])
def test_a_pipeline_can_begin_and_end_with_a_wait(queue: Queue, first: str) -> None:
    pipeline = Pipeline("waits")
    if first == "wait_until":
        pipeline.wait_until("begin", field="due")
    else:
        pipeline.wait_for("begin", signal="go")
    pipeline.phase(name="run")(lambda job: 1)
    pipeline.wait_for("end", signal="stop")
    heard: list[str] = []
    queue.on(TaskCompleted, lambda event: heard.append(event.task.task_id))
    task = queue.add(pipeline)
    queue.signal(task.task_id, "go")
    queue.signal(task.task_id, "stop", "bye")
    with working(queue, pipeline):
        done = ended(queue, task)
    assert (done.status, done.results["end"]) == (Status.COMPLETED, "bye")
    assert heard == [task.task_id]


def test_a_signal_delivered_twice_does_not_count_for_a_later_wait(queue: Queue) -> None:
    pipeline = Pipeline("twice")
    pipeline.wait_for("first", signal="approved")
    pipeline.wait_for("second", signal="approved")
    pipeline.phase(name="run")(lambda job, first, second: [first, second])
    task = queue.add(pipeline)
    with working(queue, pipeline):
        queue.signal(task.task_id, "approved", "by ann", signal_id="event-1")
        waits = reached(queue, task, Status.WAITING, "second")
        again = queue.signal(task.task_id, "approved", "by ann", signal_id="event-1")
        assert (again.version, again.awaiting) == (waits.version, "signal:approved")
        queue.signal(task.task_id, "approved", "by bob", signal_id="event-2")
        assert ended(queue, task).result == ["by ann", "by bob"]
