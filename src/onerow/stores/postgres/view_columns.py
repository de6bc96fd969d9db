"""What the columns of a view over the queue show, as SQL expressions over a row of task_queue."""

from hashlib import sha256

from onerow.core.table_mapping import STATUS, Column, TableMapping
from onerow.stores.postgres.statements import quoted

SQL_TYPES = {
    "text": "text", "uuid": "uuid", "integer": "integer", "bigint": "bigint", "number": "double precision",
    "boolean": "boolean", "time": "timestamptz", "datetime": "timestamp", "unix": "bigint", "unix_ms": "bigint",
    "json": "json", "jsonb": "jsonb",
}  # fmt: skip
"""Type of a column → type in PostgreSQL."""
_CASTS = {"integer": "as_int4", "bigint": "as_int8", "unix": "as_int8", "unix_ms": "as_int8", "number": "as_float8"}
"""Type of a column → function of sql/views.sql that reads it from text; that of another type is as_TYPE."""


def literal(text: str) -> str:
    """Return a text as an SQL literal."""
    escaped = text.replace("'", "''")
    return f"E'{escaped.replace(chr(92), chr(92) * 2)}'" if "\\" in text else f"'{escaped}'"


def _short(name: str) -> str:
    """Return the name of a view with its schema; a long one shortened to 50 bytes, for the names made of it."""
    if len(name.encode()) <= 50:
        return name
    return f"{name.rpartition('.')[2][:37]}.{sha256(name.encode()).hexdigest()[:12]}"


class ViewColumns:
    """The columns of one view in the schema `schema` of onerow."""

    def __init__(self, mapping: TableMapping, schema: str, row: str = "t.") -> None:
        self.mapping = mapping
        self.row = row  # how a column of task_queue is qualified
        self.schema_name = schema
        self.schema = quoted(schema)
        self.view = ".".join(map(quoted, mapping.name.split(".")))
        own = _short(mapping.name)
        self.function = f"{self.schema}.{quoted(f'view_{own}')}"
        self.index_prefix = f"task_view_{own}"

    def select(self) -> str:
        """Return the select list and its source, without a condition."""
        shown = ",\n  ".join(f"{self.shown(column)} AS {quoted(column.name)}" for column in self.mapping.columns)
        return f"SELECT\n  {shown}\nFROM {self.schema}.task_queue AS t"

    def condition(self) -> str:
        hidden = ", ".join(map(literal, self.mapping.hidden))
        without = f" AND t.status NOT IN ({hidden})" if hidden else ""
        return f"t.pipeline = {literal(self.mapping.pipeline)} AND t.purged_at IS NULL{without}"

    def shown(self, column: Column) -> str:
        """Return the expression of a column over a row t of task_queue."""
        found = self._status() if column.role is STATUS else self._value(column)
        return f"CASE WHEN {self.row}status = {literal(column.when)} THEN {found} END" if column.when else found

    def _status(self) -> str:
        cases = []
        for status, phase, word in self.mapping.words:
            at_phase = f" AND {self.row}type = {literal(phase)}" if phase else ""
            cases.append(f"WHEN {self.row}status = {literal(status)}{at_phase} THEN {literal(word)}")
        return f"CASE {' '.join(cases)} END"

    def _value(self, column: Column) -> str:
        field, *members = column.path
        kind = column.kind
        if field == "steps":
            inner = f"{self.row}steps -> {literal(members[0])} -> {literal(members[1])}"
            return f"(({inner}) IS NOT NULL AND ({inner} ->> 'awaiting') IS NULL)"
        if members:
            path = "".join(f" -> {literal(member)}" for member in members)
            if kind in ("json", "jsonb"):
                return f"CAST({self.row}{field}{path} AS {kind})"
            *outer, last = members
            path = "".join(f" -> {literal(member)}" for member in outer)
            text = f"({self.row}{field}{path} ->> {literal(last)})"
            if (column.plus or column.negate) and kind in ("integer", "bigint"):
                # The result may not fit the type: it is NULL then too.
                shown = self._number(column, f"CAST({self.schema}.as_int8({text}) AS numeric)")
                return self._from_text(f"CAST({shown} AS text)", kind)
            return self._number(column, self._from_text(text, kind))
        name = quoted("type" if field == "phase" else field)
        match column.own_type:
            case "text":
                return self._from_text(f"{self.row}{name}", kind)
            case "time":
                return _time_as(kind, f"{self.row}{name}")
            case "json":
                return f"{self.row}{name}" if kind == "json" else f"CAST({self.row}{name} AS {SQL_TYPES[kind]})"
        return f"CAST({self._number(column, f'{self.row}{name}')} AS {SQL_TYPES[kind]})"

    def _from_text(self, text: str, kind: str) -> str:
        match kind:
            case "text":
                return f"CAST({text} AS text)"
            case "time":
                return f"{self.schema}.as_time({text})"
            case "datetime":
                return f"({self.schema}.as_time({text}) AT TIME ZONE 'UTC')"
            case "json" | "jsonb":
                return f"CAST(to_json({text}) AS {kind})"
        return f"{self.schema}.{_CASTS.get(kind, f'as_{kind}')}({text})"

    @staticmethod
    def _number(column: Column, number: str) -> str:
        signed = f"-({number})" if column.negate else number
        return f"({signed} + {column.plus})" if column.plus else signed


def _time_as(kind: str, time: str) -> str:
    """Return a timestamptz as a column of another type."""
    match kind:
        case "datetime":
            return f"({time} AT TIME ZONE 'UTC')"
        case "unix":
            return f"CAST(floor(extract(epoch FROM {time})) AS bigint)"
        case "unix_ms":
            return f"CAST(floor(extract(epoch FROM {time}) * 1000) AS bigint)"
        case "time":
            return time
    return f"CAST({time} AS {SQL_TYPES[kind]})"
