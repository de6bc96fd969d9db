"""Rounds: swaps and a claim together, on two connections if there are many swaps; writes by row location."""

import threading

import psycopg
import pytest

from onerow.core import rules
from onerow.core.errors import StoreUnavailable
from onerow.core.status import COMPLETED, PROCESSING, WAITING
from onerow.core.task import Task
from onerow.ports import Claim, Move, Stale, Swapped
from onerow.stores.postgres import PostgresStore, rounds
from onerow.stores.postgres.rounds import MIN_PARALLEL
from tests.conformance.kit import claim, every_row, put, put_many, want
from tests.engine.kit import PATIENCE, until
from tests.stores.postgres.test_plans import explained, of_table


def completing(store: PostgresStore, count: int) -> list[Move]:
    held = claim(store, count)
    assert len(held) == count
    return [Move(task, rules.finish(task, None, store.now())) for task in held]


@pytest.mark.parametrize("pool_size", [1, 2, 10])
def test_a_large_round_answers_each_move_and_claims_within_its_limit(postgres_url: str, pool_size: int) -> None:
    """With a single connection, the two transactions run one after the other."""
    store = PostgresStore(postgres_url, pool_size=pool_size)
    store.prepare()
    put_many(store, 3 * MIN_PARALLEL)
    moves = completing(store, MIN_PARALLEL)
    stale = completing(store, MIN_PARALLEL)
    store.swap(stale[:5])
    answers, tasks = store.settle_and_claim([*moves, *stale], Claim("w1", [want(2 * MIN_PARALLEL)]))
    assert [isinstance(answer, Swapped) for answer in answers] == [True] * MIN_PARALLEL + [False] * 5 + [True] * (
        MIN_PARALLEL - 5
    )
    assert [task.task_id for task in tasks] == [f"t{n:04d}" for n in range(2 * MIN_PARALLEL, 3 * MIN_PARALLEL)]
    statuses = [row.status for row in every_row(store).values()]
    assert (statuses.count(COMPLETED), statuses.count(PROCESSING)) == (2 * MIN_PARALLEL, MIN_PARALLEL)
    store.close()


def test_a_slot_that_a_large_round_frees_is_taken_in_the_same_round(store: PostgresStore) -> None:
    put_many(store, 2 * MIN_PARALLEL)
    held = claim(store, MIN_PARALLEL, slots=MIN_PARALLEL)
    moves = [Move(task, rules.finish(task, None, store.now())) for task in held]
    _, tasks = store.settle_and_claim(moves, Claim("w1", [want(MIN_PARALLEL, slots=MIN_PARALLEL)]))
    assert len(tasks) == MIN_PARALLEL


def test_tasks_claimed_concurrently_with_failed_swaps_are_returned_by_the_next_claim(
    store: PostgresStore, postgres_url: str
) -> None:
    hasty = PostgresStore(f"{postgres_url}?options=-c%20statement_timeout%3D700")
    put_many(store, 2 * MIN_PARALLEL)
    moves = completing(hasty, MIN_PARALLEL)
    with psycopg.connect(postgres_url) as other:
        other.execute("SELECT FROM onerow.task_queue WHERE task_id = %s FOR UPDATE", (moves[7].before.task_id,))
        with pytest.raises(StoreUnavailable):
            hasty.settle_and_claim(moves, Claim("w1", [want(10)]))
    statuses = [row.status for row in every_row(store).values()]
    assert (statuses.count(PROCESSING), statuses.count(WAITING)) == (MIN_PARALLEL + 10, MIN_PARALLEL - 10)
    answers, tasks = hasty.settle_and_claim(moves, Claim("w1", [want(10)]))
    assert all(isinstance(answer, Swapped) for answer in answers)
    assert {task.task_id for task in tasks} == {
        row.task_id for row in every_row(store).values() if row.status is PROCESSING
    }, "nothing is held that its holder doesn't know"
    assert len(claim(hasty, 100)) == MIN_PARALLEL - 10
    hasty.close()


def test_a_claim_whose_slot_another_writer_took_is_retried(
    store: PostgresStore, sql: psycopg.Connection, postgres_url: str
) -> None:
    """A writer that does not take the phase's advisory lock, such as an operator with psql."""
    put_many(store, 3)
    found: list[Task] = []
    claiming = threading.Thread(target=lambda: found.extend(claim(store, 2, slots=2)))
    with psycopg.connect(postgres_url) as other:
        other.execute(TAKE_SLOT, (0, "t0000"))
        claiming.start()
        until(lambda: sql.execute(LOCK_WAITERS).fetchone(), "the claim waits for slot 0")
    claiming.join(PATIENCE)
    assert [(task.task_id, task.slot) for task in found] == [("t0001", 1)]


TAKE_SLOT = (
    "UPDATE onerow.task_queue SET status = 'processing', slot = %s, leased_by = 'psql', started_at = now(),"
    " leased_until = now() + interval '1 minute', version = version + 1 WHERE task_id = %s"
)
LOCK_WAITERS = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


def test_a_claimed_task_is_written_by_its_row_location(store: PostgresStore) -> None:
    put_many(store, 3)
    moves = completing(store, 3)
    with explained(store) as plans:
        assert [type(answer) for answer in store.swap(moves)] == [Swapped] * 3
    (plan,) = of_table(plans)
    assert "Tid Scan on task_queue" in plan
    assert "task_queue_pkey" not in plan


def test_after_the_table_was_rewritten_tasks_are_written_by_id(store: PostgresStore, sql: psycopg.Connection) -> None:
    """VACUUM FULL changes the ctid of every row, but not its content."""
    put_many(store, 6)
    store.swap(completing(store, 3))
    moves = completing(store, 3)
    sql.execute("VACUUM FULL onerow.task_queue")
    assert [type(answer) for answer in store.swap(moves)] == [Swapped] * 3
    assert {row.status for row in every_row(store).values()} == {COMPLETED}


def test_a_concurrent_write_makes_a_swap_by_row_location_stale(store: PostgresStore, postgres_url: str) -> None:
    put_many(store, 3)
    moves = completing(store, 3)
    elsewhere = PostgresStore(postgres_url)
    asked = rules.cancel(moves[1].before, store.now())
    assert [type(answer) for answer in elsewhere.swap([Move(moves[1].before, asked)])] == [Swapped]
    assert [type(answer) for answer in store.swap(moves)] == [Swapped, Stale, Swapped]
    assert every_row(store)["t0001"] == asked
    elsewhere.close()


def test_another_task_at_the_same_row_location_is_not_overwritten(
    store: PostgresStore, sql: psycopg.Connection
) -> None:
    put_many(store, 1)
    moves = completing(store, 1)
    sql.execute("DELETE FROM onerow.task_queue")
    sql.execute("VACUUM onerow.task_queue")
    for n in range(1, 4):  # reuses the location of the claimed version
        put(store, f"new{n}")
    rows = every_row(store)
    assert [type(answer) for answer in store.swap(moves)] == [Stale]
    assert every_row(store) == rows


def test_tasks_of_a_claim_that_failed_halfway_are_returned_by_the_next_claim(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_many(store, 2)

    def gone(*_: object, **__: object) -> None:
        raise StoreUnavailable("no route to the server")

    with monkeypatch.context() as patched:
        patched.setattr(rounds, "keys_waiting", gone)
        with pytest.raises(StoreUnavailable):
            claim(store, 5, key_slots=1)
    assert {row.status for row in every_row(store).values()} == {PROCESSING}
    assert [task.task_id for task in claim(store, 5, key_slots=1)] == ["t0000", "t0001"]
