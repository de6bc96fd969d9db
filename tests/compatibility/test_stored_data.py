"""Stores that earlier code wrote: today's code opens each, reads every task, and drains it."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onerow.core.filters import Filter
from onerow.core.status import PROCESSING, WAITING
from onerow.engine.queue.queue import Queue
from onerow.ports import Store
from tests.compatibility import stores
from tests.compatibility.contents import EXPECTED, drain, key_is_remembered
from tests.compatibility.stores import DATA, file_of

CHECKSUMS = {
    name: checksum
    for checksum, name in (line.split() for line in (DATA / "SHA256SUMS").read_text(encoding="utf-8").splitlines())
}


@pytest.fixture(params=["sqlite", "postgres", "mongo"])
def restored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    kind: str = request.param
    restore: Callable[[Path, str], Store]
    if kind == "sqlite":
        store = stores.restore_sqlite(file_of(kind), tmp_path / "fixture.db")
    else:
        restore = stores.restore_postgres if kind == "postgres" else stores.restore_mongo
        store = restore(file_of(kind), request.getfixturevalue(f"{kind}_url"))
    store.prepare()
    yield store
    store.close()


def test_a_fixture_is_never_rewritten() -> None:
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in DATA.glob("*.gz")}
    assert found == CHECKSUMS


def test_today_s_code_reads_every_task_of_an_earlier_store(restored: Store) -> None:
    queue = Queue(restored)
    tasks = {task.task_id: task for task in queue.find(Filter(), limit=500).tasks}
    assert set(EXPECTED) <= set(tasks)
    assert tasks["한국어 🎬"].title == "한국어 🎬"
    assert tasks["parked"].payload == {"topic": "parked", "size": 2**53, "part": 0.5}
    assert tasks["parked"].awaiting == "signal:images.ready"
    assert tasks["parked"].results["script"]["text"] == "parked…end"
    assert tasks["album"].awaiting == "children"
    assert tasks["album"].children == 3
    assert tasks["leased"].status is PROCESSING
    assert tasks["retrying"].status is WAITING
    assert tasks["retrying"].retry_count == 1
    assert tasks["failed"].error == "no such topic"
    assert tasks["failed"].error_class == "permanent"
    assert [entry.what for entry in tasks["cancelled"].history][-1] == "cancel"
    assert [line.text for line in queue.logs("parked").lines] == ["writing about parked"]


def test_today_s_code_drains_an_earlier_store(restored: Store) -> None:
    assert drain(restored) == EXPECTED
    queue = Queue(restored)
    assert queue.get("album").results["press"] == 3
    assert queue.get("leased").results["upload"].startswith("published leased")


def test_unique_keys_that_an_earlier_store_remembers_are_still_taken(restored: Store) -> None:
    assert key_is_remembered(restored, "key-2"), "of a completed task"
    assert key_is_remembered(restored, "key-3"), "of a purged task"
