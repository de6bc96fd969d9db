"""Manual operations on one task: each changes the row and records who asked in the history."""

import getpass
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from onerow import BadInput, IllegalMove, Permanent, Pipeline, Queue, Retry, Status, Task, TaskCancelled, TaskFailed
from onerow.engine.events.events import OperationApplied
from tests.engine.kit import ended, history_of, until, work, working

videos = Pipeline("videos")


@videos.phase
def script(job: dict[str, str] | None) -> str:
    return "words"


@videos.phase
def film(job: dict[str, str] | None, script: str) -> str:
    if job and job.get("broken"):
        raise Permanent("no camera")
    return "film"


videos.wait_for("review", signal="reviewed")


@videos.phase
def post(job: object, review: object) -> object:
    return review


@dataclass
class Film:
    title: str


def failed(queue: Queue) -> Task:
    task = queue.add(videos, {"broken": "yes"})
    work(queue, videos)
    return queue.get(task.task_id)


def completed(queue: Queue) -> Task:
    task = queue.add(videos)
    queue.signal(task.task_id, "reviewed", "good")
    work(queue, videos)
    return queue.get(task.task_id)


def test_cancel_ends_a_waiting_task(queue: Queue) -> None:
    task = queue.add(videos)
    received: list[str] = []
    queue.on(TaskCancelled, lambda event: received.append(event.task.task_id))
    assert queue.cancel(task.task_id, by="kim", note="not needed").status is Status.CANCELLED
    (entry,) = queue.get(task.task_id).history
    assert (entry.what, entry.phase, entry.by, entry.note) == ("cancel", "script", "kim", "not needed")
    assert received == [task.task_id]
    work(queue, videos)
    assert queue.get(task.task_id).status is Status.CANCELLED


def test_cancel_ends_a_failed_and_a_parked_task(queue: Queue) -> None:
    assert queue.cancel(failed(queue).task_id).status is Status.CANCELLED
    parked = queue.add(videos)
    work(queue, videos)
    assert queue.get(parked.task_id).parked
    after = queue.cancel(parked.task_id)
    assert (after.status, after.awaiting) == (Status.CANCELLED, None)


def test_a_cancelled_or_completed_task_can_not_be_cancelled(queue: Queue) -> None:
    task = queue.add(videos)
    queue.cancel(task.task_id)
    with pytest.raises(IllegalMove, match="is cancelled"):
        queue.cancel(task.task_id)
    with pytest.raises(IllegalMove, match="is completed"):
        queue.cancel(completed(queue).task_id)


def test_retry_gives_a_failed_task_a_fresh_budget(queue: Queue) -> None:
    task = failed(queue)
    after = queue.retry(task.task_id, by="kim")
    assert (after.status, after.phase, after.error, after.error_class) == (Status.WAITING, "film", None, None)
    assert (after.retry_count, after.retry_base, after.attempt) == (1, 1, 0)
    assert after.results == {"script": "words"}
    assert (after.history[-1].what, after.history[-1].by) == ("retry", "kim")


def test_retry_stores_a_given_retry_count(queue: Queue) -> None:
    task = failed(queue)
    with pytest.raises(BadInput, match="retry_count must be"):
        queue.retry(task.task_id, retry_count=-1)
    after = queue.retry(task.task_id, retry_count=7)
    assert (after.status, after.retry_count, after.retry_base) == (Status.WAITING, 7, 7)


def test_a_waiting_task_can_be_failed_manually_and_retried(queue: Queue) -> None:
    received: list[str] = []
    queue.on(TaskFailed, lambda event: received.append(event.task.task_id))
    parked = queue.add(videos)
    work(queue, videos)
    after = queue.fail(parked.task_id, "the pictures were never found", by="crawler")
    assert (after.status, after.phase, after.awaiting) == (Status.FAILED, "review", None)
    assert (after.error, after.error_class) == ("the pictures were never found", "permanent")
    assert (after.history[-1].what, after.history[-1].by, after.history[-1].error) == ("fail", "crawler", after.error)
    assert received == [parked.task_id]
    assert queue.retry(parked.task_id).parked


def test_only_a_waiting_task_can_be_failed_manually_and_only_with_a_reason(queue: Queue) -> None:
    with pytest.raises(IllegalMove, match="is completed"):
        queue.fail(completed(queue).task_id, "too late")
    waiting = queue.add(videos)
    with pytest.raises(BadInput, match="needs a reason"):
        queue.fail(waiting.task_id, "")
    with pytest.raises(BadInput, match="class"):
        queue.fail(waiting.task_id, "bad", error_class="sadness")
    assert queue.get(waiting.task_id) == waiting


def test_retry_with_a_policy_applies_its_back_off_and_its_refusals(queue: Queue) -> None:
    task = failed(queue)
    now = queue.store.now()
    after = queue.retry(task.task_id, policy=Retry(2, wait="1h", factor=3, jitter=0, classes={"permanent": True}))
    assert (after.status, after.retry_count) == (Status.WAITING, 1)
    assert timedelta(hours=1) <= after.run_at - now < timedelta(hours=2)
    other = failed(queue)
    with pytest.raises(IllegalMove, match="class permanent"):
        queue.retry(other.task_id, policy=Retry(2))
    with pytest.raises(IllegalMove, match="retried 0 times"):
        queue.retry(other.task_id, policy=Retry(0, classes={"permanent": True}))
    assert queue.get(other.task_id) == other


