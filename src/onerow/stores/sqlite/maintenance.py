"""Maintenance of one database file: health checks, migration state, online backup, repair of counters."""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from onerow.core.errors import BadInput, StoreError
from onerow.ports import Finding, Migration, StoredSize
from onerow.stores.sqlite import counts, schema
from onerow.stores.sqlite.connections import FLOOR, Connections, translated
from onerow.stores.sqlite.statements import statement

_BIG_WAL = 256 * 1024 * 1024
_PAGES = 2_000
_LEAST_FREE = 32 * 1024 * 1024
_CHECK_FOR = 20.0  # seconds


def migration(connections: Connections) -> Migration:
    """See ports.Administrable.migration; a missing file is not created."""
    stored = min_code = 0
    if connections.path.exists():
        with connections.read() as connection:
            stored, min_code = schema.versions(connection)
    return Migration(stored, schema.SCHEMA, "\n".join(schema.pending(stored)), min_code)


def backup(connections: Connections, path: Path, progress: Callable[[float], None]) -> None:
    """See ports.Administrable.backup; the copy gets its final name only when it is complete."""
    if path.exists():
        raise BadInput(f"{path} exists already", fix="name another file, or remove it first", field="path")
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    try:
        with connections.read() as source, translated(path), closing(sqlite3.connect(part)) as copy:
            source.backup(
                copy, pages=_PAGES, progress=lambda _, left, total: progress(1 - left / total if total else 1)
            )
            copy.execute("PRAGMA journal_mode = DELETE")  # a single file, without a -wal beside it
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def sizes(connections: Connections) -> list[StoredSize]:
    """See ports.Sized.sizes; sizes of single tables would need a read of the whole file."""
    files = [Path(f"{connections.path}{end}") for end in ("", "-wal")]
    found = [StoredSize(each.name, "file", each.stat().st_size) for each in files if each.exists()]
    with connections.read() as connection:
        (free,), (page,) = (connection.execute(f"PRAGMA {name}").fetchone() for name in ("freelist_count", "page_size"))
    return [*found, *([StoredSize("free pages", "file", free * page)] if free else [])]


def inspect(connections: Connections, *, quick: bool) -> list[Finding]:
    """See ports.Administrable.inspect."""
    if not connections.path.exists():
        return [Finding("bad", f"there is no file {connections.path}", "onerow migrate")]
    findings = [_version(), *_disk(connections.path)]
    try:
        with connections.read() as connection:
            stored, min_code = schema.versions(connection)
            if (other_schema := Migration(stored, schema.SCHEMA, "", min_code).finding()) is not None:
                return [*findings, other_schema]
            if quick:
                return [*findings, *_journal(connections, connection)]
            findings += _soundness(connection)
            if findings[-1].level == "bad":
                return findings  # further checks on a damaged file mean nothing
            findings += [*_indexes(connection), *_counters(connection), *_journal(connections, connection)]
        _try_to_write(connections)
    except StoreError as error:
        findings.append(Finding("bad", str(error), error.fix))
    return findings


def _disk(path: Path) -> Iterator[Finding]:
    """Check the free disk space: the -wal file grows beside the database."""
    found = os.statvfs(path.parent)
    free = found.f_bavail * found.f_frsize
    if free < _LEAST_FREE:
        yield Finding(
            "bad", f"the disk of {path} has {free >> 20} MB left", f"make room: at least {_LEAST_FREE >> 20} MB"
        )
    else:
        yield Finding("good", "the disk has room")


class _Rollback(Exception):
    """Rolls the trial write back."""


def _try_to_write(connections: Connections) -> None:
    """Raise StoreError if the store can't be written; the trial write is rolled back."""
    try:
        with connections.write() as connection:
            connection.execute(
                "INSERT INTO onerow_note (version, body, updated_at, kind, name) VALUES (1, 'null', '', 'doctor', '')"
            )
            raise _Rollback
    except _Rollback:
        pass


