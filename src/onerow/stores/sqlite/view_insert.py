"""What an INSERT into a view over the queue does: the statements of its trigger."""

import string
from collections.abc import Iterator

from onerow.core.status import WAITING
from onerow.core.table_mapping import CHANGEABLE, GIVEN, KEPT, PHASE
from onerow.stores.sqlite.view_columns import NOW, NUMBERS, PULL_API, ViewColumns, case_of, literal, quoted, refuse

_CONTROL = "'*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'"
_FIRST = "a new task is in the first phase of its pipeline"
_MILLIS = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"


class InsertSql(ViewColumns):
    """Renders the trigger for INSERT: the defaults, checks and unique key of `Queue.add`."""

    def insert_statements(self) -> Iterator[str]:
        mapping = self.mapping
        pipeline = literal(mapping.pipeline)
        plan = f"(SELECT body FROM onerow_note WHERE kind = 'pipeline' AND name = {pipeline})"
        first = f"json_extract({plan}, '$.phases[0].name')"
        kind = f"coalesce(json_extract({plan}, '$.phases[0].kind'), 'run')"
        payload, metadata = self.new_object("payload"), self.new_object("metadata")
        yield refuse(
            f"no pipeline {mapping.pipeline} in the store; run its worker once, or: onerow publish APP",
            f"{plan} IS NULL",
        )
        yield refuse(
            "the first phase of this pipeline waits; use: onerow add", f"{kind} IN ('wait_for', 'wait_children')"
        )
        yield from self._initial(first)
        yield refuse(
            "the payload lacks a required field",
            f"EXISTS (SELECT 1 FROM json_each({plan}, '$.required') AS r WHERE coalesce(json_type({payload}, '$.\"' || r.value || '\"'), '') = '')",
        )
        yield refuse(
            "payload or metadata has more than 1,000,000 bytes of JSON",
            f"max(length(CAST({payload} AS BLOB)), length(CAST({metadata} AS BLOB))) > 1000000",
        )
        yield refuse("metadata must be a JSON object", f"json_type({metadata}) <> 'object'")
        zone = "NOT (f.at GLOB '*[zZ]' OR f.at GLOB '*[+-][0-9][0-9]:[0-9][0-9]') OR strftime('%s', f.at) IS NULL"
        yield refuse(
            "a time in the payload is not one with a zone, like 2026-11-15T09:00:00Z",
            f"EXISTS (SELECT 1 FROM (SELECT json_extract({payload}, '$.\"' || json_extract(p.value, '$.field') || '\"') AS at "
            f"FROM json_each({plan}, '$.phases') AS p WHERE json_extract(p.value, '$.kind') = 'wait_until') AS f WHERE f.at IS NOT NULL AND ({zone}))",
        )
        row = self._new_row(first, kind, plan, payload, metadata)
        yield from self._check_row(row)
        if row["unique_key"] != "NULL":
            yield (
                f"UPDATE task_queue SET held_key = NULL, held_until = NULL, version = version + 1, updated_at = {NOW} "
                f"WHERE pipeline = {pipeline} AND user_id = {row['user_id']} AND held_key = {row['unique_key']} AND held_until <= {NOW}"
            )
        # An INSERT OR … of the program applies to this statement too.
        taken = " ON CONFLICT DO NOTHING" if mapping.taken == "ignore" else ""
        yield f"INSERT INTO task_queue ({', '.join(row)}) VALUES ({', '.join(row.values())}){taken}"

    def _initial(self, first: str) -> Iterator[str]:
        """Yield the refusals of values that a new task can't have."""
        status = self.mapping.column_of("status")
        if status is None:
            names = " OR ".join(f"NEW.{quoted(name)} IS NOT NULL" for name in self.mapping.status_when)
            yield refuse(f"a new task waits: leave out {', '.join(self.mapping.status_when)}", names)
        else:
            words = self.mapping.words_of(WAITING)
            yield refuse(
                f"a new task has the status {words[0]}; {PULL_API}",
                f"NEW.{quoted(status.name)} NOT IN ({', '.join(map(literal, words))})",
            )
            phases = self.mapping.word_phases()
            if phases:
                yield refuse(_FIRST, f"{case_of(f'NEW.{quoted(status.name)}', phases)} <> {first}")
        for column in self.mapping.columns:
            new = f"NEW.{quoted(column.name)}"
            if column.role is PHASE:
                yield refuse(_FIRST, f"{new} <> {first}")
            elif column.role is KEPT and column.field not in ("created_at", "updated_at"):
                wrong = f"nullif(CAST({new} AS TEXT), '') IS NOT NULL"  # '' is the default of many such columns
                if column.path[0] == "steps" or (
                    column.own_type in NUMBERS and column.field in ("attempt", "retry_count")
                ):
                    wrong = f"{new} <> {column.plus}"
                yield refuse(f"onerow keeps the column {column.name}: leave it out", wrong)

    def _new_row(self, first: str, kind: str, plan: str, payload: str, metadata: str) -> dict[str, str]:
        mapping = self.mapping
        given = {
            column.field: self.new_value(column) for column in mapping.columns if column.role in (GIVEN, CHANGEABLE)
        }
        requested = f"coalesce({given.get('run_at', 'NULL')}, {given.get('scheduled_time', 'NULL')})"
        due = (
            f"CASE WHEN {kind} = 'wait_until' THEN coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', "
            f"json_extract({payload}, '$.\"' || json_extract({plan}, '$.phases[0].field') || '\"')), {NOW}) ELSE {NOW} END"
        )
        unique = "NULL"
        if mapping.unique:
            parts = " || ',' || ".join(self._key_part(f"NEW.{quoted(name)}") for name in mapping.unique)
            unique = f"nullif(CAST({parts} AS TEXT), '')"
        retries = given.get("max_retries", "NULL")
        return {
            "task_id": f"coalesce({given['task_id']}, {self._new_id()})",
            "pipeline": literal(mapping.pipeline),
            "type": first,
            "user_id": f"coalesce({given.get('user_id', 'NULL')}, '')",
            "title": f"substr(coalesce({given.get('title', 'NULL')}, {self._title_of(payload)}), 1, 500)",
            "priority": f"coalesce({given.get('priority', 'NULL')}, 0)",
            "created_at": NOW,
            "updated_at": NOW,
            "scheduled_time": f"coalesce({requested}, CASE WHEN {kind} = 'wait_until' THEN {due} END)",
            "run_at": f"max({due}, coalesce({requested}, ''))",
            "max_retries": f"coalesce({retries}, json_extract({plan}, '$.phases[0].retry.max_retries'), 3)",
            "own_retries": f"{retries} IS NOT NULL",
            "limit_key": f"coalesce({given.get('limit_key', 'NULL')}, '')",
            "unique_key": unique,
            "held_key": unique,
            "unique_for": literal(mapping.unique_for) if mapping.unique_for else "NULL",
            "payload": payload,
            "metadata": metadata,
            # An id may come again after its row was removed: token and version then go on growing, as time does.
            "token": _MILLIS,
            "version": f"{_MILLIS} + 1",
        }

    def _key_part(self, text: str) -> str:
        """Return a column's part of the unique key, as core.adoption.key_part makes it."""
        if len(self.mapping.unique) == 1:
            return text
        return rf"replace(replace({text}, '\', '\\'), ',', '\,')"

    def _check_row(self, row: dict[str, str]) -> Iterator[str]:
        task_id = self.new_value(self.mapping.key)
        for column in self.mapping.columns:
            if column.own_type == "text" and column.role is GIVEN and len(column.path) == 1:
                new = f"NEW.{quoted(column.name)}"
                yield refuse(
                    f"{column.name} is a BLOB or holds the character 0; give text: CAST(… AS TEXT)",
                    f"typeof({new}) = 'blob' OR instr(CAST({new} AS TEXT), char(0)) > 0",
                )
        yield refuse(
            "the id of a task is text without /, control characters or outer blanks, at most 200 characters",
            f"{task_id} = '' OR length({task_id}) > 200 OR {task_id} LIKE '%/%' OR {task_id} GLOB {_CONTROL} OR trim({task_id}) <> {task_id}",
        )
        yield refuse(
            "priority is a whole number from -100 to 100",
            f"typeof({row['priority']}) <> 'integer' OR {row['priority']} NOT BETWEEN -100 AND 100",
        )
        yield refuse(
            "max_retries is a whole number from 0 to 1000",
            f"typeof({row['max_retries']}) <> 'integer' OR {row['max_retries']} NOT BETWEEN 0 AND 1000",
        )
        yield refuse(
            "user_id and limit_key have at most 200 characters, the unique key 500",
            f"length({row['user_id']}) > 200 OR length({row['limit_key']}) > 200 OR length({row['unique_key']}) > 500",
        )
        for column in self.mapping.columns:
            if column.own_type == "time" and column.role in (GIVEN, CHANGEABLE):
                yield refuse(
                    f"{column.name} is not a time",
                    f"NEW.{quoted(column.name)} IS NOT NULL AND {self.new_value(column)} IS NULL",
                )

    def _new_id(self) -> str:
        key = self.mapping.key
        if self.shown(key) != "task_id":
            last = f"SELECT max({self.shown(key)}) FROM task_queue WHERE pipeline = {literal(self.mapping.pipeline)}"
            return f"CAST(1 + coalesce(({last}), 0) AS TEXT)"
        # A UUID of version 7, which sorts by the time it was made.
        return (
            f"lower(printf('%08x-%04x-7%s-8%s-%s', {_MILLIS} / 65536, {_MILLIS} % 65536, substr(hex(randomblob(2)), 1, 3), "
            "substr(hex(randomblob(2)), 1, 3), hex(randomblob(6))))"
        )

    def _title_of(self, payload: str) -> str:
        parts = []
        for text, field, _, _ in string.Formatter().parse(self.title):
            if text:
                parts.append(literal(text))
            if field:
                path = literal(f'$."{field}"')
                parts.append(f"coalesce(json_extract({payload}, {path}), '')")
        return " || ".join(parts) or "''"
