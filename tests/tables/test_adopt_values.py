"""Adopting a table: every value is carried over as it was, or named; rows that could be lost stop it before it begins."""

from typing import Any

import pytest

from onerow.core.errors import BadInput
from onerow.core.table_mapping import TableMapping, read_mapping
from onerow.engine.queue.adopt import Adopted, Adoption, problems, undo
from onerow.stores.postgres.old_table_shape import Catalog, findings
from onerow.table_ports import TableBusy
from tests.runner.seeded import new_name
from tests.tables.kit import Database, pipeline


def mapping(columns: dict[str, str] | None = None, **more: Any) -> TableMapping:
    statuses = {
        "queued": "waiting",
        "running": "processing",
        "done": "completed",
        "failed": "failed",
        "off": "cancelled",
    }
    given = {"table": "jobs", "pipeline": "jobs", "phase": "run", "statuses": statuses}
    return read_mapping(given | {"columns": {"id": "task_id", "status": "status"} | (columns or {})} | more)


def ready(db: Database, columns: str, *rows: str) -> None:
    """Create the table jobs with these columns and rows, and publish its pipeline."""
    db.queue(pipeline("jobs", "run"))
    db.sql(f"CREATE TABLE jobs ({columns})")
    for row in rows:
        db.sql(f"INSERT INTO jobs VALUES ({row})")


def adopt(db: Database, wanted: TableMapping) -> Adopted:
    return Adoption(db.store, db.store.old_table(wanted), wait=lambda seconds: None).run()


def refused(db: Database, wanted: TableMapping) -> BadInput:
    """Adopt a table that must be refused before anything is changed."""
    with pytest.raises(BadInput) as caught:
        adopt(db, wanted)
    assert db.store.old_table(wanted).stage() == "none"
    return caught.value


class Busy:
    """An old table that is busy at the first try to swap, and that a program changes then."""

    def __init__(self, db: Database, table: Any, change: str) -> None:
        self._db, self._table, self._change = db, table, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def swap(self, settle: Any, body: Any) -> None:
        change, self._change = self._change, ""
        if change:
            self._db.sql(change)
            raise TableBusy("busy")
        self._table.swap(settle, body)


# ── types with a length ──


def test_a_key_of_type_char_is_copied_by_pages_and_changed_rows_are_found(pg: Database) -> None:
    ready(pg, "id char(4) PRIMARY KEY, status text, note char(8)")
    pg.sql("INSERT INTO jobs SELECT 'k' || n, 'queued', 'notes' || n FROM generate_series(100, 700) AS n")
    wanted = mapping({"note": "metadata.note"})
    table: Any = Busy(pg, pg.store.old_table(wanted), "UPDATE jobs SET note = 'changed!' WHERE id = 'k105'")
    done = Adoption(pg.store, table, wait=lambda seconds: None).run()
    assert (done.copied, done.changed, done.verified) == (601, 1, 601)
    assert pg.sql("SELECT count(*) FROM jobs") == [(601,)]
    assert pg.sql("SELECT note FROM jobs WHERE id = 'k105'") == [("changed!",)]
    pg.sql("UPDATE jobs SET status = 'off' WHERE id = 'k103'")
    undo(pg.store, pg.store.old_table(wanted))
    assert pg.sql("SELECT status, note FROM jobs WHERE id = 'k103'") == [("off", "notes103")]


def test_a_padded_key_stops_it_before_it_begins(pg: Database) -> None:
    ready(pg, "id char(4) PRIMARY KEY, status text", "'k1', 'queued'", "'k100', 'queued'")
    found = refused(pg, mapping())
    assert "1 rows have blanks at the end of id" in str(found)
    assert "ALTER TABLE jobs ALTER COLUMN id TYPE text" in found.fix


