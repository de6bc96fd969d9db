"""Attached tables: when a row of the user's table is deleted, its tasks are deleted or, if they run, cancelled.

A trigger for each statement records the keys of the deleted rows; at the commit a deferred trigger finds their tasks by
an index. The arguments of the trigger are the whole record of an attachment.
"""

from contextlib import suppress
from hashlib import blake2b

import psycopg
from psycopg import ProgrammingError, errors

from onerow.core.errors import BadInput, StoreReadOnly, UnknownName
from onerow.core.suggest import did_you_mean
from onerow.sql_ports import Attachment
from onerow.stores.postgres.change import change, first_line
from onerow.stores.postgres.connections import Connections
from onerow.stores.postgres.pipelining import Connection
from onerow.stores.postgres.schema import split
from onerow.stores.postgres.statements import quoted, script, statement

_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "i": "an index", "S": "a sequence"}
_COLUMNS = ("task_id", "unique_key", "user_id")
_PAYLOAD = "payload."


def attach(connections: Connections, schema: str, asked: Attachment) -> Attachment:
    """See sql_ports.Attachable.attach."""
    with connections.connection() as connection:
        checked = _checked(connection, asked)
        known = attachments(connection, schema)
    # Those of earlier versions too: the functions that are replaced below use the indexes of this one.
    for each in {_index(schema, each): each for each in (*known, checked)}.values():
        _make_index(connections, schema, each)

    def create(connection: Connection) -> None:
        owner = _owner(connection, schema)
        try:
            create_trigger(connection, owner)
        except errors.InsufficientPrivilege as error:
            # The same role needs both: it may execute the functions, and make a trigger on the table.
            raise BadInput(
                f"this role may not attach {checked.table}: {first_line(error)}",
                fix=f"connect as the owner of onerow's tables, after GRANT TRIGGER ON {checked.table} TO {quoted(owner)}",
                field="store",
            ) from None

    def create_trigger(connection: Connection, owner: str) -> None:
        _create_objects(connection, schema, owner)
        arguments = ", ".join(map(_literal, (checked.key, checked.pipeline, checked.match)))
        # Earlier versions named triggers without the schema.
        name = f"onerow_attached_{_digest(schema, checked.pipeline, checked.match)}"
        _drop_triggers(connection, [each for each in _triggers(connection, schema) if _replaces(checked, each, name)])
        _drop_indexes(connection, schema, {_earlier_index(each) for each in (*known, checked)})
        # Both names are already quoted: `table` comes from the server.
        values = {"table": checked.table, "trigger": name, "truncate_trigger": f"{name}_all", "arguments": arguments}
        for sql in split(script("attach_table", schema)):
            connection.execute(_filled(sql, values))

    change(connections, create, f"attach {checked.table}")
    return checked


def detach(connections: Connections, schema: str, table: str, pipeline: str, match: str | None) -> list[Attachment]:
    """See sql_ports.Attachable.detach."""

    def drop(connection: Connection) -> list[Attachment]:
        triggers = _triggers(connection, schema)
        known = list(dict.fromkeys(attachment for _, attachment in triggers))
        row = connection.execute("SELECT to_regclass(%s)::text", (table,)).fetchone()
        name = table if row is None or row[0] is None else row[0]
        found = [
            each for each in known if (each.table, each.pipeline) == (name, pipeline) and match in (None, each.match)
        ]
        if not found:
            there = ", ".join(f"{each.table} ({each.pipeline}, {each.match})" for each in known) or "none"
            raise UnknownName(f"{table} is not attached to {pipeline}", fix=f"attached tables: {there}", field="table")
        _drop_triggers(connection, [each for each in triggers if each[1] in found])
        rest = [each for each in known if each not in found]
        needed = {_index(schema, each) for each in rest}
        unused = {_index(schema, each) for each in found} - needed
        _drop_indexes(connection, schema, {index and index[0] for index in unused})
        _drop_indexes(connection, schema, {_earlier_index(each) for each in found})
        if not rest:
            connection.execute(f"DROP TABLE {quoted(schema)}.onerow_deleted")
            for function in ("onerow_delete_tasks", "onerow_row_deleted"):
                connection.execute(f"DROP FUNCTION {quoted(schema)}.{function}()")
        return found

    return change(connections, drop, f"detach {table}")


