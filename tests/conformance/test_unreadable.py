"""An unreadable row affects no other task: a program that writes to the table directly can harm only that row."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from onerow.core import rules
from onerow.core.corruption import problems
from onerow.core.errors import CorruptRow, IllegalMove
from onerow.core.filters import Filter
from onerow.core.rules.attempts import Done, decide
from onerow.core.status import ENDS, FAILED, PROCESSING, WAITING
from onerow.core.task import Task
from onerow.engine.events.events import Events
from onerow.engine.queue.compare_and_swap import operate
from onerow.engine.queue.purge import purge
from onerow.engine.queue.rescue import rescue_all
from onerow.engine.worker.roles.sweeps import WaitPhaseSweeper
from onerow.ports import Existing, Lease, Lost, Move, Searchable, Store
from tests.conformance.kit import HOUR, MINUTE, claim, new, put, stored, work_off
from tests.conformance.stores import OpenedStore
from tests.samples import PLAN

BAD: list[tuple[str, Any]] = [
    ("run_at", 1763234567),
    ("run_at", "yesterday"),
    ("run_at", "-infinity"),
    ("created_at", 1763234567),
    ("created_at", "2026-11-15 02:29:57"),
    ("scheduled_time", "soon"),
    ("status", "done"),
    ("version", 2**63 - 1),
    ("version", 2**61 - 1),
    ("token", 2**63 - 1),
    ("token", 2**61 - 1),
    ("attempt", 2**31 - 1),
    ("attempt", "three"),
    ("retry_count", 2**31 - 1),
    ("retry_count", "three"),
    ("crash_count", 2**31 - 1),
    ("unique_for", "a while"),
    ("payload", "{broken"),
    ("results", "[1]"),
    ("results", "{broken"),
    ("steps", '{"script": 5}'),
    ("signals", "5"),
    ("logs", "{}"),
    ("logs", "null"),
    ("metadata", "[broken"),
]


OTHERS = [f"t{n:04d}" for n in range(20)]


class Spoiler:
    """Writes each bad value into a separate row, bypassing the checks of the database."""

    def __init__(self, opened: OpenedStore) -> None:
        self._opened = opened
        self.bad = {f"bad-{n:02d}": bad for n, bad in enumerate(BAD)}

    def put(self, **changes: Any) -> None:
        """Insert good rows mixed with rows that will become bad."""
        store = self._opened.store
        store.insert([new(store, task_id, **changes) for task_id in sorted([*OTHERS, *self.bad], key=hash)])

    def spoil(self) -> None:
        write = self._opened.entry.spoil
        assert write is not None
        self.bad = {task_id: bad for task_id, bad in self.bad.items() if write(self._opened, task_id, *bad)}
        assert len(self.bad) > 10


@pytest.fixture
def rows(opened: OpenedStore) -> Spoiler:
    if opened.entry.spoil is None:
        pytest.skip("nothing but onerow can write to this store")
    return Spoiler(opened)


def test_readable_rows_of_a_batch_are_claimed_and_settled_and_unreadable_ones_quarantined(
    store: Store, rows: Spoiler
) -> None:
    rows.put()
    rows.spoil()
    while work_off(store):
        pass
    assert {stored(store, task_id).phase for task_id in OTHERS} == {"image"}
    aside = store.find(Filter(error_class="corrupt"), limit=100).tasks
    assert all(task.status is FAILED and task.leased_by is None and task.slot is None for task in aside)
    for task in aside:
        column, _ = rows.bad[task.task_id]
        assert task.error is not None
        assert column in task.error
    columns = {rows.bad[task.task_id][0] for task in aside}
    assert columns >= {"version", "token", "results", "logs"}
    assert not store.find(Filter(statuses=frozenset({PROCESSING}))).tasks


def test_a_rescue_returns_the_readable_rows(store: Store, rows: Spoiler, later: Callable[[timedelta], None]) -> None:
    rows.put()
    assert len(claim(store, 100, lease_for=timedelta(milliseconds=100))) == len(OTHERS) + len(BAD)
    rows.spoil()
    later(timedelta(milliseconds=150))
    rescue_all(store, Filter(), store.now(), Events(), by="rescuer", plan_of=lambda name: None)
    assert {stored(store, task_id).status for task_id in OTHERS} == {WAITING}
    for task_id in rows.bad:
        assert stored(store, task_id).status in (WAITING, FAILED)


@pytest.mark.parametrize(
    "column, value",
    [
        ("leased_until", "soon"),
        ("leased_until", "-infinity"),
        ("leased_until", "0044-03-15 BC"),
        ("leased_until", None),
        ("leased_by", None),
    ],
)
def test_a_processing_row_without_a_readable_lease_is_quarantined_and_the_others_are_rescued(
    store: Store, opened: OpenedStore, later: Callable[[timedelta], None], column: str, value: Any
) -> None:
    if opened.entry.spoil is None:
        pytest.skip("nothing but onerow can write to this store")
    for task_id in ("a", "bad", "z"):
        put(store, task_id)
    held = claim(store, 3, lease_for=timedelta(milliseconds=100))
    if not opened.entry.spoil(opened, "bad", column, value):
        pytest.skip("the database refuses this value")
    assert {lease.task_id for lease in store.leases(limit=10)} == {"a", "z"}
    bad = stored(store, "bad")
    assert (bad.status, bad.error_class) == (FAILED, "corrupt")
    assert column in str(bad.error)
    (answer,) = store.extend([Lease("bad", held[1].token)], MINUTE)
    assert isinstance(answer, Lost)
    later(timedelta(milliseconds=150))
    rescue_all(store, Filter(), store.now(), Events(), by="rescuer", plan_of=lambda name: None)
    assert {stored(store, task_id).status for task_id in ("a", "z")} == {WAITING}
    operate(store, "bad", lambda task: rules.retry(task, PLAN, store.now()))
    assert sorted(work_off(store)) == ["a", "bad", "z"]


def test_whoever_reads_a_processing_row_without_a_lease_quarantines_it(store: Store, opened: OpenedStore) -> None:
    if opened.entry.spoil is None:
        pytest.skip("nothing but onerow can write to this store")
    for task_id in ("fetched", "listed", "cancelled"):
        put(store, task_id)
        assert opened.entry.spoil(opened, task_id, "status", "processing")
    assert stored(store, "fetched").error_class == "corrupt"
    with suppress(IllegalMove):
        operate(store, "cancelled", lambda task: rules.cancel(task, store.now()))
    assert stored(store, "cancelled").ended
    assert store.find(Filter(statuses=frozenset({PROCESSING}))).tasks == []
    assert {task.task_id for task in store.find(Filter(error_class="corrupt")).tasks} >= {"fetched", "listed"}
    assert store.leases(limit=10) == []


def test_heartbeats_of_the_readable_rows_succeed(store: Store, rows: Spoiler) -> None:
    rows.put()
    held = claim(store, 100)
    rows.spoil()
    answers = store.extend([Lease(task.task_id, task.token) for task in held], MINUTE)
    others = [answer for task, answer in zip(held, answers, strict=True) if task.task_id in OTHERS]
    assert [type(answer).__name__ for answer in others] == ["Held"] * len(OTHERS)


def test_readable_rows_can_be_read_and_cancelled(store: Store, rows: Spoiler) -> None:
    rows.put()
    rows.spoil()
    found: list[Task] = []
    after = None
    while True:
        page = store.find(Filter(), limit=3, order="oldest", after=after)
        found += page.tasks
        after = page.next
        if after is None:
            break
    assert {task.task_id for task in found} >= set(OTHERS)
    store.find(Filter(payload=(("topic", "tides"),), text="tides"))
    for task_id in OTHERS:
        operate(store, task_id, lambda task: rules.cancel(task, store.now(), by="me"))
    assert {stored(store, task_id).status.value for task_id in OTHERS} == {"cancelled"}
    for task_id in rows.bad:
        with suppress(CorruptRow, IllegalMove):
            operate(store, task_id, lambda task: rules.cancel(task, store.now(), by="me"))
        assert stored(store, task_id).ended


def test_counts_and_searches_succeed(store: Store, rows: Spoiler) -> None:
    rows.put()
    rows.spoil()
    assert sum(line.count for line in store.count(Filter())) == len(OTHERS) + len(BAD)
    if isinstance(store, Searchable):
        store_counts = store.store_counts()
        assert sum(line.count for line in store_counts.counts) == len(OTHERS) + len(BAD)
        found = store.search(Filter(), limit=100, within=timedelta(seconds=5))
        assert {task.task_id for task in found.tasks} >= set(OTHERS)
    store.due("videos", "script", store.now(), 100)


def test_sweeps_pass_the_readable_rows(store: Store, rows: Spoiler) -> None:
    rows.put(phase="schedule")
    rows.spoil()
    WaitPhaseSweeper(store, {"videos": PLAN}, Events()).tick(store.now())
    assert {stored(store, task_id).phase for task_id in OTHERS} == {"script"}


def test_a_purge_removes_the_readable_rows(store: Store, rows: Spoiler) -> None:
    rows.put()
    for task in store.find(Filter(), limit=100).tasks:
        store.swap([Move(task, rules.cancel(task, store.now()))])
    rows.spoil()
    purge(store, Filter(statuses=ENDS), -HOUR, 100, None)
    assert not store.fetch(OTHERS)


def test_inserting_an_existing_unreadable_task_returns_it(store: Store, opened: OpenedStore) -> None:
    if opened.entry.spoil is None:
        pytest.skip("nothing but onerow can write to this store")
    task = put(store, "bad")
    assert opened.entry.spoil(opened, "bad", "run_at", "-infinity")
    answers = store.insert([task, new(store, "good")])
    assert isinstance(answers[0], Existing)
    assert answers[0].task.error_class == "corrupt"
    assert stored(store, "good").status is WAITING


def test_a_quarantined_row_keeps_its_values_and_can_be_retried_after_a_repair(
    store: Store, opened: OpenedStore, request: pytest.FixtureRequest
) -> None:
    if opened.entry.spoil is None:
        pytest.skip("nothing but onerow can write to this store")
    put(store, "bad", payload={"topic": "tides"})
    assert opened.entry.spoil(opened, "bad", "results", "[1]")
    (task,) = claim(store, 1)
    after = decide(task, PLAN, Done('"ok"'), store.now(), "w1")
    assert after is not None
    store.swap([Move(task, after)])
    aside = stored(store, "bad")
    assert (aside.status, aside.error_class) == (FAILED, "corrupt")
    assert aside.results_json == "[1]"
    assert aside.payload == {"topic": "tides"}
    assert set(problems(aside)) == {"results_json"}
    with pytest.raises(IllegalMove, match="results"):
        operate(store, "bad", lambda task: rules.retry(task, PLAN, store.now()))
    assert opened.entry.spoil(opened, "bad", "results", "{}")
    operate(store, "bad", lambda task: rules.retry(task, PLAN, store.now()))
    assert work_off(store) == ["bad"]
    assert stored(store, "bad").results == {"script": "ok"}


def test_an_ended_row_keeps_its_status_when_it_is_quarantined(store: Store, opened: OpenedStore) -> None:
    if opened.entry.spoil is None:
        pytest.skip("nothing but onerow can write to this store")
    task = put(store, "bad")
    store.swap([Move(task, rules.cancel(task, store.now()))])
    assert opened.entry.spoil(opened, "bad", "created_at", "-infinity")
    found = stored(store, "bad")
    assert (found.status.value, found.error_class) == ("cancelled", "corrupt")


def test_a_worker_loses_the_lease_of_a_quarantined_task(store: Store, opened: OpenedStore) -> None:
    if opened.entry.spoil is None:
        pytest.skip("nothing but onerow can write to this store")
    put(store, "bad")
    (held,) = claim(store, 1)
    assert held.status is PROCESSING
    assert opened.entry.spoil(opened, "bad", "run_at", "-infinity")
    stored(store, "bad")
    assert type(store.extend([Lease("bad", held.token)], MINUTE)[0]).__name__ == "Lost"


def test_a_payload_with_a_nul_that_was_written_by_hand_does_not_break_payload_filters(opened: OpenedStore) -> None:
    store, spoil = opened.store, opened.entry.spoil
    if spoil is None:
        pytest.skip("nothing but onerow can write to this store")
    put(store, "good", payload={"n": 5, "text": "a\\u0000b"})
    put(store, "odd")
    assert spoil(opened, "odd", "payload", r'{"n": 5, "text": "a\u0000\u0000\\b"}')
    for path, value, expected in (("n", "5", {"good", "odd"}), ("n", "6", set()), ("text", "a\\u0000b", {"good"})):
        assert {task.task_id for task in store.find(Filter(payload=((path, value),))).tasks} == expected