def test_values_of_types_with_a_length_go_there_and_back(pg: Database) -> None:
    ready(
        pg,
        "id varchar(8) PRIMARY KEY, status text, flags bit(4), price numeric(8, 2), name varchar(5)",
        "'a', 'queued', B'1010', 12.50, '이름'",
    )
    wanted = mapping({"flags": "metadata.flags:text", "price": "metadata.price", "name": "metadata.name"})
    adopt(pg, wanted)
    pg.sql("UPDATE jobs SET status = 'off'")
    undo(pg.store, pg.store.old_table(wanted))
    assert pg.sql("SELECT status, CAST(flags AS text), CAST(price AS text), name FROM jobs") == [
        ("off", "1010", "12.50", "이름")
    ]
    adopt(pg, wanted)
    pg.sql("INSERT INTO jobs (id, status, name) VALUES ('b', 'queued', 'too long')")
    with pytest.raises(Exception, match="too long for type"):  # refused, not cut
        undo(pg.store, pg.store.old_table(wanted))


# ── values ──

# what: database, type of the column, its value, its mapping, what the error says, what to do
ALTERED: dict[str, tuple[str, str, str, str, str, str]] = {
    "unix with a fraction": ("db", "real", "1700000000.75", "created_at:unix", "1700000000.75 is not a whole number", "metadata.c:number"),
    "unix of SQLite": ("lite", "real", "1700000000.75", "created_at", "1700000000.75 is not a whole number", "metadata.c:number"),
    "integer": ("lite", "integer", "2.7", "metadata.n", "2.7 is not a whole number", '"metadata.n:number"'),
    "bigint": ("db", "numeric", "2.7", "metadata.n:bigint", "2.7 is not a whole number", '"metadata.n:number"'),
    "priority": ("lite", "integer", "1.5", "priority", "1.5 is not a whole number", "metadata.c:number"),
    "priority of another type": ("db", "real", "1.5", "priority", "1.5 is not a whole number", "metadata.c:number"),
    "boolean": ("lite", "boolean", "'yes'", "payload.b", "'yes' is not true or false", '"payload.b:text"'),
    "boolean of text": ("db", "text", "''", "payload.b:boolean", "'' is not true or false", '"payload.b:text"'),
    "a whole number": ("db", "bigint", "9007199254740993", "payload.n:number", "has more digits", '"payload.n:text"'),
    "digits in text": ("db", "text", "'0.12345678901234567890123'", "payload.n:number", "has more digits", '"payload.n:text"'),
    "numeric": ("pg", "numeric(30, 15)", "123456789012345.123456789012345", "payload.n", "has more digits", '"payload.n:text"'),
    "jsonb": ("pg", "jsonb", "'{\"a\": [0.12345678901234567890123]}'", "payload.n", "has more digits", '"payload.n:text"'),
    "json in text": ("db", "text", "'[0.12345678901234567890123]'", "payload.n:json", "has more digits", '"payload.n:text"'),
}  # fmt: skip


@pytest.mark.parametrize("what", ALTERED)
def test_a_value_that_would_be_altered_is_refused_with_its_row(request: pytest.FixtureRequest, what: str) -> None:
    for kind in ("pg", "lite") if ALTERED[what][0] == "db" else ALTERED[what][:1]:
        db = request.getfixturevalue(kind)
        _, type_, value, field, problem, fix = ALTERED[what]
        type_ = "double precision" if type_ == "real" else type_
        ready(db, f"id text PRIMARY KEY, status text, c {type_}", f"'하나', 'queued', {value}")
        with pytest.raises(BadInput, match="row 하나 of jobs: column c: ") as caught:
            adopt(db, mapping({"c": field}))
        assert problem in str(caught.value)
        assert fix in caught.value.fix


def test_a_whole_number_may_be_in_a_column_of_fractions(db: Database) -> None:
    ready(db, "id integer PRIMARY KEY, status text, c double precision, d numeric(8, 2)", "1, 'queued', 2, 3")
    adopt(db, mapping({"c": "priority", "d": "max_retries"}))
    assert db.sql("SELECT c, d FROM jobs") == [(2, 3)]
    (task,) = db.store.fetch(["1"])
    assert (task.priority, task.max_retries) == (2, 3)