def attachments(connection: Connection, schema: str) -> list[Attachment]:
    """Return all attachments, by table."""
    return list(dict.fromkeys(attachment for _, attachment in _triggers(connection, schema)))


def _triggers(connection: Connection, schema: str) -> list[tuple[str, Attachment]]:
    """Return the names of the triggers of this schema, each with its attachment, by table, pipeline and match."""
    rows = connection.execute(statement("attachments", schema), {"schema": schema}).fetchall()
    found = []
    for table, name, arguments in rows:
        key, pipeline, match = (part.decode() for part in bytes(arguments).split(b"\0")[:3])
        found.append((name, Attachment(table=table, key=key, pipeline=pipeline, match=match)))
    return sorted(found, key=lambda each: (each[1].table, each[1].pipeline, each[1].match, each[0]))


def _replaces(new: Attachment, trigger: tuple[str, Attachment], name: str) -> bool:
    old_name, old = trigger
    same = (old.table, old.pipeline, old.match) == (new.table, new.pipeline, new.match)
    return same and old_name not in (name, f"{name}_all")


def _drop_triggers(connection: Connection, triggers: list[tuple[str, Attachment]]) -> None:
    for name, attachment in triggers:
        connection.execute(f"DROP TRIGGER {quoted(name)} ON {attachment.table}")


def _checked(connection: Connection, asked: Attachment) -> Attachment:
    """Return the attachment with the server's name of the table and its key; raise BadInput for a mistake."""
    match = asked.match
    if match not in _COLUMNS and not (match.startswith(_PAYLOAD) and all(match.removeprefix(_PAYLOAD).split("."))):
        raise BadInput(
            f"tasks can't be matched by {match!r}",
            fix="use task_id, unique_key, user_id or payload.FIELD",
            field="match",
        )
    try:
        row = connection.execute(statement("attach_key", ""), {"table": asked.table}).fetchone()
    except ProgrammingError as error:
        raise BadInput(f"{asked.table!r} can't name a table: {first_line(error)}", field="table") from None
    if row is None:
        raise UnknownName(
            f"there is no table {asked.table}", fix="name it with its schema: public.posts", field="table"
        )
    table, kind, columns, unique = row
    if kind not in ("r", "p"):
        raise BadInput(
            f"{table} is {_KINDS.get(kind, 'not a table')}, and only a table's rows are deleted",
            fix="attach the table behind it",
            field="table",
        )
    if not asked.key and not unique:
        raise BadInput(f"{table} has no primary key of one column", fix="name a unique column with --key", field="key")
    key = asked.key or unique[0]
    if key not in columns:
        raise BadInput(f"{table} has no column {key!r}", fix=did_you_mean(key, columns), field="key")
    if key not in unique:
        raise BadInput(
            f"{table}.{key} is not unique: with one row of several, the tasks of the others would be deleted",
            fix=f"use {' or '.join(unique)}" if unique else f"CREATE UNIQUE INDEX ON {table} ({quoted(key)})",
            field="key",
        )
    return Attachment(table=table, key=key, pipeline=asked.pipeline, match=match)


def _index(schema: str, attachment: Attachment) -> tuple[str, str] | None:
    """Return name and definition of the index that finds the tasks; None: the schema has it."""
    if attachment.match == "unique_key":
        return "task_attached_unique_key", "(pipeline, unique_key) WHERE unique_key IS NOT NULL"
    if not attachment.match.startswith(_PAYLOAD):
        return None
    path = _literal("{" + ",".join(f'"{_escaped(part)}"' for part in _path(attachment)) + "}")
    name = f"task_attached_{_digest('left', attachment.pipeline, attachment.match)}"
    return name, f"(left(payload #>> {path}, 200)) WHERE pipeline = {_literal(attachment.pipeline)}"


