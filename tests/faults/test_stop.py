"""Stopping real work: cancels, timeouts and signals, with no process left over."""

import os
import signal
import sqlite3
from contextlib import closing

import psutil
import pytest

from onerow import Status, Task
from tests.engine.kit import until
from tests.faults import app
from tests.faults.kit import Place, RealWorker, check_story, gone
from tests.faults.test_kill import KINDS, PHASES, at_work, running

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("kind", KINDS)
def test_a_cancel_reaches_running_work(place: Place, kind: str) -> None:
    place.worker()
    task = running(place, kind)
    process = int(place.notes("begin")[-1][1])
    asked = place.queue.cancel(task.task_id, by="kim")
    assert (asked.status, asked.cancel_requested) == (Status.PROCESSING, True)
    done = place.ended(task)
    assert (done.status, done.phase) == (Status.CANCELLED, KINDS[kind])
    assert [entry.what for entry in done.history[-2:]] == ["cancel", "cancelled"]
    assert len(place.notes("end")) == list(KINDS).index(kind)
    if kind == "isolated":
        until(lambda: gone(process), "the end of its process")
    follower = place.queue.add(app.quick, 1)
    assert place.ended(follower).status is Status.COMPLETED


def test_an_isolated_handler_that_ignores_term_leaves_no_process_behind(place: Place) -> None:
    place.worker()
    task = place.queue.add(app.stubborn, {})
    begun = place.begun(task)
    handler, grandchild = int(begun[1]), int(begun[-1].partition("=")[2])
    assert not gone(handler)
    assert not gone(grandchild)
    place.queue.cancel(task.task_id)
    assert place.ended(task).status is Status.CANCELLED
    until(lambda: gone(handler) and gone(grandchild), "the end of handler and grandchild")


@pytest.mark.parametrize("how", ["worker", "both", pytest.param("term", marks=pytest.mark.slow)])
def test_no_process_survives_the_end_of_its_worker(place: Place, how: str) -> None:
    worker = place.worker()
    task = place.queue.add(app.stubborn, {})
    begun = place.begun(task)
    handler, grandchild = int(begun[1]), int(begun[-1].partition("=")[2])
    if how == "term":
        worker.terminate()
        worker.wait()
    else:
        worker.kill(*(["worker"] if how == "worker" else ["supervisor", "worker"]))
    until(lambda: gone(handler) and gone(grandchild), "the end of handler and grandchild")
    if how != "worker":
        until(lambda: not place.living(), "the end of everything")
        now = place.queue.get(task.task_id)
        assert now.status is (Status.WAITING if how == "term" else Status.PROCESSING)


@pytest.mark.parametrize("how", ["kill", "term"])
def test_no_prestarted_process_survives_its_worker(place: Place, how: str) -> None:
    worker = place.worker()
    task = place.queue.add(app.slow, {"kind": "isolated", "for": 0})
    assert place.ended(task).status is Status.COMPLETED
    until(lambda: [one for one in place.living() if "child_main.py" in " ".join(one.cmdline())], "a process that waits")
    if how == "kill":
        worker.kill("supervisor", "worker")
    else:
        worker.terminate()
        assert worker.wait() == 0
    until(lambda: not place.living(), "the end of everything")


def test_worker_processes_are_replaced_after_a_number_of_tasks_at_no_cost(place: Place) -> None:
    worker = place.worker("--max-tasks", "5")
    first = worker.pid()
    tasks: list[Task] = []

    def replaced() -> bool:
        tasks.append(place.queue.add(app.quick, 1))
        place.ended(tasks[-1])
        return place.output().count("it was replaced") >= 2

    until(replaced, "two replacements")
    assert gone(first)
    for task in tasks:
        done = place.ended(task)
        assert (done.status, done.retry_count) == (Status.COMPLETED, 0)
        assert {entry.what for entry in done.history} <= {"advanced", "completed", "handed back"}
    worker.terminate()
    assert worker.wait() == 0


def test_a_hung_thread_ends_as_timeout_and_its_phase_continues_in_a_new_process(place: Place) -> None:
    worker = place.worker()
    first = worker.pid()
    hung = place.queue.add(app.hanging, True)
    place.begun(hung)
    good = [place.queue.add(app.hanging, False) for _ in range(3)]
    done = place.ended(hung)
    assert (done.status, done.error_class) == (Status.FAILED, "timeout"), place.output()
    assert [place.ended(task).status for task in good] == [Status.COMPLETED] * 3
    assert [place.ended(task).crash_count for task in good] == [0] * 3
    until(lambda: gone(first), "the end of the old process")
    assert "does not stop" in place.output()


def test_an_async_handler_that_blocks_the_loop_ends_as_timeout_and_its_neighbours_complete(place: Place) -> None:
    place.worker()
    blocked = place.queue.add(app.blocking, True)
    place.begun(blocked)
    good = place.queue.add_many(app.blocking, [False] * 5)
    done = place.ended(blocked)
    assert (done.status, done.error_class) == (Status.FAILED, "timeout"), place.output()
    assert [place.ended(task).status for task in good] == [Status.COMPLETED] * 5


def test_one_sigterm_lets_running_work_end(place: Place) -> None:
    worker = place.worker("--grace", "60s")
    task = place.queue.add(app.slow, {"kind": "async", "for": 2})
    place.begun(task)
    worker.terminate()
    assert worker.wait() == 0
    now = place.queue.get(task.task_id)
    assert (now.phase, now.results, now.status) == ("in_thread", {"in_loop": "in_loop"}, Status.WAITING)
    until(lambda: not place.living())
    assert place.queue.store.notes("worker") == []