def test_words_of_booleans_are_read_in_any_case(db: Database) -> None:
    words = ["t", "FALSE", "True", "f", "1", "0"]
    rows = [f"'{n}', 'queued', '{word}'" for n, word in enumerate(words)]
    ready(db, "id text PRIMARY KEY, status text, c text", *rows)
    adopt(db, mapping({"c": "payload.c:boolean"}))
    found = [bool(shown) for (shown,) in db.sql("SELECT c FROM jobs ORDER BY id")]
    assert found == [True, False, True, False, True, False]


def test_other_types_go_there_and_back_as_their_text(pg: Database) -> None:
    types = {
        "tags": "text[]",
        "j": "jsonb",
        "num": "numeric(30, 15)",
        "b": "boolean",
        "at": "timestamptz",
        "took": "interval",
    }
    columns = ", ".join(f"{name} {kind}" for name, kind in types.items())
    row = """'{a,"b c",null}', '{"a": [1, true, null]}', 123456789012345.123456789012345, false, '2026-01-02 03:04:05.678901Z', '1 day'"""
    ready(pg, f"id integer PRIMARY KEY, status text, {columns}", f"1, 'queued', {row}")
    wanted = mapping({name: f"metadata.{name}:text" for name in types})
    texts = ", ".join(f"CAST({name} AS text)" for name in types)
    before = pg.sql(f"SELECT {texts} FROM jobs")
    adopt(pg, wanted)
    assert pg.sql(f"SELECT {texts} FROM jobs") == before
    pg.sql("UPDATE jobs SET status = 'off'")
    undo(pg.store, pg.store.old_table(wanted))
    assert pg.sql(f"SELECT status, {texts} FROM jobs") == [("off", *before[0])]


@pytest.mark.parametrize("name", ["v", "o", "t", "done %", "진행 %s", "it's"])
def test_a_column_may_have_any_name(db: Database, name: str) -> None:
    ready(db, f'id integer PRIMARY KEY, status text, "{name}" text', "1, 'queued', 'x'", "2, '100%', 'y'")
    words = {"queued": "waiting", "running": "processing", "100%": "completed", "failed": "failed", "off": "cancelled"}
    adopt(db, mapping({name: "metadata.c"}, statuses=words))
    assert db.sql(f'SELECT status, "{name}" FROM jobs ORDER BY id') == [("queued", "x"), ("100%", "y")]


# ── rows that could be lost ──


@pytest.mark.parametrize("rows", [1, 600])
def test_rows_with_a_null_key_stop_it(db: Database, rows: int) -> None:
    ready(db, "id text UNIQUE, status text", *(f"'k{n}', 'queued'" for n in range(rows)), "NULL, 'queued'")
    found = refused(db, mapping())
    assert "1 rows have NULL in id, the task's id" in str(found)
    assert "give them an id or delete them" in found.fix


def test_row_level_security_that_hides_rows_from_the_owner_stops_it(pg: Database) -> None:
    ready(pg, "id integer PRIMARY KEY, status text", "1, 'queued'")
    pg.sql("ALTER TABLE jobs ENABLE ROW LEVEL SECURITY")
    pg.sql("ALTER TABLE jobs FORCE ROW LEVEL SECURITY")
    pg.sql("ALTER TABLE onerow.task_queue ENABLE ROW LEVEL SECURITY")
    owner = new_name("owner_")
    pg.sql(f"CREATE ROLE {owner}")
    try:
        pg.sql(f"GRANT USAGE ON SCHEMA onerow TO {owner}")
        pg.sql(f"ALTER TABLE jobs OWNER TO {owner}")
        pg.sql(f"SET ROLE {owner}")
        (found,) = problems(
            list(findings(pg.connection, "onerow", mapping(), Catalog(pg.connection, "onerow", '"jobs"')))
        )
        assert f"hides rows from {owner}" in found.what
        assert "ALTER TABLE jobs NO FORCE ROW LEVEL SECURITY" in found.fix
        pg.sql("ALTER TABLE jobs NO FORCE ROW LEVEL SECURITY")
        assert (
            problems(list(findings(pg.connection, "onerow", mapping(), Catalog(pg.connection, "onerow", '"jobs"'))))
            == []
        )
    finally:
        pg.sql("RESET ROLE")
        pg.sql("ALTER TABLE jobs OWNER TO current_user")
        pg.sql(f"DROP OWNED BY {owner}")
        pg.sql(f"DROP ROLE {owner}")


