"""`claimable` counts what a claim would lease, and leases nothing."""

from itertools import count

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onerow.ports import Store
from tests.conformance.kit import HOUR, claim, every_row, new, put, put_many, want

_numbers = count()


def test_due_tasks_are_counted_up_to_the_limit(store: Store) -> None:
    put_many(store, 5)
    put(store, "later", run_at=store.now() + HOUR)
    put(store, "parked", awaiting="signal:go")
    put(store, "elsewhere", phase="video")
    now = store.now()
    assert store.claimable(want(10), now) == 5
    assert store.claimable(want(3), now) == 3
    assert store.claimable(want(0), now) == 0
    assert store.claimable(want(10), now + 2 * HOUR) == 6
    assert store.claimable(want(10, phase="none"), now) == 0
    assert {task.leased_by for task in every_row(store).values()} == {None}


def test_running_tasks_leave_fewer_slots(store: Store) -> None:
    put_many(store, 5)
    claim(store, 2, slots=3)
    assert store.claimable(want(10, slots=3), store.now()) == 1
    assert store.claimable(want(10, slots=2), store.now()) == 0
    assert store.claimable(want(10, slots=1), store.now()) == 0  # the limit was lowered
    assert store.claimable(want(10), store.now()) == 3


def test_tasks_behind_full_keys_are_not_counted_and_do_not_hide_others(store: Store) -> None:
    now = store.now()
    store.insert([new(store, f"a{n:04d}", limit_key="a", run_at=now - HOUR) for n in range(300)])
    store.insert([new(store, f"k{n:04d}", limit_key=f"k{n:04d}") for n in range(70)])
    claim(store, 1, key_slots=1)
    assert store.claimable(want(50, key_slots=1), store.now()) == 50
    assert store.claimable(want(200, key_slots=1), store.now()) == 70
    assert store.claimable(want(200, key_slots=1, slots=11), store.now()) == 10
    assert store.claimable(want(200, key_slots=2), store.now()) == 71


rows = st.lists(st.tuples(st.sampled_from(["", "a", "b", "c"]), st.integers(-1, 1), st.booleans()), max_size=12)


@given(rows, st.integers(0, 6), st.integers(1, 8), st.none() | st.integers(1, 6), st.none() | st.integers(1, 3))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_is_what_the_next_claim_leases(
    store: Store,
    found: list[tuple[str, int, bool]],
    running: int,
    limit: int,
    slots: int | None,
    key_slots: int | None,
) -> None:
    phase = f"p{next(_numbers)}"
    now = store.now()
    store.insert(
        [
            new(
                store,
                f"{phase}-{n}",
                phase=phase,
                limit_key=key,
                priority=rank,
                run_at=now - HOUR if due else now + HOUR,
            )
            for n, (key, rank, due) in enumerate(found)
        ]
    )
    if running:
        claim(store, running, phase=phase)
    terms = want(limit, phase=phase, slots=slots, key_slots=key_slots)
    expected = store.claimable(terms, store.now())
    assert expected == len(claim(store, limit, phase=phase, slots=slots, key_slots=key_slots))
