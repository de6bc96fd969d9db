"""The SQL function onerow.add, which follows the same rules as Queue.add."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import psycopg
import pytest
from psycopg.types.json import Jsonb

from onerow.core.status import Status
from onerow.core.times import FAR
from onerow.engine.queue.queue import Queue
from onerow.pipelines.pipeline import Pipeline
from onerow.stores.postgres import PostgresStore


class Topic(msgspec.Struct):
    topic: str
    length: int = 1


videos = Pipeline("videos", title="{topic}, {length} min", payload=Topic)
videos.phase(name="script", retry=5)(lambda job: None)

plain = Pipeline("plain")
plain.phase(name="run")(lambda job: None)

timed = Pipeline("timed")
timed.wait_until("schedule", field="at")
timed.phase(name="run")(lambda job: None)

waiting = Pipeline("waiting")
waiting.wait_for("image", signal="images.ready", timeout="3d")
waiting.phase(name="run")(lambda job: None)

endless = Pipeline("endless")
endless.wait_for("image", signal="images.ready")


@pytest.fixture
def queue(store: PostgresStore) -> Iterator[Queue]:
    queue = Queue(store)
    queue.publish(videos, plain, timed, waiting, endless)
    yield queue
    queue.close()


def add(sql: psycopg.Connection, *args: Any, **named: Any) -> str:
    """SELECT onerow.add(…), positional and named."""
    parts = ["%s"] * len(args) + [f"{name} => %s" for name in named]
    values = [Jsonb(value) if isinstance(value, dict | list) else value for value in (*args, *named.values())]
    row = sql.execute(f"SELECT onerow.add({', '.join(parts)})", values).fetchone()
    assert row is not None
    return str(row[0])


def test_sql_adds_the_same_task_as_the_queue(queue: Queue, sql: psycopg.Connection) -> None:
    by_sql = queue.get(add(sql, "videos", {"topic": "tides", "length": 3}, user_id="u1", priority=-5, limit_key="k"))
    by_queue = queue.add("videos", {"topic": "tides", "length": 3}, user_id="u1", priority=-5, limit_key="k")
    for field in by_queue.__struct_fields__:
        if field not in ("task_id", "created_at", "run_at", "updated_at", "payload_json"):
            assert getattr(by_sql, field) == getattr(by_queue, field), field
    assert by_sql.payload == by_queue.payload
    assert by_sql.run_at == by_sql.created_at == by_sql.updated_at
    assert (len(by_sql.task_id), by_sql.task_id[14]) == (36, "7")


@pytest.mark.parametrize(
    "pipeline, payload, phase",
    [("timed", {"at": "2099-11-15T09:00:00+09:00"}, "schedule"), ("timed", {}, "schedule"), ("waiting", {}, "image"), ("endless", {}, "image")],
)  # fmt: skip
def test_the_first_phase_is_prepared_as_by_the_queue(
    queue: Queue, sql: psycopg.Connection, pipeline: str, payload: dict[str, str], phase: str
) -> None:
    by_sql, by_queue = queue.get(add(sql, pipeline, payload)), queue.add(pipeline, payload)
    assert by_sql.phase == by_queue.phase == phase
    assert by_sql.awaiting == by_queue.awaiting
    assert (
        by_sql.run_at == FAR
        or by_sql.run_at - by_sql.created_at == by_queue.run_at - by_queue.created_at
        or (by_sql.run_at == by_queue.run_at)
    )
    assert (by_sql.scheduled_time is None) == (by_queue.scheduled_time is None)


def test_a_given_time_is_stored(queue: Queue, sql: psycopg.Connection) -> None:
    at = datetime(2099, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    task = queue.get(add(sql, "plain", run_at=at))
    assert (task.run_at, task.scheduled_time) == (at, at)


def test_a_taken_unique_key_returns_the_existing_task(queue: Queue, sql: psycopg.Connection) -> None:
    first = add(sql, "plain", unique_key="k")
    assert add(sql, "plain", unique_key="k") == first
    assert add(sql, "plain", unique_key="k", user_id="u2") != first
    assert queue.add("plain", unique="k").task_id == first
    queue.cancel(first)
    assert add(sql, "plain", unique_key="k") != first


def test_an_expired_unique_key_is_free(queue: Queue, sql: psycopg.Connection) -> None:
    first = add(sql, "plain", unique_key="k", unique_for="1ms")
    queue.cancel(first)
    sql.execute("SELECT pg_sleep(0.01)")
    assert add(sql, "plain", unique_key="k") != first


def test_a_taken_id_returns_the_existing_task_of_the_same_user_only(queue: Queue, sql: psycopg.Connection) -> None:
    assert add(sql, "plain", {"n": 1}, "mine", user_id="u1") == "mine"
    assert add(sql, "plain", {"n": 2}, "mine", user_id="u1") == "mine"
    assert queue.get("mine").payload == {"n": 1}
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="is taken"):
        add(sql, "plain", {"n": 3}, "mine", user_id="u2")


def test_token_and_version_of_a_given_id_keep_growing_after_a_purge(queue: Queue, sql: psycopg.Connection) -> None:
    add(sql, "plain", {}, task_id="again")
    (lease,) = queue.claim("plain", "run")
    first = lease.complete()
    while not queue.purge(older_than="0s"):
        pass
    add(sql, "plain", {}, task_id="again")
    second = queue.get("again")
    assert second.token >= first.token
    assert second.version > first.version
    assert (queue.get(add(sql, "plain", {})).token, queue.get(add(sql, "plain", {})).version) == (0, 1)


def test_a_rollback_leaves_no_task(queue: Queue, sql: psycopg.Connection) -> None:
    with sql.transaction(force_rollback=True):
        task_id = add(sql, "plain")
        assert sql.execute("SELECT FROM onerow.task_queue WHERE task_id = %s", (task_id,)).fetchone() is not None
    assert sum(tally.count for tally in queue.count()) == 0


@pytest.mark.parametrize(
    "args, named, what",
    [
        (("unknown",), {}, "no pipeline 'unknown'"),
        ((None,), {}, "no pipeline NULL"),
        (("videos", {"length": 3}), {}, "no 'topic'"),
        (("videos", [1]), {}, "no 'topic'"),
        (("plain", {"n": 2**63}), {}, "beyond 64 bits"),
        (("plain", {"n": [-(2**70)]}), {}, "beyond 64 bits"),
        (("plain", {"n": "x" * 1_000_001}), {}, "at most 1000000"),
        (("plain", None), {}, "must not be NULL"),
        (("plain",), {"metadata": [1]}, "must be an object"),
        (("plain",), {"priority": 101}, "-100 to 100"),
        (("plain",), {"max_retries": -1}, "0 to 1000"),
        (("plain",), {"task_id": " x"}, "outer blanks"),
        (("plain",), {"task_id": "a/b"}, "without /"),
        (("plain",), {"unique_for": "7d"}, "needs a unique_key"),
        (("plain",), {"unique_key": "k", "unique_for": "soon"}, "a time like 7d"),
        (("plain",), {"unique_key": ""}, "not empty"),
        (("plain",), {"user_id": "u" * 201}, "at most 200"),
        (("timed", {"at": "2099-11-15T09:00:00"}), {}, "no time zone"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_invalid_input_is_refused_with_a_reason(
    queue: Queue, sql: psycopg.Connection, args: tuple[Any, ...], named: dict[str, Any], what: str
) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=what):
        add(sql, *args, **named)
    assert sum(tally.count for tally in queue.count()) == 0


def test_64_bit_integers_and_long_fractions_are_accepted(queue: Queue, sql: psycopg.Connection) -> None:
    payload = {"most": 2**63 - 1, "least": -(2**63), "long": 0.12345678901234567, "text": "1" * 30}
    assert queue.get(add(sql, "plain", payload)).payload == payload


def test_the_commit_wakes_a_worker(queue: Queue, store: PostgresStore, sql: psycopg.Connection) -> None:
    waker = store.waker()
    while waker.wait(0):
        pass
    with sql.transaction():
        add(sql, "plain")
        assert not waker.wait(0.05)
    assert waker.wait(900)
    waker.close()


def test_a_task_added_in_sql_is_claimed(queue: Queue, sql: psycopg.Connection) -> None:
    task_id = add(sql, "plain", {"n": 1})
    with queue.claim("plain", "run", lease_for=timedelta(minutes=1)) as leases:
        assert [lease.task.task_id for lease in leases] == [task_id]
        for lease in leases:
            lease.complete({"done": True})
    assert queue.get(task_id).status is Status.COMPLETED


@pytest.mark.parametrize("time", ["2030-02-03", "2030-02-03T09:00"])
def test_a_time_without_a_zone_is_refused(queue: Queue, sql: psycopg.Connection, time: str) -> None:
    with pytest.raises(psycopg.Error, match="has no time zone"):
        add(sql, "timed", {"at": time})


@pytest.mark.parametrize("time", ["2030-02-03T09:00:00Z", "2030-02-03 09:00:00.5+09", "2030-02-03T09:00+0900"])
def test_a_time_with_a_zone_is_read_as_in_python(queue: Queue, sql: psycopg.Connection, time: str) -> None:
    assert queue.get(add(sql, "timed", {"at": time})).run_at == queue.add("timed", {"at": time}).run_at


def test_unique_for_has_the_same_maximum_as_in_python(queue: Queue, sql: psycopg.Connection) -> None:
    with pytest.raises(psycopg.Error, match="under 100 years"):
        add(sql, "plain", {}, unique_key="k", unique_for="999999999999d")
    with pytest.raises(psycopg.Error, match="under 100 years"):
        add(sql, "plain", {}, unique_key="k", unique_for="30000d7000d")
    assert queue.get(add(sql, "plain", {}, unique_key="k", unique_for="36500d")).unique_for == "36500d"


def test_null_means_no_user_and_no_limit_key(queue: Queue, sql: psycopg.Connection) -> None:
    task_id = add(sql, "plain", {}, user_id=None, limit_key=None, unique_key="k")
    assert (queue.get(task_id).user_id, queue.get(task_id).limit_key) == ("", "")
    assert add(sql, "plain", {}, user_id=None, unique_key="k") == task_id


def test_a_value_that_looks_like_a_field_is_not_substituted_again(queue: Queue, sql: psycopg.Connection) -> None:
    payload = {"topic": "{length} {topic}", "length": 3}
    by_sql, by_queue = queue.get(add(sql, "videos", payload)), queue.add("videos", payload)
    assert by_sql.title == by_queue.title == "{length} {topic}, 3 min"
