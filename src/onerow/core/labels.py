"""Labels: how user interfaces show the tasks of a pipeline. They are part of its published definition."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from onerow.core.errors import BadInput, PipelineError
from onerow.core.query import STATUSES, parse_query
from onerow.core.suggest import did_you_mean

COLUMNS = (
    "task_id", "title", "phase", "status", "user_id", "created_at", "run_at", "started_at", "completed_at", "attempt",
    "retry_count", "priority", "awaiting", "error", "error_class", "leased_by", "progress", "limit_key", "unique_key",
)  # fmt: skip
"""The columns of a list of tasks, beside payload.…, results.… and metadata.…"""
PATHS = ("payload", "results", "metadata")
_LONGEST = 60
_MOST = 20
_ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)  # whether a query can be read does not depend on it


class Tab(msgspec.Struct, frozen=True):
    """A tab of a list of tasks: its name, and the query of its tasks."""

    name: str  # as it is shown
    query: str  # as in `onerow list QUERY`


class Labels(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How user interfaces show the tasks of a pipeline.

    statuses: status (or 'parked') → the word that is shown. tabs: the tabs of the list of tasks. columns: its columns,
    such as 'title', 'status' or 'payload.url'.
    """

    statuses: dict[str, str] = {}
    tabs: tuple[Tab, ...] = ()
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in ("tabs", "columns"):
            given: Any = getattr(self, field)
            if isinstance(given, str) or not isinstance(given, Iterable):
                raise PipelineError(f"labels: {field} takes a list, not {given!r}", field=f"labels.{field}")
            force_setattr(self, field, tuple(given))


def check_labels(labels: Labels) -> Labels:
    """Return the labels; raise PipelineError if one is invalid."""
    if not isinstance(labels, Labels):
        raise PipelineError(f"labels must be a Labels, not {labels!r}", field="labels")
    for status, word in labels.statuses.items():
        if status not in STATUSES:
            fix = did_you_mean(status, STATUSES)
            raise PipelineError(f"labels: no status {status!r}", fix=fix, field="labels.statuses")
        _check_word(word, "labels.statuses")
    if len(labels.tabs) > _MOST or len(labels.columns) > _MOST:
        raise PipelineError(f"labels: at most {_MOST} tabs and {_MOST} columns", field="labels")
    for tab in labels.tabs:
        if not isinstance(tab, Tab):
            raise PipelineError(f"labels: a tab is a Tab(name, query), not {tab!r}", field="labels.tabs")
        _check_word(tab.name, "labels.tabs")
        try:
            parse_query(tab.query, _ANY_TIME)
        except BadInput as error:
            message = f"labels: the query of the tab {tab.name!r} can't be read: {error}"
            raise PipelineError(message, fix=error.fix, field="labels.tabs") from None
    if len({tab.name for tab in labels.tabs}) < len(labels.tabs):
        raise PipelineError("labels: two tabs have the same name", field="labels.tabs")
    for column in labels.columns:
        check_column(column)
    return labels


def check_column(column: object) -> str:
    """Return a column of a list of tasks; raise PipelineError if there is none of this name."""
    head, _, path = column.partition(".") if isinstance(column, str) else ("", "", "")
    if not isinstance(column, str) or (column not in COLUMNS and not (head in PATHS and path)):
        fix = did_you_mean(str(column), [*COLUMNS, *(f"{each}.…" for each in PATHS)])
        raise PipelineError(f"no column {column!r} in a list of tasks", fix=fix, field="columns")
    return column


def _check_word(word: object, field: str) -> None:
    if not isinstance(word, str) or not word.strip() or len(word) > _LONGEST or not word.isprintable():
        raise PipelineError(f"{field}: {word!r} is not a word of 1 to {_LONGEST} printable characters", field=field)
