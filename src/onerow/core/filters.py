"""Which tasks a caller asks for, and in which order: filters, matching in Python, orders and cursors.

A store translates a filter to its own query language. `matches` defines what a filter means; stores also use it for
conditions that their database can't evaluate.
"""

import base64
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import force_setattr

from onerow.core import times
from onerow.core.errors import BadInput, UnknownName
from onerow.core.status import Status
from onerow.core.suggest import did_you_mean
from onerow.core.task import Task


class Filter(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """Conditions on tasks; all that are set must hold. Tombstones match only if `hidden` is set.

    `statuses` and `phases` take any iterable of names and store a frozenset: `Filter(statuses=["failed"])`.
    `all_of`, `any_of` and `none_of` hold further filters, whose own `hidden` is ignored.
    """

    statuses: frozenset[Status] = frozenset()  # any of these
    pipeline: str | None = None  # the name of the pipeline
    phases: frozenset[str] = frozenset()  # any of these
    user_id: str | None = None  # the owner
    parent_id: str | None = None  # children of this task
    parked: bool | None = None  # waiting for a signal or for children
    awaiting: str | None = None  # 'signal:NAME' or 'children'
    leased_by: str | None = None  # held by this worker
    cancel_requested: bool | None = None  # asked to stop
    error_class: str | None = None  # the class of the last error
    error_text: str | None = None  # substring of the error, case-insensitive
    title_text: str | None = None  # substring of the title, case-insensitive
    text: str | None = None  # substring of title, error, id or payload
    payload: tuple[tuple[str, str], ...] = ()  # values of fields: (dotted path, value as text)
    metadata: tuple[tuple[str, str], ...] = ()  # the same in the metadata
    id_prefix: str | None = None  # the beginning of the task id
    limit_key: str | None = None  # in this group
    unique_key: str | None = None  # added with this key
    held_key: str | None = None  # holding this key now
    due_before: datetime | None = None  # due at this time or before
    lease_ended_before: datetime | None = None  # the lease ended at this time or before
    held_until_before: datetime | None = None  # an ended task holds its unique key until this time or before
    ended_before: datetime | None = None  # ended at this time or before
    ended_after: datetime | None = None  # ended at this time or later
    created_after: datetime | None = None  # added at this time or later
    created_before: datetime | None = None  # added at this time or before
    ahead_of: tuple[int, datetime, str] | None = None  # claimed before this (priority, run_at, id)
    hidden: bool = False  # also tombstones: purged tasks whose unique key is still held
    all_of: "tuple[Filter, ...]" = ()  # every one of these too
    any_of: "tuple[Filter, ...]" = ()  # at least one of them, if there are any
    none_of: "tuple[Filter, ...]" = ()  # none of these

    def __post_init__(self) -> None:
        if self.statuses or type(self.statuses) is not frozenset:
            force_setattr(self, "statuses", frozenset(map(_status, _names(self.statuses, "statuses", "failed"))))
        if self.phases or type(self.phases) is not frozenset:
            force_setattr(self, "phases", _names(self.phases, "phases", "video"))
        for field in self.__struct_fields__:
            if _has_nul(getattr(self, field)):
                raise BadInput(f"{field} contains a NUL character, which no stored text does", field=field)


def _has_nul(value: object) -> bool:
    if isinstance(value, str):
        return "\0" in value
    return isinstance(value, tuple | frozenset) and any(map(_has_nul, value))


def _names(given: Any, field: str, example: str) -> frozenset[str]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise BadInput(f"{field} takes several names", fix=f"write {field}=[{given or example!r}]", field=field)
    names = given if type(given) is frozenset else frozenset(given)
    for name in names:
        if not isinstance(name, str):
            raise BadInput(f"{field} takes names like {example!r}, not {name!r}", field=field)
    return names


def _status(name: str) -> Status:
    try:
        return Status(name)
    except ValueError:
        raise UnknownName(f"no status {name!r}", fix=did_you_mean(name, Status), field="statuses") from None


# ── matching ──


def narrowed(where: Filter) -> Filter:
    """Return an equal filter whose own statuses, phases, pipeline and user say what its groups imply.

    Stores choose an index by a filter's own fields: `status:failed OR status:waiting` implies two statuses.
    """
    if not (where.all_of or where.any_of or where.none_of):
        return where
    changes: dict[str, Any] = {}
    for field in ("statuses", "phases"):
        implied = _implied_names(where, field)
        if implied and implied != getattr(where, field):
            changes[field] = implied
    for field in ("pipeline", "user_id"):
        values = _implied_names(where, field)
        if values is not None and len(values) == 1 and getattr(where, field) is None:
            (changes[field],) = values
    return msgspec.structs.replace(where, **changes)


def _implied_names(where: Filter, field: str) -> frozenset[Any] | None:
    """Return the values of a field that a matching task can have; None: any."""
    own = getattr(where, field)
    sets = [own if isinstance(own, frozenset) else frozenset({own})] if own else []
    sets += [names for each in where.all_of if (names := _implied_names(each, field)) is not None]
    if where.any_of and None not in (alternatives := [_implied_names(each, field) for each in where.any_of]):
        sets.append(frozenset().union(*(names for names in alternatives if names is not None)))
    if field == "statuses":
        excluded = [each.statuses for each in where.none_of if each == Filter(statuses=each.statuses)]
        if any(excluded):
            sets.append(frozenset(Status) - frozenset().union(*excluded))
    return frozenset.intersection(*sets) if sets else None


def prefix_range(prefix: str) -> tuple[str, str]:
    """Return (first, beyond): a text starts with the prefix if first <= text < beyond, compared by code point."""
    return prefix, prefix + "\U0010ffff"


def equal_terms(where: Filter) -> list[tuple[str, str]]:
    """Return (column, value) for each text column that the filter compares for equality."""
    terms = (
        ("pipeline", where.pipeline),
        ("user_id", where.user_id),
        ("parent_id", where.parent_id),
        ("awaiting", where.awaiting),
        ("leased_by", where.leased_by),
        ("error_class", where.error_class),
        ("limit_key", where.limit_key),
        ("unique_key", where.unique_key),
        ("held_key", where.held_key),
    )
    return [(column, value) for column, value in terms if value is not None]


def time_terms(where: Filter) -> list[tuple[str, Literal["<=", ">="], datetime]]:
    """Return (column, comparison, time) for each time that the filter bounds; a row without the time does not match."""
    terms: tuple[tuple[str, Literal["<=", ">="], datetime | None], ...] = (
        ("run_at", "<=", where.due_before),
        ("leased_until", "<=", where.lease_ended_before),
        ("held_until", "<=", where.held_until_before),
        ("completed_at", "<=", where.ended_before),
        ("completed_at", ">=", where.ended_after),
        ("created_at", ">=", where.created_after),
        ("created_at", "<=", where.created_before),
    )
    return [(column, comparison, moment) for column, comparison, moment in terms if moment is not None]


def is_selective(where: Filter) -> bool:
    """Whether an index finds the few rows that can match."""
    named = (
        where.id_prefix,
        where.parent_id,
        where.held_key,
        where.leased_by,
        where.lease_ended_before,
        where.awaiting,
        where.held_until_before,
    )
    return any(value is not None for value in named)


def reads_text(where: Filter) -> bool:
    """Whether tasks must be read to find the matches: by a text, or by a value of the payload."""
    texts = (where.text, where.title_text, where.error_text)
    groups = (*where.all_of, *where.any_of, *where.none_of)
    return bool(where.payload) or any(text is not None for text in texts) or any(map(reads_text, groups))


def matches(row: Task, where: Filter) -> bool:
    """Whether the row meets every condition that the filter sets."""
    return (where.hidden or row.purged_at is None) and _meets(row, where)


def _meets(row: Task, where: Filter) -> bool:
    return (
        (not where.statuses or row.status in where.statuses)
        and (not where.phases or row.phase in where.phases)
        and where.parked in (None, row.parked)
        and where.cancel_requested in (None, row.cancel_requested)
        and all(getattr(row, column) == value for column, value in equal_terms(where))
        and all(_is_within(getattr(row, column), sign, bound) for column, sign, bound in time_terms(where))
        and (where.ahead_of is None or (row.priority, row.run_at, row.task_id) < where.ahead_of)
        and (where.id_prefix is None or row.task_id.startswith(where.id_prefix))
        and _matches_text(row, where)
        and all(_meets(row, each) for each in where.all_of)
        and (not where.any_of or any(_meets(row, each) for each in where.any_of))
        and not any(_meets(row, each) for each in where.none_of)
    )


def _matches_text(row: Task, where: Filter) -> bool:
    """Whether the row meets the conditions on texts, on the payload and on the metadata."""
    texts = (
        (where.error_text, (row.error,)),
        (where.title_text, (row.title,)),
        (where.text, (row.title, row.error, row.task_id, row.payload_json)),
    )
    return (
        all(part is None or any(contains(text, part.casefold()) for text in row_texts) for part, row_texts in texts)
        and all(text_at(row.payload, path) == value for path, value in where.payload)
        and all(text_at(row.metadata, path) == value for path, value in where.metadata)
    )


def contains(text: Any, folded: str) -> bool:
    """Whether a text contains a case-folded part in any case."""
    return isinstance(text, str) and folded in text.casefold()


def text_at(value: Any, path: str) -> str | None:
    """Return the value at a dotted path: a string as it is, anything else as JSON, None if the path does not exist."""
    for step in path.split("."):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _is_within(moment: datetime | None, comparison: Literal["<=", ">="], bound: datetime) -> bool:
    return moment is not None and (moment <= bound if comparison == "<=" else moment >= bound)


# ── orders and cursors ──

Order = Literal["newest", "oldest", "due", "ended", "latest"]
"""Respectively: created_at descending, created_at, run_at, completed_at, completed_at descending.

Tasks with equal times are ordered by id.
"""


class Sorting(NamedTuple):
    """The column of an order; rows with equal times are ordered by task id in the same direction."""

    column: str
    descending: bool

    @property
    def direction(self) -> str:
        return "DESC" if self.descending else "ASC"


SORTING: dict[Order, Sorting] = {
    "newest": Sorting("created_at", descending=True),
    "oldest": Sorting("created_at", descending=False),
    "due": Sorting("run_at", descending=False),
    "ended": Sorting("completed_at", descending=False),
    "latest": Sorting("completed_at", descending=True),
}

Position = tuple[datetime, str]
"""The position of a row in an order: its time and its id."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[str, str]).decode


def position_of(task: Task, order: Order) -> Position:
    return getattr(task, SORTING[order].column), task.task_id


def cursor_of(position: Position) -> str:
    """Return the cursor of the page that starts after a position."""
    return base64.urlsafe_b64encode(_encode([times.spell(position[0]), position[1]])).decode()


def read_cursor(cursor: str | None) -> Position | None:
    """Return the position of a cursor; raise BadInput if `cursor_of` did not return it."""
    if cursor is None:
        return None
    try:
        moment, task_id = _decode(base64.urlsafe_b64decode(cursor))
        return times.read(moment), task_id
    except Exception:
        raise BadInput(
            f"{cursor!r} is not a cursor", fix="pass the `next` of a page unchanged", field="after"
        ) from None
