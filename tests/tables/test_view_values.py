"""Values in columns of a view: what an INSERT stores is shown, and values that collide or don't fit are refused."""

from datetime import UTC, datetime
from typing import Any

import pytest

from onerow.core.adoption import unique_key
from onerow.core.errors import BadInput
from onerow.core.table_mapping import TableMapping, read_mapping
from tests.tables.kit import Database, pipeline

WORDS = {"new": "waiting", "busy": "processing", "done": "completed", "bad": "failed", "off": "cancelled"}
jobs = pipeline("jobs", "run")


def mapping(columns: dict[str, Any], **keys: Any) -> TableMapping:
    """The mapping of the view jobs with these columns beside id and state."""
    columns = {"id": "task_id", "state": "status"} | columns
    return read_mapping({"table": "jobs", "pipeline": "jobs", "columns": columns, "statuses": WORDS} | keys)


NUMBERS = {
    field: {"i": f"{field}.i:integer", "b": f"{field}.b:bigint", "n": f"{field}.n:number"}
    for field in ("payload", "metadata")
}


@pytest.mark.parametrize("field", NUMBERS)
@pytest.mark.parametrize(
    "row",
    [
        (1750000000, 1834567890123456789, 1e-120),
        (2147483647, 9223372036854775807, 1e15),
        (-2147483648, -9223372036854775808, -2.5e-300),
        (0, -1, 0.1),
    ],
)
def test_numbers_in_the_range_of_their_type_are_shown_and_found(
    db: Database, field: str, row: tuple[int, int, float]
) -> None:
    db.queue(jobs)
    db.store.create_view(mapping(NUMBERS[field], indexes=[["i"], ["n"]]))
    db.sql("INSERT INTO jobs (i, b, n) VALUES (?, ?, ?)", *row)
    assert db.sql("SELECT i, b, n FROM jobs WHERE i = ? AND b = ? AND n = ?", *row) == [row]
    if field == "metadata":
        db.sql("UPDATE jobs SET b = NULL, i = NULL, n = NULL")
        assert db.sql("SELECT i, b, n FROM jobs") == [(None, None, None)]


def test_a_number_that_does_not_fit_is_null_and_never_an_error(pg: Database) -> None:
    queue = pg.queue(jobs)
    pg.store.create_view(
        mapping(
            NUMBERS["payload"]
            | {
                "p": {"field": "payload.p", "type": "integer", "plus": 1},
                "m": {"field": "payload.m", "type": "bigint", "negate": True},
            }
        )
    )
    queue.add("jobs", {"i": 2**31, "b": "9223372036854775808", "n": 1e300, "p": 2**31 - 1, "m": -(2**63)})
    assert pg.sql("SELECT i, b, n, p, m FROM jobs") == [(None, None, 1e300, None, None)]
    pg.sql("UPDATE jobs SET state = 'off'")
    texts = {
        "1e400": None, "-1e999": None, "1e-999": 0.0, "5e-324": 5e-324, "1e+0005": 1e5, "1.": None, "": None, "1e99999": None,
        "9" * 2000: None,
    }  # fmt: skip
    for text, shown in texts.items():
        assert pg.sql("SELECT onerow.as_float8(?)", text) == [(shown,)]
    assert pg.sql("SELECT onerow.as_int8('9223372036854775808'), onerow.as_int4('9999999999')") == [(None, None)]


def test_an_index_of_a_function_that_returned_something_else_is_made_anew(pg: Database) -> None:
    """A view of an earlier version reads numbers by functions of other names; its index holds their values."""
    pg.queue(jobs)
    shows = mapping(NUMBERS["payload"], indexes=[["i"]])
    body = "\"onerow\".task_queue ((CASE WHEN payload ->> 'i' ~ '^[0-9]{1,9}$' THEN 1 END)) WHERE pipeline = 'jobs'"
    pg.sql(f"CREATE INDEX task_view_jobs_1 ON {body}")
    pg.sql(f"COMMENT ON INDEX onerow.task_view_jobs_1 IS $${body}$$")
    pg.store.create_view(shows)
    (definition,) = pg.sql("SELECT pg_get_indexdef('onerow.task_view_jobs_1'::regclass)")
    assert "as_int4" in definition[0]


