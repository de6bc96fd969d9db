"""No lease is lost while another process holds the write lock: operations check the lease after the wait."""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from onerow import Pipeline, Queue, Status
from onerow.core import rules
from onerow.engine.queue.lease_watch import LeaseWatch
from onerow.ports import Held, Lease, Move, Stale, Swapped
from onerow.stores.sqlite import SqliteStore
from tests.conformance.kit import claim_one, put, stored
from tests.engine.kit import ended, until, working

SECOND = timedelta(seconds=1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "onerow.db")
    store.prepare()
    yield store
    store.close()


@contextlib.contextmanager
def locked(store: SqliteStore) -> Iterator[None]:
    """Hold the write lock on another connection."""
    with contextlib.closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("COMMIT")


def after_a_lock(store: SqliteStore, operation: Callable[[], object], seconds: float) -> object:
    """Return the answer of an operation that waits for the write lock for at least `seconds`."""
    answers: list[object] = []
    with locked(store):
        waiting = threading.Thread(target=lambda: answers.append(operation()))
        waiting.start()
        time.sleep(seconds)
        assert not answers
    waiting.join(900)
    return answers[0]


def test_a_heartbeat_that_waited_for_the_lock_extends_by_a_full_lease(store: SqliteStore) -> None:
    put(store)
    held = claim_one(store)
    answer = after_a_lock(store, lambda: store.extend([Lease("t1", held.token)], SECOND / 2), 1.0)
    row = stored(store)
    until_then = row.updated_at + SECOND / 2
    assert answer == [Held("t1", row.version, until_then, False)]
    assert row.leased_until == until_then
    assert held.started_at is not None
    assert row.updated_at - held.started_at >= SECOND


def test_a_rescue_that_waited_for_the_lock_is_not_written(store: SqliteStore) -> None:
    put(store)
    held = claim_one(store, lease_for=SECOND / 10)
    time.sleep(0.2)
    move = Move(held, rules.rescue(held, store.now()), if_dead=True)
    assert after_a_lock(store, lambda: store.swap([move]), 1.5) == [Stale("t1")]
    assert stored(store) == held
    assert isinstance(store.swap([move])[0], Swapped)


def test_the_lease_watch_does_not_count_time_while_the_lock_is_held(store: SqliteStore) -> None:
    """Reads succeed while the lock is held, so the watch has to detect it by a write."""
    lease = 3 * SECOND
    put(store)
    held = claim_one(store, lease_for=lease)
    watch = LeaseWatch(store, lambda pipeline, phase: lease, lease, is_ours=lambda record: False)
    with locked(store):
        looking = threading.Event()

        def look() -> None:
            while not looking.is_set() and not watch.look(store.now()):
                time.sleep(watch.every)

        thread = threading.Thread(target=look)
        thread.start()
        until(lambda: store.now() > held.leased_until + 2 * lease)  # type: ignore[operator]
        assert watch.observed_for < lease.total_seconds(), "the rescuer waits as well"
    looking.set()
    thread.join(900)
    assert stored(store) == held
    assert watch.look(store.now()) == []


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_task_that_finishes_while_the_lock_is_held_runs_once(tmp_path: Path, workers: int) -> None:
    calm, begun = threading.Event(), threading.Event()
    calls: list[str] = []

    def pipeline() -> Pipeline:
        made = Pipeline("posts")

        @made.phase(lease="2s")
        def publish(job: object) -> str:
            calls.append("run")
            begun.set()
            calm.wait(900)
            return "done"

        return made

    queues = [Queue(f"sqlite:///{tmp_path / 'onerow.db'}") for _ in range(workers)]
    with contextlib.ExitStack() as stack:
        for queue in queues:
            stack.enter_context(working(queue, pipeline()))
        time.sleep(1)
        task = queues[0].add("posts")
        assert begun.wait(900)
        store = SqliteStore(tmp_path / "onerow.db")
        with locked(store):
            calm.set()
            time.sleep(7)  # three leases
        done = ended(queues[0], task)
        time.sleep(3)
        assert (done.status, done.attempt, calls) == (Status.COMPLETED, 1, ["run"])
        assert [entry.what for entry in done.history] == ["completed"]
        assert queues[0].get(task.task_id) == done
    for queue in queues:
        queue.close()
