"""Low-water marks: dead rows are skipped, no task is missed, and limits hold."""

import re
import threading
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from onerow.core import rules
from onerow.core.status import PROCESSING
from onerow.ports import Claim, Move
from onerow.stores.postgres import PostgresStore
from onerow.stores.postgres.claiming import _lock_key
from onerow.stores.postgres.fast import low_water
from tests.conformance.kit import HOUR, claim, claimed_ids, every_row, new, put, put_many, stored, want
from tests.engine.kit import PATIENCE, until
from tests.stores.postgres.test_plans import explained, of_table

EVERY_LIMIT = pytest.mark.parametrize(
    "limits", [{}, {"slots": 100}, {"key_slots": 100}, {"slots": 100, "key_slots": 100}], ids=str
)


class Time:
    """A fake monotonic clock; tests advance it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 1000.0
        monkeypatch.setattr(low_water, "time", SimpleNamespace(monotonic=lambda: self.seconds))


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


@pytest.fixture
def elsewhere(store: PostgresStore, postgres_url: str) -> Any:
    """The store of another process, which does not share our low-water marks."""
    other = PostgresStore(postgres_url)
    yield other
    other.close()


def pages_read(plan: str, index: str) -> int:
    """Return the pages that all scans of an index read, including table pages."""
    total = 0
    lines = plan.splitlines()
    for number, line in enumerate(lines):
        if f"using {index} on task_queue" in line:
            depth = len(line) - len(line.lstrip())
            for below in lines[number + 1 :]:
                if "->" in below and len(below) - len(below.lstrip()) <= depth:
                    break
                if found := re.search(r"Buffers: shared hit=(\d+)", below):
                    total += int(found[1])
                    break
    return total


@pytest.mark.parametrize("limits", [{"slots": 50}, {"key_slots": 50}], ids=str)
def test_a_claim_of_a_limited_phase_skips_dead_row_versions(
    store: PostgresStore, postgres_url: str, time: Time, limits: dict[str, Any]
) -> None:
    """While a transaction holds an old snapshot, no dead version can be removed from an index."""
    store.insert(
        [new(store, f"t{n:04d}", limit_key=f"k{n % 40}" if "key_slots" in limits else "") for n in range(3_000)]
    )
    with psycopg.connect(postgres_url) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM onerow.task_queue")
        moves: list[Move] = []
        for _ in range(40):
            _, tasks = store.settle_and_claim(moves, Claim("w1", [want(50, **limits)]))
            assert len(tasks) == 50
            moves = [Move(task, rules.finish(task, None, store.now())) for task in tasks]
        store.swap(moves)
        read = []
        for seconds in (0.0, low_water.LASTS_FOR):
            time.seconds += seconds
            with explained(store) as plans:
                (task,) = claim(store, 1, **limits)
            (plan,) = of_table(plans)
            read.append({index: pages_read(plan, index) for index in ("task_ready", "task_leased")})
            store.swap([Move(task, rules.finish(task, None, store.now()))])
    marked, unmarked = read
    assert marked["task_ready"] * 3 < unmarked["task_ready"], read
    assert marked["task_leased"] * 3 < unmarked["task_leased"], read


@EVERY_LIMIT
def test_a_low_water_mark_hides_no_task_of_this_process(store: PostgresStore, limits: dict[str, Any]) -> None:
    put_many(store, 30)
    assert len(claim(store, 10, **limits)) == 10
    put(store, "urgent", priority=-9)
    assert claimed_ids(store, 1, **limits) == ["urgent"]
    assert claimed_ids(store, 1, **limits) == ["t0010"]
    put(store, "older", run_at=store.now() - HOUR)
    assert claimed_ids(store, 1, **limits) == ["older"]


@EVERY_LIMIT
def test_a_low_water_mark_hides_tasks_of_other_processes_for_a_second_at_most(
    store: PostgresStore, elsewhere: PostgresStore, time: Time, limits: dict[str, Any]
) -> None:
    put_many(store, 300)
    assert len(claim(store, 10, **limits)) == 10
    put(elsewhere, "urgent", priority=-9)
    time.seconds += 0.5
    assert claimed_ids(store, 1, **limits) == ["t0010"]
    time.seconds += 0.5
    assert claimed_ids(store, 1, **limits) == ["urgent"]


@EVERY_LIMIT
def test_a_claim_that_finds_too_few_tasks_also_looks_before_the_low_water_mark(
    store: PostgresStore, elsewhere: PostgresStore, limits: dict[str, Any]
) -> None:
    put_many(store, 30)
    assert len(claim(store, 10, **limits)) == 10
    put(elsewhere, "urgent", priority=-9)
    put(elsewhere, "older", run_at=store.now() - HOUR)
    assert sorted(claimed_ids(store, 30, **limits)) == ["older", *(f"t{n:04d}" for n in range(10, 30)), "urgent"]
    assert claim(store, 30, **limits) == []
    put(elsewhere, "late", priority=-8)
    assert claimed_ids(store, 30, **limits) == ["late"]


def test_the_low_water_mark_stays_before_a_task_of_a_full_key(store: PostgresStore, time: Time) -> None:
    """The first task that could not start limits the low-water mark."""
    for n in range(300):
        put(store, f"t{n:03d}", limit_key="full" if n in (0, 1) else f"k{n}")
    first = claim(store, 5, key_slots=1)
    assert [task.task_id for task in first] == ["t000", "t002", "t003", "t004", "t005"]
    assert claimed_ids(store, 3, key_slots=1) == ["t006", "t007", "t008"]
    store.swap([Move(first[0], rules.finish(first[0], None, store.now()))])
    assert claimed_ids(store, 3, key_slots=1) == ["t001", "t009", "t010"]


@pytest.mark.parametrize("limits", [{"slots": 4}, {"key_slots": 4}], ids=str)
def test_p7_tasks_that_other_processes_claim_between_two_claims_are_counted(
    store: PostgresStore, elsewhere: PostgresStore, time: Time, limits: dict[str, Any]
) -> None:
    put_many(store, 40, limit_key="k")
    ours = claim(store, 2, **limits)
    theirs = claim(elsewhere, 1, worker="w2", **limits)
    assert len(claim(store, 9, **limits)) == 1
    assert claim(elsewhere, 9, worker="w2", **limits) == []
    store.swap([Move(ours[0], rules.finish(ours[0], None, store.now()))])
    elsewhere.swap([Move(theirs[0], rules.hand_back(theirs[0], store.now()))])
    assert len(claim(elsewhere, 9, worker="w2", **limits)) == 2
    assert claim(store, 9, **limits) == []
    running = [task for task in every_row(store).values() if task.status is PROCESSING]
    assert sorted((task.slot if "slots" in limits else task.key_slot) or 0 for task in running) == [0, 1, 2, 3]


def test_p7_above_the_recorded_maximum_all_processing_tasks_are_counted(store: PostgresStore, time: Time) -> None:
    put_many(store, 400)
    for _ in range(4):
        assert len(claim(store, 75, slots=301)) == 75
    assert len(claim(store, 75, slots=301)) == 1
    assert claim(store, 75, slots=301) == []


def test_after_a_slot_collision_a_claim_counts_all_processing_tasks(
    store: PostgresStore, sql: psycopg.Connection, time: Time
) -> None:
    """The clock was set back: a task that started after the last claim has an earlier started_at."""
    put_many(store, 10)
    assert [task.slot for task in claim(store, 1, slots=4)] == [0]
    sql.execute(
        "UPDATE onerow.task_queue SET status = 'processing', leased_by = 'w2', leased_until = clock_timestamp(), slot = 1,"
        " started_at = clock_timestamp() - interval '1 hour' WHERE task_id = 't0009'"
    )
    assert [task.slot for task in claim(store, 9, slots=4)] == [2, 3]


@pytest.mark.parametrize("limits", [{}, {"slots": 50}, {"key_slots": 50}], ids=str)
def test_a_claim_does_not_wait_for_a_row_that_another_transaction_has_locked(
    store: PostgresStore, postgres_url: str, limits: dict[str, Any]
) -> None:
    put_many(store, 5)
    hasty = PostgresStore(f"{postgres_url}?options=-c%20lock_timeout%3D3000")
    with psycopg.connect(postgres_url) as other:
        other.execute("SELECT FROM onerow.task_queue WHERE task_id = 't0001' FOR UPDATE")
        assert claimed_ids(hasty, 5, **limits) == ["t0000", "t0002", "t0003", "t0004"]
    assert claimed_ids(hasty, 5, **limits) == ["t0001"]
    hasty.close()


@pytest.mark.parametrize("limits", [{"slots": 2}, {"key_slots": 2}], ids=str)
def test_a_claim_of_a_limited_phase_waits_for_the_phases_lock(
    store: PostgresStore, postgres_url: str, sql: psycopg.Connection, limits: dict[str, Any]
) -> None:
    """A claim holds the lock until its commit, so that the next claim sees its tasks."""
    put_many(store, 2, limit_key="k")
    put(store, "other", phase="video", limit_key="k")
    found: list[str] = []
    claiming = threading.Thread(target=lambda: found.extend(claimed_ids(store, 1, **limits)))
    with psycopg.connect(postgres_url) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", (_lock_key("onerow", "videos", "script"),))
        claiming.start()
        until(lambda: sql.execute(LOCK_WAITERS).fetchone(), "the claim waits for the lock")
        assert found == []
        assert claimed_ids(store, 1, phase="video", **limits) == ["other"], "another phase has another lock"
        assert len(claim(store, 1)) == 1, "a claim without limits needs none"
    claiming.join(PATIENCE)
    assert found == ["t0001"]


LOCK_WAITERS = (
    "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


def test_a_newer_version_at_the_same_row_location_is_not_overwritten(
    store: PostgresStore, sql: psycopg.Connection
) -> None:
    """After a vacuum, a ctid can be reused by a newer version of the same task."""
    put_many(store, 1)
    (held,) = claim(store, 1)
    (location,) = sql.execute("SELECT ctid::text FROM onerow.task_queue").fetchone() or ("",)
    for _ in range(50):
        sql.execute("UPDATE onerow.task_queue SET version = version + 1, created_at = created_at + interval '1 ms'")
        sql.execute("VACUUM onerow.task_queue")
        if sql.execute("SELECT ctid::text FROM onerow.task_queue").fetchone() == (location,):
            break
    else:
        pytest.fail("the location was not used again")
    before = stored(store, "t0000")
    (answer,) = store.swap([Move(held, rules.finish(held, None, store.now()))])
    assert type(answer).__name__ == "Stale"
    assert stored(store, "t0000") == before
