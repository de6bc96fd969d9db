"""Rescue while the table is locked or connections are cut repeatedly."""

import threading
import time

import psycopg
import pytest

from onerow import Pipeline, Queue, Status
from onerow.core import rules
from onerow.ports import Move, Stale, Swapped
from onerow.stores.postgres import PostgresStore
from tests.conformance.kit import BLINK, claim_one, put, stored
from tests.engine.kit import ended, working

pytestmark = pytest.mark.faults


def test_a_rescue_that_waited_for_a_lock_is_stale(store: PostgresStore) -> None:
    put(store)
    held = claim_one(store, lease_for=BLINK)
    time.sleep(0.3)
    move = Move(held, rules.rescue(held, store.now()), if_dead=True)
    answers: list[object] = []
    with psycopg.connect(store._connections.address.conninfo) as other:
        other.execute("LOCK TABLE onerow.task_queue IN EXCLUSIVE MODE")
        waiting = threading.Thread(target=lambda: answers.append(store.swap([move])))
        waiting.start()
        time.sleep(1.5)
        assert not answers
    waiting.join(900)
    assert answers == [[Stale("t1")]]
    assert stored(store) == held
    assert isinstance(store.swap([move])[0], Swapped)


def test_repeatedly_cut_connections_do_not_prevent_a_rescue(store: PostgresStore) -> None:
    posts = Pipeline("posts")
    posts.phase(name="publish", lease="2s")(lambda job: "done")
    queue = Queue(store)
    queue.publish(posts)
    task = queue.add(posts)
    queue.claim(posts, lease_for="100ms", worker="gone")
    stop = threading.Event()

    def cut() -> None:
        with psycopg.connect(store._connections.address.conninfo, autocommit=True, application_name="cutter") as other:
            while not stop.wait(0.7):
                other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name <> 'cutter' AND datname = current_database() AND pid <> pg_backend_pid()"
                )

    cutter = threading.Thread(target=cut)
    with working(queue, posts):
        cutter.start()
        try:
            done = ended_through_cuts(queue, task.task_id)
        finally:
            stop.set()
            cutter.join(900)
    assert done is Status.COMPLETED


def ended_through_cuts(queue: Queue, task_id: str) -> Status:
    """Wait until the task has ended; return its status. Retries while the store is unavailable."""
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        try:
            return ended(queue, task_id, seconds=1).status
        except Exception:
            time.sleep(0.05)
    raise AssertionError("the task did not end")
