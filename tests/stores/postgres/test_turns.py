"""Turns: swaps and a claim at once, on two connections when they are many; what was claimed is written where it lies."""

import psycopg
import pytest

from onerow.core import rules
from onerow.core.errors import StoreUnavailable
from onerow.core.status import COMPLETED, PROCESSING, WAITING
from onerow.ports import Claim, Move, Stale, Swapped
from onerow.stores.postgres import PostgresStore, rounds
from onerow.stores.postgres.rounds import MANY
from tests.conformance.kit import claim, every_row, put, put_many, want
from tests.stores.postgres.test_plans import explained, of_table


def completing(store: PostgresStore, count: int) -> list[Move]:
    held = claim(store, count)
    assert len(held) == count
    return [Move(task, rules.complete(task, None, store.now())) for task in held]


@pytest.mark.parametrize("pool_size", [1, 2, 10])
def test_a_large_turn_answers_each_move_and_claims_what_it_may(postgres_url: str, pool_size: int) -> None:
    """With a single connection too, then one after the other."""
    store = PostgresStore(postgres_url, pool_size=pool_size)
    store.prepare()
    put_many(store, 3 * MANY)
    moves = completing(store, MANY)
    stale = completing(store, MANY)
    store.swap(stale[:5])
    answers, tasks = store.settle_and_claim([*moves, *stale], Claim("w1", [want(2 * MANY)]))
    assert [isinstance(answer, Swapped) for answer in answers] == [True] * MANY + [False] * 5 + [True] * (MANY - 5)
    assert [task.task_id for task in tasks] == [f"t{n:04d}" for n in range(2 * MANY, 3 * MANY)]
    statuses = [row.status for row in every_row(store).values()]
    assert (statuses.count(COMPLETED), statuses.count(PROCESSING)) == (2 * MANY, MANY)
    store.close()


def test_a_slot_that_a_large_turn_frees_is_taken_in_the_same_turn(store: PostgresStore) -> None:
    put_many(store, 2 * MANY)
    held = claim(store, MANY, slots=MANY)
    moves = [Move(task, rules.complete(task, None, store.now())) for task in held]
    _, tasks = store.settle_and_claim(moves, Claim("w1", [want(MANY, slots=MANY)]))
    assert len(tasks) == MANY


def test_what_was_claimed_beside_swaps_that_failed_is_given_with_the_next_claim(
    store: PostgresStore, postgres_url: str
) -> None:
    hasty = PostgresStore(f"{postgres_url}?options=-c%20statement_timeout%3D700")
    put_many(store, 2 * MANY)
    moves = completing(hasty, MANY)
    with psycopg.connect(postgres_url) as other:
        other.execute("SELECT FROM onerow.task_queue WHERE task_id = %s FOR UPDATE", (moves[7].before.task_id,))
        with pytest.raises(StoreUnavailable):
            hasty.settle_and_claim(moves, Claim("w1", [want(10)]))
    statuses = [row.status for row in every_row(store).values()]
    assert (statuses.count(PROCESSING), statuses.count(WAITING)) == (MANY + 10, MANY - 10)
    answers, tasks = hasty.settle_and_claim(moves, Claim("w1", [want(10)]))
    assert all(isinstance(answer, Swapped) for answer in answers)
    assert {task.task_id for task in tasks} == {
        row.task_id for row in every_row(store).values() if row.status is PROCESSING
    }, "nothing is held that its holder doesn't know"
    assert len(claim(hasty, 100)) == MANY - 10
    hasty.close()


def test_what_was_claimed_is_written_where_it_lies(store: PostgresStore) -> None:
    put_many(store, 3)
    moves = completing(store, 3)
    with explained(store) as plans:
        assert [type(answer) for answer in store.swap(moves)] == [Swapped] * 3
    (plan,) = of_table(plans)
    assert "Tid Scan on task_queue" in plan
    assert "task_queue_pkey" not in plan


def test_a_table_that_moved_meanwhile_costs_a_search(store: PostgresStore, sql: psycopg.Connection) -> None:
    """Rows lie elsewhere after a VACUUM FULL, and are the same."""
    put_many(store, 6)
    store.swap(completing(store, 3))
    moves = completing(store, 3)
    sql.execute("VACUUM FULL onerow.task_queue")
    assert [type(answer) for answer in store.swap(moves)] == [Swapped] * 3
    assert {row.status for row in every_row(store).values()} == {COMPLETED}


def test_who_wrote_meanwhile_is_noticed_where_the_row_lay(store: PostgresStore, postgres_url: str) -> None:
    put_many(store, 3)
    moves = completing(store, 3)
    elsewhere = PostgresStore(postgres_url)
    asked = rules.cancel(moves[1].before, store.now())
    assert [type(answer) for answer in elsewhere.swap([Move(moves[1].before, asked)])] == [Swapped]
    assert [type(answer) for answer in store.swap(moves)] == [Swapped, Stale, Swapped]
    assert every_row(store)["t0001"] == asked
    elsewhere.close()


def test_another_task_that_lies_there_now_is_left_alone(store: PostgresStore, sql: psycopg.Connection) -> None:
    put_many(store, 1)
    moves = completing(store, 1)
    sql.execute("DELETE FROM onerow.task_queue")
    sql.execute("VACUUM onerow.task_queue")
    for n in range(1, 4):  # where the claimed version lay
        put(store, f"new{n}")
    rows = every_row(store)
    assert [type(answer) for answer in store.swap(moves)] == [Stale]
    assert every_row(store) == rows


def test_what_a_claim_found_before_it_failed_is_given_with_the_next(
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
