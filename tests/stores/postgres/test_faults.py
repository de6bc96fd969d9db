"""Crashes of server and network: nothing acknowledged is lost, and nothing is done twice."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from onerow import Addition, Pipeline, Queue, Status
from onerow.core import rules
from onerow.core.errors import StoreError, StoreUnavailable
from onerow.core.filters import Filter
from onerow.core.status import COMPLETED, PROCESSING, WAITING
from onerow.core.task import Task
from onerow.ports import Claim, Inserted, Move, Stale, Swapped
from onerow.stores.postgres import PostgresStore
from tests.conformance.kit import claim, claim_one, every_row, new, put, put_many, stored, want
from tests.engine.kit import until, working
from tests.servers.postgres import PostgresServer
from tests.stores.postgres.proxy import Proxy
from tests.stores.postgres.worker import added, done, must_have_one_outcome

pytestmark = pytest.mark.faults

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def proxied(store: PostgresStore, proxy: Proxy) -> Iterator[PostgresStore]:
    """The same store, connected via the proxy."""
    proxied = PostgresStore(f"{proxy.url}?tcp_user_timeout=2000&connect_timeout=2")
    proxied.now()
    yield proxied
    proxied.close()


def retrying(operation: Callable[[], object], seconds: float = 900) -> None:
    """Retry an operation until the store is available, as a worker does."""
    give_up = time.monotonic() + seconds
    while True:
        try:
            operation()
            return
        except StoreError:
            assert time.monotonic() < give_up
            time.sleep(0.05)


def keep_error(operation: Callable[[], object], failed: list[StoreError]) -> None:
    """Run an operation and record its StoreError."""
    try:
        operation()
    except StoreError as error:
        failed.append(error)


@pytest.mark.parametrize("how", ["kill", pytest.param("immediate", marks=pytest.mark.slow)])
def test_p1_a_server_that_crashes_mid_run_loses_nothing_that_was_acknowledged(
    own_postgres: PostgresServer, how: str
) -> None:
    url = own_postgres.fresh_database()
    store = PostgresStore(url)
    store.prepare()
    added: list[str] = []
    finished: list[str] = []
    over = threading.Event()

    def add() -> None:
        number = 0
        while not over.is_set():
            try:
                if isinstance(store.insert([new(store, f"t{number:05d}")])[0], Inserted):
                    added.append(f"t{number:05d}")
            except StoreError:
                time.sleep(0.02)
            number += 1

    def work() -> None:
        while not over.is_set():
            try:
                for task in claim(store, 10):
                    (answer,) = store.swap([Move(task, rules.finish(task, '"done"', store.now()))])
                    if isinstance(answer, Swapped):
                        finished.append(task.task_id)
            except StoreError:
                time.sleep(0.02)

    threads = [threading.Thread(target=operation) for operation in (add, work)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        before = len(finished)
        while len(finished) < before + 100:
            time.sleep(0.01)
        if how == "kill":
            own_postgres.kill()
        else:
            own_postgres.stop("immediate")
        own_postgres.start()
    over.set()
    for thread in threads:
        thread.join()
    rows = every_row(store)
    assert set(added) <= set(rows)
    assert len(finished) == len(set(finished)), "one recorded outcome each"
    assert {task_id for task_id in finished if rows[task_id].status is not COMPLETED} == set()
    store.close()


def test_a_store_reconnects_to_a_restarted_server(own_postgres: PostgresServer) -> None:
    store = PostgresStore(own_postgres.fresh_database())
    store.prepare()
    put_many(store, 3)
    waker = store.waker()
    own_postgres.stop()
    with pytest.raises(StoreUnavailable):
        claim(store)
    with pytest.raises(StoreUnavailable):
        store.find(Filter())
    own_postgres.start()
    retrying(lambda: claim(store, 1))
    assert waker.wait(900)
    while not waker.hears:
        waker.wait(0.1)
    waker.close()
    store.close()


@pytest.mark.parametrize("how", ["kill", pytest.param("immediate", marks=pytest.mark.slow)])
def test_a_worker_survives_server_crashes_and_records_each_outcome_once(
    own_postgres: PostgresServer, tmp_path: Path, how: str
) -> None:
    url = own_postgres.fresh_database()
    store = PostgresStore(url)
    store.prepare()
    queue = Queue(store)
    ids = added(queue, 400)
    output = tmp_path / "output.txt"
    with output.open("wb") as file:
        worker = subprocess.Popen(
            [sys.executable, "-m", "tests.stores.postgres.worker", url], stdout=file, stderr=file, cwd=ROOT
        )
    try:
        for crash in (1, 2):
            until(lambda many=crash * 100: done(queue) >= many, "the worker")  # type: ignore[misc]
            if how == "kill":
                own_postgres.kill()
            else:
                own_postgres.stop("immediate")
            until(lambda many=crash: output.read_text().count("away") >= many, "that it notices")  # type: ignore[misc]
            own_postgres.start()
            retrying(queue.count)
        until(lambda: done(queue) == len(ids), "the rest")
    finally:
        worker.kill()
        worker.wait()
    must_have_one_outcome(queue, ids)
    store.close()


def test_a_stopped_worker_exits_after_its_grace_period_without_a_busy_loop_while_the_server_is_down(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    url = own_postgres.fresh_database()
    store = PostgresStore(url)
    store.prepare()
    store.close()
    environment = {**os.environ, "FAULTS_STORE": url, "FAULTS_NOTES": str(tmp_path), "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-m", "onerow", "worker", "tests.faults.app", "--grace", "3s"]
    notes, output = tmp_path / "notes.txt", tmp_path / "output.txt"
    with output.open("wb") as file:
        supervisor = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=file, stderr=file)
    try:
        until(lambda: " serves " in output.read_text(), "the worker")
        queue = Queue(url)
        queue.add("slow", {"kind": "async"})
        queue.close()
        until(notes.exists, "the task")
        [worker] = psutil.Process(supervisor.pid).children()
        own_postgres.stop("immediate")
        until(lambda: "store unavailable" in output.read_text(), "that it notices")
        before = after = sum(worker.cpu_times()[:2])
        supervisor.terminate()
        with contextlib.suppress(psutil.NoSuchProcess):
            while worker.status() != psutil.STATUS_ZOMBIE:
                after = max(after, sum(worker.cpu_times()[:2]))
                time.sleep(0.02)
        assert supervisor.wait(900) in (0, 70), (
            output.read_text()
        )  # 0: by then the lease had ended, and with it the work
    finally:
        supervisor.kill()
        supervisor.wait()
    assert after - before < 2.0, "of some six seconds"
    assert "is back" not in output.read_text()


def test_p4_a_commit_whose_answer_was_lost_is_applied_once(
    store: PostgresStore, proxied: PostgresStore, proxy: Proxy
) -> None:
    put(store)
    held = claim_one(proxied)
    move = Move(held, rules.finish(held, '"done"', proxied.now()))
    proxy.deafen()
    landed = threading.Event()
    proxy.on_answer = lambda data: landed.set() if b"COMMIT" in data else None
    failed: list[StoreError] = []
    thread = threading.Thread(target=keep_error, args=(lambda: proxied.swap([move]), failed))
    thread.start()
    assert landed.wait(900)
    proxy.cut()
    thread.join(900)
    proxy.heal()
    assert [type(error) for error in failed] == [StoreUnavailable]
    now_there = stored(store)
    assert (now_there.status, now_there.token) == (COMPLETED, held.token), "our own write, by its token"
    assert proxied.swap([move]) == [Stale("t1")]
    assert stored(store) == now_there


def test_a_claim_whose_answer_was_lost_stays_leased(store: PostgresStore, proxied: PostgresStore, proxy: Proxy) -> None:
    put(store)
    proxy.deafen()
    landed = threading.Event()
    proxy.on_answer = lambda data: landed.set() if b"COMMIT" in data else None
    failed: list[StoreError] = []
    thread = threading.Thread(target=keep_error, args=(lambda: claim(proxied, worker="lost"), failed))
    thread.start()
    assert landed.wait(900)
    proxy.cut()
    thread.join(900)
    assert [type(error) for error in failed] == [StoreUnavailable]
    lost = stored(store)
    assert (lost.status, lost.leased_by) == (PROCESSING, "lost")
    assert claim(store) == []
    rescued = rules.rescue(lost, store.now())
    assert store.swap([Move(lost, rescued, if_dead=True)]) == [Stale("t1")], "it lives until its lease ends"


def test_a_worker_returns_tasks_of_a_claim_whose_answer_was_lost(
    store: PostgresStore, proxied: PostgresStore, proxy: Proxy
) -> None:
    """All connections are cut between COMMIT and its answer, three times; the lease is much longer than the test."""
    pipeline = Pipeline("patient")
    pipeline.phase(name="run", lease="1h")(lambda job: job)
    queue, seen = Queue(proxied), threading.Event()
    cuts: list[list[Status]] = []
    one_at_a_time = threading.Lock()  # each connection has a thread of the proxy

    def cut_after_the_claim(data: bytes) -> None:
        if b"lost-" in data:
            seen.set()  # rows of a claim; its COMMIT is answered in the same piece or the next
        with one_at_a_time:
            if not seen.is_set() or b"COMMIT" not in data or len(cuts) == 3:
                return
            cuts.append([task.status for task in store.fetch([f"lost-{number}" for number in range(16)])])
            seen.clear()
        proxy.cut()

    with working(queue, pipeline):
        proxy.on_answer = cut_after_the_claim
        owner = Queue(store)
        owner.add_many(pipeline, [Addition(number, task_id=f"lost-{number}") for number in range(16)])
        until(lambda: done(owner) == 16, "the end of all")
    assert len(cuts) == 3
    assert PROCESSING in cuts[0], "the claim had landed when its answer was cut off"
    for task in store.fetch([f"lost-{number}" for number in range(16)]):
        assert (task.attempt, task.retry_count, task.crash_count, task.rescue_count) == (1, 0, 0, 0)
        assert [entry.what for entry in task.history] == ["completed"]


def test_a_cut_before_the_commit_writes_nothing(store: PostgresStore, proxied: PostgresStore, proxy: Proxy) -> None:
    """A round is one transaction: either all of it is applied or nothing."""
    put_many(store, 20)
    held = claim(proxied, 10)
    with psycopg.connect(store._connections.address.conninfo) as other:
        other.execute("SELECT FROM onerow.task_queue WHERE task_id = %s FOR UPDATE", (held[9].task_id,))
        moves = [Move(task, rules.finish(task, None, proxied.now())) for task in held]
        failed: list[StoreError] = []
        thread = threading.Thread(
            target=keep_error, args=(lambda: proxied.settle_and_claim(moves, Claim("w1", [want(5)])), failed)
        )
        thread.start()
        _wait_for_a_blocked_statement(other)
        proxy.cut()
        thread.join(900)
        # The server detects the cut only when it answers; until then it waits for the lock.
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid <> pg_backend_pid() "
            "AND datname = current_database()"
        )
        other.rollback()
    assert [type(error) for error in failed] == [StoreUnavailable]
    time.sleep(0.1)
    assert {task.status for task in store.fetch([task.task_id for task in held])} == {PROCESSING}
    assert sum(row.status is WAITING for row in every_row(store).values()) == 10


def _wait_for_a_blocked_statement(connection: psycopg.Connection) -> None:
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        waiters = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        ).fetchall()
        if waiters:
            return
        connection.execute("SELECT pg_stat_clear_snapshot()")
        time.sleep(0.01)
    raise AssertionError("no statement is blocked")


def test_a_silent_network_is_detected(store: PostgresStore, proxied: PostgresStore, proxy: Proxy) -> None:
    """No reset and no answer: the operation fails when the cut is detected, and the next one succeeds."""
    put(store)
    proxy.deafen()
    threading.Timer(0.3, proxy.cut).start()
    with pytest.raises(StoreUnavailable):
        claim(proxied)
    proxy.heal()
    assert stored(proxied).task_id == "t1"


def test_a_deadlocked_write_is_retried(store: PostgresStore) -> None:
    """Threads write the same rows in different orders: the server aborts one, and the store retries it."""
    put_many(store, 40)
    held = claim(store, 40)
    failed: list[Exception] = []
    written: list[str] = []

    def swap(tasks: list[Task]) -> None:
        try:
            for _ in range(5):
                answers = store.swap([Move(task, task.with_changes(store.now())) for task in tasks])
                written.extend(a.task.task_id for a in answers if isinstance(a, Swapped))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=swap, args=(order,)) for order in (held, held[::-1], held[20:] + held[:20])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert sorted(written) == sorted(task.task_id for task in held), "each row by one of them, once"


def test_a_worker_stopped_during_a_claim_does_not_block_others(store: PostgresStore, postgres_url: str) -> None:
    """SIGSTOP while limited phases are claimed: locks end with the transaction, which does not wait for its client."""
    put_many(store, 5_000)
    script = (
        "import sys\n"
        "from datetime import timedelta\n"
        "from onerow.core import rules\n"
        "from onerow.ports import Claim, Move, PhaseClaim\n"
        "from onerow.stores.postgres import PostgresStore\n"
        "store = PostgresStore(sys.argv[1]); moves = []\n"
        "claim = Claim('frozen', [PhaseClaim(pipeline='videos', phase='script', limit=3, lease_for=timedelta(minutes=1), slots=6)])\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    _, tasks = store.settle_and_claim(moves, claim)\n"
        "    moves = [Move(t, rules.finish(t, None, store.now())) for t in tasks]\n"
    )
    hasty = PostgresStore(f"{postgres_url}?options=-c%20statement_timeout%3D10000")
    worker = subprocess.Popen([sys.executable, "-c", script, postgres_url], stdout=subprocess.PIPE)
    try:
        assert worker.stdout is not None
        worker.stdout.readline()
        for number in range(60):
            time.sleep(0.011 + number % 7 / 1000)
            worker.send_signal(signal.SIGSTOP)
            got = claim(hasty, 3, slots=6, worker="alive")
            hasty.swap([Move(task, rules.finish(task, None, hasty.now())) for task in got])
            worker.send_signal(signal.SIGCONT)
    finally:
        worker.send_signal(signal.SIGCONT)
        worker.kill()
        worker.wait()
        worker.stdout.close()  # type: ignore[union-attr]
        hasty.close()