def test_finish_stores_the_given_result(queue: Queue) -> None:
    after = queue.finish(failed(queue).task_id, result={"id": "7"})
    assert (after.status, after.results) == (Status.COMPLETED, {"script": "words", "film": {"id": "7"}})


def test_replay_restarts_from_an_earlier_phase_and_clears_later_results(queue: Queue) -> None:
    task = completed(queue)
    assert task.results == {"script": "words", "film": "film", "review": "good", "post": "good"}
    after = queue.replay(task.task_id, "film", by="kim")
    assert (after.status, after.phase, after.generation, after.completed_at) == (Status.WAITING, "film", 1, None)
    assert after.results == {"script": "words"}
    assert (after.history[-1].what, after.history[-1].phase, after.history[-1].by) == ("replay", "film", "kim")
    assert queue.get(task.task_id) == after


def test_replay_without_a_phase_starts_at_the_first(queue: Queue) -> None:
    after = queue.replay(completed(queue).task_id)
    assert (after.phase, after.results, after.generation) == ("script", {}, 1)


def test_a_task_can_not_be_replayed_from_a_phase_it_never_reached(queue: Queue) -> None:
    task = failed(queue)
    with pytest.raises(IllegalMove, match="never reached"):
        queue.replay(task.task_id, "post")
    assert queue.get(task.task_id) == task


def test_finish_completes_a_task_manually(queue: Queue) -> None:
    after = queue.finish(failed(queue).task_id, by="kim", note="done elsewhere")
    assert (after.status, after.error, after.phase) == (Status.COMPLETED, None, "film")
    assert (after.history[-1].what, after.history[-1].by) == ("finish", "kim")


def test_finish_of_one_phase_advances_the_task_to_the_next(queue: Queue) -> None:
    task = failed(queue)
    after = queue.finish(task.task_id, phase_only=True)
    assert (after.status, after.phase, after.awaiting) == (Status.WAITING, "review", "signal:reviewed")
    queue.signal(task.task_id, "reviewed", "good")
    work(queue, videos)
    assert queue.get(task.task_id).results == {"script": "words", "review": "good", "post": "good"}


def test_reschedule_changes_the_due_time(queue: Queue) -> None:
    task = queue.add(videos)
    moment = datetime(2035, 1, 1, tzinfo=UTC)
    after = queue.reschedule(task.task_id, moment, by="kim")
    assert (after.run_at, after.scheduled_time) == (moment, moment)
    assert (after.history[-1].what, after.history[-1].by) == ("reschedule", "kim")
    work(queue, videos)
    assert queue.get(task.task_id).attempt == 0
    queue.reschedule(task.task_id, "2020-01-01T00:00:00Z")
    work(queue, videos)
    assert queue.get(task.task_id).phase == "review"


def test_reschedule_takes_a_time_from_now_on(queue: Queue) -> None:
    task = queue.add(videos)
    for text, wait in (("+10m", timedelta(minutes=10)), ("now", timedelta(0)), ("2h", timedelta(hours=2))):
        before = queue.store.now()
        after = queue.reschedule(task.task_id, text)
        assert before + wait <= after.run_at <= queue.store.now() + wait


def test_a_task_that_may_be_missing_is_found_or_none(queue: Queue) -> None:
    task = queue.add(videos, user_id="ann")
    assert queue.find_one(task.task_id) == task
    assert queue.find_one("missing") is None
    assert queue.for_user("bob").find_one(task.task_id) is None


def test_a_signal_is_sent_by_what_its_wait_phase_returned(queue: Queue) -> None:
    pipeline = Pipeline("films", payload=Film)
    image = pipeline.wait_for("image", signal="image", payload=Film)
    approval = pipeline.wait_for("approval", signal="approved")
    queue.publish(pipeline)
    task_id = queue.add(pipeline, Film("a")).task_id
    with pytest.raises(BadInput, match="payload is not a valid Film: Expected `str`, got `int`"):
        queue.signal(task_id, image, {"title": 5})  # type: ignore[misc]
    assert queue.get(task_id).signals == []
    queue.signal(task_id, approval, {"any": ["thing"]})
    assert queue.select().signal(image, Film("b"), signal_id="s1").done == 1
    assert [(each["name"], each["payload"]) for each in queue.get(task_id).signals] == [
        ("approved", {"any": ["thing"]}),
        ("image", {"title": "b"}),
    ]


def test_set_priority_changes_the_order(queue: Queue) -> None:
    queue.serve(videos)
    first, second = queue.add_many(videos, [None, None])
    after = queue.set_priority(second.task_id, -10, by="kim")
    assert (after.history[-1].what, after.history[-1].by, after.history[-1].note) == ("set_priority", "kim", "0 → -10")
    assert [queue.claim(videos)[0].task.task_id for _ in range(2)] == [second.task_id, first.task_id]