def _version() -> Finding:
    version, version_text = sqlite3.sqlite_version_info, sqlite3.sqlite_version
    if version < FLOOR:
        return Finding("bad", f"SQLite {version_text} is older than 3.35", "a newer Python brings a newer one")
    return Finding("good", f"SQLite {version_text}")


def _indexes(connection: sqlite3.Connection) -> Iterator[Finding]:
    there = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type IN ('index', 'table')").fetchall())
    missing = [name for name, sql in _expected().items() if _bare(there.get(name)) != _bare(sql)]
    for name in missing:
        unique = "UNIQUE" in _expected()[name]
        what = f"{name} is missing or another" + (": limits or keys don't hold" if unique else "")
        sql = _bare(_expected()[name])
        if name in there and "INDEX" in sql.partition("(")[0]:
            sql = f"DROP INDEX {name}; {sql}"
        yield Finding("bad" if unique else "slow", what, f"run this SQL in the file: {sql}")
    if not missing:
        yield Finding("good", f"schema {schema.SCHEMA}: all tables and indexes are there")


def _expected() -> dict[str, str]:
    """Return name → SQL of every table and index that the schema files create."""
    found: dict[str, str] = {}
    with closing(sqlite3.connect(":memory:")) as blank:
        for number in range(1, schema.SCHEMA + 1):
            blank.executescript(statement(f"schema_{number}"))
        found.update(blank.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall())
    return found


def _bare(sql: str | None) -> str:
    # Renaming a table, as adopting one does, puts its name in quotes.
    return "" if sql is None else " ".join(sql.replace('"task_queue"', "task_queue").split())


def _counters(connection: sqlite3.Connection) -> Iterator[Finding]:
    # Writers may commit between the two queries, so only a difference that persists counts.
    for _ in range(3):
        kept = connection.execute(
            "SELECT pipeline, type, status, count FROM onerow_tally WHERE count <> 0 ORDER BY 1, 2, 3"
        ).fetchall()
        if kept == counts.recount(connection):
            yield Finding("good", "the counters of ended tasks are right")
            return
        time.sleep(0.05)
    yield Finding("slow", "the counters of ended tasks are not what is there", "onerow doctor --repair")


def repair(connections: Connections) -> None:
    """Recompute the counters of ended tasks."""
    with connections.write() as connection:
        found = counts.recount(connection)
        connection.execute("DELETE FROM onerow_tally")
        connection.executemany("INSERT INTO onerow_tally VALUES (?, ?, ?, ?)", found)


def _soundness(connection: sqlite3.Connection) -> Iterator[Finding]:
    """Run SQLite's quick_check for a bounded time; the verdict is the last finding."""
    stop_at = time.monotonic() + _CHECK_FOR
    connection.set_progress_handler(lambda: time.monotonic() > stop_at, 1_000)
    try:
        problems = [row[0] for row in connection.execute("PRAGMA quick_check(100)").fetchall()]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        yield Finding("good", f"no damage was found in {_CHECK_FOR:.0f} s, in which the file was not read to its end")
        return
    finally:
        connection.set_progress_handler(None, 0)
    broken = [problem for problem in problems if problem.startswith("CHECK constraint failed")]
    problems = [problem for problem in problems if problem not in broken]
    if broken:
        yield Finding("slow", "some rows break a rule of the table; those that can't be read are set aside when met")
    if problems in ([], ["ok"]):
        yield Finding("good", "the file is sound")
    else:
        yield Finding("bad", f"the file is damaged: {' '.join(problems[0].split())}", "restore a backup")


def _journal(connections: Connections, connection: sqlite3.Connection) -> Iterator[Finding]:
    mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    if mode == "wal":
        yield Finding("good", "readers and the writer don't wait for each other (WAL)")
    else:
        yield Finding("slow", f"the journal mode is {mode}", "it should be WAL; is the file on a network share?")
    wal = Path(f"{connections.path}-wal")
    if wal.exists() and wal.stat().st_size > _BIG_WAL:
        yield Finding(
            "slow", f"{wal.name} has {wal.stat().st_size >> 20} MB", "a reader holds it open for long; look for it"
        )
