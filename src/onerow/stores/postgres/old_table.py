"""table_ports.OldTable on PostgreSQL: capture by trigger, copy by key, swap in one short transaction."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import psycopg

from onerow.core.adoption import parse_json
from onerow.core.errors import BadInput, IllegalMove
from onerow.core.table_mapping import TableMapping, with_types
from onerow.core.task import Task
from onerow.ports import Existing
from onerow.stores.postgres import inserting, notes, policy_check, views
from onerow.stores.postgres.connections import Connections
from onerow.stores.postgres.fast.binary import Bigs, Texts, column
from onerow.stores.postgres.old_table_shape import Catalog, findings
from onerow.stores.postgres.pipelining import Connection
from onerow.stores.postgres.statements import quoted
from onerow.stores.postgres.view_columns import literal
from onerow.stores.postgres.view_sql import ViewSql
from onerow.table_ports import (
    ADOPTED_BY,
    ADOPTION,
    SUFFIX,
    VIEW,
    Changed,
    Page,
    Row,
    Stage,
    TableBusy,
    TableShape,
    can_not_hold,
    overtaken,
)

_LOCK_TIMEOUT = "500ms"
_PAUSE = "pause"  # kind of the notes of pauses
_ADOPTED = "t.logs #>> '{0,what}' = 'adopted'"  # the first entry of the task's history, unless it is very long


class PostgresOldTable:
    """The table that is adopted; while it is locked for the swap, everything runs in the transaction that holds the lock."""

    def __init__(self, connections: Connections, schema: str, mapping: TableMapping) -> None:
        self._connections = connections
        self._schema = schema
        self._locked: Connection | None = None
        parts = mapping.table.split(".")
        self._name = ".".join(map(quoted, parts))
        self._before = f'{self._name[:-1]}{SUFFIX}"'
        self._changes = f"{quoted(schema)}.{quoted('_'.join(('adopt', *parts)))}"
        self._tasks = f"{quoted(schema)}.task_queue"
        with connections.connection() as connection:
            catalog = Catalog(connection, schema, self._name)
            if catalog.kind == "view":
                catalog = Catalog(connection, schema, self._before)
        if not catalog.kind:
            raise BadInput(
                f"there is no table {mapping.table}", fix="name it with its schema: public.jobs", field="table"
            )
        self._catalog = catalog
        self.given = mapping
        self.mapping = with_types(mapping, {name: kind or "text" for name, kind in catalog.types.items()})
        self._view = ViewSql(self.mapping, schema)
        self._key = quoted(self.mapping.key.name)

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        if self._locked is not None:
            yield self._locked
            return
        with self._connections.connection() as connection:
            yield connection

    def stage(self) -> Stage:
        if self._catalog.name == self._before:
            return "swapped"
        with self._connection() as connection:
            return "copying" if views.relation_kind(connection, self._changes) else "none"

    def shape(self) -> TableShape:
        with self._connection() as connection:
            found = list(findings(connection, self._schema, self.mapping, self._catalog))
            self._view.indexes()  # raises if one is not possible
            ((rows,),) = connection.execute(
                # Before its first ANALYZE a table has no reltuples, but counters of what was written.
                "SELECT CASE WHEN reltuples < 0 THEN pg_stat_get_live_tuples(oid) ELSE reltuples END "
                "FROM pg_class WHERE oid = to_regclass(%s)",
                (self._catalog.name,),
            ).fetchall()
        return TableShape(types=self._catalog.types, key=(self.mapping.key.name,), rows=int(rows), findings=found)

    def start(self) -> None:
        with self._connection() as connection:
            views.build(connection, self._schema, self._view)
            captured = connection.execute(
                "SELECT FROM pg_trigger WHERE tgname = 'onerow_adopt' AND tgrelid = to_regclass(%s)", (self._name,)
            ).fetchone()
            if captured is None:
                with connection.transaction():
                    self._lock(connection, "SHARE ROW EXCLUSIVE")
                    for sql in self._capture():
                        connection.execute(sql)

    def _lock(self, connection: Connection, mode: str) -> None:
        """Lock the old table, or raise TableBusy soon: programs queue up behind a lock that waits."""
        connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
        try:
            connection.execute(f"LOCK TABLE {self._name} IN {mode} MODE")
        except psycopg.errors.LockNotAvailable as error:
            raise TableBusy(f"programs use {self.given.table} without a pause") from error

    def _capture(self) -> Iterator[str]:
        yield f"CREATE TABLE IF NOT EXISTS {self._changes} (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text NOT NULL)"
        yield f"ALTER TABLE {self._changes} ENABLE ROW LEVEL SECURITY"
        yield f"ALTER TABLE {self._changes} FORCE ROW LEVEL SECURITY"
        yield f"CREATE POLICY onerow_service ON {self._changes} FOR ALL TO CURRENT_USER USING (true) WITH CHECK (true)"
        # As the owner: a program that may write to the old table need not have rights in onerow's schema.
        yield (
            f"CREATE OR REPLACE FUNCTION {self._changes}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER "
            f"SET search_path = pg_catalog AS $$ DECLARE found text; BEGIN\n"
            f"IF TG_OP = 'TRUNCATE' THEN\n"
            f"FOR found IN EXECUTE format('SELECT CAST(%I AS text) FROM %I.%I', TG_ARGV[0], TG_TABLE_SCHEMA, TG_TABLE_NAME)\n"
            f"LOOP INSERT INTO {self._changes} (key) VALUES (found); END LOOP; RETURN NULL; END IF;\n"
            f"IF TG_OP <> 'INSERT' THEN INSERT INTO {self._changes} (key) VALUES (CAST(OLD.{self._key} AS text)); END IF;\n"
            f"IF TG_OP <> 'DELETE' THEN INSERT INTO {self._changes} (key) VALUES (CAST(NEW.{self._key} AS text)); END IF;\n"
            f"RETURN NULL; END $$"
        )
        # Who may execute it could make a trigger of it on a table of their own, and run code with the owner's rights.
        yield f"REVOKE EXECUTE ON FUNCTION {self._changes}() FROM PUBLIC"
        yield (
            f"CREATE TRIGGER onerow_adopt AFTER INSERT OR UPDATE OR DELETE ON {self._name} "
            f"FOR EACH ROW EXECUTE FUNCTION {self._changes}()"
        )
        yield (
            f"CREATE TRIGGER onerow_adopt_all BEFORE TRUNCATE ON {self._name} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {self._changes}({literal(self.mapping.key.name)})"
        )

    # ── reading ──

    def page(self, after: Any, limit: int) -> Page:
        key_type = self._catalog.sql_types[self.mapping.key.name]
        key = _doubled(self._key)
        where = "" if after is None else f"WHERE o.{key} > CAST(%(after)s AS {key_type})"
        sql = f"SELECT CAST(o.{key} AS text), {self._row_text()} FROM {_doubled(self._name)} AS o {where} ORDER BY o.{key} LIMIT {limit}"
        with self._connection() as connection:
            found = connection.execute(sql, {"after": after}).fetchall()
        return Page([self._row(row) for _, row in found], found[-1][0] if len(found) == limit else None)

    def rows(self, keys: Sequence[Any]) -> list[Row]:
        key_type = self._catalog.sql_types[self.mapping.key.name]
        sql = (
            f"SELECT {self._row_text()} FROM {_doubled(self._name)} AS o "
            f"WHERE o.{_doubled(self._key)} = ANY (CAST(%s AS {key_type}[]))"
        )
        with self._connection() as connection:
            return [self._row(row) for (row,) in connection.execute(sql, ([str(key) for key in keys],)).fetchall()]

    def _row_text(self) -> str:
        """Return the expression of a row of the old table, as the text of a JSON object."""
        shown = ", ".join(
            f"CAST(o.{quoted(each.name)} AS text) AS {quoted(each.name)}"
            if each.kind == "text" and self._catalog.types[each.name] != "text"
            else f"o.{quoted(each.name)}"
            for each in self.mapping.columns
        )
        # v.*, because v alone would be the column v of a table that has one. As text, because psycopg rounds numbers.
        return f"(SELECT CAST(row_to_json(v.*) AS text) FROM (SELECT {_doubled(shown)}) AS v)"

    def _row(self, text: str) -> Row:
        """Parse a row, and JSON that the table holds as text."""
        row: dict[str, Any] = parse_json(text)
        for each in self.mapping.columns:
            value = row[each.name]
            if each.kind in ("json", "jsonb") and isinstance(value, str) and self._catalog.types[each.name] == "text":
                try:
                    row[each.name] = parse_json(value)
                except ValueError:
                    raise BadInput(
                        f"row {row[self.mapping.key.name]} of {self.mapping.table}: column {each.name} is not JSON",
                        fix="correct the row, or map the column as text",
                        field=each.name,
                    ) from None
        return row

    def changed(self, limit: int) -> Changed:
        with self._connection() as connection:
            found = connection.execute(f"SELECT seq, key FROM {self._changes} ORDER BY seq LIMIT {limit}").fetchall()
        return Changed(list(dict.fromkeys(key for _, key in found)), [seq for seq, _ in found])

    def forget(self, positions: Sequence[int]) -> None:
        with self._connection() as connection:
            connection.execute(f"DELETE FROM {self._changes} WHERE seq = ANY (%s)", (column(Bigs, list(positions)),))

    def shown(self, ids: Sequence[str]) -> dict[str, Row]:
        view = _doubled(f"{self._view.select().removeprefix('SELECT')} WHERE {self._view.condition()}")
        sql = (
            f"SELECT v.onerow_task_id, CAST(row_to_json(v.*) AS text) "
            f"FROM (SELECT t.task_id AS onerow_task_id, {view} AND t.task_id = ANY (%s)) AS v"
        )
        with self._connection() as connection:
            found = connection.execute(sql, (column(Texts, list(ids)),)).fetchall()
        return {task_id: parse_json(row) for task_id, row in found}

    def count_tasks(self) -> int:
        with self._connection() as connection:
            ((tasks,),) = connection.execute(
                f"SELECT count(*) FROM {self._tasks} WHERE pipeline = %s", (self.mapping.pipeline,)
            ).fetchall()
        return int(tasks)

    # ── writing ──

    def write(self, tasks: Sequence[Task], gone: Sequence[str]) -> None:
        ids = [*(task.task_id for task in tasks), *gone]
        if not ids:
            return
        with self._connection() as connection, connection.transaction():
            try:
                # It is dropped at the end of the adoption, which waits for this transaction.
                connection.execute(f"LOCK TABLE {self._changes} IN ACCESS SHARE MODE")
            except psycopg.errors.UndefinedTable:
                raise overtaken(self.mapping.table) from None
            self._remove(connection, "task_id = ANY (%(ids)s) AND", column(Texts, ids))
            with connection.cursor(binary=True) as cursor:
                answers = inserting.insert(cursor, self._schema, tasks) if tasks else []
            for task, answer in zip(tasks, answers, strict=True):
                if isinstance(answer, Existing):
                    raise BadInput(
                        f"row {task.task_id} of {self.mapping.table}: task {answer.task.task_id} of pipeline "
                        f"{answer.task.pipeline} has its id or unique key",
                        fix="correct the row, or leave unique out of the mapping",
                        field="table",
                    )

    def reconcile(self) -> int:
        rows = f"SELECT FROM {self._name} AS o WHERE CAST(o.{self._key} AS text) = t.task_id"
        with self._connection() as connection, connection.transaction():
            # Without statistics of the copied rows the server would compare each task with each row.
            connection.execute("SET LOCAL enable_nestloop = off")
            self._remove(connection, f"{_ADOPTED} AND NOT EXISTS ({rows}) AND")
            ((missing,),) = connection.execute(
                f"SELECT count(*) FROM {self._name} AS o WHERE NOT EXISTS (SELECT FROM {self._tasks} AS t "
                f"WHERE t.pipeline = {literal(self.mapping.pipeline)} AND t.task_id = CAST(o.{self._key} AS text))"
            ).fetchall()
            connection.execute("SET LOCAL enable_nestloop TO DEFAULT")
        return int(missing)

    def _remove(self, connection: Connection, where: str, ids: Any = None) -> None:
        connection.execute(
            f"WITH gone AS (DELETE FROM {self._tasks} AS t WHERE {where} pipeline = %(pipeline)s RETURNING pipeline, type, status) "
            f"INSERT INTO {quoted(self._schema)}.onerow_tally (pipeline, type, status, count) SELECT pipeline, type, status, -count(*) "
            "FROM gone WHERE status IN ('completed', 'failed', 'cancelled') GROUP BY 1, 2, 3",
            {"pipeline": self.mapping.pipeline} | ({} if ids is None else {"ids": ids}),
        )

    # ── the swap ──

    def swap(self, settle: Callable[[], None], body: Any) -> None:
        try:
            with self._connections.connection() as connection, connection.transaction():
                self._lock(connection, "ACCESS EXCLUSIVE")
                self._locked = connection
                settle()
                grants = views.grants_of(connection, self._name)
                secured = policy_check.is_enabled(connection, self._schema)
                for sql in self._swap(grants, secured=secured):
                    connection.execute(sql)
                views.record(connection, self._schema, self.mapping)
                self._write_note(connection, body)
                self._end_pause(connection)
                connection.execute("SELECT pg_notify(%s, '')", (f"onerow.{self._schema}",))
        finally:
            self._locked = None

    def _end_pause(self, connection: Connection) -> None:
        connection.execute(
            f"DELETE FROM {quoted(self._schema)}.onerow_note WHERE kind = %s AND name = %s AND body ->> 'by' = %s",
            (_PAUSE, f"{self.mapping.pipeline}/*", ADOPTED_BY),
        )

    def _write_note(self, connection: Connection, body: Any) -> None:
        connection.execute(
            f"UPDATE {quoted(self._schema)}.onerow_note SET body = CAST(%s AS json), version = version + 1, "
            "updated_at = clock_timestamp() WHERE kind = %s AND name = %s",
            (json.dumps(body), ADOPTION, self.mapping.table),
        )

    def _swap(self, grants: Sequence[str], *, secured: bool) -> Iterator[str]:
        schema = quoted(self._schema)
        yield from self._drop_capture()
        yield f"ALTER TABLE {self._name} RENAME TO {self._before.rpartition('.')[2]}"
        yield from self._view.create()
        for name, _, _, _, default, identity, _, sequence in self._catalog.columns:
            if sequence and not identity:
                # The view needs the sequence, also after the old table is dropped.
                yield f"ALTER SEQUENCE {sequence} OWNED BY NONE"
            if name not in self.mapping.lost and (default or identity):
                chosen = f"nextval('{sequence}')" if identity else default
                yield f"ALTER VIEW {self._view.view} ALTER COLUMN {quoted(name)} SET DEFAULT {chosen}"
        granted = self._granted(grants)
        yield from granted
        if not secured:  # else `onerow pg policies` has granted what each role may do
            yield from base_grants(schema, granted)
        # Programs use the view now; under its new name the table would show every tenant's rows.
        yield from _revocations(self._before, grants)

    def _granted(self, grants: Sequence[str]) -> list[str]:
        """Return the grants on the view: those of the table, without columns that are given up, and the rights of its owner."""
        lost = [f"({spelled}) ON " for name in self.mapping.lost for spelled in (name, quoted(name))]
        owner = self._catalog.owner
        rights = ("DELETE", "INSERT", "SELECT", "UPDATE") if owner else ()
        return [
            *(grant for grant in grants if not any(each in grant for each in lost)),
            *(f"GRANT {right} ON {self._view.view} TO {owner}" for right in rights),
        ]

    def _drop_capture(self) -> Iterator[str]:
        yield f"DROP TRIGGER IF EXISTS onerow_adopt ON {self._name}"
        yield f"DROP TRIGGER IF EXISTS onerow_adopt_all ON {self._name}"
        yield f"DROP FUNCTION IF EXISTS {self._changes}()"
        yield f"DROP TABLE IF EXISTS {self._changes}"

    # ── the way back ──

    def undo(self, swapped_at: datetime | None) -> None:
        with self._connections.connection() as connection:
            with connection.transaction():
                # A lock of the view is one of task_queue too: no worker may claim between the check and the end.
                self._lock(connection, "ACCESS EXCLUSIVE")
                if swapped_at is None:
                    for sql in self._drop_capture():
                        connection.execute(sql)
                else:
                    self._refuse_if_run(connection, swapped_at)
                    grants = views.grants_of(connection, self._name)
                    for sql in (*self._swap_back(), *grants):
                        connection.execute(sql, {"since": swapped_at} if "%(since)s" in sql else None)
                # Tasks that were added in other ways are not in a table that never was a view.
                self._remove(connection, f"{_ADOPTED} AND" if swapped_at is None else "")
                notes.drop(connection, self._schema, ADOPTION, [self.mapping.table])
                notes.drop(connection, self._schema, VIEW, [self.mapping.name])
                self._end_pause(connection)
            views.drop_indexes(connection, self._schema, self._view.index_prefix, keep=[])

    def _refuse_if_run(self, connection: Connection, swapped_at: datetime) -> None:
        lost = connection.execute(
            f"SELECT t.task_id FROM {self._tasks} AS t WHERE t.pipeline = %s AND {self._view.shown(self.mapping.key)} IS NULL "
            "AND t.purged_at IS NULL LIMIT 1",
            (self.mapping.pipeline,),
        ).fetchone()
        if lost is not None:
            raise can_not_hold(lost[0], self.mapping.table)
        ran = connection.execute(
            f"SELECT task_id FROM {self._tasks} WHERE pipeline = %s AND (leased_by IS NOT NULL OR started_at >= %s) LIMIT 1",
            (self.mapping.pipeline, swapped_at),
        ).fetchone()
        if ran is not None:
            raise IllegalMove(
                f"task {ran[0]} has run since {self.mapping.table} was adopted",
                fix=f"the old rows are still in {self.mapping.table}{SUFFIX}; copy what you need from there",
                task_id=ran[0],
            )

    def _swap_back(self) -> Iterator[str]:
        names = [each.name for each in self.mapping.columns if not self._is_generated(each.name)]
        columns = ", ".join(map(quoted, names))
        values = ", ".join(f"CAST(v.{quoted(name)} AS {self._catalog.sql_types[name]})" for name in names)
        update = ", ".join(
            f"{quoted(name)} = excluded.{quoted(name)}" for name in names if name != self.mapping.key.name
        )
        touched = f"SELECT 1 FROM {self._tasks} AS t WHERE {self._view.shown(self.mapping.key)} = v.{self._key} AND t.pipeline = {literal(self.mapping.pipeline)} AND t.version > t.token + 1"
        yield f"DELETE FROM {self._before} AS o WHERE NOT EXISTS (SELECT FROM {self._view.view} AS v WHERE v.{self._key} = o.{self._key})"
        yield (
            f"INSERT INTO {self._before} ({columns}) OVERRIDING SYSTEM VALUE SELECT {values} FROM {self._view.view} AS v "
            f"WHERE EXISTS ({touched}) OR NOT EXISTS (SELECT FROM {self._before} AS o WHERE o.{self._key} = v.{self._key}) "
            f"ON CONFLICT ({self._key}) DO UPDATE SET {update}"
        )
        yield from self._view.drop()
        yield f"ALTER TABLE {self._before} RENAME TO {self._name.rpartition('.')[2]}"
        for name, _, _, _, default, identity, _, _ in self._catalog.columns:
            if default and default.startswith("nextval(") and not identity:
                sequence = default.removeprefix("nextval(").partition("::")[0].strip("'")
                yield f"ALTER SEQUENCE {sequence} OWNED BY {self._name}.{quoted(name)}"

    def _is_generated(self, name: str) -> bool:
        return any(row[0] == name and row[6] for row in self._catalog.columns)


def _doubled(sql: str) -> str:
    """Return SQL for a statement with parameters, in which % stands for itself as %%."""
    return sql.replace("%", "%%")


def base_grants(schema: str, grants: Sequence[str]) -> Iterator[str]:
    """Yield the grants on onerow's tables without which the roles could not use the view, which has the rights of its user."""
    wanted: dict[str, set[str]] = {}
    for grant in grants:
        privilege, _, rest = grant.removeprefix("GRANT ").partition(" ON ")
        role = rest.partition(" TO ")[2].removesuffix(" WITH GRANT OPTION")
        wanted.setdefault(role, set()).add(privilege.partition(" ")[0])
    for role, privileges in sorted(wanted.items()):
        yield f"GRANT USAGE ON SCHEMA {schema} TO {role}"
        yield f"GRANT SELECT ON {schema}.task_queue TO {role}"
        if privileges - {"SELECT"}:
            yield f"GRANT SELECT ON {schema}.onerow_note, {schema}.onerow_meta TO {role}"
            yield f"GRANT INSERT, UPDATE ON {schema}.task_queue TO {role}"
            yield f"GRANT INSERT ON {schema}.onerow_tally TO {role}"
        if "DELETE" in privileges:
            yield f"GRANT SELECT, DELETE ON {schema}.task_queue, {schema}.onerow_log, {schema}.onerow_log_size TO {role}"


def _revocations(table: str, grants: Sequence[str]) -> Iterator[str]:
    """Yield the statements that revoke everything on a table from the roles of these grants."""
    for role in sorted({grant.rpartition(" TO ")[2].removesuffix(" WITH GRANT OPTION") for grant in grants}):
        yield f"REVOKE ALL ON {table} FROM {role} CASCADE"
