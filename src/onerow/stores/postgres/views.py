"""Views over the queue in the words of the user's table: create, replace, drop, list."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from onerow.core.errors import BadInput
from onerow.core.table_mapping import TableMapping
from onerow.stores.postgres import notes
from onerow.stores.postgres.connections import Connections
from onerow.stores.postgres.pipelining import Connection
from onerow.stores.postgres.schema import split
from onerow.stores.postgres.statements import quoted, script
from onerow.stores.postgres.view_sql import ViewSql
from onerow.table_ports import VIEW


def sql(schema: str, mapping: TableMapping) -> str:
    """Return the statements that create a view, to be read or run by hand."""
    view = ViewSql(mapping, schema)
    indexes = (f"CREATE INDEX {quoted(name)} ON {body}" for name, body in view.indexes())
    return "".join(f"{each};\n\n" for each in (*functions(schema), *indexes, *view.create()))


def functions(schema: str) -> Iterator[str]:
    """Yield the statements that create the functions that views share."""
    for statement in split(script("views", schema).replace("{channel}", schema)):
        yield "\n".join(line for line in statement.splitlines() if not line.startswith("--"))


def create(connections: Connections, schema: str, mapping: TableMapping) -> None:
    """Create the view, or replace the one that onerow made under the same name."""
    view = ViewSql(mapping, schema)
    with connections.connection() as connection:
        made = _made(connection, schema)
        existing = relation_kind(connection, view.view)
        if existing and mapping.name not in made:
            raise BadInput(
                f"there is a {existing} {mapping.name} already",
                fix=f"adopt it: onerow pg adopt {mapping.name} --mapping FILE; or give the view another name",
                field="view",
            )
        _check_place(connection, mapping.name)
        _check_replaceable(connection, view, "replaced")
        build(connection, schema, view)
        with connection.transaction():
            grants = grants_of(connection, view.view) if existing else []
            for each in (*view.drop(), *view.create(), *grants):
                connection.execute(each)
            record(connection, schema, mapping)
        drop_indexes(connection, schema, view.index_prefix, keep=[name for name, _ in view.indexes()])


def _check_place(connection: Connection, name: str) -> None:
    """Raise BadInput if the view can't be created where its name says."""
    schema, _, plain = name.rpartition(".")
    row = connection.execute(
        "SELECT nspname, quote_ident(nspname), quote_ident(current_user), has_schema_privilege(oid, 'CREATE') "
        "FROM pg_namespace WHERE nspname = coalesce(nullif(%s, ''), current_schema())",
        (schema,),
    ).fetchone()
    if row is None:
        raise BadInput(
            f"there is no schema {schema}" if schema else "no schema of the search path exists",
            fix=f"create it: CREATE SCHEMA {quoted(schema)}" if schema else f"name a schema: SCHEMA.{plain}",
            field="view",
        )
    found, identifier, role, may_create = row
    if not may_create:
        raise BadInput(
            f"the role {role} may not create the view {plain} in the schema {found}",
            fix=f"as its owner: GRANT CREATE ON SCHEMA {identifier} TO {role}; or name another schema",
            field="view",
        )


def _check_replaceable(connection: Connection, view: ViewSql, what: str) -> None:
    """Raise BadInput if a view can't be dropped: it has another owner, or something depends on it."""
    row = connection.execute(
        "SELECT pg_get_userbyid(relowner), pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass(%s)",
        (view.view,),
    ).fetchone()
    name = view.mapping.name
    if row is not None and not row[1]:
        raise BadInput(
            f"the view {name} can't be {what}: its owner is {row[0]}", fix=f"run it as {row[0]}", field="view"
        )
    rows = connection.execute(
        "SELECT DISTINCT CASE WHEN r.oid IS NULL THEN pg_describe_object(d.classid, d.objid, 0) "
        "ELSE pg_describe_object(CAST('pg_class' AS regclass), r.ev_class, 0) END AS who "
        "FROM pg_class AS v JOIN pg_depend AS d ON (d.refclassid = CAST('pg_class' AS regclass) AND d.refobjid = v.oid) "
        "OR (d.refclassid = CAST('pg_type' AS regclass) AND d.refobjid = v.reltype) "
        "LEFT JOIN pg_rewrite AS r ON d.classid = CAST('pg_rewrite' AS regclass) AND r.oid = d.objid "
        "WHERE v.oid = to_regclass(%s) AND d.deptype = 'n' AND r.ev_class IS DISTINCT FROM v.oid ORDER BY who",
        (view.view,),
    ).fetchall()
    if rows:
        raise BadInput(
            f"the view {name} can't be {what}, because others depend on it: {', '.join(who for (who,) in rows)}",
            fix="drop those first" + ("" if what == "dropped" else ", and create them again afterwards"),
            field="view",
        )