@pytest.mark.parametrize("how", ["a partition", "a child"])
def test_a_table_that_belongs_to_another_stops_it(pg: Database, how: str) -> None:
    pg.queue(pipeline("jobs", "run"))
    if how == "a child":
        pg.sql("CREATE TABLE parent (id integer, status text)")
        pg.sql("CREATE TABLE jobs (PRIMARY KEY (id)) INHERITS (parent)")
    else:
        pg.sql("CREATE TABLE parent (id integer, status text) PARTITION BY RANGE (id)")
        pg.sql("CREATE TABLE jobs PARTITION OF parent (PRIMARY KEY (id)) FOR VALUES FROM (0) TO (100)")
    found = refused(pg, mapping())
    assert "it is a partition of parent, or inherits from it" in str(found)
    assert "DETACH PARTITION jobs" in found.fix


# ── columns that do not fit ──


@pytest.mark.parametrize("field", ["logs", "progress"])
def test_fields_that_onerow_writes_stop_it(db: Database, field: str) -> None:
    ready(db, "id integer PRIMARY KEY, status text, c text", "1, 'queued', '[]'")
    found = refused(db, mapping({"c": field}))
    assert f"the column c is mapped to {field}, which is written by onerow only" in str(found)
    assert 'c = "metadata.c"' in found.fix


@pytest.mark.parametrize(
    "kind, field, fix",
    [
        ("double precision", "created_at", 'c = "created_at:unix"'),
        ("text", "completed_at:text", 'c = "completed_at:unix"'),
        ("text", "priority:text", 'c = "priority:integer"'),
        ("integer", "payload", 'c = "payload.c"'),
    ],
)
def test_a_type_that_a_field_can_not_have_stops_it(db: Database, kind: str, field: str, fix: str) -> None:
    if (db.kind, field) == ("sqlite", "created_at"):
        return  # the type of a time is that of its values there
    ready(db, f"id integer PRIMARY KEY, status text, c {kind}", "1, 'queued', NULL")
    found = refused(db, mapping({"c": field}))
    assert f"can't be {field.partition(':')[0]}" in str(found)
    assert fix in found.fix


# ── the swap and the way back ──


def test_a_grant_on_a_column_that_is_given_up_is_left_out(pg: Database) -> None:
    ready(pg, 'id integer PRIMARY KEY, status text, secret text, "비밀" text', "1, 'queued', 'x', 'y'")
    role = new_name("reader_")
    pg.sql(f"CREATE ROLE {role}")
    try:
        pg.sql(f'GRANT SELECT (id, secret, "비밀") ON jobs TO {role}')
        adopt(pg, mapping(lost=["secret", "비밀"]))
        pg.sql(f"SET ROLE {role}")
        assert pg.sql("SELECT id FROM jobs") == [(1,)]
        assert "permission denied" in pg.refused("SELECT secret FROM jobs_before_onerow")
    finally:
        pg.sql("RESET ROLE")
        pg.sql(f"DROP OWNED BY {role}")
        pg.sql(f"DROP ROLE {role}")


