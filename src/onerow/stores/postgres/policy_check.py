"""Checks of row-level security: what is open, and who reads what."""

import json
import re
from collections.abc import Iterator

from onerow.ports import Finding
from onerow.stores.postgres.connections import Connections
from onerow.stores.postgres.pipelining import Connection
from onerow.stores.postgres.policies import TENANTS_READ, condition
from onerow.stores.postgres.statements import statement

_SPACES = re.compile(r'[\s()"]')


def check(connections: Connections, schema: str) -> list[Finding]:
    """See sql_ports.RowSecured.check_policies."""
    return connections.read(lambda connection: [*open_ways(connection, schema), *_readers(connection, schema)])


def is_enabled(connection: Connection, schema: str) -> bool:
    """Whether the table of tasks has row-level security."""
    return (
        connection.execute(
            "SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND c.relname = 'task_queue' AND c.relrowsecurity",
            (schema,),
        ).fetchone()
        is not None
    )


def open_ways(connection: Connection, schema: str) -> Iterator[Finding]:
    """Report tables without row-level security, and ways around it."""
    expected = {table: _SPACES.sub("", condition(schema, table).replace(" AS ", " ")) for table in TENANTS_READ}
    with connection.transaction():
        # So that the server writes conditions and names with their schema.
        connection.execute("SET LOCAL search_path = pg_catalog")
        values = {"schema": schema, "expected": json.dumps(expected)}
        found = connection.execute(statement("policies_open", schema), values).fetchall()
    for _, what, fix in found:
        yield Finding("bad", what, fix)
    if not found:
        yield Finding("good", "row-level security is on and forced on every table; only service roles write")


def _readers(connection: Connection, schema: str) -> Iterator[Finding]:
    ((unbound, services, tenants, using),) = connection.execute(
        statement("policies_readers", schema), {"schema": schema}
    ).fetchall()
    yield Finding("good", f"policies do not apply to: {', '.join(unbound) or 'no role'}")
    if services:
        yield Finding("good", f"service roles, which read and write all tasks: {', '.join(services)}")
    if tenants:
        yield Finding("good", f"{', '.join(tenants)} may read a task if {' '.join(using.split())}")