@pytest.mark.parametrize("condition", ["i = 5", "b = 5", "n = 5", "p = 5"])
def test_conditions_on_numbers_use_an_index(pg: Database, condition: str) -> None:
    pg.queue(jobs)
    shifted = {"p": {"field": "payload.p", "type": "integer", "plus": 1}}
    pg.store.create_view(mapping(NUMBERS["payload"] | shifted, indexes=[["i"], ["b"], ["n"], ["p"]]))
    pg.sql("SET enable_seqscan = off")
    plan = str(pg.sql(f"EXPLAIN SELECT id FROM jobs WHERE {condition}"))
    assert "Index Cond" in plan, plan
    assert "task_view_jobs_" in plan, plan


PAIRS = [("x,y", "z"), ("x", "y,z"), ("x\\", "y"), ("x\\,y", ""), ("x", "\\,y"), ("", ""), ("글", "b"), ("a", "b")]


def test_rows_whose_values_hold_the_separator_have_keys_of_their_own(db: Database) -> None:
    db.queue(jobs)
    shows = mapping({"a": "payload.a", "b": "payload.b"}, unique=["a", "b"])
    db.store.create_view(shows)
    for pair in PAIRS * 2:  # the second time each is taken
        db.sql("INSERT INTO jobs (a, b) VALUES (?, ?)", *pair)
    assert sorted(db.sql("SELECT a, b FROM jobs")) == sorted(PAIRS)
    tasks = [task for (id_,) in db.sql("SELECT id FROM jobs") for task in db.store.fetch([id_])]
    keys = {task.unique_key for task in tasks}
    assert keys == {unique_key(shows, {"a": a, "b": b}) for a, b in PAIRS}
    assert {"글,b", "a,b"} < keys  # values without the separator keep their key


def test_an_insert_may_give_empty_text_for_a_column_that_onerow_keeps(db: Database) -> None:
    db.queue(jobs)
    db.store.create_view(mapping({"why": "error", "by": "leased_by"}))
    db.sql("INSERT INTO jobs (why, by) VALUES ('', '')")
    assert db.sql("SELECT why, by FROM jobs") == [(None, None)]
    assert "onerow keeps the column why" in db.refused("INSERT INTO jobs (why) VALUES ('bad')")


def test_the_key_of_one_column_is_its_value(db: Database) -> None:
    db.queue(jobs)
    shows = mapping({"a": "payload.a"}, unique=["a"])
    db.store.create_view(shows)
    db.sql("INSERT INTO jobs (id, a) VALUES ('1', ?)", "x,\\")
    assert [task.unique_key for task in db.store.fetch(["1"])] == ["x,\\"] == [unique_key(shows, {"a": "x,\\"})]


@pytest.mark.parametrize("order", [("due", "sched"), ("sched", "due")])
@pytest.mark.parametrize("given", ["due", "sched"])
def test_a_task_is_due_when_either_column_of_its_time_says(db: Database, order: tuple[str, ...], given: str) -> None:
    db.queue(jobs)
    fields = {"due": "run_at", "sched": "scheduled_time"}
    db.store.create_view(mapping({name: fields[name] for name in order}))
    db.sql(f"INSERT INTO jobs (id, {given}) VALUES ('1', '2031-01-01T00:00:00Z')")
    db.sql("INSERT INTO jobs (id, due, sched) VALUES ('2', '2031-01-01T00:00:00Z', '2032-01-01T00:00:00Z')")
    for task in db.store.fetch(["1", "2"]):
        assert task.run_at == task.scheduled_time == datetime(2031, 1, 1, tzinfo=UTC)


