"""Bad input: an error that names the field, and nothing is stored."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from onerow import BadInput, Filter, Pipeline, Queue, Status, StoreError, UnknownName, Worker
from onerow.stores.sqlite import SqliteStore

posts = Pipeline("posts")


@posts.phase
def tag(job: object) -> None: ...


posts.wait_until("later", field="due")

NESTED: Any = None
for _ in range(150):
    NESTED = [NESTED]

PAYLOADS = {
    "nan": {"a": float("nan")},
    "infinity": [1, float("-inf")],
    "lone surrogate": {"a": "\ud800"},
    "lone surrogate in a key": {"\udfff": 1},
    "nul": "a\x00b",
    "nul in a key": {"a\x00": 1},
    "beyond 64 bits": {"n": 2**63},
    "far beyond 64 bits": [-(2**80)],
    "bytes": b"raw",
    "set": {"a": {1, 2}},
    "object": object(),
    "number as key": {1: "one"},
    "ten megabytes": "x" * 10_000_000,
    "too deep": NESTED,
    "a time that is no time": {"due": "tomorrow"},
    "a time without a zone": {"due": "2030-01-01T00:00:00"},
    "a number for a time": {"due": 12},
}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())
def test_a_payload_that_json_cannot_represent_is_refused(queue: Queue, payload: Any) -> None:
    with pytest.raises(BadInput, match="payload") as refused:
        queue.add(posts, payload)
    assert refused.value.field.startswith("payload")
    assert queue.count() == []


FIELDS: list[tuple[str, Any]] = [
    ("task_id", ""),
    ("task_id", " outer "),
    ("task_id", "a/b"),
    ("task_id", "a\nb"),
    ("task_id", "x" * 201),
    ("task_id", 7),
    ("task_id", "\x00"),
    ("user_id", None),
    ("user_id", 0),
    ("user_id", 12),
    ("user_id", "u" * 201),
    ("user_id", "\ud800"),
    ("title", 5),
    ("title", "t" * 501),
    ("title", "a\x00b"),
    ("run_at", "tomorrow"),
    ("run_at", 1_700_000_000),
    ("run_at", datetime(2030, 1, 1)),
    ("run_at", "2030-01-01T00:00:00"),
    ("run_at", datetime(1969, 12, 31, tzinfo=UTC)),
    ("run_at", datetime(9999, 12, 31, 23, 59, tzinfo=UTC)),
    ("priority", 101),
    ("priority", -101),
    ("priority", 1.5),
    ("priority", "high"),
    ("priority", True),
    ("priority", None),
    ("unique", ""),
    ("unique", 5),
    ("unique", "k" * 501),
    ("unique_for", "7d"),  # without a key
    ("limit_key", None),
    ("limit_key", 0),
    ("limit_key", "k" * 201),
    ("max_retries", -1),
    ("max_retries", 1001),
    ("max_retries", 2.0),
    ("max_retries", True),
    ("max_retries", "3"),
    ("metadata", "text"),
    ("metadata", [1]),
    ("metadata", {"a": float("nan")}),
    ("metadata", {"a": "x" * 2_000_000}),
    ("tx", "no connection"),
]


@pytest.mark.parametrize("field, value", FIELDS, ids=[f"{name}={value!r:.20}" for name, value in FIELDS])
def test_a_bad_value_is_refused_with_the_name_of_its_field(queue: Queue, field: str, value: Any) -> None:
    queue.count()  # creates the tables, which an add in a caller's transaction doesn't
    with pytest.raises(BadInput, match=field) as refused:
        queue.add(posts, {}, **{field: value})
    assert refused.value.field.split(".")[0] == field
    assert queue.count() == []


@pytest.mark.parametrize("span", ["soon", "-1d", -5, "200y", True, ""])
def test_a_keep_value_that_is_not_a_duration_is_refused(queue: Queue, span: Any) -> None:
    with pytest.raises(BadInput, match="unique_for"):
        queue.add(posts, {}, unique="k", unique_for=span)
    assert queue.count() == []


@pytest.mark.parametrize("pipeline", ["nowhere", ""])
def test_an_unknown_pipeline_is_refused(queue: Queue, pipeline: Any) -> None:
    with pytest.raises(UnknownName, match="pipeline"):
        queue.add(pipeline, {})


ACTS: dict[str, tuple[Callable[[Queue, str], object], str]] = {
    "an unknown task": (lambda queue, task_id: queue.get("unknown"), "task_id"),
    "an unknown task to act on": (lambda queue, task_id: queue.cancel("unknown"), "task_id"),
    "the log of an unknown task": (lambda queue, task_id: queue.logs("unknown"), "task_id"),
    "a phase to replay": (lambda queue, task_id: queue.replay(task_id, "nowhere"), "phase"),
    "a time without a zone": (lambda queue, task_id: queue.reschedule(task_id, datetime(2030, 1, 1)), "run_at"),
    "a time that is none": (lambda queue, task_id: queue.reschedule(task_id, "soon"), "run_at"),
    "a priority out of range": (lambda queue, task_id: queue.set_priority(task_id, 500), "priority"),
    "a signal without a name": (lambda queue, task_id: queue.signal(task_id, ""), "signal"),
    "a signal's payload": (lambda queue, task_id: queue.signal(task_id, "go", float("nan")), "payload"),
    "a signal's id": (lambda queue, task_id: queue.signal(task_id, "go", signal_id="i" * 300), "signal_id"),
    "metadata": (lambda queue, task_id: queue.annotate(task_id, {"a": {1}}), "metadata"),
    "metadata that is no dict": (lambda queue, task_id: queue.annotate(task_id, [1]), "metadata"),  # type: ignore[arg-type]
    "who did it": (lambda queue, task_id: queue.cancel(task_id, by="\x00"), "by"),
    "a phase to pause": (lambda queue, task_id: queue.pause(posts, "nowhere"), "phase"),
    "a pipeline to pause": (lambda queue, task_id: queue.pause("nowhere"), "pipeline"),
    "a limit of nothing": (lambda queue, task_id: queue.set_limit(posts, "tag", concurrency=0), "concurrency"),
    "a limit that is no number": (
        lambda queue, task_id: queue.set_limit(posts, "tag", per_key="2"),  # type: ignore[arg-type]
        "per_key",
    ),
    "a phase to claim from": (lambda queue, task_id: queue.claim(posts, "nowhere"), "phase"),
    "a phase that only waits": (lambda queue, task_id: queue.claim(posts, "later"), "phase"),
    "no tasks to claim": (lambda queue, task_id: queue.claim(posts, limit=0), "limit"),
    "a lease of nothing": (lambda queue, task_id: queue.claim(posts, lease_for=0), "lease_for"),
    "a status to purge": (lambda queue, task_id: queue.purge(older_than=0, statuses=["lost"]), "status"),
    "an open status to purge": (lambda queue, task_id: queue.purge(older_than=0, statuses=["waiting"]), "statuses"),
    "an age to purge": (lambda queue, task_id: queue.purge(older_than="old"), "older_than"),
    "a user": (lambda queue, task_id: queue.for_user(5), "user_id"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("act, field", ACTS.values(), ids=ACTS.keys())
def test_an_operation_with_a_bad_value_is_refused_and_changes_nothing(
    queue: Queue, act: Callable[[Queue, str], object], field: str
) -> None:
    queue.publish(posts)
    task = queue.add(posts, {"n": 1})
    if field in ("phase",):
        task = queue.finish(task.task_id)
    with pytest.raises(BadInput) as refused:
        act(queue, task.task_id)
    assert refused.value.field.split(".")[0] == field
    assert str(refused.value)
    assert queue.find(Filter()).tasks == [task]
    assert queue.store.notes("pause") == []
    assert queue.store.notes("limit") == []


@pytest.mark.parametrize("error_class", ["fatal", "", "Network"])
def test_an_error_class_that_does_not_exist_is_refused(queue: Queue, error_class: str) -> None:
    queue.add(posts)
    (lease,) = queue.claim(posts)
    with pytest.raises(BadInput, match="network") as refused:
        lease.fail("broken", error_class=error_class)
    assert refused.value.field == "error_class"
    assert queue.get(lease.task.task_id).status is Status.PROCESSING


@pytest.mark.parametrize("concurrency", [0, -1, 10_001, "many", 2.5, True])
def test_a_worker_with_an_invalid_concurrency_is_refused(queue: Queue, concurrency: Any) -> None:
    with pytest.raises(BadInput, match="concurrency"):
        Worker(queue, [posts], concurrency=concurrency)


def test_a_worker_needs_existing_pipelines_and_phases(queue: Queue) -> None:
    with pytest.raises(BadInput, match="pipelines"):
        Worker(queue)
    with pytest.raises(UnknownName, match="nowhere"):
        Worker(queue, [posts], phases=["nowhere"])
    with pytest.raises(BadInput, match="interval"):
        Worker(queue, [posts], interval="often")


def test_two_pipelines_of_one_name_are_refused(queue: Queue) -> None:
    queue.serve(posts)
    with pytest.raises(BadInput, match="two different pipelines are named 'posts'\ngive one of them another name"):
        queue.serve(Pipeline("posts"))


def test_a_pipeline_that_is_defined_again_in_a_notebook_replaces_the_first(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    again = Pipeline("posts")
    again.phase(name="other")(tag)
    assert queue.serve(posts).serve(again).pipelines == {"posts": again}
    assert queue.add("posts").phase == "other"


@pytest.mark.parametrize(
    "url",
    ["", "studio.db", "sqlite://studio.db", "sqlite:///", "oracle://x/y", "sqlite:///a.db?profile=careless", "://"],
)
def test_the_error_for_a_wrong_store_url_shows_the_correct_form(url: str) -> None:
    with pytest.raises(BadInput, match="sqlite:///") as refused:
        Queue(url)
    assert refused.value.field == "store"


def test_the_error_for_a_missing_folder_names_it(tmp_path: Path) -> None:
    queue = Queue(f"sqlite:///{tmp_path}/missing/onerow.db")
    with pytest.raises(StoreError, match=r"missing/onerow\.db.*\n.*folder"):
        queue.add(posts)


def test_the_error_for_a_file_that_is_not_a_database_names_it(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no database at all, but long enough to be looked at" * 20)
    queue = Queue(SqliteStore(tmp_path / "notes.txt"))
    with pytest.raises(StoreError, match=r"notes\.txt: is not an SQLite database"):
        queue.add(posts)
