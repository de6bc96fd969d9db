"""A settle whose answer was lost: an outcome that the row's history shows is reported as settled, once."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from onerow import (
    CancelTask,
    LeaseLost,
    Permanent,
    Pipeline,
    Queue,
    Retry,
    Snooze,
    Status,
    StoreUnavailable,
    Task,
    Worker,
)
from onerow.core import rules
from onerow.engine.events.events import (
    TaskAdvanced,
    TaskCancelled,
    TaskCompleted,
    TaskEvent,
    TaskFailed,
    TaskLeaseLost,
    TaskRetried,
)
from onerow.engine.worker.worker import counters_of
from onerow.ports import Claim, Move, Swapped
from tests.engine.kit import PATIENCE, ended, everything, reached, until, working

LONG = "1h"
"""A lease longer than any test: no heartbeat and no rescue comes between."""
OUTCOMES = (TaskAdvanced, TaskCompleted, TaskRetried, TaskFailed, TaskCancelled, TaskLeaseLost)
Chosen = Callable[[Task], bool]


def nothing(task_id: str) -> None: ...


class LosesAnswers:
    """Loses the first answer to a settle of each chosen task, after the store has executed the call.

    then: called with the id of each such task before the worker learns that the call failed.
    """

    def __init__(
        self,
        queue: Queue,
        monkeypatch: pytest.MonkeyPatch,
        chosen: Chosen,
        *,
        then: Callable[[str], object] = nothing,
        claims: bool = False,
    ) -> None:
        self._settle_and_claim: Callable[..., Any] = queue.store.settle_and_claim
        self._chosen = chosen
        self._then = then
        self._claims = claims
        self.lost: list[str] = []
        monkeypatch.setattr(queue.store, "settle_and_claim", self)

    def __call__(self, moves: list[Move], claim: Claim | None) -> Any:
        lost = [move.before.task_id for move in moves if self._loses(move)]
        if not lost:
            return self._settle_and_claim(moves, claim)
        self.lost += lost
        # Without a claim in the same call, the next phase is left for `then`.
        self._settle_and_claim(moves, claim if self._claims else None)
        for task_id in lost:
            self._then(task_id)
        raise StoreUnavailable("the answer was lost")

    def _loses(self, move: Move) -> bool:
        settles = move.after.status is not Status.PROCESSING
        return settles and move.before.task_id not in self.lost and self._chosen(move.before)


def at(phase: str) -> Chosen:
    return lambda task: task.phase == phase


def heard(queue: Queue) -> list[TaskEvent]:
    """Return the list of events about outcomes, as they come."""
    found: list[TaskEvent] = []
    for kind in OUTCOMES:
        queue.on(kind, found.append)
    return found


def kinds(events: list[TaskEvent], task: Task) -> list[type[TaskEvent]]:
    return [type(event) for event in events if event.task.task_id == task.task_id]


def two_phases(cut: Callable[[], Any] = lambda: "cut", **options: Any) -> Pipeline:
    pipeline = Pipeline("clips")

    @pipeline.phase(name="cut", lease=LONG, **options)
    def run(job: object) -> Any:
        return cut()

    @pipeline.phase(name="post", lease=LONG)
    def post(job: object) -> str:
        return "posted"

    return pipeline


def at_post(queue: Queue, pipeline: Pipeline) -> Task:
    """Return a new task that waits for its last phase."""
    queue.serve(pipeline)
    return queue.finish(queue.add(pipeline).task_id, phase_only=True)


def claimed_by_other(queue: Queue, phase: str) -> Callable[[str], None]:
    """Return a function that lets another worker claim the task at this phase."""

    def claim(task_id: str) -> None:
        until(lambda: queue.claim("clips", phase, ids=[task_id], worker="other", lease_for=LONG), "the other's claim")

    return claim


def take_over(queue: Queue, task: Task) -> Task:
    """Rescue a running task and lease it to another worker, in one write."""
    before, now = queue.get(task.task_id), queue.store.now()
    rescued = rules.rescue(before, now, by="other")
    leased = rules.claimed(rescued, "other", now + timedelta(hours=1), now, None, None)
    (answer,) = queue.store.swap([Move(before, replace(leased, version=before.version + 1))])
    assert isinstance(answer, Swapped)
    return answer.task


def decided(worker: Worker) -> int:
    """Return the number of attempts that the worker has reported as settled or lost."""
    counters = counters_of(worker)
    return counters.settled + counters.lease_lost


def check_counted(worker: Worker, settled: int, lost: int = 0) -> None:
    counters = counters_of(worker)
    assert (counters.settled, counters.lease_lost) == (settled, lost)


def test_a_phase_that_advanced_is_reported_once_and_the_next_phase_runs(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, events = two_phases(), heard(queue)
    line = LosesAnswers(queue, monkeypatch, at("cut"), claims=True)  # the lost call also claims the next phase
    with working(queue, pipeline) as worker:
        tasks = queue.add_many(pipeline, range(5))
        until(lambda: all(task.ended for task in everything(queue)), "the end of all")
        until(lambda: decided(worker) == 10, "the last count")
    assert sorted(line.lost) == sorted(task.task_id for task in tasks)
    check_counted(worker, settled=10)
    assert [worker.totals["clips", phase].done for phase in ("cut", "post")] == [5, 5]
    for task in tasks:
        assert kinds(events, task) == [TaskAdvanced, TaskCompleted]


def test_the_event_has_the_task_as_its_attempt_left_it_although_another_worker_runs_the_next_phase(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, events = two_phases(), heard(queue)
    written: list[Task] = []

    def then(task_id: str) -> None:
        written.append(queue.get(task_id))
        claimed_by_other(queue, "post")(task_id)

    LosesAnswers(queue, monkeypatch, at("cut"), then=then)
    task = queue.add(pipeline)
    with working(queue, pipeline, phases=["cut"]) as worker:
        until(lambda: events, "the event")
    (event,) = events
    assert isinstance(event, TaskAdvanced)
    assert (event.phase, event.task) == ("cut", written[0])
    check_counted(worker, settled=1)
    row = queue.get(task.task_id)
    assert (row.status, row.phase, row.leased_by) == (Status.PROCESSING, "post", "other")


def test_a_phase_is_reported_as_advanced_although_another_worker_has_completed_the_task(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, events = two_phases(), heard(queue)

    def then(task_id: str) -> None:
        (lease,) = queue.claim("clips", "post", ids=[task_id], worker="other")
        lease.complete()

    LosesAnswers(queue, monkeypatch, at("cut"), then=then)
    task = queue.add(pipeline)
    with working(queue, pipeline, phases=["cut"]) as worker:
        until(lambda: len(events) == 2, "both events")
    assert sorted(kind.__name__ for kind in kinds(events, task)) == ["TaskAdvanced", "TaskCompleted"]
    check_counted(worker, settled=1)


@pytest.mark.parametrize("replayed", [False, True])
def test_a_completed_task_is_reported_as_completed(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, replayed: bool
) -> None:
    pipeline, events = two_phases(), heard(queue)
    LosesAnswers(queue, monkeypatch, at("post"), then=lambda task_id: replayed and queue.replay(task_id, "cut"))
    task = at_post(queue, pipeline)
    with working(queue, pipeline, phases=["post"]) as worker:
        until(lambda: events, "the event")
    (event,) = events
    assert isinstance(event, TaskCompleted)
    assert (event.task.status, event.task.results) == (Status.COMPLETED, {"post": "posted"})
    check_counted(worker, settled=1)
    row = queue.get(task.task_id)
    assert (row.status, row.generation) == ((Status.WAITING, 1) if replayed else (Status.COMPLETED, 0))


def raising(error: Exception) -> Callable[[], Any]:
    def run() -> Any:
        raise error

    return run


@pytest.mark.parametrize(
    "cut, kind, counted",
    [
        (raising(ConnectionError("refused")), TaskRetried, "retried"),
        (raising(Permanent("no such clip")), TaskFailed, "failed"),
        (raising(CancelTask("deleted")), TaskCancelled, "cancelled"),
        (raising(Snooze("1ms")), None, "put_off"),
    ],
    ids=["retried", "failed", "cancelled", "snoozed"],
)
def test_an_attempt_without_a_result_is_reported_as_usual_although_the_task_has_run_on(
    queue: Queue,
    monkeypatch: pytest.MonkeyPatch,
    cut: Callable[[], Any],
    kind: type[TaskEvent] | None,
    counted: str,
) -> None:
    pipeline, events = two_phases(cut, retry=Retry(3, wait="1ms")), heard(queue)

    def then(task_id: str) -> None:
        if queue.get(task_id).status is Status.FAILED:
            queue.retry(task_id)
        if not queue.get(task_id).ended:
            claimed_by_other(queue, "cut")(task_id)

    LosesAnswers(queue, monkeypatch, at("cut"), then=then)
    task = queue.add(pipeline)
    with working(queue, pipeline, phases=["cut"]) as worker:
        until(lambda: decided(worker), "the count")
    assert kinds(events, task) == ([] if kind is None else [kind])
    check_counted(worker, settled=1)
    assert getattr(worker.totals["clips", "cut"], counted) == 1
    for event in events:
        assert event.task.history[-1].by == worker.name
        if isinstance(event, TaskRetried | TaskFailed):
            assert event.failure is not None


def test_an_attempt_that_another_worker_took_over_is_reported_as_lost(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, events = threading.Event(), heard(queue)
    pipeline = two_phases(lambda: go.wait(PATIENCE))
    line = LosesAnswers(queue, monkeypatch, at("cut"))
    task = queue.add(pipeline)
    with working(queue, pipeline, phases=["cut"], concurrency=1) as worker:
        held = reached(queue, task, Status.PROCESSING)
        taken = take_over(queue, held)
        go.set()
        until(lambda: events, "the event")
    assert line.lost == [task.task_id]  # the store refused the write, and that answer was lost too
    assert kinds(events, task) == [TaskLeaseLost]
    check_counted(worker, settled=0, lost=1)
    row = queue.get(task.task_id)
    assert (row.leased_by, row.version, row.results) == ("other", taken.version, {})


def test_an_attempt_whose_phase_another_worker_has_completed_is_reported_as_lost(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, events = threading.Event(), heard(queue)
    pipeline = two_phases(lambda: go.wait(PATIENCE))
    task = queue.add(pipeline)
    with working(queue, pipeline, phases=["cut"], concurrency=1) as worker:
        taken = take_over(queue, reached(queue, task, Status.PROCESSING))
        after = rules.complete(taken, pipeline.plan, '"other"', queue.store.now(), by="other")
        queue.store.swap([Move(taken, after)])
        go.set()
        until(lambda: events, "the event")
    assert kinds(events, task) == [TaskLeaseLost]
    check_counted(worker, settled=0, lost=1)
    assert queue.get(task.task_id).results == {"cut": "other"}


def test_each_attempt_of_a_batch_is_reported_as_what_became_of_it(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, events = threading.Event(), heard(queue)
    pipeline = two_phases(lambda: go.wait(PATIENCE))
    tasks = queue.add_many(pipeline, range(6))
    ids = [task.task_id for task in tasks]
    lost, claimed, kept = ids[:2], ids[2:4], ids[4:]
    LosesAnswers(
        queue,
        monkeypatch,
        lambda task: task.task_id in lost + claimed,
        then=lambda task_id: task_id in claimed and claimed_by_other(queue, "post")(task_id),
    )
    with working(queue, pipeline, phases=["cut"], concurrency=6) as worker:
        for task in tasks:
            reached(queue, task, Status.PROCESSING)
        for task in tasks[:2]:
            take_over(queue, task)
        go.set()
        until(lambda: len(events) == 6, "all events")
    assert {task.task_id for task in tasks if kinds(events, task) == [TaskLeaseLost]} == {*lost}
    assert {task.task_id for task in tasks if kinds(events, task) == [TaskAdvanced]} == {*claimed, *kept}
    check_counted(worker, settled=4, lost=2)


def test_an_outcome_is_reported_although_this_worker_began_the_next_phase_before_it_could_read_the_row(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, events = two_phases(), heard(queue)
    line = LosesAnswers(queue, monkeypatch, lambda task: task.phase == "cut" and task.payload == "first")
    fetch = queue.store.fetch
    failed: list[str] = []

    def fetch_fails_once(ids: list[str]) -> list[Task]:
        found = fetch(ids)
        if threading.current_thread().name == "worker of a test" and line.lost and not failed:
            failed.extend(ids)
            raise StoreUnavailable("the answer was lost")
        return found

    monkeypatch.setattr(queue.store, "fetch", fetch_fails_once)
    task = queue.add(pipeline, "first")
    with working(queue, pipeline) as worker:
        ended(queue, task)
        ended(queue, queue.add(pipeline, "later"))  # some rounds later
    assert failed == [task.task_id]
    assert sorted(kind.__name__ for kind in kinds(events, task)) == ["TaskAdvanced", "TaskCompleted"]
    check_counted(worker, settled=4)


def test_a_task_that_its_own_outcome_deletes_is_reported_as_completed(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    brief = Queue(queue.store, keep="0s")
    pipeline, events = two_phases(), heard(brief)
    LosesAnswers(brief, monkeypatch, at("post"))
    task = at_post(brief, pipeline)
    with working(brief, pipeline, phases=["post"]) as worker:
        until(lambda: decided(worker), "the count")
    assert brief.store.fetch([task.task_id]) == []
    assert kinds(events, task) == [TaskCompleted]
    check_counted(worker, settled=1)


def test_an_attempt_is_reported_as_lost_if_another_worker_has_deleted_the_task_with_its_history(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    brief = Queue(queue.store, keep="0s")
    pipeline, events = two_phases(), heard(brief)

    def then(task_id: str) -> None:
        (lease,) = brief.claim("clips", "post", ids=[task_id], worker="other")
        lease.complete()

    LosesAnswers(brief, monkeypatch, at("cut"), then=then)
    task = brief.add(pipeline)
    with working(brief, pipeline, phases=["cut"]) as worker:
        until(lambda: decided(worker), "the count")
    assert brief.store.fetch([task.task_id]) == []
    assert kinds(events, task) == [TaskCompleted, TaskLeaseLost]  # the first is the other's
    check_counted(worker, settled=0, lost=1)


# ── leases that are pulled ──


def test_a_lease_that_is_settled_again_after_a_lost_answer_reports_its_own_outcome(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, events = two_phases(), heard(queue)
    queue.serve(pipeline)
    task = queue.add(pipeline)
    (lease,) = queue.claim(pipeline, "cut", worker="mine", lease_for=LONG)
    swap = queue.store.swap

    def losing(moves: list[Move]) -> Any:
        swap(moves)
        raise StoreUnavailable("the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(queue.store, "swap", losing)
        with pytest.raises(StoreUnavailable):
            lease.complete("cut")
    written = queue.get(task.task_id)
    claimed_by_other(queue, "post")(task.task_id)
    assert lease.complete("cut") == written
    assert kinds(events, task) == [TaskAdvanced]
    assert queue.get(task.task_id).leased_by == "other"


def test_a_lease_that_another_worker_took_over_can_not_be_settled(queue: Queue) -> None:
    pipeline, events = two_phases(), heard(queue)
    queue.serve(pipeline)
    task = queue.add(pipeline)
    (lease,) = queue.claim(pipeline, "cut", worker="mine", lease_for=LONG)
    taken = take_over(queue, lease.task)
    queue.store.swap([Move(taken, rules.complete(taken, pipeline.plan, '"other"', queue.store.now(), by="other"))])
    with pytest.raises(LeaseLost):
        lease.complete("cut")
    assert kinds(events, task) == []
    assert queue.get(task.task_id).results == {"cut": "other"}
