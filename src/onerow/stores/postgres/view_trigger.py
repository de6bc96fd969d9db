"""What INSERT, UPDATE and DELETE of a view over the queue do: its trigger function."""

from collections.abc import Iterator, Mapping, Sequence

from onerow.core.status import WAITING
from onerow.core.table_mapping import CHANGEABLE, GIVEN, KEPT, PHASE, Column
from onerow.stores.postgres.statements import quoted
from onerow.stores.postgres.view_columns import ViewColumns, literal

_NUMBERS = ("integer", "bigint", "number")
_AT_INSERT = {"created_at", "updated_at"}  # onerow sets them; what an INSERT gives is not used
_PHASE_CHANGES = (
    "the phase of a task changes when its work is done",
    "Complete it with the lease of the pull API (queue.claim), or: onerow finish ID --phase",
)


class TriggerSql(ViewColumns):
    """Renders the trigger function. The transitions themselves are functions of sql/views.sql."""

    def trigger_function(self) -> str:
        key = self.mapping.key
        note = literal(f"through the view {self.mapping.name}")
        lines = [
            f"CREATE OR REPLACE FUNCTION {self.function}() RETURNS trigger LANGUAGE plpgsql AS $onerow$",
            "#variable_conflict use_variable",
            "DECLARE",
            f"  task     {self.schema}.task_queue%ROWTYPE;",
            "  new_id   text;",
            "  given_id text;",
            "  wanted   text;",
            "  payload  jsonb := '{}';",
            "  metadata jsonb := '{}';",
            f"  note     CONSTANT text := {note};",
            "BEGIN",
            "  IF TG_OP = 'INSERT' THEN",
            *_indented(self._insert(), 4),
            "  END IF;",
            f"  SELECT t.* INTO task FROM {self.schema}.task_queue AS t",
            f"   WHERE {self.shown(key)} = OLD.{quoted(key.name)} AND {self.condition()};",
            "  IF NOT FOUND THEN",
            "    RETURN NULL;",
            "  END IF;",
            "  IF TG_OP = 'DELETE' THEN",
            f"    RETURN CASE WHEN {self.schema}.view_delete(task.task_id, note) THEN OLD END;",
            "  END IF;",
            *_indented(self._update(), 2),
            *_indented(self._read_back("task.task_id"), 2),
            "END",
            "$onerow$",
        ]
        return "\n".join(lines)

    def _read_back(self, task_id: str) -> Iterator[str]:
        shown = ", ".join(self.shown(column) for column in self.mapping.columns)
        yield f"SELECT {shown} INTO NEW FROM {self.schema}.task_queue AS t WHERE t.task_id = {task_id};"
        yield "RETURN NEW;"

    def _insert(self) -> Iterator[str]:
        mapping = self.mapping
        yield from self._initial_status()
        add: dict[str, str] = {"pipeline": literal(mapping.pipeline), "payload": "payload", "metadata": "metadata"}
        for column in mapping.columns:
            new = f"NEW.{quoted(column.name)}"
            if column.role is KEPT:
                yield from self._must_be_initial(column, new)
            elif column.role is PHASE:
                yield from self._must_be_first(new)
            elif column.path[0] in ("payload", "metadata"):
                yield from self._into_json(column, new)
            elif column.role in (GIVEN, CHANGEABLE):
                add[column.field] = self._given(column, new)
        if requested := [add[field] for field in ("run_at", "scheduled_time") if field in add]:
            add.pop("scheduled_time", None)
            add["run_at"] = f"coalesce({', '.join(requested)})"
        if mapping.unique:
            parts = " || ',' || ".join(self._key_part(f"CAST(NEW.{quoted(name)} AS text)") for name in mapping.unique)
            add["unique_key"] = f"nullif({parts}, '')"
        if mapping.unique_for:
            add["unique_for"] = literal(mapping.unique_for)
        given_id = add.pop("task_id")
        taken = (
            "RETURN NULL;"
            if mapping.taken == "ignore"
            else "RAISE EXCEPTION 'task % exists already', new_id USING ERRCODE = '23505';"
        )
        yield f"given_id := {given_id};"
        yield f"SELECT t.task_id INTO new_id FROM {self.schema}.task_queue AS t WHERE t.task_id = given_id;"
        if "unique_key" in add:
            yield "IF new_id IS NULL THEN"
            yield f"  SELECT t.task_id INTO new_id FROM {self.schema}.task_queue AS t WHERE t.pipeline = {add['pipeline']}"
            yield f"     AND t.user_id = {add.get('user_id', literal(''))} AND t.held_key = {add['unique_key']}"
            yield "     AND (t.held_until IS NULL OR t.held_until > clock_timestamp());"
            yield "END IF;"
        yield "IF new_id IS NOT NULL THEN"
        yield f"  {taken}"
        yield "END IF;"
        arguments = ", ".join(f"{name} => {value}" for name, value in add.items())
        yield f"new_id := {self.schema}.add({arguments}, task_id => given_id);"
        yield from self._read_back("new_id")

    def _key_part(self, text: str) -> str:
        """Return a column's part of the unique key, as core.adoption.key_part makes it."""
        if len(self.mapping.unique) == 1:
            return text
        return rf"replace(replace({text}, E'\\', E'\\\\'), ',', E'\\,')"

    def _initial_status(self) -> Iterator[str]:
        status = self.mapping.column_of("status")
        if status is None:
            given = " OR ".join(f"NEW.{quoted(name)} IS NOT NULL" for name in self.mapping.status_when)
            names = ", ".join(self.mapping.status_when)
            yield f"IF {given} THEN"
            yield f"  RAISE EXCEPTION {_format(f'a new task waits: leave out {names}')} USING ERRCODE = '22023';"
        else:
            words = self.mapping.words_of(WAITING)
            new = f"NEW.{quoted(status.name)}"
            yield f"IF {new} NOT IN ({', '.join(map(literal, words))}) THEN"
            yield f"  RAISE EXCEPTION {_format(f'a new task has the status {words[0]}, not ', '%')}, {new} USING ERRCODE = '22023',"
            yield "    HINT = 'Insert it first. A lease is taken by the pull API: queue.claim(…).';"
        yield "END IF;"
        if status is not None and (phases := self.mapping.word_phases()):
            yield from self._must_be_first(_case(new, phases))

    def _must_be_first(self, phase: str) -> Iterator[str]:
        """Yield the refusal of a new row whose phase is another than the first of the pipeline."""
        first = f"(SELECT body -> 'phases' -> 0 ->> 'name' FROM {self.schema}.onerow_note WHERE kind = 'pipeline' AND name = {literal(self.mapping.pipeline)})"
        yield f"IF {phase} <> {first} THEN"
        yield f"  RAISE EXCEPTION 'a new task is in its first phase, %, not in %', {first}, {phase} USING ERRCODE = '22023';"
        yield "END IF;"

    def _must_be_initial(self, column: Column, new: str) -> Iterator[str]:
        if column.field in _AT_INSERT:
            return
        wrong = f"nullif(CAST({new} AS text), '') IS NOT NULL"  # '' is the default of many such columns
        if column.own_type in _NUMBERS and len(column.path) == 1 and column.field != "elapsed_time":
            wrong = f"{new} <> {column.plus}"
        elif column.path[0] == "steps":
            wrong = new
        yield from _refuse(wrong, f"onerow keeps the column {column.name}: a new task has none", "Leave it out.")

    def _into_json(self, column: Column, new: str) -> Iterator[str]:
        field, *members = column.path
        if not members:
            yield f"{field} := coalesce(to_jsonb({new}), {literal('null' if field == 'payload' else '{}')});"
            return
        yield f"IF {new} IS NOT NULL THEN"
        yield f"  {field} := {field} || jsonb_build_object({literal(members[0])}, {self._stored_number(column, new)});"
        yield "END IF;"

    @staticmethod
    def _stored_number(column: Column, new: str) -> str:
        shifted = f"({new} - {column.plus})" if column.plus else new
        return f"-{shifted}" if column.negate else shifted

    def _given(self, column: Column, new: str) -> str:
        """Return the argument of add for a column's new value."""
        match column.own_type:
            case "text":
                text = f"CAST({new} AS text)"
                return f"coalesce({text}, '')" if column.field in ("user_id", "limit_key") else text
            case "time":
                return _time_from(column.kind, new)
        number = f"CAST({self._stored_number(column, new)} AS integer)"
        return f"coalesce({number}, 0)" if column.field == "priority" else number

    def _update(self) -> Iterator[str]:
        mapping = self.mapping
        yield "metadata := CAST(task.metadata AS jsonb);"
        yield from self._wanted()
        for column in mapping.columns:
            old, new = f"OLD.{quoted(column.name)}", f"NEW.{quoted(column.name)}"
            differs = f"CAST({new} AS text) IS DISTINCT FROM CAST({old} AS text)"
            if column.role is KEPT:
                # With a change of the status onerow sets these columns; what the statement gives is not used.
                yield from _refuse(
                    f"wanted = task.status AND {differs}",
                    f"onerow keeps the column {column.name}",
                    "Leave it out of the UPDATE.",
                )
            elif column.role is PHASE:
                yield from _refuse(differs, *_PHASE_CHANGES)
            elif column.role is GIVEN:
                yield from _refuse(
                    differs,
                    f"the column {column.name} of a task does not change",
                    "Add a new task, or map the column to metadata.X.",
                )
        yield "IF wanted <> task.status THEN"
        error = mapping.column_of("error")
        text = f"CAST(NEW.{quoted(error.name)} AS text)" if error else "NULL"
        yield f"  PERFORM {self.schema}.set_status(task.task_id, wanted, error => {text}, note => note, seen => CAST(task.status AS text));"
        yield "END IF;"
        yield from self._changes()

    def _wanted(self) -> Iterator[str]:
        """Yield the lines that set `wanted` to the status that the new row means."""
        status = self.mapping.column_of("status")
        if status is None:
            cases = " ".join(
                f"WHEN NEW.{quoted(name)} IS NOT NULL THEN {literal(meant)}"
                for name, meant in self.mapping.status_when.items()
            )
            yield f"wanted := CASE {cases} ELSE CASE WHEN task.status IN ('failed', 'processing') THEN 'waiting' ELSE task.status END END;"
            return
        old, new = f"OLD.{quoted(status.name)}", f"NEW.{quoted(status.name)}"
        cases = " ".join(
            f"WHEN {literal(word)} THEN {literal(target.partition('/')[0])}"
            for word, target in self.mapping.statuses.items()
        )
        words = ", ".join(self.mapping.statuses)
        yield f"wanted := CASE WHEN {new} IS NOT DISTINCT FROM {old} THEN task.status ELSE CASE {new} {cases} END END;"
        yield "IF wanted IS NULL THEN"
        yield f"  RAISE EXCEPTION {_format('no status ', '%', f' in {self.mapping.name}')}, quote_nullable({new}) USING ERRCODE = '22023', HINT = {literal(f'Its statuses: {words}')};"
        yield "END IF;"
        phases = self.mapping.word_phases()
        if phases:
            # The word of another phase; what set_status refuses anyway, it refuses with its own hint.
            other = (
                f"(CASE WHEN wanted = task.status THEN {_case(new, self.mapping.shown_words())} <> {old} "
                f"WHEN wanted NOT IN ('processing', 'completed') THEN {_case(new, phases)} <> task.type END)"
            )
            yield from _refuse(f"{new} IS DISTINCT FROM {old} AND {other}", *_PHASE_CHANGES)

    def _changes(self) -> Iterator[str]:
        """Yield the lines for columns that an UPDATE may change: priority, due time, metadata."""
        for column in self.mapping.columns:
            if column.role is not CHANGEABLE:
                continue
            old, new = f"OLD.{quoted(column.name)}", f"NEW.{quoted(column.name)}"
            field, *members = column.path
            yield f"IF CAST({new} AS text) IS DISTINCT FROM CAST({old} AS text) THEN"
            if field == "metadata" and not members:
                yield f"  metadata := coalesce(to_jsonb({new}), '{{}}');"
            elif field == "metadata":
                name = literal(members[0])
                yield f"  metadata := CASE WHEN {new} IS NULL THEN metadata - {name} ELSE metadata || jsonb_build_object({name}, {self._stored_number(column, new)}) END;"
            elif field == "priority":
                yield f"  PERFORM {self.schema}.view_priority(task.task_id, CAST({self._stored_number(column, new)} AS integer), note);"
            else:
                yield f"  PERFORM {self.schema}.view_reschedule(task.task_id, {_time_from(column.kind, new)}, note);"
            yield "END IF;"
        yield "IF metadata <> CAST(task.metadata AS jsonb) THEN"
        yield f"  PERFORM {self.schema}.onerow_check('metadata', metadata);"
        yield f"  UPDATE {self.schema}.task_queue AS t SET metadata = CAST(CAST(metadata AS text) AS json), version = t.version + 1,"
        yield "         updated_at = date_trunc('milliseconds', clock_timestamp()) WHERE t.task_id = task.task_id;"
        yield "END IF;"


def _time_from(kind: str, new: str) -> str:
    """Return a column's value as a timestamptz."""
    match kind:
        case "datetime":
            return f"({new} AT TIME ZONE 'UTC')"
        case "unix":
            return f"to_timestamp({new})"
        case "unix_ms":
            return f"to_timestamp({new} / 1000.0)"
    return f"CAST({new} AS timestamptz)"


def _case(value: str, words: Mapping[str, str]) -> str:
    """Return the expression that replaces a value by what it is mapped to; NULL for another."""
    return f"(CASE {value} {' '.join(f'WHEN {literal(word)} THEN {literal(to)}' for word, to in words.items())} END)"


def _format(*parts: str) -> str:
    """Return the format of a RAISE; the part '%' stands for a value, a % elsewhere for itself."""
    return literal("".join(part if part == "%" else part.replace("%", "%%") for part in parts))


def _refuse(condition: str, problem: str, hint: str) -> Sequence[str]:
    return (
        f"IF {condition} THEN",
        f"  RAISE EXCEPTION {_format(problem)} USING ERRCODE = '22023', HINT = {literal(hint)};",
        "END IF;",
    )


def _indented(lines: Iterator[str], by: int) -> Iterator[str]:
    for line in lines:
        yield " " * by + line
