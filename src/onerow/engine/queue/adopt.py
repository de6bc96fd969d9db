"""Adopting a table of the user: copy its rows while programs write, verify each, and put a view in its place.

The adoption can be interrupted at any time and run again. Its state is a note. While rows are copied, the pipeline is
paused, so that no worker runs a task that the old system may still run. Rows that programs write in between are recorded
by a trigger of the old table and copied again, the last of them under the lock in which the names are swapped.
"""

import hashlib
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from onerow.core.adoption import Processing, differences, task_of
from onerow.core.errors import BadInput, IllegalMove
from onerow.core.table_mapping import TableMapping
from onerow.core.task import Task
from onerow.core.times import read, spell
from onerow.engine.control import definitions, notes, stats
from onerow.ports import Finding, Note, Store
from onerow.table_ports import ADOPTED_BY, ADOPTION, SUFFIX, OldTable, Row, TableBusy, TableShape

_PAGE = 500
_ROUNDS = 20  # of verifying rows that programs keep writing
_LOCK_TRIES = 240
_LOCK_PAUSE = 0.5  # seconds
_WORKERS_NOTICE = 3.0  # seconds until every worker has read the pause


class State(msgspec.Struct, frozen=True):
    """The note of an adoption."""

    mapping: str  # its fingerprint
    pipeline: str
    cursor: Any = None  # how far the rows were copied
    copied: bool = False
    swapped_at: str = ""
    purged: bool = False  # whether tasks were purged since


class Adopted(msgspec.Struct):
    """Progress and result of an adoption."""

    rows: int = 0  # of the old table, about
    findings: list[Finding] = []  # what is not carried over
    copied: int = 0
    changed: int = 0  # rows that programs wrote in between, copied again
    verified: int = 0


Progress = Callable[[Adopted], None]


