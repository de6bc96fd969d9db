"""Optional protocols of stores in an SQL database: views in the words of the user's table, and adopting that table."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from onerow.core.errors import BadInput, IllegalMove, StoreUnavailable
from onerow.core.table_mapping import TableMapping
from onerow.core.task import Task
from onerow.ports import Finding

VIEW, ADOPTION = "view", "adoption"
"""Kinds of the notes that record views and adoptions; the name is that of the view or the old table."""
ADOPTED_BY = "onerow adopt"
"""The name under which an adoption pauses the pipeline."""
SUFFIX = "_before_onerow"
"""The old table keeps its rows under its name with this suffix."""

Stage = Literal["none", "copying", "swapped"]

Row = Mapping[str, Any]
"""A row of the old table or of the view, by column; times are ISO text or as the table stores them."""


@runtime_checkable
class Viewable(Protocol):
    """A store that can show the tasks of a pipeline as a view."""

    def view_sql(self, mapping: TableMapping) -> str:
        """Return the statements of `create_view`, to be read or run by hand."""

    def create_view(self, mapping: TableMapping) -> None:
        """Create the view, or replace the one of the same name that onerow made; raise BadInput if the name is taken."""

    def drop_view(self, name: str) -> None:
        """Remove a view that onerow made, with its indexes; the tasks stay."""

    def views(self) -> list[TableMapping]:
        """Return the mappings of the views that onerow made."""


class TableShape(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about the old table before it is adopted."""

    types: dict[str, str]  # column → type of the mapping ('' if none of them fits)
    key: tuple[str, ...]  # columns of the primary key
    rows: int  # about how many
    findings: list[Finding]  # bad: stops the adoption; slow: something is not carried over


class Page(msgspec.Struct, frozen=True):
    """Rows of the old table in the order of their keys."""

    rows: Sequence[Row]
    next: Any = None  # the position after them, a JSON value; None: the table has no more


class Changed(msgspec.Struct, frozen=True):
    """Keys of rows that programs wrote since the copy began, oldest first, each once."""

    keys: Sequence[Any]
    positions: Sequence[int]  # in the record of changes


class TableBusy(StoreUnavailable):
    """Programs hold locks on the old table; nothing was changed."""

    fix = "end long transactions that use the table, and run the command again: it resumes"


def overtaken(table: str) -> BadInput:
    """Return the error of a process that goes on with an adoption which another one has ended."""
    return BadInput(
        f"another process has finished or undone the adoption of {table}",
        fix="run the command again to see which",
        field="table",
    )


def can_not_hold(task_id: str, table: str) -> IllegalMove:
    """Return the error of a way back on which a task would be lost."""
    return IllegalMove(
        f"task {task_id} has no id that {table} can hold",
        fix=f"the old rows are still in {table}{SUFFIX}; copy what you need from there",
        task_id=task_id,
    )


class OldTable(Protocol):
    """The table that is adopted. Every step can be repeated after an interruption."""

    @property
    def given(self) -> TableMapping:
        """The mapping as it was given."""

    @property
    def mapping(self) -> TableMapping:
        """The mapping, with the types of the table where it names none."""

    def stage(self) -> Stage:
        """Return how far an adoption of the table has come: not begun, copying, or swapped."""

    def shape(self) -> TableShape:
        """Look at the table without changing anything."""

    def start(self) -> None:
        """Record the key of each row that programs write from now on; create what the view needs. Raises TableBusy."""

    def page(self, after: Any, limit: int) -> Page:
        """Return the next rows."""

    def rows(self, keys: Sequence[Any]) -> list[Row]:
        """Return the rows with these keys that exist."""

    def changed(self, limit: int) -> Changed:
        """Return the oldest recorded changes."""

    def forget(self, positions: Sequence[int]) -> None:
        """Remove recorded changes; only these, because an earlier one may be committed later."""

    def shown(self, ids: Sequence[str]) -> dict[str, Row]:
        """Return the tasks with these ids as the view shows them."""

    def write(self, tasks: Sequence[Task], gone: Sequence[str]) -> None:
        """Make the stored tasks equal to these, and remove those with the ids `gone`.

        Raises BadInput if another process has made the view or undone the adoption: the tasks may have run.
        """

    def count_tasks(self) -> int:
        """Return the number of tasks of the pipeline."""

    def reconcile(self) -> int:
        """Remove adopted tasks whose rows are gone; return the number of rows without a task."""

    def swap(self, settle: Callable[[], None], body: Any) -> None:
        """Lock the old table; call `settle`, which applies the last changes; give the table's name to the view.

        One transaction: it also writes the note of the adoption (`body`) and ends the pause of the pipeline. Raises
        TableBusy if the lock can't be had at once.
        """

    def undo(self, swapped_at: datetime | None) -> None:
        """Give the old table its name back, with what was added or changed since; remove the copied tasks.

        swapped_at: None if the view was never made. Raises IllegalMove if a task has run since, or if the old table can't
        hold one that was added.
        """


@runtime_checkable
class Adopting(Protocol):
    """A store that can adopt a table of the user."""

    def old_table(self, mapping: TableMapping) -> OldTable:
        """Return the table that the mapping names; raise BadInput if there is none."""
