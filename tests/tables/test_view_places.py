"""Where views on PostgreSQL stand: their schemas, their names, and what is not done if one can't be made."""

from collections.abc import Callable
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from onerow.core.errors import BadInput
from onerow.core.table_mapping import TableMapping, read_mapping
from onerow.wiring import open_store
from tests.runner.seeded import new_name
from tests.tables.kit import Database, pipeline

WORDS = {"new": "waiting", "busy": "processing", "done": "completed", "bad": "failed", "off": "cancelled"}


def mapping(name: str, shown: str = "first") -> TableMapping:
    columns = {"id": "task_id:uuid", "state": "status", "x": "payload.x"}
    return read_mapping({"table": name, "pipeline": shown, "columns": columns, "statuses": WORDS})


def indexes(db: Database) -> list[tuple[str, str]]:
    """Name and pipeline of the indexes of views."""
    found = db.sql(
        "SELECT indexname, substring(indexdef FROM $$pipeline = '([a-z]+)'$$) FROM pg_indexes "
        "WHERE indexname LIKE 'task_view_%' ORDER BY 1"
    )
    return [(name, shown) for name, shown in found]


@pytest.fixture
def db(pg: Database) -> Database:
    pg.queue(pipeline("first", "run"), pipeline("second", "run"))
    return pg


LONG = "스키마" * 6  # a name of 54 bytes


def test_views_of_one_name_in_two_schemas_do_not_share_anything(db: Database) -> None:
    names = ["a.jobs", "b.jobs", "jobs", f"{LONG}.jobs", f"{LONG}2.jobs"]
    for number, name in enumerate(names):
        if "." in name:
            db.sql(f"CREATE SCHEMA {name.partition('.')[0]}")
        db.store.create_view(mapping(name, ["first", "second"][number % 2]))
    for number, name in enumerate(names):
        db.sql(f"INSERT INTO {name} (x) VALUES (?)", name)
        shown = {row[0] for row in db.sql(f"SELECT x FROM {name}")}
        assert shown == {each for each in names[: number + 1] if names.index(each) % 2 == number % 2}
    assert ("task_view_jobs_1", "first") in indexes(db)
    assert len(indexes(db)) == 5
    db.store.create_view(mapping("a.jobs", "second"))
    assert ("task_view_a.jobs_1", "second") in indexes(db)
    for left, name in enumerate(names, 1):
        db.store.drop_view(name)
        assert len(indexes(db)) == 5 - left
    assert db.sql("SELECT count(*) FROM pg_proc WHERE proname LIKE 'view^_%jobs%' ESCAPE '^'") == [(0,)]


def test_dropping_a_view_keeps_the_indexes_of_one_whose_name_looks_alike(db: Database) -> None:
    db.sql("CREATE SCHEMA a")
    db.store.create_view(mapping("a.jobs"))
    db.store.create_view(mapping("axjobs"))
    db.store.drop_view("a.jobs")
    assert indexes(db) == [("task_view_axjobs_1", "first")]


def test_the_printed_statements_make_a_view_in_a_schema(db: Database) -> None:
    db.sql("CREATE SCHEMA a")
    db.connection.execute(db.store.view_sql(mapping("a.jobs")))
    db.sql("INSERT INTO a.jobs (x) VALUES ('1')")
    assert db.sql("SELECT x FROM a.jobs") == [("1",)]


def test_without_its_schema_a_view_leaves_nothing_behind(db: Database) -> None:
    with pytest.raises(BadInput, match="there is no schema nosuch") as caught:
        db.store.create_view(mapping("nosuch.jobs"))
    assert 'CREATE SCHEMA "nosuch"' in caught.value.fix
    assert indexes(db) == []


def test_without_the_right_to_create_a_view_leaves_nothing_behind(db: Database) -> None:
    role = new_name("maker_")
    db.sql(f"CREATE ROLE {role} LOGIN")
    try:
        db.sql("CREATE SCHEMA a")
        db.sql(f"GRANT USAGE ON SCHEMA onerow, a TO {role}")
        db.sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA onerow TO {role}")
        db.store.create_view(mapping("jobs"))
        before = indexes(db)
        host = urlsplit(db.url).netloc.rpartition("@")[2]
        with closing(open_store(urlsplit(db.url)._replace(netloc=f"{role}@{host}").geturl())) as store:
            with pytest.raises(BadInput, match=f"{role} may not create the view jobs in the schema a") as caught:
                store.create_view(mapping("a.jobs"))  # type: ignore[attr-defined]
            assert f"GRANT CREATE ON SCHEMA a TO {role}" in caught.value.fix
            db.sql(f"GRANT CREATE ON SCHEMA public TO {role}")
            with pytest.raises(BadInput, match="its owner is"):
                store.create_view(mapping("jobs", "second"))  # type: ignore[attr-defined]
        assert indexes(db) == before
    finally:
        db.sql(f"DROP OWNED BY {role}")
        db.sql(f"DROP ROLE {role}")


def test_a_view_that_others_depend_on_is_not_replaced_by_half(db: Database) -> None:
    db.store.create_view(mapping("jobs"))
    db.sql("CREATE VIEW recent AS SELECT id FROM jobs")
    db.sql("CREATE FUNCTION one() RETURNS SETOF jobs LANGUAGE sql AS 'SELECT * FROM jobs'")
    changes: list[Callable[[], None]] = [
        lambda: db.store.create_view(mapping("jobs", "second")),
        lambda: db.store.drop_view("jobs"),
    ]
    for change in changes:
        with pytest.raises(BadInput, match=r"others depend on it: function one\(\), view recent") as caught:
            change()
        assert "drop those first" in caught.value.fix
    assert indexes(db) == [("task_view_jobs_1", "first")]
    db.sql("DROP VIEW recent")
    db.sql("DROP FUNCTION one")
    db.store.create_view(mapping("jobs", "second"))
    assert indexes(db) == [("task_view_jobs_1", "second")]
