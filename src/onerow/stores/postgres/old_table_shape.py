"""What is known about a table before it is adopted, and what stops the adoption."""

from collections.abc import Iterator

from onerow.core.adoption import misfits
from onerow.core.suggest import did_you_mean
from onerow.core.table_mapping import TableMapping
from onerow.ports import Finding
from onerow.stores.postgres.pipelining import Connection
from onerow.stores.postgres.statements import quoted, statement
from onerow.stores.postgres.views import relation_kind
from onerow.table_ports import SUFFIX

_TYPES = {
    "text": "text", "character varying": "text", "character": "text", "bpchar": "text", "citext": "text",
    "smallint": "integer", "integer": "integer", "bigint": "bigint", "real": "number", "double precision": "number",
    "numeric": "number", "boolean": "boolean", "uuid": "uuid", "json": "json", "jsonb": "jsonb",
    "timestamp with time zone": "time", "timestamp without time zone": "datetime",
}  # fmt: skip
"""Type in PostgreSQL → type of the mapping."""


class Catalog:
    """The catalog entries of one table; `name` is quoted."""

    def __init__(self, connection: Connection, schema: str, name: str) -> None:
        self.name = name
        self.kind = relation_kind(connection, name)
        self.columns = connection.execute(statement("old_table_columns", schema), {"name": name}).fetchall()
        self.bonds: list[tuple[str, str]] = connection.execute(
            statement("old_table_bonds", schema), {"name": name}
        ).fetchall()
        self.owner = "".join(self.of("owner"))  # '' if it is the current user
        self.types = {row[0]: _TYPES.get(row[1], "text" if row[2] == "e" else "") for row in self.columns}
        self.sql_types = {row[0]: row[1] for row in self.columns}

    def of(self, kind: str) -> list[str]:
        """Return the descriptions of one kind of bond."""
        return [what for found, what in self.bonds if found == kind]

    @property
    def unique(self) -> list[tuple[str, ...]]:
        return [tuple(names.split(",")) for names in (*self.of("primary"), *self.of("unique"))]


def findings(connection: Connection, schema: str, mapping: TableMapping, table: Catalog) -> Iterator[Finding]:
    """Yield what stops the adoption (bad), and what is not carried over (slow)."""
    if table.kind != "table":
        yield Finding("bad", f"{mapping.table} is a {table.kind}", "only a plain table can be adopted")
        return
    if table.of("children"):
        yield Finding("bad", "other tables inherit from it", "only a plain table can be adopted")
    for parent in table.of("child"):
        yield Finding(
            "bad",
            f"it is a partition of {parent}, or inherits from it: what programs write there would go to the old table",
            f"take it out first: ALTER TABLE {parent} DETACH PARTITION {mapping.table}, or ALTER TABLE {mapping.table} NO INHERIT {parent}",
        )
    yield from _columns(mapping, table)
    for what, fix in misfits(mapping):
        yield Finding("bad", what, fix)
    yield from _bonds(connection, schema, mapping, table)
    if not any(finding_key == (mapping.key.name,) for finding_key in table.unique):
        yield Finding(
            "bad",
            f"the column {mapping.key.name}, the task's id, is not unique",
            "map the primary key of the table to task_id",
        )
    before = f'{table.name[:-1]}{SUFFIX}"'
    if relation_kind(connection, before):
        yield Finding("bad", f"there is a {before} already", "rename or drop it: the old table needs this name")
    yield from _keys(connection, mapping, table)
    yield from _words(connection, mapping, table)
    yield from _not_carried(mapping, table)


def _columns(mapping: TableMapping, table: Catalog) -> Iterator[Finding]:
    mapped = {column.name for column in mapping.columns}
    for name in sorted(mapped - table.types.keys()):
        yield Finding(
            "bad", f"the table has no column {name}", did_you_mean(name, table.types, "leave it out of the mapping")
        )
    for name, kind in table.types.items():
        if name not in mapped and name not in mapping.lost:
            yield Finding(
                "bad",
                f"the column {name} is not in the mapping",
                f'map it, for example {name} = "metadata.{name}", or give it up: lost = ["{name}"]',
            )
        elif kind == "" and name in mapped and next(c for c in mapping.columns if c.name == name).kind != "text":
            yield Finding(
                "bad",
                f"the column {name} has the type {table.sql_types[name]}",
                f'map it as text: {name} = "metadata.{name}:text"',
            )