def test_the_owner_of_the_table_may_use_the_view_of_another_adopter(pg: Database) -> None:
    ready(pg, "id serial PRIMARY KEY, status text DEFAULT 'queued', note text", "1, 'queued', 'x'")
    pg.sql("SELECT setval('jobs_id_seq', 1)")
    owner = new_name("소유자_")
    pg.sql(f'CREATE ROLE "{owner}"')
    try:
        pg.sql(f'ALTER TABLE jobs OWNER TO "{owner}"')
        adopt(pg, mapping({"note": "metadata.note"}))
        pg.sql(f'SET ROLE "{owner}"')
        pg.sql("INSERT INTO jobs (note) VALUES ('y')")
        pg.sql("UPDATE jobs SET status = 'off' WHERE id = 1")
        pg.sql("DELETE FROM jobs WHERE id = 1")
        assert pg.sql("SELECT id, status, note FROM jobs") == [(2, "queued", "y")]
        assert pg.sql("SELECT id FROM jobs_before_onerow") == [(1,)]  # it is theirs
        pg.sql("RESET ROLE")
        undo(pg.store, pg.store.old_table(mapping({"note": "metadata.note"})))
        pg.sql(f'SET ROLE "{owner}"')
        pg.sql("INSERT INTO jobs (note) VALUES ('z')")
        assert pg.sql("SELECT note FROM jobs ORDER BY id") == [("y",), ("z",)]
    finally:
        pg.sql("RESET ROLE")
        pg.sql(f'DROP OWNED BY "{owner}" CASCADE')
        pg.sql(f'DROP ROLE "{owner}"')


@pytest.mark.parametrize("how", ["STORED", "VIRTUAL"])
def test_a_generated_column_is_not_written_back(db: Database, how: str) -> None:
    how = "STORED" if db.kind == "postgres" else how
    ready(db, f"id integer PRIMARY KEY, status text, note text, up text GENERATED ALWAYS AS (upper(note)) {how}")
    db.sql("INSERT INTO jobs (id, status, note) VALUES (1, 'queued', 'x')")
    wanted = mapping({"note": "metadata.note", "up": "metadata.up"})
    adopt(db, wanted)
    db.sql("UPDATE jobs SET status = 'off', note = 'z' WHERE id = 1")
    db.sql("INSERT INTO jobs (id, status, note) VALUES (2, 'queued', 'y')")
    undo(db.store, db.store.old_table(wanted))
    assert db.sql("SELECT * FROM jobs ORDER BY id") == [(1, "off", "z", "Z"), (2, "queued", "y", "Y")]


def test_a_foreign_key_of_the_table_is_reported(pg: Database) -> None:
    pg.sql("CREATE TABLE accounts (id integer PRIMARY KEY)")
    ready(pg, "id integer PRIMARY KEY, status text, account integer REFERENCES accounts")
    pg.sql("INSERT INTO accounts VALUES (1)")
    pg.sql("INSERT INTO jobs VALUES (1, 'queued', 1)")
    (found,) = adopt(pg, mapping({"account": "payload.account"})).findings
    assert found.what.startswith("no longer enforced for tasks: jobs_account_fkey FOREIGN KEY (account)")
    assert "it goes on for the rows of jobs_before_onerow until that is dropped" in found.fix
    assert "jobs_before_onerow" in pg.refused("DELETE FROM accounts")


def test_an_enum_is_text_in_the_view(pg: Database) -> None:
    pg.sql("CREATE TYPE job_status AS ENUM ('queued', 'running', 'done', 'failed', 'off')")
    ready(pg, "id integer PRIMARY KEY, status job_status", "1, 'queued'")
    adopt(pg, mapping())
    assert pg.sql("SELECT id FROM jobs WHERE status = 'queued'") == [(1,)]
    assert pg.sql("SELECT id FROM jobs WHERE CAST(status AS job_status) = 'queued'") == [(1,)]
    assert "operator does not exist" in pg.refused("SELECT id FROM jobs WHERE status = CAST('queued' AS job_status)")
