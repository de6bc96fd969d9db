"""Upkeep of one file: would the promises hold here, how far is it migrated, and a copy while others write."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from onerow.core.errors import BadInput
from onerow.ports import Finding, Migration
from onerow.stores.sqlite import schema, tallies
from onerow.stores.sqlite.door import FLOOR, Door, translated
from onerow.stores.sqlite.statements import statement

_BIG_WAL = 256 * 1024 * 1024
_PAGES = 2_000


def migration(door: Door) -> Migration:
    """See ports.Upkeep.migration; a file that isn't there stays so."""
    stored = min_code = 0
    if door.path.exists():
        with door.read() as connection:
            stored, min_code = schema.versions(connection)
    return Migration(stored, schema.SCHEMA, "\n".join(schema.pending(stored)), min_code)


def backup(door: Door, path: Path, progress: Callable[[float], None]) -> None:
    """See ports.Upkeep.backup; the copy appears under its name only when it is whole."""
    if path.exists():
        raise BadInput(f"{path} exists already; name another file, or remove it first", field="path")
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    try:
        with door.read() as source, translated(path), closing(sqlite3.connect(part)) as copy:
            source.backup(
                copy, pages=_PAGES, progress=lambda _, left, total: progress(1 - left / total if total else 1)
            )
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, with nothing beside it to forget
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def inspect(door: Door) -> list[Finding]:
    """See ports.Upkeep.inspect."""
    if not door.path.exists():
        return [Finding("bad", f"there is no file {door.path}", "onerow migrate, or start a worker")]
    with door.read() as connection:
        stored, min_code = schema.versions(connection)
        if (other_schema := Migration(stored, schema.SCHEMA, "", min_code).finding()) is not None:
            return [_version(), other_schema]
        return [_version(), *_indexes(connection), *_counters(connection), *_file(door, connection)]


def _version() -> Finding:
    version, told = sqlite3.sqlite_version_info, sqlite3.sqlite_version
    if version < FLOOR:
        return Finding("bad", f"SQLite {told} is older than 3.35", "a newer Python brings a newer one")
    return Finding("good", f"SQLite {told}")


def _indexes(connection: sqlite3.Connection) -> Iterator[Finding]:
    there = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type IN ('index', 'table')").fetchall())
    missing = [name for name, sql in _expected().items() if _bare(there.get(name)) != _bare(sql)]
    for name in missing:
        unique = "UNIQUE" in _expected()[name]
        what = f"{name} is missing or another" + (": limits or keys don't hold" if unique else "")
        yield Finding("bad" if unique else "slow", what, "restore it from: onerow migrate --sql")
    if not missing:
        yield Finding("good", f"schema {schema.SCHEMA}: all tables and indexes are there")


def _expected() -> dict[str, str]:
    """Name → SQL of every table and index that the schema files create."""
    found: dict[str, str] = {}
    with closing(sqlite3.connect(":memory:")) as blank:
        for number in range(1, schema.SCHEMA + 1):
            blank.executescript(statement(f"schema_{number}"))
        found.update(blank.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall())
    return found


def _bare(sql: str | None) -> str:
    return "" if sql is None else " ".join(sql.split())


def _counters(connection: sqlite3.Connection) -> Iterator[Finding]:
    # Writers may come between the two looks, so only a difference that stays is one.
    for _ in range(3):
        kept = connection.execute(
            "SELECT pipeline, type, status, count FROM onerow_tally WHERE count <> 0 ORDER BY 1, 2, 3"
        ).fetchall()
        if kept == tallies.recount(connection):
            yield Finding("good", "the counters of ended tasks are right")
            return
        time.sleep(0.05)
    yield Finding("slow", "the counters of ended tasks are not what is there", "onerow doctor --repair")


def repair(door: Door) -> None:
    """Set the counters of ended tasks to what is there."""
    with door.write() as connection:
        found = tallies.recount(connection)
        connection.execute("DELETE FROM onerow_tally")
        connection.executemany("INSERT INTO onerow_tally VALUES (?, ?, ?, ?)", found)


def _file(door: Door, connection: sqlite3.Connection) -> Iterator[Finding]:
    mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    if mode == "wal":
        yield Finding("good", "readers and the writer don't wait for each other (WAL)")
    else:
        yield Finding("slow", f"the journal mode is {mode}", "it should be WAL; is the file on a network share?")
    problems = [row[0] for row in connection.execute("PRAGMA quick_check(100)").fetchall()]
    broken = [problem for problem in problems if problem.startswith("CHECK constraint failed")]
    problems = [problem for problem in problems if problem not in broken]
    if broken:
        yield Finding("slow", "some rows break a rule of the table; those that can't be read are set aside when met")
    if problems in ([], ["ok"]):
        yield Finding("good", "the file is sound")
    else:
        yield Finding("bad", f"the file is damaged: {problems[0]}", "restore a backup")
    wal = Path(f"{door.path}-wal")
    if wal.exists() and wal.stat().st_size > _BIG_WAL:
        yield Finding(
            "slow", f"{wal.name} has {wal.stat().st_size >> 20} MB", "a reader holds it open for long; look for it"
        )
