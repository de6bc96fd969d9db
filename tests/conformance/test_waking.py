"""Who is woken: a transition that gives workers something to do wakes the wakers of every process, no other does."""

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from onerow.core import rules
from onerow.core.task import Task
from onerow.core.wakeups import wakes
from onerow.ports import Lease, Note, Store, Waker
from tests.conformance.kit import HOUR, claim_one, put, swap
from tests.conformance.stores import Entry, OpenedStore
from tests.samples import BROKEN, PLAN

LONG = 120.0
"""Seconds: only a waker that missed its wake-up would wait so long."""
QUIET_FOR = 0.4
"""Seconds without a wake-up after which the waker counts as quiet."""


class Transition(NamedTuple):
    """A task as it is inserted, how it is claimed (None: not at all), and the rule that changes it."""

    inserted: dict[str, Any]
    claimed: dict[str, Any] | None
    rule: Callable[[Store, Task], Task]


def _complete(store: Store, task: Task) -> Task:
    return rules.finish(task, None, store.now())


WAKING: dict[str, Transition] = {
    "the next phase is due": Transition(
        {"phase": "video"}, {"phase": "video"}, lambda s, t: rules.complete(t, PLAN, None, s.now())
    ),
    "the task is handed back": Transition({}, {}, lambda s, t: rules.hand_back(t, s.now())),
    "the lease of a dead worker ended": Transition({}, {}, lambda s, t: rules.rescue(t, s.now())),
    "the slot of a limited phase is free": Transition({}, {"slots": 2}, _complete),
    "the slot of a limited key is free": Transition({"limit_key": "k"}, {"key_slots": 2}, _complete),
    "a slot is free though the task is tried again later": Transition(
        {}, {"slots": 1}, lambda s, t: rules.snooze(t, HOUR, s.now())
    ),
    "a running child ends": Transition({"parent_id": "parent"}, {}, _complete),
    "a waiting child is cancelled": Transition({"parent_id": "parent"}, None, lambda s, t: rules.cancel(t, s.now())),
    "a running task is to be cancelled": Transition({}, {}, lambda s, t: rules.cancel(t, s.now())),
    "a parked task gets its signal": Transition(
        {"awaiting": "signal:go"}, None, lambda s, t: t.with_changes(s.now(), awaiting=None, run_at=s.now())
    ),
    "a later task is rescheduled to now": Transition(
        {"run_at": HOUR}, None, lambda s, t: rules.reschedule(t, s.now(), s.now())
    ),
}
SILENT: dict[str, Transition] = {
    "a task without limits and parent completes": Transition({}, {}, _complete),
    "a task is parked": Transition({}, {}, lambda s, t: rules.park(t, "signal:go", s.now() + HOUR, s.now())),
    "a task is tried again later": Transition({}, {}, lambda s, t: rules.fail(t, BROKEN, PLAN, s.now())),
    "progress is reported": Transition({}, {}, lambda s, t: rules.report(t, s.now(), progress="0.5")),
    "a due task gets another priority": Transition({}, None, lambda s, t: rules.set_priority(t, -5, s.now())),
    "a due task is rescheduled to later": Transition(
        {}, None, lambda s, t: rules.reschedule(t, s.now() + HOUR, s.now())
    ),
    "a waiting task is cancelled": Transition({}, None, lambda s, t: rules.cancel(t, s.now())),
}


def prepared(store: Store, transition: Transition) -> tuple[Task, Task]:
    """Insert and claim the task of a transition; return it before and after the transition."""
    inserted = dict(transition.inserted)
    if isinstance(delay := inserted.get("run_at"), timedelta):
        inserted["run_at"] = store.now() + delay
    task = put(store, **inserted)
    if transition.claimed is not None:
        task = claim_one(store, **transition.claimed)
    return task, transition.rule(store, task)


def quiet(waker: Waker) -> None:
    """Consume earlier wake-ups."""
    while waker.wait(QUIET_FOR):
        pass


