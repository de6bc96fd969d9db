"""Adopting a table: every value is carried over as it was, or named; rows that could be lost stop it before it begins."""

from typing import Any

import pytest

from onerow.core.errors import BadInput
from onerow.core.table_mapping import TableMapping, read_mapping
from onerow.engine.queue.adopt import Adopted, Adoption, undo
from onerow.table_ports import TableBusy
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
