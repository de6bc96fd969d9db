"""Text that is not UTF-8, and damaged notes: they harm no other task."""

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from onerow.core.filters import Filter
from onerow.core.status import FAILED
from onerow.engine.control import definitions
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views
from onerow.ports import Existing, Note
from onerow.stores.sqlite import SqliteStore
from tests.conformance.kit import MINUTE, claim, every_row, new, put, read_everything, stored, work_off
from tests.samples import PLAN

OTHERS = [f"t{n}" for n in range(5)]
NOT_UTF8 = "CAST(x'ff41' AS TEXT)"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    found = SqliteStore(tmp_path / "onerow.db")
    found.prepare()
    yield found
    found.close()


def by_hand(store: SqliteStore, sql: str, *given: Any) -> None:
    """Execute a statement as another program would, without the checks of the table."""
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(sql, given)


@pytest.mark.parametrize(
    "column",
    ["task_id", "pipeline", "type", "title", "user_id", "limit_key", "run_at", "created_at", "error", "unique_key",
     "held_key", "cancel_requested", "retry_count", "payload", "results", "steps", "progress", "metadata", "logs"],
)  # fmt: skip
def test_a_row_with_text_that_is_not_utf8_is_quarantined_and_the_others_run(store: SqliteStore, column: str) -> None:
    for task_id in ("bad", *OTHERS):
        put(store, task_id)
    by_hand(store, f"UPDATE task_queue SET {column} = {NOT_UTF8} WHERE task_id = 'bad'")
    while work_off(store):
        pass
    assert {stored(store, task_id).phase for task_id in OTHERS} == {"image"}
    read_everything(store)
    rows = every_row(store)
    (bad,) = (task for task_id, task in rows.items() if task_id not in OTHERS)
    assert (bad.status, bad.error_class) == (FAILED, "corrupt")
    assert f"{column}: b'\\xffA'" in str(bad.error)
    if column == "task_id":
        assert bad.task_id == "\\xffA"


@pytest.mark.parametrize(
    "operation",
    [
        lambda store: store.fetch(["bad"]),
        lambda store: store.find(Filter(text="nothing")),
        lambda store: store.search(Filter(title_text="nothing"), within=MINUTE),
        lambda store: store.due("videos", "script", store.now(), 100),
    ],
    ids=["fetch", "find", "search", "due"],
)
def test_each_operation_finds_such_a_row_by_itself(store: SqliteStore, operation: Callable[[SqliteStore], Any]) -> None:
    put(store, "bad")
    by_hand(store, f"UPDATE task_queue SET title = {NOT_UTF8}")
    operation(store)
    with closing(sqlite3.connect(store.path)) as connection:
        assert connection.execute("SELECT status, error_class FROM task_queue").fetchall() == [("failed", "corrupt")]


def test_a_payload_that_is_almost_utf8_keeps_what_can_be_read(store: SqliteStore) -> None:
    put(store, "bad")
    by_hand(store, "UPDATE task_queue SET payload = CAST(? AS TEXT)", b'{"topic": "\xff tides", "n": 5}')
    assert claim(store) == []
    bad = stored(store, "bad")
    assert bad.payload == {"topic": "\ufffd tides", "n": 5}
    assert bad.history[-1].note == '{"topic": "\\xff tides", "n": 5}'


def test_every_row_may_be_like_that(store: SqliteStore) -> None:
    store.insert([new(store, f"t{n:04d}") for n in range(2_100)])
    by_hand(store, f"UPDATE task_queue SET title = {NOT_UTF8}")
    assert claim(store, 10) == []
    (line,) = store.count(Filter())
    assert (line.status, line.count) == (FAILED, 2_100)


def test_a_task_with_the_id_of_such_a_row_exists(store: SqliteStore) -> None:
    task = put(store, "bad")
    by_hand(store, f"UPDATE task_queue SET title = {NOT_UTF8}")
    (answer, _) = store.insert([task, new(store, "good")])
    assert isinstance(answer, Existing)
    assert answer.task.error_class == "corrupt"


def test_doctor_names_such_a_row_and_a_row_without_a_lease(store: SqliteStore) -> None:
    queue = Queue(store)
    definitions.publish(store, [PLAN])
    put(store, "bad")
    put(store, "stuck")
    by_hand(store, f"UPDATE task_queue SET title = {NOT_UTF8} WHERE task_id = 'bad'")
    by_hand(store, "UPDATE task_queue SET status = 'processing' WHERE task_id = 'stuck'")
    assert claim(store, 10) == []
    said = [finding.what for finding in Views(queue).findings() if finding.code == "corrupt"]
    assert len(said) == 2
    assert "title: b'\\xffA' is not text" in " ".join(said)
    assert "leased_until: a processing task needs a lease" in " ".join(said)


@pytest.mark.parametrize("body", ["{broken", "", b"\xff"])
def test_a_damaged_note_is_ignored_with_a_warning_and_can_be_replaced(
    store: SqliteStore, caplog: pytest.LogCaptureFixture, body: Any
) -> None:
    store.write_notes([Note("limit", "good", {"n": 1}), Note("limit", f"bad {body!r}", {"n": 2})])
    by_hand(store, "UPDATE onerow_note SET body = CAST(? AS TEXT) WHERE name <> 'good'", body)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert [note.name for note in store.notes("limit")] == ["good"]
    (warning,) = caplog.messages
    assert repr(f"bad {body!r}") in warning
    assert store.write_notes([Note("limit", f"bad {body!r}", {"n": 3})]) == [True]
    assert store.notes("limit")[0].body == {"n": 3}


def test_the_table_refuses_a_note_that_is_not_json(store: SqliteStore) -> None:
    store.write_notes([Note("limit", "good", {"n": 1})])
    with closing(sqlite3.connect(store.path)) as connection, pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        connection.execute("UPDATE onerow_note SET body = '{broken'")


def test_a_damaged_plan_stops_no_worker(store: SqliteStore) -> None:
    definitions.publish(store, [PLAN])
    store.write_notes([Note(definitions.PLAN, "other", {"name": "other"})])
    by_hand(store, "UPDATE onerow_note SET body = '{broken' WHERE name = 'other'")
    queue = Queue(store)
    put(store)
    definitions.publish(store, [PLAN])
    Views(queue).board()
    Views(queue).findings()
    assert work_off(store) == ["t1"]
