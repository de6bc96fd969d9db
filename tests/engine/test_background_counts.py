"""Counts for a page that is read again and again."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from onerow.core.errors import StoreUnavailable
from onerow.core.status import WAITING
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views, counts
from onerow.engine.views.counts import NOT_COUNTED, BackgroundCounts
from onerow.ports import Store, StoreCounts, TaskCount
from onerow.stores.memory import MemoryStore
from tests.samples import a_task


class Later:
    """Keeps functions until the test runs them."""

    def __init__(self) -> None:
        self.functions: list[Callable[[], None]] = []

    def __call__(self, function: Callable[[], None]) -> None:
        self.functions.append(function)

    def run(self) -> None:
        self.functions.pop(0)()


@pytest.fixture
def queue() -> Queue:
    return Queue(MemoryStore())


def _many(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def count(store: Store, user_id: str | None) -> StoreCounts:
        return StoreCounts([TaskCount("p", "f", WAITING, False, number, store.now())], store.now())

    monkeypatch.setattr(counts, "count_store", count)


def test_few_tasks_are_counted_by_each_read(queue: Queue) -> None:
    views = Views(queue, BackgroundCounts(lambda function: function()))
    assert views.overview().waiting == 0
    queue.store.insert([a_task("one")])
    assert views.overview().waiting == 1


def test_a_read_returns_no_counts_until_the_first_are_there(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    later, store = Later(), queue.store
    _many(monkeypatch, 1_000_000)
    background = BackgroundCounts(later)
    assert background.read(store, None) == StoreCounts([], NOT_COUNTED)
    assert background.late
    assert background.read(store, None).counts == []
    assert len(later.functions) == 1  # one count at a time
    later.run()
    assert background.read(store, None).counts[0].count == 1_000_000
    assert not background.late


def test_many_tasks_are_counted_elsewhere_and_the_latest_numbers_are_returned(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(counts, "monotonic", lambda: now)
    later, store = Later(), queue.store
    _many(monkeypatch, 1_000_000)
    background = BackgroundCounts(later)
    background.read(store, None)
    later.run()
    _many(monkeypatch, 2_000_000)
    now += 1
    assert background.read(store, None).counts[0].count == 1_000_000
    later.run()
    assert background.read(store, None).counts[0].count == 2_000_000


def test_a_count_that_fails_is_tried_again(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(store: Store, user_id: str | None) -> StoreCounts:
        raise StoreUnavailable("connection refused")

    monkeypatch.setattr(counts, "count_store", fail)
    later, store = Later(), queue.store
    background = BackgroundCounts(later)
    background.read(store, None)
    later.run()
    monkeypatch.setattr(counts, "monotonic", lambda: 1e9)
    _many(monkeypatch, 3)
    assert background.read(store, None).counts == []
    later.run()
    assert background.read(store, None).counts[0].count == 3


def test_an_error_of_the_first_count_is_raised(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(store: Store, user_id: str | None) -> StoreCounts:
        raise StoreUnavailable("connection refused")

    background = BackgroundCounts(lambda function: function(), first_within=None)
    with monkeypatch.context() as patched:
        patched.setattr(counts, "count_store", fail)
        with pytest.raises(StoreUnavailable):
            background.read(queue.store, None)
    _many(monkeypatch, 1_000_000)
    assert background.read(queue.store, None).counts[0].count == 1_000_000


def test_an_error_of_a_later_count_leaves_the_latest_numbers(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(store: Store, user_id: str | None) -> StoreCounts:
        raise StoreUnavailable("connection refused")

    background = BackgroundCounts(lambda function: function(), first_within=None)
    _many(monkeypatch, 1_000_000)
    background.read(queue.store, None)
    monkeypatch.setattr(counts, "count_store", fail)
    monkeypatch.setattr(counts, "monotonic", lambda: 1e9)
    assert background.read(queue.store, None).counts[0].count == 1_000_000


def test_all_readers_may_wait_for_the_first_count(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    go, begun = threading.Event(), threading.Event()

    def count(store: Store, user_id: str | None) -> StoreCounts:
        begun.set()
        assert go.wait(900)
        return StoreCounts([TaskCount("p", "f", WAITING, False, 1_000_000, store.now())], store.now())

    monkeypatch.setattr(counts, "count_store", count)
    with ThreadPoolExecutor(1) as counting, ThreadPoolExecutor(3) as readers:
        background = BackgroundCounts(counting.submit, first_within=None)
        read = [readers.submit(background.read, queue.store, None) for _ in range(3)]
        assert begun.wait(900)
        assert not any(each.done() for each in read)
        go.set()
        assert [each.result(900).counts[0].count for each in read] == [1_000_000] * 3
