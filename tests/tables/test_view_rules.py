"""The SQL of views follows the rules in core: each UPDATE leaves the row that the rule returns."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from onerow.core import rules
from onerow.core.failure import failure
from onerow.core.history import Entry, append
from onerow.core.rules import operations
from onerow.core.table_mapping import read_mapping
from onerow.core.task import FIELDS, JSON_FIELDS, Task
from onerow.core.times import FAR
from onerow.core.values import decode
from tests.tables.kit import Database, pipeline

NOTE = "through the view jobs"
MAPPING = read_mapping(
    {
        "table": "jobs",
        "pipeline": "jobs",
        "unique": ["name"],
        "columns": {
            "id": "task_id", "state": "status", "name": "payload.name", "why": "error", "urgency": "priority",
            "due": "run_at", "tag": "metadata.tag", "tries": "retry_count", "color": "metadata.color",
        },
        "statuses": {"new": "waiting", "busy": "processing", "done": "completed", "bad": "failed", "off": "cancelled"},
    }
)  # fmt: skip
jobs = pipeline("jobs", "run", title="{name}")

Rule = Callable[[Task, datetime, str], Task]


def _ended(task: Task, now: datetime) -> Task:
    return operations.fail_by_hand(task, failure("broken", "network"), now)


CASES: dict[str, tuple[Callable[[Task, datetime], Task], str, Rule]] = {
    "cancel a waiting task": (lambda t, now: t, "state = 'off'", lambda t, now, by: rules.cancel(t, now, by=by, note=NOTE)),
    "cancel a parked task": (
        lambda t, now: replace(t, awaiting="signal:go", run_at=FAR), "state = 'off'",
        lambda t, now, by: rules.cancel(t, now, by=by, note=NOTE),
    ),
    "cancel a failed task": (_ended, "state = 'off'", lambda t, now, by: rules.cancel(t, now, by=by, note=NOTE)),
    "cancel a task whose key is remembered": (
        lambda t, now: replace(t, unique_key="k", held_key="k", unique_for="forever"), "state = 'off'",
        lambda t, now, by: rules.cancel(t, now, by=by, note=NOTE),
    ),
    "fail a waiting task": (
        lambda t, now: replace(t, unique_key="k", held_key="k"), "state = 'bad', why = '오류'",
        lambda t, now, by: rules.fail_by_hand(t, failure("오류", "permanent"), now, by=by, note=NOTE),
    ),
    "retry a failed task": (
        lambda t, now: _ended(replace(t, unique_key="k", held_key="k", retry_count=3, attempt=4, steps_json='{"run":{"a":{"at":"2026-01-01T00:00:00.000Z","result":1}}}'), now),
        "state = 'new', tries = tries + 1, why = NULL",
        lambda t, now, by: rules.retry(t, jobs.plan, now, by=by, note=NOTE),
    ),
    "another priority": (lambda t, now: t, "urgency = -7", lambda t, now, by: rules.set_priority(t, -7, now, by=by, note=NOTE)),
    "another due time": (
        lambda t, now: t, "due = '2031-02-03T04:05:06.789Z'",
        lambda t, now, by: rules.reschedule(t, datetime.fromisoformat("2031-02-03T04:05:06.789Z"), now, by=by, note=NOTE),
    ),
    "other metadata": (
        lambda t, now: replace(t, metadata_json='{"tag":"a","color":"red","kept":1}'), "tag = '值', color = NULL",
        lambda t, now, by: rules.annotate(t, '{"tag":"值","kept":1}', now),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_an_update_leaves_the_row_that_the_rule_returns(db: Database, case: str) -> None:
    prepared, change, rule = CASES[case]
    queue = db.queue(jobs)
    db.store.create_view(MAPPING)
    added = queue.add("jobs", {"name": "x"})
    before = prepared(added, db.store.now())
    db.store.remove([added])
    db.store.insert([before])
    db.sql(f"UPDATE jobs SET {change} WHERE id = ?", before.task_id)
    (after,) = db.store.fetch([before.task_id])
    expected = rule(before, after.updated_at, "postgres" if db.kind == "postgres" else "sql")
    assert _plain(after) == _plain(expected)
    assert all(finding.level == "good" for finding in db.store.inspect())  # counters and schema are right


def test_cancelling_a_running_task_asks_it_to_stop(db: Database) -> None:
    queue = db.queue(jobs)
    db.store.create_view(MAPPING)
    queue.add("jobs", {"name": "x"})
    with queue.claim("jobs") as (lease,):
        (before,) = db.store.fetch([lease.task.task_id])
        db.sql("UPDATE jobs SET state = 'off'")
        (after,) = db.store.fetch([lease.task.task_id])
        by = "postgres" if db.kind == "postgres" else "sql"
        assert _plain(after) == _plain(rules.cancel(before, after.updated_at, by=by, note=NOTE))
        db.sql("UPDATE jobs SET state = 'off'")
        assert db.store.fetch([lease.task.task_id]) == [after]  # a second request changes nothing
        for word in ("new", "bad", "done"):
            assert "pull API" in db.refused(f"UPDATE jobs SET state = '{word}'")
        assert db.store.fetch([lease.task.task_id]) == [after]


def test_a_long_history_is_shortened_as_in_core(pg: Database) -> None:
    queue = pg.queue(jobs)
    pg.store.create_view(MAPPING)
    added = queue.add("jobs", {"name": "x"})
    logs = "[]"
    while len(logs) < 59_900:
        logs = append(logs, Entry(at="2026-01-01T00:00:00.000Z", what="signal", note=f"{len(logs)} 글"))
    before = replace(added, logs_json=logs)
    pg.store.remove([added])
    pg.store.insert([before])
    pg.sql("UPDATE jobs SET state = 'off'")
    (after,) = pg.store.fetch([before.task_id])
    assert _plain(after) == _plain(rules.cancel(before, after.updated_at, by="postgres", note=NOTE))
    assert after.history[0].what == "dropped"


def test_an_insert_stores_what_add_stores(db: Database) -> None:
    queue = db.queue(jobs)
    db.store.create_view(MAPPING)
    db.sql("INSERT INTO jobs (id, name, urgency, tag) VALUES ('한글-1', '글', 5, 'a')")
    (inserted,) = db.store.fetch(["한글-1"])
    added = queue.add("jobs", {"name": "글2"}, task_id="2", priority=5, metadata={"tag": "a"}, unique="글2")
    times = {field: getattr(inserted, field) for field in ("created_at", "updated_at", "run_at", "token", "version")}
    same = {"task_id": "한글-1", "title": "글", "unique_key": "글", "held_key": "글", "payload_json": '{"name":"글"}'}
    assert _plain(inserted) == _plain(replace(added, **times, **same))
    assert abs(inserted.created_at - added.created_at) < timedelta(minutes=5)
    assert inserted.version == inserted.token + 1 > 1


def test_tasks_added_through_the_view_run(db: Database) -> None:
    seen: list[Any] = []
    running = pipeline("jobs")
    running.phase(name="run")(lambda job: seen.append(job["name"]))
    queue = db.queue(running)
    db.store.create_view(MAPPING)
    db.sql("INSERT INTO jobs (name) VALUES ('x')")
    with queue.claim("jobs") as (lease,):
        assert lease.task.payload == {"name": "x"}
        lease.complete({"ok": True})
    assert db.sql("SELECT state, why FROM jobs") == [("done", None)]


def _plain(task: Task) -> dict[str, Any]:
    """The fields of a task, with JSON decoded: SQL may write equal JSON differently."""
    return {field: decode(getattr(task, field)) if field in JSON_FIELDS else getattr(task, field) for field in FIELDS}