def build(connection: Connection, schema: str, view: ViewSql) -> None:
    """Create the shared functions and the indexes; harmless if the rest is never done."""
    with connection.transaction():
        # Two processes that replace a function at once would fail.
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"onerow views {schema}",))
        for each in functions(schema):
            connection.execute(each)
    connection.execute("SET statement_timeout = 0")
    try:
        for name, body in view.indexes():
            full = f"{quoted(schema)}.{quoted(name)}"
            found = connection.execute(
                "SELECT i.indisvalid AND obj_description(i.indexrelid) IS NOT DISTINCT FROM %s FROM pg_index AS i "
                "WHERE i.indexrelid = to_regclass(%s)",
                (body, full),
            ).fetchone()
            if found == (True,):
                continue
            if found is not None:
                connection.execute(f"DROP INDEX CONCURRENTLY {full}")
            connection.execute(f"CREATE INDEX CONCURRENTLY {quoted(name)} ON {body}")
            connection.execute(f"COMMENT ON INDEX {full} IS {_dollar(body)}")
    finally:
        connection.execute("RESET statement_timeout")


def drop(connections: Connections, schema: str, name: str) -> None:
    """Drop a view that onerow made, with its function and indexes."""
    with connections.connection() as connection:
        made = _made(connection, schema)
        if name not in made:
            raise BadInput(f"onerow made no view {name}", fix="see: onerow pg view --list", field="view")
        view = ViewSql(made[name], schema)
        _check_replaceable(connection, view, "dropped")
        with connection.transaction():
            for each in view.drop():
                connection.execute(each)
            notes.drop(connection, schema, VIEW, [name])
        drop_indexes(connection, schema, view.index_prefix, keep=[])


def made(connections: Connections, schema: str) -> list[TableMapping]:
    """Return the mappings of the views that onerow made, by name."""
    return list(connections.read(lambda connection: _made(connection, schema)).values())


def record(connection: Connection, schema: str, mapping: TableMapping) -> None:
    """Write the note of a view, in the transaction that creates it."""
    notes.drop(connection, schema, VIEW, [mapping.name])
    connection.execute(
        f"INSERT INTO {quoted(schema)}.onerow_note (kind, name, version, body, updated_at) "
        "VALUES (%s, %s, 1, CAST(%s AS json), clock_timestamp())",
        (VIEW, mapping.name, msgspec.json.encode(mapping).decode()),
    )


def _made(connection: Connection, schema: str) -> dict[str, TableMapping]:
    return {note.name: msgspec.convert(note.body, TableMapping) for note in notes.read_all(connection, schema, VIEW)}


def drop_indexes(connection: Connection, schema: str, prefix: str, keep: Sequence[str]) -> None:
    """Drop the indexes of a view except those to keep."""
    rows = connection.execute(
        "SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = to_regnamespace(%(schema)s) AND c.relkind = 'i' "
        "AND left(c.relname, length(%(start)s)) = %(start)s AND substr(c.relname, length(%(start)s) + 1) ~ '^[0-9]+$' "
        "AND NOT c.relname = ANY (CAST(%(keep)s AS text[]))",
        {"schema": quoted(schema), "start": f"{prefix}_", "keep": list(keep)},
    ).fetchall()
    for (name,) in rows:
        connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {quoted(schema)}.{quoted(name)}")


_KINDS = {
    "r": "table",
    "p": "partitioned table",
    "v": "view",
    "m": "materialized view",
    "f": "foreign table",
    "S": "sequence",
}


def relation_kind(connection: Connection, name: str) -> str:
    """Return what a quoted name is: table, view, …; '' if it is nothing."""
    row = connection.execute(
        "SELECT CAST(relkind AS text) FROM pg_class WHERE oid = to_regclass(%s)", (name,)
    ).fetchone()
    return "" if row is None else _KINDS.get(row[0], "relation")


def grants_of(connection: Connection, name: str) -> list[str]:
    """Return the statements that grant again what is granted on a table or view, columns included."""
    table = connection.execute(
        "SELECT a.privilege_type, CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END, "
        "a.is_grantable, '' FROM pg_class AS c, aclexplode(c.relacl) AS a "
        "WHERE c.oid = to_regclass(%(name)s) AND a.grantee <> c.relowner "
        "AND a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE') "
        "UNION ALL SELECT a.privilege_type, CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END, "
        "a.is_grantable, ' (' || quote_ident(p.attname) || ')' FROM pg_attribute AS p, aclexplode(p.attacl) AS a "
        "WHERE p.attrelid = to_regclass(%(name)s) AND NOT p.attisdropped AND a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE') "
        "ORDER BY 2, 1",
        {"name": name},
    ).fetchall()
    return [_grant(name, row) for row in table]


def _grant(name: str, row: Sequence[Any]) -> str:
    privilege, grantee, grantable, column = row
    return f"GRANT {privilege}{column} ON {name} TO {grantee}{' WITH GRANT OPTION' if grantable else ''}"


def _dollar(text: str) -> str:
    return f"$onerow${text}$onerow$"
