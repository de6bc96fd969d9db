"""Large turns: swaps and a claim at once, on two connections."""

import psycopg
import pytest

from onerow.core import rules
from onerow.core.errors import StoreUnavailable
from onerow.core.status import COMPLETED, PROCESSING, WAITING
from onerow.ports import Claim, Move, Swapped
from onerow.stores.postgres import PostgresStore
from onerow.stores.postgres.turning import MANY
from tests.conformance.kit import claim, every_row, put_many, want


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
    answers, tasks = store.turn([*moves, *stale], Claim("w1", [want(2 * MANY)]))
    assert [isinstance(answer, Swapped) for answer in answers] == [True] * MANY + [False] * 5 + [True] * (MANY - 5)
    assert [task.task_id for task in tasks] == [f"t{n:04d}" for n in range(2 * MANY, 3 * MANY)]
    statuses = [row.status for row in every_row(store).values()]
    assert (statuses.count(COMPLETED), statuses.count(PROCESSING)) == (2 * MANY, MANY)
    store.close()


def test_a_slot_that_a_large_turn_frees_is_taken_in_the_same_turn(store: PostgresStore) -> None:
    put_many(store, 2 * MANY)
    held = claim(store, MANY, slots=MANY)
    moves = [Move(task, rules.complete(task, None, store.now())) for task in held]
    _, tasks = store.turn(moves, Claim("w1", [want(MANY, slots=MANY)]))
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
            hasty.turn(moves, Claim("w1", [want(10)]))
    statuses = [row.status for row in every_row(store).values()]
    assert (statuses.count(PROCESSING), statuses.count(WAITING)) == (MANY + 10, MANY - 10)
    answers, tasks = hasty.turn(moves, Claim("w1", [want(10)]))
    assert all(isinstance(answer, Swapped) for answer in answers)
    assert {task.task_id for task in tasks} == {
        row.task_id for row in every_row(store).values() if row.status is PROCESSING
    }, "nothing is held that its holder doesn't know"
    assert len(claim(hasty, 100)) == MANY - 10
    hasty.close()
