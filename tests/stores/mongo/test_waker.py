"""Which moves wake another process, by the poll counter of a standalone server and by a change stream."""

import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from onerow.core import rules
from onerow.core.task import Task
from onerow.ports import Lease, Waker
from onerow.stores.mongo import MongoStore
from tests.conformance.kit import HOUR, claim_one, put, stored, swap
from tests.samples import PLAN

TIMEOUT = 60.0
QUIET_FOR = 0.4
"""Seconds without a wake-up after which the waker counts as quiet."""


@pytest.fixture(params=["mongo_url", pytest.param("mongo_replica_set_url", marks=pytest.mark.timeout(900))])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def store(url: str) -> Iterator[MongoStore]:
    found = MongoStore(url)
    found.prepare()
    yield found
    found.close()


@pytest.fixture
def waker(url: str, store: MongoStore) -> Iterator[Waker]:
    """A connected waker on another store, as another process would have it."""
    elsewhere = MongoStore(url)
    found = elsewhere.waker()
    deadline = time.monotonic() + TIMEOUT
    number = 0
    while not found.wait(1):  # until the change stream is open
        put(store, f"first {number}", phase="elsewhere")
        number += 1
        assert time.monotonic() < deadline, "it never heard anything"
    quiet(found)
    yield found
    found.close()
    elsewhere.close()


def quiet(waker: Waker) -> None:
    while waker.wait(QUIET_FOR):
        pass


Operation = Callable[[MongoStore, Task], Task]

WAKES: dict[str, tuple[dict[str, object], Operation]] = {
    "a task that goes on to its next phase": ({}, lambda s, t: rules.complete(t, PLAN, None, s.now())),
    "a task that was handed back": ({}, lambda s, t: rules.hand_back(t, s.now())),
    "a task that is tried again later": ({}, lambda s, t: rules.snooze(t, HOUR, s.now())),
    "a slot that is free": ({"slots": 2}, lambda s, t: rules.finish(t, None, s.now())),
    "a slot of a key that is free": ({"key_slots": 2}, lambda s, t: rules.finish(t, None, s.now())),
    "a cancel": ({}, lambda s, t: rules.cancel(t, s.now())),
}


@pytest.mark.parametrize("what", WAKES)
def test_others_are_woken_by(store: MongoStore, waker: Waker, what: str) -> None:
    limits, operation = WAKES[what]
    put(store, limit_key="k", phase="video")
    task = claim_one(store, phase="video", **limits)
    quiet(waker)
    swap(store, task, operation(store, task))
    assert waker.wait(TIMEOUT), what


@pytest.mark.parametrize("claimed", [True, False])
def test_others_are_woken_by_a_child_that_ends(store: MongoStore, waker: Waker, claimed: bool) -> None:
    task = put(store, parent_id="parent")
    if claimed:
        task = claim_one(store)
    quiet(waker)
    swap(store, task, rules.finish(task, None, store.now()) if claimed else rules.cancel(task, store.now()))
    assert waker.wait(TIMEOUT)


def test_others_are_woken_by_a_signal_that_lets_a_parked_task_go_on(store: MongoStore, waker: Waker) -> None:
    task = put(store, awaiting="signal:go", run_at=store.now() + HOUR)
    quiet(waker)
    swap(store, task, task.with_changes(store.now(), awaiting=None, run_at=store.now()))
    assert waker.wait(TIMEOUT)


def test_others_are_woken_by_a_waiting_task_whose_order_or_time_changes(store: MongoStore, waker: Waker) -> None:
    task = put(store)
    quiet(waker)
    task = swap(store, task, rules.set_priority(task, -5, store.now()))
    assert waker.wait(TIMEOUT)
    quiet(waker)
    swap(store, task, rules.reschedule(task, store.now() + HOUR, store.now()))
    assert waker.wait(TIMEOUT)


def test_others_are_not_woken_by_what_gives_them_nothing_to_do(store: MongoStore, waker: Waker) -> None:
    put(store, "done")
    done = claim_one(store)
    put(store, "parks")
    parks = claim_one(store)
    put(store, "beats")
    beats = claim_one(store)
    put(store, "claimed", phase="video")
    quiet(waker)
    swap(store, done, rules.finish(done, None, store.now()))
    assert not waker.wait(QUIET_FOR), "a task that ends"
    swap(store, parks, rules.park(parks, "signal:go", store.now() + HOUR, store.now()))
    assert not waker.wait(QUIET_FOR), "a task that is parked"
    store.extend([Lease(beats.task_id, beats.token)], timedelta(minutes=2))
    assert not waker.wait(QUIET_FOR), "a heartbeat"
    claim_one(store, phase="video", slots=1)
    assert not waker.wait(QUIET_FOR), "a claim"
    assert stored(store, "parks").awaiting == "signal:go"