@pytest.fixture
def other_process(entry: Entry, again: Callable[[], Store]) -> Store:
    """A second handle on the same data; only stores that several processes can open have one."""
    if not entry.processes:
        pytest.skip("one process only")
    return again()


@pytest.fixture
def waker(store: Store) -> Iterator[Waker]:
    found = store.waker()
    yield found
    found.close()


@pytest.mark.parametrize("name", WAKING)
def test_another_process_is_woken_when(other_process: Store, waker: Waker, name: str) -> None:
    before, after = prepared(other_process, WAKING[name])
    assert wakes(before, after)
    quiet(waker)
    swap(other_process, before, after)
    assert waker.wait(LONG)


@pytest.mark.parametrize("name", SILENT)
def test_another_process_is_not_woken_when(entry: Entry, other_process: Store, waker: Waker, name: str) -> None:
    before, after = prepared(other_process, SILENT[name])
    assert not wakes(before, after)
    if not entry.wakes_by_rule:
        pytest.skip("every write wakes")
    quiet(waker)
    swap(other_process, before, after)
    assert not waker.wait(QUIET_FOR)


def test_another_process_is_not_woken_by_heartbeats_claims_output_and_notes(
    entry: Entry, other_process: Store, waker: Waker
) -> None:
    if not entry.wakes_by_rule:
        pytest.skip("every write wakes")
    put(other_process, "t1")
    put(other_process, "t2")
    task = claim_one(other_process)
    quiet(waker)
    other_process.extend([Lease(task.task_id, task.token)], HOUR)
    claim_one(other_process, slots=2)
    other_process.write_notes([Note("rate", "videos/script", {})])
    assert not waker.wait(QUIET_FOR)


def test_another_process_is_woken_by_a_new_task(other_process: Store, waker: Waker) -> None:
    """Repeated, because a wake-up sent before the row is visible may be lost."""
    for number in range(20):
        waiting = threading.Thread(target=waker.wait, args=(LONG,))
        waiting.start()
        put(other_process, f"t{number}")
        waiting.join(LONG / 2)
        assert not waiting.is_alive(), number


def test_a_waker_is_woken_by_its_own_store(store: Store, waker: Waker) -> None:
    put(store, "t1")
    assert waker.wait(LONG)
    task = claim_one(store, slots=1)
    quiet(waker)
    swap(store, task, _complete(store, task))
    assert waker.wait(LONG)


def test_a_waker_is_not_woken_by_a_heartbeat_of_its_own_store(store: Store, waker: Waker) -> None:
    put(store, "t1")
    task = claim_one(store)
    quiet(waker)
    store.extend([Lease(task.task_id, task.token)], HOUR)
    assert not waker.wait(QUIET_FOR)


def test_a_quarantine_wakes_every_process(opened: OpenedStore, store: Store, waker: Waker) -> None:
    """It may free a slot, or end a child that its parent waits for."""
    if opened.entry.spoil is None:
        pytest.skip("only onerow can write to this store")
    second = opened.again()
    for number, quarantines in enumerate((store, second)):
        put(store, f"t{number}", parent_id="parent")
        task = claim_one(store, slots=1)
        assert opened.entry.spoil(opened, task.task_id, "run_at", "-infinity")
        quiet(waker)
        (found,) = quarantines.fetch([task.task_id])
        assert (found.error_class, found.slot) == ("corrupt", None)
        assert waker.wait(LONG)


def test_each_waker_is_woken(again: Callable[[], Store], waker: Waker) -> None:
    second = again().waker()
    quiet(waker)
    quiet(second)
    put(again())
    assert waker.wait(LONG)
    assert second.wait(LONG)
    second.close()


def test_a_waker_is_woken_by_a_poke_before_or_during_its_wait(waker: Waker) -> None:
    quiet(waker)
    waker.poke()
    assert waker.wait(LONG)
    waiting = threading.Thread(target=waker.wait, args=(LONG,))
    waiting.start()
    waker.poke()
    waiting.join(LONG / 2)
    assert not waiting.is_alive()