def _bonds(connection: Connection, schema: str, mapping: TableMapping, table: Catalog) -> Iterator[Finding]:
    for what in table.of("referenced"):
        yield Finding(
            "bad",
            f"the foreign key of {what} references it; a view can't be referenced",
            "drop that constraint first; onerow pg attach removes tasks together with rows of another table",
        )
    for what in table.of("view"):
        yield Finding(
            "bad",
            f"the view {what} reads it, and would go on reading the old table",
            "drop that view, adopt, and create it again",
        )
    for what in table.of("trigger"):
        if what not in mapping.lost:
            yield Finding(
                "bad",
                f"its trigger {what} would no longer fire",
                f'give it up: lost = ["{what}"]; or do its work elsewhere first',
            )
    for role in table.of("filtered"):
        yield Finding(
            "bad",
            f"its row-level security hides rows from {role}, who adopts it",
            f"as its owner: ALTER TABLE {mapping.table} NO FORCE ROW LEVEL SECURITY",
        )
    if table.of("secured"):
        (secured,) = connection.execute(
            "SELECT relrowsecurity FROM pg_class WHERE oid = to_regclass(%s)", (f"{quoted(schema)}.task_queue",)
        ).fetchall()
        if not secured[0]:
            yield Finding(
                "bad", "it has row-level security, and onerow's tables have none", "set it up first: onerow pg policies"
            )


def _keys(connection: Connection, mapping: TableMapping, table: Catalog) -> Iterator[Finding]:
    name = mapping.key.name
    if name not in table.sql_types:
        return
    # A cast of char(n) to text removes the blanks at the end.
    is_padded = f"octet_length({quoted(name)}) <> octet_length(CAST({quoted(name)} AS text))"
    padded = is_padded if table.sql_types[name] == "bpchar" else "false"
    ((nulls, blanks),) = connection.execute(
        f"SELECT count(*) FILTER (WHERE {quoted(name)} IS NULL), count(*) FILTER (WHERE {padded}) FROM {table.name} "
        f"WHERE {quoted(name)} IS NULL OR {padded}"
    ).fetchall()
    if nulls:
        yield Finding(
            "bad",
            f"{nulls:,} rows have NULL in {name}, the task's id",
            f"give them an id or delete them, then: ALTER TABLE {mapping.table} ALTER COLUMN {name} SET NOT NULL",
        )
    if blanks:
        yield Finding(
            "bad",
            f"{blanks:,} rows have blanks at the end of {name}, as char(n) adds them; the id of a task has none",
            f"remove them: ALTER TABLE {mapping.table} ALTER COLUMN {name} TYPE text",
        )


def _words(connection: Connection, mapping: TableMapping, table: Catalog) -> Iterator[Finding]:
    column = mapping.column_of("status")
    if column is None or column.name not in table.types:
        return
    rows = connection.execute(
        f"SELECT CAST({quoted(column.name)} AS text), count(*) FROM {table.name} GROUP BY 1"
    ).fetchall()
    for word, count in rows:
        if word not in mapping.statuses:
            yield Finding(
                "bad",
                f"{count:,} rows have the status {word!r}, which is not in the mapping",
                f'add {word} = "waiting" or another status under [statuses]',
            )


def _not_carried(mapping: TableMapping, table: Catalog) -> Iterator[Finding]:
    for what in table.of("foreign"):
        yield Finding(
            "slow",
            f"no longer enforced for tasks: {what}",
            f"it goes on for the rows of {mapping.table}{SUFFIX} until that is dropped; for ON DELETE CASCADE: onerow pg attach",
        )
    for what in table.of("constraint"):
        yield Finding("slow", f"no longer enforced: {what}", "the rules of onerow apply instead")
    for names in table.of("unique"):
        if tuple(names.split(",")) not in (mapping.unique, (mapping.key.name,)):
            yield Finding(
                "slow",
                f"no longer enforced: UNIQUE ({names})",
                f"make it the unique key: unique = {names.split(',')}".replace("'", '"'),
            )
    indexed = {*mapping.indexes, (mapping.key.name,)}
    for names in (*table.of("index"), *table.of("unique")):
        columns = tuple(names.split(","))
        if names and not any(each[: len(columns)] == columns for each in indexed):
            yield Finding(
                "slow", f"the index on ({names}) has no equivalent", f"add {list(columns)} to indexes".replace("'", '"')
            )