def _earlier_index(attachment: Attachment) -> str | None:
    """Return the name of the index of whole values that earlier versions made, and that refuses long ones."""
    if not attachment.match.startswith(_PAYLOAD):
        return None
    return f"task_attached_{_digest(attachment.pipeline, attachment.match)}"


def _drop_indexes(connection: Connection, schema: str, names: set[str | None]) -> None:
    for name in names - {None}:
        ((index,),) = connection.execute("SELECT to_regclass(%s)::text", (f"{quoted(schema)}.{name}",)).fetchall()
        if index is not None:
            connection.execute(f"DROP INDEX {quoted(schema)}.{name}")


def _make_index(connections: Connections, schema: str, attachment: Attachment) -> None:
    """Create the index without blocking writers; again if an earlier run was interrupted."""
    index = _index(schema, attachment)
    if index is None:
        return
    name, definition = index

    def create(connection: Connection) -> None:
        state = _is_valid(connection, schema, name)
        if state:
            return
        if state is False:
            connection.execute(f"DROP INDEX {quoted(schema)}.{name}")
        try:
            connection.execute(f"CREATE INDEX CONCURRENTLY {name} ON {quoted(schema)}.task_queue {definition}")
        except psycopg.Error:
            # The server leaves an index that no query uses and every write updates.
            with suppress(psycopg.Error):
                if _is_valid(connection, schema, name) is False:
                    connection.execute(f"DROP INDEX CONCURRENTLY {quoted(schema)}.{name}")
            raise

    try:
        connections.write(create)
    except StoreReadOnly as error:
        raise BadInput(
            f"this role may not attach {attachment.table}: {error}",
            fix="connect as the owner of the tables",
            field="store",
        ) from None


def _is_valid(connection: Connection, schema: str, index: str) -> bool | None:
    """Return whether an index can be used; None: there is none."""
    row = connection.execute(
        "SELECT i.indisvalid FROM pg_index AS i WHERE i.indexrelid = to_regclass(%s)", (f"{quoted(schema)}.{index}",)
    ).fetchone()
    return None if row is None else bool(row[0])


def _owner(connection: Connection, schema: str) -> str:
    ((owner,),) = connection.execute(
        "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = to_regclass(%s)", (f"{quoted(schema)}.task_queue",)
    ).fetchall()
    return str(owner)


def _create_objects(connection: Connection, schema: str, owner: str) -> None:
    """Create what is missing; replace the functions, because earlier versions made them open to every role."""
    # The server refuses to replace a function that another transaction has just replaced.
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"onerow attach {schema}",))
    ((table,),) = connection.execute("SELECT to_regclass(%s)", (f"{quoted(schema)}.onerow_deleted",)).fetchall()
    values = {"owner": quoted(owner), "history": script("parts/history_of_deletion", schema).partition("\n")[2].strip()}
    for name in ("attach_functions", "attach_objects") if table is None else ("attach_functions",):
        for sql in split(script(name, schema)):
            connection.execute(_filled(sql, values))


def _filled(sql: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        sql = sql.replace("{" + name + "}", value)
    return sql


def _digest(*parts: str) -> str:
    return blake2b("\0".join(parts).encode(), digest_size=6).hexdigest()


def _path(attachment: Attachment) -> list[str]:
    return attachment.match.removeprefix(_PAYLOAD).split(".")


def _escaped(part: str) -> str:
    return part.replace("\\", "\\\\").replace('"', '\\"')


def _literal(text: str) -> str:
    """Return a text as an SQL literal, with any setting of standard_conforming_strings."""
    if "\0" in text:
        raise BadInput("a name can't contain the character NUL", field="match")
    quotes = text.replace("'", "''")
    return f"E'{quotes.replace(chr(92), chr(92) * 2)}'" if "\\" in text else f"'{quotes}'"