def problems(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that stop an adoption."""
    return [finding for finding in findings if finding.level == "bad"]


def look(table: OldTable) -> TableShape:
    """Look at the table, and for tasks that its pipeline has already, without changing anything."""
    shape = table.shape()
    tasks = table.count_tasks() if table.stage() == "none" else 0
    if not tasks:
        return shape
    finding = _has_tasks(table.mapping, tasks)
    return msgspec.structs.replace(shape, findings=[finding, *shape.findings])


def _has_tasks(mapping: TableMapping, tasks: int) -> Finding:
    return Finding(
        "bad", f"pipeline {mapping.pipeline} has {tasks:,} tasks already", "adopt the table into a pipeline of its own"
    )


def state_of(store: Store, table: str) -> State | None:
    """Return the state of the adoption of a table; None if there is none."""
    note = notes.find(store, ADOPTION, table)
    return None if note is None else msgspec.convert(note.body, State)


class Adoption:
    """One adoption. processing: what becomes of rows that the old system is processing."""

    def __init__(
        self,
        store: Store,
        table: OldTable,
        processing: Processing = "stop",
        progress: Progress = lambda adopted: None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._table = table
        self._mapping = table.mapping
        self._processing = processing
        self._progress = progress
        self._wait = wait
        self._done = Adopted()
        self._running: set[str] = set()  # ids of rows that the old system is processing
        self._unverified: dict[Any, None] = {}  # keys of rows that were copied since all rows were compared

    def run(self) -> Adopted:
        """Adopt the table, or continue an adoption that was interrupted."""
        if self._table.stage() == "swapped":
            raise BadInput(
                f"{self._mapping.table} is adopted already",
                fix="programs use the view; the way back, until a task has run: --undo",
                field="table",
            )
        shape = look(self._table)
        if bad := problems(shape.findings):
            more = f" (and {len(bad) - 1} more: see --dry-run)" if len(bad) > 1 else ""
            raise BadInput(
                f"{self._mapping.table} can't be adopted: {bad[0].what}{more}", fix=bad[0].fix, field="table"
            )
        self._done.rows, self._done.findings = shape.rows, shape.findings
        _when_free(self._table.start, self._wait)  # also creates what the notes need where the store has no tables yet
        state = self._begin()
        if not state.copied:
            self._copy(state)
        self._catch_up()
        self._verify()
        self._swap()
        return self._done

    def _begin(self) -> State:
        mapping, fingerprint = self._mapping, fingerprint_of(self._table.given)
        state = state_of(self._store, mapping.table)
        if state is None:
            if tasks := self._table.count_tasks():
                found = _has_tasks(mapping, tasks)
                raise BadInput(found.what, fix=found.fix, field="pipeline")
            state = State(fingerprint, mapping.pipeline)
        elif state.mapping != fingerprint:
            raise BadInput(
                f"the adoption of {mapping.table} began with another mapping",
                fix="run it with that mapping, or undo it first with --undo",
                field="mapping",
            )
        self._record(state)
        # A pause that an operator has set stays, now and after the adoption.
        if notes.find(self._store, definitions.PAUSE, f"{mapping.pipeline}/*") is None:
            definitions.set_pause(self._store, mapping.pipeline, "*", ADOPTED_BY, f"{mapping.table} is being adopted")
        if definitions.has_workers(self._store, [mapping.pipeline]):
            self._wait(_WORKERS_NOTICE)
        return state

    def _record(self, state: State) -> None:
        notes.put(self._store, Note(ADOPTION, self._mapping.table, msgspec.to_builtins(state)))

    def _copy(self, state: State) -> None:
        while True:
            page = self._table.page(state.cursor, _PAGE)
            self._write(page.rows, ())
            self._done.copied += len(page.rows)
            state = msgspec.structs.replace(state, cursor=page.next or state.cursor, copied=page.next is None)
            self._record(state)
            self._progress(self._done)
            if state.copied:
                return

    def _write(self, rows: Sequence[Row], gone: Sequence[str]) -> list[tuple[Row, Task]]:
        """Store the tasks of rows; a row that the old system is processing is left out until it is done."""
        pairs, waiting = self._tasks(rows)
        self._table.write([task for _, task in pairs], [*gone, *waiting])
        return pairs

    def _tasks(self, rows: Sequence[Row]) -> tuple[list[tuple[Row, Task]], list[str]]:
        """Return the rows with their tasks, and the ids of rows that the adoption has to wait for."""
        now = self._store.now()
        found = [(row, task_of(self._mapping, row, now, self._processing)) for row in rows]
        running = [self._id(row) for row, task in found if task is None]
        self._running.difference_update(map(self._id, rows))
        self._running.update(running)
        return [(row, task) for row, task in found if task is not None], running

    def _id(self, row: Row) -> str:
        return str(row[self._mapping.key.name])

    def _catch_up(self, *, fully: bool = False) -> None:
        """Copy the rows that programs wrote in between, while they are many or with `fully` all."""
        while (changed := self._table.changed(_PAGE)).keys:
            rows = self._table.rows(changed.keys)
            there = {self._id(row) for row in rows}
            gone = [str(key) for key in changed.keys if str(key) not in there]
            self._running.difference_update(gone)
            self._write(rows, gone)
            self._table.forget(changed.positions)
            self._done.changed += len(changed.keys)
            self._unverified |= dict.fromkeys(changed.keys)
            if len(changed.positions) < _PAGE and not fully:
                break

    def _verify(self) -> None:
        """Compare every row with what the view shows; rows that programs write in between are compared again."""
        cursor, suspects = None, []
        self._unverified.clear()
        while True:
            page = self._table.page(cursor, _PAGE)
            suspects += [key for key, _ in self._differing(page.rows)]
            self._done.verified += len(page.rows)
            self._progress(self._done)
            if (cursor := page.next) is None:
                break
        for _ in range(_ROUNDS):
            if not suspects:
                return
            self._catch_up()
            self._write(self._table.rows(suspects), ())
            found = list(self._differing(self._table.rows(suspects)))
            suspects = [key for key, _ in found]
        raise _differs(self._mapping, found)

    def _differing(self, rows: Sequence[Row]) -> Iterator[tuple[Any, list[str]]]:
        pairs, _ = self._tasks(rows)
        shown = self._table.shown([task.task_id for _, task in pairs])
        for row, task in pairs:
            if found := differences(self._mapping, row, task, shown.get(task.task_id)):
                yield row[self._mapping.key.name], found

    def _swap(self) -> None:
        def swap() -> None:
            done = State(
                fingerprint_of(self._table.given),
                self._mapping.pipeline,
                copied=True,
                swapped_at=spell(self._store.now()),
            )
            self._table.swap(self._settle, msgspec.to_builtins(done))

        _when_free(swap, self._wait, self._catch_up)

    def _settle(self) -> None:
        """Apply the last changes and verify all since the comparison; called while the old table is locked."""
        self._catch_up(fully=True)
        keys = list(self._unverified)
        for start in range(0, len(keys), _PAGE):
            if found := list(self._differing(self._table.rows(keys[start : start + _PAGE]))):
                raise _differs(self._mapping, found)
        if self._running:
            raise IllegalMove(
                f"{len(self._running):,} rows of {self._mapping.table} are being processed by the old system",
                fix="stop its workers and wait until they are done, then run the command again; or say what becomes of these "
                "rows: --processing requeue runs them again, --processing fail fails them",
            )
        if missing := self._table.reconcile():
            raise BadInput(
                f"{missing:,} rows of {self._mapping.table} were written without its triggers",
                fix="stop what writes so (replication does), then --undo, and adopt again",
                field="table",
            )


def _when_free(
    step: Callable[[], None], wait: Callable[[float], None], between: Callable[[], object] = lambda: None
) -> None:
    """Run a step that locks the table. A lock that waits would block every program, so it is given up and tried again."""
    for _ in range(_LOCK_TRIES - 1):
        try:
            step()
            return
        except TableBusy:
            wait(_LOCK_PAUSE)
            between()
    step()


def _differs(mapping: TableMapping, found: Sequence[tuple[Any, list[str]]]) -> BadInput:
    key, columns = found[0]
    return BadInput(
        f"row {key} of {mapping.table} is not shown as it is: {'; '.join(columns)} ({len(found):,} such rows)",
        fix="correct the rows or the mapping (for another mapping, --undo first); the old table is still in place",
        field="mapping",
    )


def fingerprint_of(mapping: TableMapping) -> str:
    """Return a hash that is the same for equal mappings."""
    return hashlib.sha256(msgspec.json.encode(mapping, order="sorted")).hexdigest()[:16]


def undo(store: Store, table: OldTable, wait: Callable[[float], None] = time.sleep) -> str:
    """Undo an adoption, complete or not; return what was done. Raises IllegalMove if a task has run since the swap."""
    name, stage = table.mapping.table, table.stage()
    if stage == "none":
        raise BadInput(f"{name} was not adopted here", field="table")
    if stage == "copying":
        _when_free(lambda: table.undo(None), wait)
        return "the copied tasks were removed"
    state = state_of(store, name)
    if state is None or not state.swapped_at:
        raise BadInput(f"there is no record of the adoption of {name}", field="table")
    if state.mapping != fingerprint_of(table.given):
        raise BadInput(f"{name} was adopted with another mapping", fix="undo it with that mapping", field="mapping")
    since = read(state.swapped_at)
    if gone := "were purged" if state.purged else "have run" if _have_run(store, state.pipeline, since) else "":
        raise IllegalMove(
            f"tasks {gone} since {name} was adopted",
            fix=f"the old rows are still in {name}{SUFFIX}; copy what you need from there",
        )
    _when_free(lambda: table.undo(since), wait)
    return "the table has its name back"


def _have_run(store: Store, pipeline: str, since: datetime) -> bool:
    """Whether the statistics know of attempts, also of tasks that were deleted at their end."""
    counted = stats.add_up(store.notes(stats.STATS, since=stats.minute_of(since)))
    return any(outcomes.attempts for (name, _), outcomes in counted.items() if name == pipeline)


def note_purge(store: Store, pipelines: Collection[str]) -> None:
    """Record that tasks of these pipelines are purged, after which an adoption can't be undone."""
    for note in store.notes(ADOPTION):
        if note.body["pipeline"] in pipelines and note.body["swapped_at"] and not note.body.get("purged"):
            notes.update(store, ADOPTION, note.name, lambda stored: stored and stored.body | {"purged": True}, note)