def test_words_and_columns_may_hold_quotes_and_percent_signs(db: Database) -> None:
    db.queue(jobs)
    words = {
        "it's new": "waiting",
        "0%": "processing",
        "100%": "completed",
        "%s 'bad' \\": "failed",
        "꺼짐": "cancelled",
    }
    names = {
        "it's": "attempt",
        "5%": "retry_count",
        "a \\ 'b' %": "payload.x",
        "제목": "title",
        "%": "priority",
        "%s": "error",
    }
    db.store.create_view(mapping(names, statuses=words, unique=["a \\ 'b' %"]))
    db.sql("INSERT INTO jobs (\"a \\ 'b' %\") VALUES ('x')")
    assert db.sql('SELECT state, "it\'s", "a \\ \'b\' %" FROM jobs') == [("it's new", 0, "x")]
    assert "it's new" in db.refused("INSERT INTO jobs (state) VALUES ('100%')")
    assert "the column it's" in db.refused('INSERT INTO jobs ("it\'s") VALUES (5)')
    assert "the column 5%" in db.refused('UPDATE jobs SET "5%" = 7')
    assert "it's new, 0%, 100%, %s 'bad' \\, 꺼짐" in db.refused("UPDATE jobs SET state = '%'")
    db.sql("UPDATE jobs SET state = ?", "%s 'bad' \\")
    assert db.sql("SELECT state FROM jobs") == [("%s 'bad' \\",)]


def test_the_columns_that_tell_the_status_may_hold_quotes_and_percent_signs(db: Database) -> None:
    db.queue(jobs)
    bad = "it's 100% bad"
    columns = {"id": "task_id", bad: {"field": "completed_at", "when": "failed"}}
    db.store.create_view(
        read_mapping({"table": "jobs", "pipeline": "jobs", "columns": columns, "status_when": {bad: "failed"}})
    )
    refusal = db.refused("INSERT INTO jobs (\"it's 100% bad\") VALUES ('2026-01-01T00:00:00Z')")
    assert "leave out it's 100% bad" in refusal


@pytest.mark.parametrize(
    "column, value, named",
    [
        ("id", b"\x00\xff", "id is a BLOB"),
        ("owner", b"\x00\xff", "owner is a BLOB"),
        ("title", b"x", "title is a BLOB"),
        ("id", "a\0b", "holds the character 0"),
        ("owner", "a\0", "holds the character 0"),
        ("id", "a\nb", "control characters"),
        ("id", "a\x7fb", "control characters"),
        ("id", "a\x85b", "control characters"),
    ],
)
def test_sqlite_refuses_text_that_a_task_can_not_have(lite: Database, column: str, value: Any, named: str) -> None:
    lite.queue(jobs)
    lite.store.create_view(mapping({"owner": "user_id", "title": "title"}))
    assert named in lite.refused(f"INSERT INTO jobs ({column}) VALUES (?)", value)
    lite.sql("INSERT INTO jobs (id, owner, title) VALUES ('가-1 é', '나\t', '제목 ~')")
    lite.sql("INSERT INTO jobs (owner) VALUES (NULL)")
    assert all(finding.level == "good" for finding in lite.store.inspect())
    assert lite.sql("SELECT owner FROM jobs ORDER BY owner") == [("",), ("나\t",)]


def test_names_that_sqlite_takes_for_one_make_one_view(lite: Database) -> None:
    lite.queue(jobs)
    lite.store.create_view(mapping({}))
    lite.store.create_view(mapping({"x": "payload.x"}))  # the same name replaces it
    with pytest.raises(BadInput, match="there is a view jobs already") as caught:
        lite.store.create_view(mapping({}, table="JOBS"))
    assert "view jobs --drop" in caught.value.fix
    assert [view.name for view in lite.store.views()] == ["jobs"]
    lite.sql("CREATE TABLE Own (x)")
    with pytest.raises(BadInput, match="there is a table Own already"):
        lite.store.create_view(mapping({}, table="own"))


def test_replacing_a_view_keeps_the_indexes_of_jobs_1(db: Database) -> None:
    db.queue(jobs)
    db.store.create_view(mapping({}, table="jobs_1", indexes=[["state"]]))
    db.store.create_view(mapping({}, indexes=[["state"]]))
    db.store.drop_view("jobs")
    source = "pg_indexes" if db.kind == "postgres" else "sqlite_master"
    name = "indexname" if db.kind == "postgres" else "name"
    assert db.sql(f"SELECT {name} FROM {source} WHERE {name} LIKE 'task_view_%'") == [("task_view_jobs_1_1",)]
