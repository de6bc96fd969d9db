"""What the columns of a view over the queue show, as SQL expressions over a row of task_queue."""

from collections.abc import Mapping

from onerow.core.table_mapping import STATUS, Column, TableMapping

NOW = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
NUMBERS = ("integer", "bigint", "number")
PULL_API = "a lease is taken and ended by the pull API: queue.claim(), then lease.complete() or lease.fail()"


def literal(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def quoted(name: str) -> str:
    """Return a name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


class ViewColumns:
    """The columns of one view. title: the title template of the pipeline."""

    def __init__(self, mapping: TableMapping, title: str = "") -> None:
        self.mapping = mapping
        self.title = title
        self.view = quoted(mapping.name)
        self.index_prefix = f"task_view_{mapping.name}"

    def select(self, source: str = "task_queue", first: str = "") -> str:
        """Return the query of the view. source: another table with the columns of task_queue; first: more to select."""
        shown = ",\n  ".join(f"{self.shown(column)} AS {quoted(column.name)}" for column in self.mapping.columns)
        return f"SELECT {first}\n  {shown}\nFROM {source} WHERE {self.condition()}"

    def condition(self) -> str:
        hidden = "".join(f" AND status <> {literal(status)}" for status in self.mapping.hidden)
        return f"pipeline = {literal(self.mapping.pipeline)} AND purged_at IS NULL{hidden}"

    def shown(self, column: Column) -> str:
        """Return the expression of a column over a row of task_queue."""
        found = self._status() if column.role is STATUS else self._value(column)
        return f"CASE WHEN status = {literal(column.when)} THEN {found} END" if column.when else found

    def _status(self) -> str:
        cases = []
        for status, phase, word in self.mapping.words:
            at_phase = f" AND type = {literal(phase)}" if phase else ""
            cases.append(f"WHEN status = {literal(status)}{at_phase} THEN {literal(word)}")
        return f"CASE {' '.join(cases)} END"

    def _value(self, column: Column) -> str:
        field, *members = column.path
        if members:
            return self._member(column, field, members)
        name = "type" if field == "phase" else field
        match column.own_type:
            case "time":
                return _time_as(column.kind, name)
            case "text" if column.kind in NUMBERS or column.kind in ("unix", "unix_ms"):
                # CAST alone would show 0 for any other text.
                return f"CASE WHEN {name} <> '' AND {name} NOT GLOB '*[^0-9]*' THEN CAST({name} AS INTEGER) END"
            case "integer":
                return _number(column, name)
        return name

    def _member(self, column: Column, field: str, members: list[str]) -> str:
        path = literal("$" + "".join(f'."{member}"' for member in members))
        valid = f"json_valid({field})"
        if field == "steps":
            open_wait = literal("$" + "".join(f'."{member}"' for member in members) + ".awaiting")
            return f"CASE WHEN {valid} THEN json_type({field}, {path}) IS NOT NULL AND json_type({field}, {open_wait}) IS NULL END"
        found = f"json_extract({field}, {path})"
        if column.kind in ("json", "jsonb"):
            return f"CASE WHEN {valid} AND json_type({field}, {path}) <> 'null' THEN json_quote({found}) END"
        if column.kind in NUMBERS:
            found = _number(column, found)
        return f"CASE WHEN {valid} THEN {found} END"

    def indexes(self) -> list[tuple[str, str]]:
        """Return name and definition of the indexes that the view needs: its own, and one for a key of integers."""
        wanted = [list(names) for names in self.mapping.indexes]
        key = self.mapping.key
        if self.shown(key) != "task_id" and [key.name] not in wanted:
            wanted.append([key.name])
        columns = {column.name: column for column in self.mapping.columns}
        where = f"WHERE pipeline = {literal(self.mapping.pipeline)}"
        return [
            (
                f"{self.index_prefix}_{number}",
                f"task_queue ({', '.join(self.shown(columns[name]) for name in names)}) {where}",
            )
            for number, names in enumerate(wanted, 1)
        ]

    def new_object(self, field: str) -> str:
        """Return the JSON of a new payload or metadata; members that are NULL are left out."""
        columns = [column for column in self.mapping.columns if column.path[0] == field]
        if len(columns) == 1 and columns[0].field == field:
            new = f"NEW.{quoted(columns[0].name)}"
            return f"coalesce(json({new}), {literal('null' if field == 'payload' else '{}')})"
        pairs = ", ".join(f"{literal(column.path[1])}, {as_json(column)}" for column in columns)
        empty = ", ".join(
            f'CASE WHEN NEW.{quoted(column.name)} IS NULL THEN {path_of(column)} ELSE \'$."-"."-"\' END'
            for column in columns
        )
        return f"json_remove(json_object({pairs}), {empty})" if pairs else "'{}'"

    def new_value(self, column: Column) -> str:
        """Return the value of a task's field from the new row."""
        new = f"NEW.{quoted(column.name)}"
        match column.own_type:
            case "text":
                return f"CAST({new} AS TEXT)"
            case "time":
                return _time_from(column.kind, new)
        return _stored_number(column, new)


def case_of(value: str, words: Mapping[str, str]) -> str:
    """Return the expression that replaces a value by what it is mapped to; NULL for another."""
    return f"(CASE {value} {' '.join(f'WHEN {literal(word)} THEN {literal(to)}' for word, to in words.items())} END)"


def refuse(message: str, condition: str) -> str:
    return f"SELECT RAISE(ABORT, {literal(message)}) WHERE {condition}"


def path_of(column: Column) -> str:
    return literal(f'$."{column.path[1]}"')


def as_json(column: Column) -> str:
    """Return the new value of a column as json_object and json_set take it."""
    new = f"NEW.{quoted(column.name)}"
    match column.kind:
        case "json" | "jsonb":
            return f"json({new})"
        case "boolean":
            return f"json(CASE WHEN {new} THEN 'true' ELSE 'false' END)"
    return _stored_number(column, new)


def _number(column: Column, number: str) -> str:
    signed = f"-({number})" if column.negate else number
    return f"({signed} + {column.plus})" if column.plus else signed


def _stored_number(column: Column, new: str) -> str:
    shifted = f"({new} - {column.plus})" if column.plus else new
    return f"-{shifted}" if column.negate else shifted


def _time_as(kind: str, name: str) -> str:
    match kind:
        case "datetime":
            return f"substr(replace({name}, 'T', ' '), 1, 19)"
        case "unix":
            return f"CAST(strftime('%s', {name}) AS INTEGER)"
        case "unix_ms":
            return f"(CAST(strftime('%s', {name}) AS INTEGER) * 1000 + CAST(substr({name}, 21, 3) AS INTEGER))"
    return name


def _time_from(kind: str, new: str) -> str:
    form = "'%Y-%m-%dT%H:%M:%fZ'"
    match kind:
        case "unix":
            return f"strftime({form}, {new}, 'unixepoch')"
        case "unix_ms":
            return f"strftime({form}, {new} / 1000.0, 'unixepoch')"
    return f"strftime({form}, {new})"