def test_signal_is_recorded_with_who_sent_it(queue: Queue) -> None:
    task = queue.add(videos)
    after = queue.signal(task.task_id, "reviewed", {"stars": 5}, by="kim")
    assert [(s["name"], s["payload"]) for s in after.signals] == [("reviewed", {"stars": 5})]
    assert (after.history[-1].what, after.history[-1].by, after.history[-1].note) == ("signal", "kim", "reviewed")


def test_a_repeated_signal_id_is_stored_once(queue: Queue) -> None:
    task = queue.add(videos)
    queue.signal(task.task_id, "reviewed", 1, signal_id="message-1")
    queue.signal(task.task_id, "reviewed", 2, signal_id="message-1")
    assert [s["payload"] for s in queue.get(task.task_id).signals] == [1]


def test_signals_that_nothing_waits_for_are_bounded(queue: Queue) -> None:
    task = queue.add(videos)
    for number in range(100):
        queue.signal(task.task_id, "other", number)
    with pytest.raises(ValueError, match="100 signals"):
        queue.signal(task.task_id, "other")


def test_annotate_replaces_the_metadata(queue: Queue) -> None:
    task = queue.add(videos, metadata={"a": 1})
    queue.annotate(task.task_id, {"b": 2})
    assert queue.get(task.task_id).metadata == {"b": 2}


ILLEGAL: dict[str, tuple[Callable[[Queue, str], Task], Status]] = {
    "retry of a waiting task": (lambda queue, task_id: queue.retry(task_id), Status.WAITING),
    "replay of a waiting task": (lambda queue, task_id: queue.replay(task_id), Status.WAITING),
    "retry of a completed task": (lambda queue, task_id: queue.retry(task_id), Status.COMPLETED),
    "finish of a completed task": (lambda queue, task_id: queue.finish(task_id), Status.COMPLETED),
    "signal to a completed task": (lambda queue, task_id: queue.signal(task_id, "reviewed"), Status.COMPLETED),
    "another time for a completed task": (
        lambda queue, task_id: queue.reschedule(task_id, "2035-01-01T00:00:00Z"),
        Status.COMPLETED,
    ),
    "another priority for a completed task": (lambda queue, task_id: queue.set_priority(task_id, 1), Status.COMPLETED),
    "retry of a cancelled task": (lambda queue, task_id: queue.retry(task_id), Status.CANCELLED),
    "replay of a cancelled task": (lambda queue, task_id: queue.replay(task_id), Status.CANCELLED),
    "finish of a cancelled task": (lambda queue, task_id: queue.finish(task_id), Status.CANCELLED),
    "signal to a cancelled task": (lambda queue, task_id: queue.signal(task_id, "reviewed"), Status.CANCELLED),
}


@pytest.mark.parametrize("act, status", ILLEGAL.values(), ids=ILLEGAL.keys())
def test_an_operation_that_the_status_forbids_is_refused_and_changes_nothing(
    queue: Queue, act: Callable[[Queue, str], Task], status: Status
) -> None:
    queue.serve(videos)
    task = queue.add(videos)
    if status is Status.COMPLETED:
        task = queue.finish(task.task_id)
    elif status is Status.CANCELLED:
        task = queue.cancel(task.task_id)
    with pytest.raises(IllegalMove, match=f"is {status}") as refused:
        act(queue, task.task_id)
    assert (refused.value.task_id, refused.value.status) == (task.task_id, status)
    assert queue.get(task.task_id) == task


def test_an_operation_is_recorded_as_by_the_user_of_this_process_by_default(queue: Queue) -> None:
    task = queue.cancel(queue.add(videos).task_id)
    assert task.history[-1].by == getpass.getuser()


def test_every_operation_sends_an_event(queue: Queue) -> None:
    received: list[tuple[str, str]] = []
    queue.on(OperationApplied, lambda event: received.append((event.operation, event.by)))
    task = queue.add(videos)
    queue.set_priority(task.task_id, 1, by="kim")
    queue.cancel(task.task_id, by="lee")
    assert received == [("set_priority", "kim"), ("cancel", "lee")]


def test_the_history_records_every_operation(queue: Queue) -> None:
    task = failed(queue)
    queue.finish(task.task_id, phase_only=True, by="kim")
    with working(queue, videos):
        until(lambda: queue.get(task.task_id).parked)
        queue.signal(task.task_id, "reviewed", "fine", by="lee")
        done = ended(queue, task)
    assert history_of(done) == [
        ("advanced", "script"),
        ("failed", "film"),
        ("finish", "film"),
        ("signal", "review"),
        ("passed", "review"),
        ("completed", "post"),
    ]
    moments = [entry.when for entry in done.history]
    assert moments == sorted(moments)
    worker = done.history[-1].by
    assert [entry.by for entry in done.history[-4:]] == ["kim", "lee", "", worker]
    assert worker
