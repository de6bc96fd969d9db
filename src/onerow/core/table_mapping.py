"""A mapping between a table of the user and tasks: its columns, its words for statuses, its unique key.

`onerow pg view`, `onerow sqlite view` and the adopt commands take it as options or as a TOML file. This module reads and
checks it; the stores turn it into SQL.
"""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import msgspec

from onerow.core.durations import parse_duration, spell_duration
from onerow.core.errors import BadInput
from onerow.core.status import WAITING, Status
from onerow.core.suggest import did_you_mean

TYPES = (
    "text",
    "uuid",
    "integer",
    "bigint",
    "number",
    "boolean",
    "time",
    "datetime",
    "unix",
    "unix_ms",
    "json",
    "jsonb",
)
"""Types of columns. time: with a zone; datetime: UTC without one; unix, unix_ms: seconds or milliseconds since 1970."""

GIVEN, CHANGEABLE, KEPT, PHASE, STATUS = "given", "changeable", "kept", "phase", "status"
"""Roles of a field: set by INSERT only; also by UPDATE; by onerow only; the phase; the status."""

FIELDS: dict[str, tuple[str, str]] = {
    "task_id": ("text", GIVEN), "user_id": ("text", GIVEN), "title": ("text", GIVEN), "limit_key": ("text", GIVEN),
    "max_retries": ("integer", GIVEN), "scheduled_time": ("time", GIVEN), "payload": ("json", GIVEN),
    "priority": ("integer", CHANGEABLE), "run_at": ("time", CHANGEABLE), "metadata": ("json", CHANGEABLE),
    "phase": ("text", PHASE), "status": ("text", STATUS),
    "created_at": ("time", KEPT), "updated_at": ("time", KEPT), "started_at": ("time", KEPT),
    "completed_at": ("time", KEPT), "elapsed_time": ("integer", KEPT), "attempt": ("integer", KEPT),
    "retry_count": ("integer", KEPT), "error": ("text", KEPT), "error_class": ("text", KEPT),
    "leased_by": ("text", KEPT), "leased_until": ("time", KEPT), "parent_id": ("text", KEPT),
    "progress": ("json", KEPT), "results": ("json", KEPT), "logs": ("json", KEPT),
}  # fmt: skip
"""Field of a task → type and role. payload.X, metadata.X and results.PHASE.X name a member of a JSON
field; steps.PHASE.STEP is whether the phase has recorded the step."""
PATHS = {"payload": GIVEN, "metadata": CHANGEABLE, "results": KEPT, "steps": KEPT}
_DEEP = ("results", "steps")  # members of these are named by phase first
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,49}")


