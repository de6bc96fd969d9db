"""PgBouncer in transaction mode: sessions are shared, and all operations work."""

import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from onerow.core import rules
from onerow.engine.control import definitions
from onerow.pipelines.pipeline import Pipeline
from onerow.ports import Claim, Lease, LogLine, Move, Note, PhaseClaim
from onerow.stores.postgres import PostgresStore
from onerow.wiring import Queue
from tests.conformance.kit import MINUTE, claim, new, put, put_many, stored, want
from tests.engine.kit import PATIENCE, working

posts = Pipeline("posts")
posts.phase(name="tag")(lambda job: None)


@pytest.fixture
def pooled(pgbouncer_url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(pgbouncer_url)
    store.prepare()
    yield store
    store.close()


def test_a_pooler_is_detected(pooled: PostgresStore, store: PostgresStore) -> None:
    assert pooled._connections.is_pooled
    assert not store._connections.is_pooled


def test_all_operations_work_through_a_pooler(pooled: PostgresStore, store: PostgresStore) -> None:
    put_many(pooled, 50)
    put(pooled, "limited", phase="video", limit_key="ann")
    held = claim(pooled, 10)
    both = pooled.settle_and_claim(
        [Move(task, rules.finish(task, "1", pooled.now())) for task in held],
        Claim("w1", [want(5), want(5, "video", slots=2, key_slots=1)]),
    )
    assert [type(answer).__name__ for answer in both[0]] == ["Swapped"] * 10
    assert len(both[1]) == 6
    assert pooled.extend([Lease(task.task_id, task.token) for task in both[1]], MINUTE)
    pooled.append_log([LogLine("limited", pooled.now(), "video", 1, "out", "line")])
    assert pooled.write_notes([Note("k", "n", {"a": 1})]) == [True]
    assert store.read_log("limited").lines[0].text == "line"
    assert stored(store, "limited").key_slot == 0


def test_many_clients_share_few_sessions_without_mixing_statements(pgbouncer_url: str, store: PostgresStore) -> None:
    """Prepared statements would collide in the shared sessions: a client would get an error or the wrong statement."""
    put_many(store, 400)
    clients = [PostgresStore(pgbouncer_url) for _ in range(12)]
    taken: list[list[str]] = [[] for _ in clients]
    failed: list[Exception] = []

    def work(number: int) -> None:
        client = clients[number]
        wanted = PhaseClaim(pipeline="videos", phase="script", limit=1 + number, lease_for=timedelta(minutes=1))
        try:
            moves: list[Move] = []
            while True:
                _, tasks = client.settle_and_claim(moves, Claim(f"w{number}", [wanted]))
                if not tasks:
                    return
                taken[number] += [task.task_id for task in tasks]
                moves = [Move(task, rules.finish(task, None, client.now())) for task in tasks]
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(clients))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in clients:
        client.close()
    assert failed == []
    assert sorted(task_id for ids in taken for task_id in ids) == sorted(f"t{n:04d}" for n in range(400))


def test_settings_are_limited_to_the_transaction(pgbouncer_url: str, pooled: PostgresStore) -> None:
    put(pooled)
    claim(pooled)
    with psycopg.connect(pgbouncer_url, autocommit=True, prepare_threshold=None) as neighbour:
        for name in ("enable_seqscan", "enable_hashjoin", "enable_sort"):
            assert neighbour.execute(f"SHOW {name}").fetchone() == ("on",)


def test_without_listen_a_waker_waits_for_its_timeout(pooled: PostgresStore, store: PostgresStore) -> None:
    waker = pooled.waker()
    assert not waker.hears
    put(store)
    assert not waker.wait(0.1)
    put(pooled, "t2")
    assert waker.wait(900), "an insert wakes the wakers of its own process"
    waker.close()


def test_without_listen_only_moves_that_create_work_wake_this_process(pooled: PostgresStore) -> None:
    put_many(pooled, 2)
    waker = pooled.waker()
    done, again = claim(pooled, 2)
    assert claim(pooled, 2) == []
    pooled.swap([Move(done, rules.finish(done, None, pooled.now()))])
    assert not waker.wait(0), "neither a claim nor a completion creates work"
    pooled.swap([Move(again, rules.hand_back(again, pooled.now()))])
    assert waker.wait(900)
    waker.close()


def test_without_listen_an_idle_worker_claims_once_per_interval(
    pooled: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another role reads its notes about once a second; four such reads show that time has passed."""
    claims: list[Claim | None] = []
    rounds = threading.Semaphore(0)
    settle_and_claim, notes = pooled.settle_and_claim, pooled.notes

    def counted_rounds(moves: Sequence[Move], wanted: Claim | None) -> Any:
        claims.append(wanted)
        return settle_and_claim(moves, wanted)

    def counted_notes(kind: str, **more: Any) -> Any:
        if kind == definitions.LIMIT:
            rounds.release()
        return notes(kind, **more)

    monkeypatch.setattr(pooled, "settle_and_claim", counted_rounds)
    monkeypatch.setattr(pooled, "notes", counted_notes)
    with working(Queue(pooled), posts, interval="1h"):
        for _ in range(4):
            assert rounds.acquire(timeout=PATIENCE)
    assert len(claims) <= 2


def test_with_a_listen_url_it_listens_on_the_server(
    pgbouncer_url: str, postgres_url: str, store: PostgresStore
) -> None:
    pooled = PostgresStore(pgbouncer_url, listen=postgres_url)
    waker = pooled.waker()
    assert waker.hears
    put(store)
    assert waker.wait(900)
    waker.close()
    pooled.close()


def test_tx_works_through_a_pooler(pgbouncer_url: str, pooled: PostgresStore) -> None:
    queue = Queue(pooled)
    with psycopg.connect(pgbouncer_url, prepare_threshold=None) as tx:
        tasks = [queue.add(posts, {"n": n}, tx=tx) for n in range(10)]
    assert len(pooled.fetch([task.task_id for task in tasks])) == 10


def test_prepare_no_in_the_url_disables_prepared_statements(postgres_url: str, store: PostgresStore) -> None:
    cautious = PostgresStore(f"{postgres_url}?prepare=no")
    for n in range(10):
        cautious.insert([new(cautious, f"t{n}")])
    with cautious._connections.connection() as connection:
        assert connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
    cautious.close()