def test_work_that_outlasts_the_grace_period_is_handed_back_at_no_cost(place: Place) -> None:
    worker = place.worker("--grace", "1s")
    task = running(place, "async")
    worker.terminate()
    assert worker.wait() == 0
    now = place.queue.get(task.task_id)
    assert (now.status, now.attempt, now.crash_count, now.retry_count) == (Status.WAITING, 0, 0, 0)
    assert now.history[-1].what == "handed back"


@pytest.mark.parametrize(
    "kind", [pytest.param("async", marks=pytest.mark.slow), "thread", pytest.param("isolated", marks=pytest.mark.slow)]
)
def test_a_second_sigterm_ends_the_grace_period(place: Place, kind: str) -> None:
    worker = place.worker("--grace", "10m")
    task = running(place, kind)
    worker.terminate()
    worker.supervisor.send_signal(signal.SIGINT)  # two SIGTERMs at once would be one
    assert worker.wait() == 0
    now = place.queue.get(task.task_id)
    assert (now.status, now.phase, now.attempt, now.crash_count) == (Status.WAITING, KINDS[kind], 0, 0)
    until(lambda: not place.living())


def test_a_worker_that_drains_claims_nothing_more(place: Place) -> None:
    worker = place.worker("--grace", "60s")
    task = place.queue.add(app.slow, {"kind": "async", "for": 3})
    place.begun(task)
    worker.terminate()
    until(lambda: any(note.body["draining"] for note in place.queue.store.notes("worker")), "the word that it drains")
    other = place.queue.add(app.quick, 1)
    worker.wait()
    assert place.queue.get(task.task_id).results == {"in_loop": "in_loop"}
    assert (place.queue.get(other.task_id).status, place.queue.get(other.task_id).attempt) == (Status.WAITING, 0)


@pytest.mark.slow
def test_control_c_of_the_terminal_counts_once(place: Place) -> None:
    worker = place.worker("--grace", "60s")
    task = place.queue.add(app.slow, {"kind": "async", "for": 2})
    place.begun(task)
    worker.supervisor.send_signal(signal.SIGINT)
    assert worker.wait() == 0
    assert place.queue.get(task.task_id).results == {"in_loop": "in_loop"}


def test_the_worker_announces_its_store_and_phases_and_drains_when_asked(place: Place) -> None:
    tasks = place.queue.add_many(app.quick, range(50))
    assert place.run_to_the_end("--until-idle") == 0
    assert {place.queue.get(task.task_id).status for task in tasks} == {Status.COMPLETED}
    assert f"sqlite:///{place.path}" in place.output()
    assert f"slow: {' → '.join(PHASES)}" in place.output()


def whole_tree(worker: RealWorker) -> list[psutil.Process]:
    """Return the supervisor and all its descendants, which a service manager signals."""
    supervisor = psutil.Process(worker.supervisor.pid)
    return [supervisor, *supervisor.children(recursive=True)]


def test_a_sigterm_to_every_process_lets_handlers_in_processes_and_threads_end(place: Place) -> None:
    worker = place.worker("--grace", "60s")
    tasks = [place.queue.add(app.slow, {"kind": "isolated", "for": 3}), place.queue.add(app.slow, {"kind": "thread"})]
    until(lambda: at_work(place, tasks[0], "isolated") and at_work(place, tasks[1], "thread"), "both at work")
    for process in whole_tree(worker):
        process.terminate()
    place.queue.cancel(tasks[1].task_id)
    assert worker.wait() == 0
    done = place.queue.get(tasks[0].task_id)
    assert (done.status, done.retry_count, done.crash_count) == (Status.COMPLETED, 0, 0), done.history
    assert place.queue.get(tasks[1].task_id).status is Status.CANCELLED


@pytest.mark.parametrize("kind", ["plain", "exits_with_255"])
def test_a_program_that_a_sigterm_to_every_process_ended_is_handed_back(place: Place, kind: str) -> None:
    worker = place.worker("--grace", "60s")
    task = place.queue.add(app.programs, {"kind": kind, "seconds": 600})
    process = int(place.begun(task)[1])
    for each in whole_tree(worker):
        each.terminate()
    assert worker.wait() == 0
    assert gone(process)
    now = place.queue.get(task.task_id)
    assert (now.status, now.attempt, now.retry_count, now.crash_count) == (Status.WAITING, 0, 0, 0), now.history
    assert now.history[-1].what == "handed back"


def test_a_program_that_ends_by_sigterm_while_the_worker_works_fails(place: Place) -> None:
    place.worker()
    task = place.queue.add(app.programs, {"kind": "plain", "seconds": 600})
    os.kill(int(place.begun(task)[1]), signal.SIGTERM)
    done = place.ended(task)
    assert (done.status, "SIGTERM" in (done.error or "")) == (Status.FAILED, True)


def test_a_worker_ends_after_its_grace_although_the_store_takes_no_writes(place: Place) -> None:
    worker = place.worker("--grace", "1s")
    task = running(place, "async")
    with closing(sqlite3.connect(place.path, timeout=30, isolation_level=None)) as lock:
        lock.execute("BEGIN EXCLUSIVE")
        worker.terminate()
        assert worker.wait() == 70
        lock.execute("ROLLBACK")
    assert place.queue.get(task.task_id).status is Status.PROCESSING
    place.worker()
    check_story(place.ended(task), PHASES)


def test_a_worker_that_finds_a_newer_schema_ends_and_is_not_started_again(place: Place) -> None:
    worker = place.worker()
    with closing(sqlite3.connect(place.path, timeout=30, isolation_level=None)) as connection:
        connection.execute("UPDATE onerow_meta SET value = 99 WHERE key = 'min_code'")
    assert worker.wait() == 78
    assert "another starts" not in place.output()
    assert "needs code that knows schema 99" in place.output()