class Column(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """One column of the table: the field that it shows, and how."""

    name: str
    field: str
    type: str = ""
    plus: int = 0  # the column shows the number plus this: max_attempts = max_retries + 1
    negate: bool = False  # the column shows the number with the other sign: a priority of which the highest runs first
    when: str = ""  # the column shows the field only in this status, else NULL

    @cached_property
    def path(self) -> tuple[str, ...]:
        """The field, or the JSON field and the names of the members that lead to the value."""
        head, _, rest = self.field.partition(".")
        if not rest:
            return (head,)
        return (head, *rest.split(".", 1)) if head in _DEEP else (head, rest)

    @cached_property
    def role(self) -> str:
        return PATHS[self.path[0]] if len(self.path) > 1 else FIELDS[self.field][1]

    @cached_property
    def kind(self) -> str:
        """The type of the column: as given, else that of the field."""
        return self.type or self.own_type

    @cached_property
    def own_type(self) -> str:
        """The type of the field itself; of a member, the type of the column."""
        if len(self.path) > 1:
            return "boolean" if self.path[0] == "steps" else self.type or "text"
        return FIELDS[self.field][0]


class TableMapping(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """The whole mapping. A word is what the table's status column holds: 'pending'."""

    table: str
    pipeline: str
    columns: tuple[Column, ...]
    statuses: dict[str, str]  # word → status, or status/phase
    shown: dict[str, str] = {}  # status → word, where a status has no word of its own
    status_when: dict[str, str] = {}  # without a status column: column → status, if the column is not NULL
    hidden: tuple[str, ...] = ()  # statuses of tasks that the view leaves out
    phase: str = ""  # of adopted rows, if no column or word has it
    unique: tuple[str, ...] = ()  # the columns whose values are the unique key
    unique_for: str = ""
    taken: str = "ignore"  # an INSERT whose key is taken: ignore (no row) or error
    indexes: tuple[tuple[str, ...], ...] = ()
    lost: tuple[str, ...] = ()  # columns and triggers of the old table that are given up
    view: str = ""  # adopt: another name for the view

    @property
    def name(self) -> str:
        """The name of the view."""
        return self.view or self.table

    def column_of(self, field: str) -> Column | None:
        """Return the first column that shows a field."""
        return next((column for column in self.columns if column.field == field), None)

    @cached_property
    def key(self) -> Column:
        """The column of the task's id."""
        found = self.column_of("task_id")
        assert found is not None
        return found

    @cached_property
    def words(self) -> list[tuple[str, str, str]]:
        """(status, phase or '', word) for each word that the view can show; those with a phase first."""
        found = [(*_split(target), word) for word, target in self.statuses.items()]
        found += [(status, "", word) for status, word in self.shown.items()]
        first: dict[tuple[str, str], str] = {}
        for status, phase, word in found:
            first.setdefault((status, phase), word)
        return sorted(((*target, word) for target, word in first.items()), key=lambda each: not each[1])

    def words_of(self, status: str) -> list[str]:
        """Return the words that mean a status, in the order of the mapping."""
        return [word for word, target in self.statuses.items() if _split(target)[0] == status]

    def word_phases(self) -> dict[str, str]:
        """Return word → phase for the words that name one."""
        targets = {word: _split(target) for word, target in self.statuses.items()}
        return {word: phase for word, (_, phase) in targets.items() if phase}

    def shown_words(self) -> dict[str, str]:
        """Return word → the word that the view shows for the same status and phase."""
        shown = {(status, phase): word for status, phase, word in self.words}
        return {word: shown[_split(target)] for word, target in self.statuses.items()}

    def meaning(self, word: str) -> tuple[Status, str] | None:
        """Return the status and the phase ('': any) that a word means; None if the mapping has no such word."""
        target = self.statuses.get(word)
        if target is None:
            return None
        status, phase = _split(target)
        return Status(status), phase


def with_types(mapping: TableMapping, types: Mapping[str, str]) -> TableMapping:
    """Return the mapping with the types of an existing table, where the mapping leaves the type out."""
    return msgspec.structs.replace(mapping, columns=tuple(_typed(column, types) for column in mapping.columns))


def _typed(column: Column, types: Mapping[str, str]) -> Column:
    kind = types.get(column.name, "")
    if column.type or not kind or column.path[0] == "steps":
        return column
    # Text in a column that is a whole JSON field is JSON.
    return msgspec.structs.replace(column, type="json" if column.own_type == "json" and kind == "text" else kind)


def _split(target: str) -> tuple[str, str]:
    status, _, phase = target.partition("/")
    return status, phase


_KEYS = {
    "table": "text", "pipeline": "text", "columns": "a table", "statuses": "a table", "shown": "a table",
    "status_when": "a table", "hidden": "a list", "phase": "text", "unique": "a list", "unique_for": "text",
    "taken": "text", "indexes": "a list", "lost": "a list", "view": "text",
}  # fmt: skip
_COLUMN_KEYS = {"field": str, "type": str, "plus": int, "negate": bool, "when": str}
_KINDS: dict[str, type] = {"text": str, "a table": dict, "a list": list}


def read_mapping(given: Mapping[str, Any]) -> TableMapping:
    """Return the mapping that a TOML file holds; raise BadInput that names the wrong key."""
    for key, value in given.items():
        if key not in _KEYS:
            raise _bad(f"unknown key {key!r}", did_you_mean(key, _KEYS), key)
        if not isinstance(value, _KINDS[_KEYS[key]]):
            raise _bad(f"{key} must be {_KEYS[key]}", "see: onerow pg adopt --example jobs", key)
    for key in ("table", "pipeline", "columns"):
        if not given.get(key):
            raise _bad(f"there is no {key}", f"add {key} to it", key)
    values = dict(given)
    values["columns"] = tuple(_column(name, entry) for name, entry in given["columns"].items())
    for key in ("hidden", "unique", "lost"):
        values[key] = tuple(_texts(given.get(key, ()), key))
    values["indexes"] = tuple(tuple(_texts(each, "indexes")) for each in given.get("indexes", ()))
    values.setdefault("statuses", {})
    for key in ("statuses", "shown", "status_when"):
        _texts(values.get(key, {}).values(), key)
    mapping = TableMapping(**values)
    _check(mapping)
    return mapping


def _texts(values: Any, key: str) -> list[str]:
    if not isinstance(values, str) and all(isinstance(value, str) for value in values):
        return list(values)
    raise _bad(f"{key} holds something other than text", "write its values as text, in quotes", key)


def _column(name: str, entry: Any) -> Column:
    if isinstance(entry, str):
        field, _, kind = entry.partition(":")
        entry = {"field": field, "type": kind}
    if not isinstance(entry, dict) or not isinstance(entry.get("field"), str):
        raise _bad(f"column {name!r} has no field", f'write {name} = "payload.{name}" or another field of a task', name)
    for key, value in entry.items():
        if key not in _COLUMN_KEYS:
            raise _bad(f"column {name!r}: unknown key {key!r}", did_you_mean(key, _COLUMN_KEYS), name)
        if type(value) is not _COLUMN_KEYS[key]:
            raise _bad(f"column {name!r}: {key} must be {_COLUMN_KEYS[key].__name__}", "", name)
    field = "phase" if entry["field"] == "type" else entry["field"]
    head, _, rest = field.partition(".")
    known = (
        (head in PATHS and rest != "" and (head not in _DEEP or "." in rest))
        if rest or "." in field
        else field in FIELDS
    )
    if not known:
        raise _bad(
            f"column {name!r}: a task has no field {field!r}",
            did_you_mean(field, FIELDS, "write a field, payload.X, metadata.X or results.PHASE.X"),
            name,
        )
    member = rest.partition(".")[2] if head in _DEEP else rest
    if head != "steps" and "." in member:
        outer = field.removesuffix(member) + member.partition(".")[0]
        raise _bad(
            f"column {name!r}: {field} is a member of a member, which a mapping can't name",
            f'map the outer one as JSON: {name} = "{outer}:json"',
            name,
        )
    kind = entry.get("type", "")
    if kind and kind not in TYPES:
        raise _bad(f"column {name!r}: no type {kind!r}", did_you_mean(kind, TYPES), name)
    column = Column(**(entry | {"name": name, "field": field, "type": kind}))
    if (column.plus or column.negate) and column.own_type not in ("integer", "bigint", "number"):
        raise _bad(f"column {name!r}: plus and negate are for numbers", "leave them out", name)
    if column.when and column.when not in list(Status):
        raise _bad(f"column {name!r}: no status {column.when!r}", did_you_mean(column.when, list(Status)), name)
    return column


def _check(mapping: TableMapping) -> None:
    if mapping.table.count(".") > 1:
        raise _bad(f"{mapping.table!r} can't name a view", "write NAME or SCHEMA.NAME", "table")
    for name in filter(None, (mapping.table.rpartition(".")[2], mapping.view)):
        if not _NAME.fullmatch(name):
            raise _bad(f"{name!r} can't name a view", "use letters, digits and '_', at most 50", "table")
    columns = {column.name: column for column in mapping.columns}
    _check_fields(mapping)
    for key, names in (
        ("unique", mapping.unique),
        ("status_when", mapping.status_when),
        *(("indexes", each) for each in mapping.indexes),
    ):
        for name in names:
            if name not in columns:
                raise _bad(f"{key} names {name!r}, which is not a column", did_you_mean(name, columns), key)
    for name in mapping.unique:
        if columns[name].role is KEPT:
            raise _bad(f"unique names {name!r}, which onerow keeps", "name columns that INSERT sets", "unique")
    if mapping.taken not in ("ignore", "error"):
        raise _bad(f"taken is {mapping.taken!r}", "write ignore or error", "taken")
    if mapping.unique_for and not mapping.unique:
        raise _bad("unique_for needs unique", "name the columns of the key in unique", "unique_for")
    if mapping.unique_for and mapping.unique_for != "forever":
        spell_duration(parse_duration(mapping.unique_for, "unique_for"))
    _check_statuses(mapping)


def _check_fields(mapping: TableMapping) -> None:
    seen: dict[str, str] = {}
    for column in mapping.columns:
        other = seen.setdefault(column.field, column.name)
        if other != column.name and column.role in (GIVEN, CHANGEABLE, STATUS, PHASE):
            raise _bad(
                f"columns {other!r} and {column.name!r} are both {column.field}",
                "map one of them to metadata.X",
                column.name,
            )
    if "task_id" not in seen:
        raise _bad("no column is the task's id", 'map the key of the table: id = "task_id"', "columns")
    for field in ("payload", "metadata"):
        if field in seen and any(each.startswith(f"{field}.") for each in seen):
            raise _bad(
                f"{seen[field]!r} is the whole {field}, and another column a member of it",
                "map the whole or its members",
                "columns",
            )


def _check_statuses(mapping: TableMapping) -> None:
    column, every = mapping.column_of("status"), list(Status)
    if (column is None) == (not mapping.status_when):
        raise _bad(
            "the status must come from one column or from status_when",
            'map a column: status = "status", or list in [status_when] which columns are not NULL in which status',
            "status",
        )
    for word, target in mapping.statuses.items():
        status, phase = _split(target)
        if status not in every:
            fix = did_you_mean(status, every, f"write {word} = one of {', '.join(every)}")
            raise _bad(
                f"the word {word!r} is mapped to {target or 'nothing'!r}, which is not a status", fix, "statuses"
            )
        if "/" in target and not phase:
            raise _bad(f"the word {word!r} names no phase after the /", "write status/phase", "statuses")
    for key, names in (
        ("hidden", mapping.hidden),
        ("shown", mapping.shown),
        ("status_when", mapping.status_when.values()),
    ):
        for status in names:
            if status not in every:
                raise _bad(f"{key}: no status {status!r}", did_you_mean(status, every), key)
    if column is None:
        return
    general = {status for status, phase, _ in mapping.words if not phase}
    for status in every:
        if status not in general and status not in mapping.hidden:
            raise _bad(
                f"no word means {status}",
                f'add a word for it under [statuses], name the word that stands for it (shown = {{{status} = "…"}}), '
                f'or leave such tasks out of the view (hidden = ["{status}"])',
                "statuses",
            )
    for status, word in mapping.shown.items():
        if word not in mapping.statuses:
            raise _bad(
                f"shown: {word!r} for {status} is not among the statuses", did_you_mean(word, mapping.statuses), "shown"
            )
    if not mapping.words_of(WAITING):
        raise _bad("no word means waiting", "add the word of a new row under [statuses]", "statuses")


def _bad(problem: str, fix: str, field: str) -> BadInput:
    return BadInput(f"mapping: {problem}", fix=fix, field=field)


def from_options(table: str, pipeline: str, columns: str, statuses: str, unique: str) -> dict[str, Any]:
    """Return what read_mapping takes, from options: 'id=task_id:uuid,…', 'pending=waiting,…', 'post_id'."""
    return {
        "table": table,
        "pipeline": pipeline,
        "columns": _pairs(columns, "columns"),
        "statuses": _pairs(statuses, "statuses"),
        "unique": [name for name in unique.split(",") if name],
    }


def _pairs(text: str, key: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in filter(None, text.split(",")):
        name, equals, value = word.strip().partition("=")
        if not equals or not name or not value:
            raise _bad(f"--{key}: {word!r} is not NAME=VALUE", f"write --{key} NAME=VALUE,NAME=VALUE", key)
        if name in found:
            raise _bad(f"--{key}: {name!r} is given twice", "give each name once", key)
        found[name] = value
    return found
