"""Checks of `onerow doctor` for one database: server, settings, schema, counters."""

from collections.abc import Iterator

from onerow.ports import Finding, Migration, StoredSize
from onerow.stores.postgres import policy_check, schema
from onerow.stores.postgres.connections import Connections
from onerow.stores.postgres.counts import CounterUpdater
from onerow.stores.postgres.pipelining import Connection
from onerow.stores.postgres.statements import quoted, statement

OLDEST_VERSION = 150000
"""The oldest supported server version, in the format of server_version_num."""

_LONG_TRANSACTION = "10 minutes"
_UNIQUE = {
    "task_queue_pkey": "(task_id)",
    "task_slot": "(pipeline, type, slot) WHERE (slot IS NOT NULL)",
    "task_key_slot": "(pipeline, type, limit_key, key_slot) WHERE (key_slot IS NOT NULL)",
    "task_unique": "(pipeline, user_id, held_key) WHERE (held_key IS NOT NULL)",
}
"""The unique indexes of task_queue, as the server prints them."""


def inspect(
    connections: Connections,
    name: str,
    migration: Migration,
    counters: CounterUpdater,
    *,
    can_listen: bool,
    quick: bool,
) -> list[Finding]:
    """See ports.Administrable.inspect."""
    with connections.connection() as connection:
        findings = [_version(connection), *_server(connection)]
        if (other_schema := migration.finding()) is not None:
            return [*findings, other_schema]
        findings += _settings(connection)
        findings += _snapshots(connection)
        findings += _unique_indexes(connection, name)
        if policy_check.is_enabled(connection, name):
            findings += policy_check.open_ways(connection, name)
    if not quick:
        findings.append(_counters(counters))
    if not can_listen:
        findings.append(
            Finding(
                "slow",
                "a pooler stands in between, so workers can't be woken and poll instead",
                "name the server itself as well: ?listen=postgresql://…",
            )
        )
    return findings


def sizes(connections: Connections, name: str) -> list[StoredSize]:
    """See ports.Sized.sizes."""
    with connections.connection() as connection:
        rows = connection.execute(statement("sizes", name), {"schema": name}).fetchall()
    return [StoredSize(part, kind, size, count) for part, kind, size, count in rows]


def _counters(counters: CounterUpdater) -> Finding:
    if counters.is_correct():
        return Finding("good", "the counters of ended tasks are right")
    return Finding("slow", "the counters of ended tasks are not what is there", "onerow doctor --repair")


def _version(connection: Connection) -> Finding:
    number = connection.info.server_version
    version = f"PostgreSQL {number // 10000}.{number % 10000}"
    if number < OLDEST_VERSION:
        return Finding("bad", f"{version} is older than {OLDEST_VERSION // 10000}", "upgrade the server")
    return Finding("good", version)


def _server(connection: Connection) -> Iterator[Finding]:
    """Report a standby server, and an encoding that cannot store every text."""
    ((standby, encoding),) = connection.execute(
        "SELECT pg_is_in_recovery(), pg_encoding_to_char(encoding) FROM pg_database WHERE datname = current_database()"
    ).fetchall()
    if standby:
        yield Finding("bad", "this server is a standby, which only reads", "connect to the primary")
    if encoding not in schema.ENCODINGS:
        yield Finding(
            "bad", f"the database's encoding is {encoding}, which can't hold every text", schema.UTF8_DATABASE
        )


def _settings(connection: Connection) -> Iterator[Finding]:
    wanted = {
        "fsync": ("on", "bad", "a crash of the machine can damage everything"),
        "full_page_writes": ("on", "bad", "a crash of the machine can damage everything"),
        "synchronous_commit": (None, "bad", "a crash loses the last commits that were acknowledged"),
        "autovacuum": ("on", "slow", "dead versions pile up, and claims walk over them"),
    }
    rows = connection.execute("SELECT name, setting FROM pg_settings WHERE name = ANY (%s)", (list(wanted),)).fetchall()
    fine = True
    for setting, value in rows:
        right, level, why = wanted[setting]
        if (value == "off") if right is None else (value != right):
            fine = False
            yield Finding("bad" if level == "bad" else "slow", f"{setting} is {value}: {why}", f"set {setting} = on")
    if fine:
        yield Finding("good", "what is committed is on disk, and dead versions are cleaned away")


def _snapshots(connection: Connection) -> Iterator[Finding]:
    (oldest,) = connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE xact_start < clock_timestamp() - %s::interval "
        "AND backend_type = 'client backend'",
        (_LONG_TRANSACTION,),
    ).fetchall()
    if oldest[0]:
        yield Finding(
            "slow",
            f"{oldest[0]} transaction(s) have been open for more than {_LONG_TRANSACTION}, and nothing that died since can be cleaned away",
            "find them in pg_stat_activity; set idle_in_transaction_session_timeout",
        )


def _unique_indexes(connection: Connection, name: str) -> Iterator[Finding]:
    table = f"{quoted(name)}.task_queue"
    rows = connection.execute(
        "SELECT relname, pg_get_indexdef(indexrelid) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
        "WHERE indrelid = %s::regclass AND indisunique AND indisvalid",
        (table,),
    ).fetchall()
    found = {index: definition.partition(" USING btree ")[2] for index, definition in rows}
    missing = [index for index in _UNIQUE if not found.get(index, "").startswith(_UNIQUE[index])]
    for index in missing:
        yield Finding(
            "bad",
            f"the unique index {index} is missing or another: limits or keys don't hold",
            f"create it again: CREATE UNIQUE INDEX {index} ON {table} {_UNIQUE[index]}",
        )
    if not missing:
        yield Finding("good", f"schema {schema.SCHEMA}: all unique indexes are there")
