"""What an UPDATE or DELETE of a view over the queue does: the statements of its triggers."""

from collections.abc import Iterator

from onerow.core.table_mapping import CHANGEABLE, GIVEN, KEPT, PHASE, Column
from onerow.stores.sqlite.view_columns import (
    NOW,
    PULL_API,
    ViewColumns,
    as_json,
    case_of,
    literal,
    path_of,
    quoted,
    refuse,
)

_FAR = "'9999-12-31T23:59:59.999Z'"
_MAX_HISTORY = 59_000  # refuses a little before core.history.MAX_HISTORY, where entries are dropped
_PHASE_CHANGES = (
    "the phase of a task changes when its work is done: complete it with the lease of the pull API (queue.claim), "
    "or: onerow finish ID --phase"
)
_ENDED = (
    f"awaiting = NULL, completed_at = {NOW}, version = version + 1, updated_at = {NOW}, "
    f"held_until = CASE WHEN held_key IS NOT NULL AND unique_for IS NOT NULL THEN {_FAR} ELSE held_until END, "
    "held_key = CASE WHEN unique_for IS NULL THEN NULL ELSE held_key END"
)


class UpdateSql(ViewColumns):
    """Renders the triggers for UPDATE and DELETE: the transitions of core/rules; a test compares them."""

    def update_statements(self) -> Iterator[str]:
        mapping = self.mapping
        mine, moved = self._mine(), self._moved()
        status = mapping.column_of("status")
        if status is not None:
            new = f"NEW.{quoted(status.name)}"
            yield refuse(
                f"no such status; the statuses of {mapping.name}: {', '.join(mapping.statuses)}",
                f"{new} IS NOT OLD.{quoted(status.name)} AND {moved} IS NULL AND coalesce({new}, '') NOT IN ({', '.join(map(literal, mapping.statuses))})",
            )
        for column in mapping.columns:
            differs = f"NEW.{quoted(column.name)} IS NOT OLD.{quoted(column.name)}"
            if column.role is KEPT:
                yield refuse(
                    f"onerow keeps the column {column.name}: leave it out of the UPDATE",
                    f"{moved} IS NULL AND {differs}",
                )
            elif column.role is PHASE:
                yield refuse(_PHASE_CHANGES, differs)
            elif column.role is GIVEN:
                yield refuse(
                    f"the column {column.name} of a task does not change: add a new task, or map the column to metadata.X",
                    differs,
                )
        yield from self._refusals(mine, moved)
        yield from self._moves(mine, moved)
        yield from self._changes(mine)

    def _mine(self) -> str:
        key = self.mapping.key
        return f"{self.shown(key)} = OLD.{quoted(key.name)} AND {self.condition()}"

    def _moved(self) -> str:
        """Return the status that the UPDATE asks for; NULL if it does not change the status."""
        column = self.mapping.column_of("status")
        if column is not None:
            cases = " ".join(
                f"WHEN {literal(word)} THEN {literal(target.partition('/')[0])}"
                for word, target in self.mapping.statuses.items()
            )
            name = quoted(column.name)
            return f"nullif(CASE NEW.{name} {cases} END, CASE OLD.{name} {cases} END)"

        def status_of(row: str) -> str:
            cases = " ".join(
                f"WHEN {row}.{quoted(name)} IS NOT NULL THEN {literal(meant)}"
                for name, meant in self.mapping.status_when.items()
            )
            return f"CASE {cases} ELSE 'waiting' END"

        return f"nullif({status_of('NEW')}, {status_of('OLD')})"

    def _refusals(self, mine: str, moved: str) -> Iterator[str]:
        def refuse(message: str, condition: str) -> str:
            return f"SELECT RAISE(ABORT, {literal(message)}) FROM task_queue WHERE {mine} AND ({condition})"

        yield refuse(f"the task can't become processing by an UPDATE: {PULL_API}", f"{moved} = 'processing'")
        yield refuse(
            f"the task is processing: {PULL_API}",
            f"status = 'processing' AND {moved} IN ('waiting', 'completed', 'failed')",
        )
        yield refuse(
            "the task can't become completed by an UPDATE: complete it with the lease of the pull API (queue.claim), or by hand: onerow finish ID",
            f"{moved} = 'completed'",
        )
        yield refuse(
            "the task is completed: to run it again use: onerow replay ID",
            f"status = 'completed' AND {moved} IS NOT NULL",
        )
        yield refuse(
            "the task is cancelled, which is final: add a new task", f"status = 'cancelled' AND {moved} IS NOT NULL"
        )
        yield from self._other_phase(mine, moved)
        phases = f"(SELECT body FROM onerow_note WHERE kind = 'pipeline' AND name = {literal(self.mapping.pipeline)}), '$.phases'"
        runs = f"EXISTS (SELECT 1 FROM json_each({phases}) AS p WHERE json_extract(p.value, '$.name') = task_queue.type AND coalesce(json_extract(p.value, '$.kind'), 'run') IN ('run', 'batch', 'command'))"
        yield refuse(
            "this task can't be retried by SQL: use: onerow retry ID",
            f"status = 'failed' AND {moved} = 'waiting' AND (NOT {runs} OR steps LIKE '%\"awaiting\"%' OR error_class = 'corrupt')",
        )
        other = "EXISTS (SELECT 1 FROM task_queue AS o WHERE o.pipeline = task_queue.pipeline AND o.user_id = task_queue.user_id AND o.held_key = task_queue.unique_key AND o.task_id <> task_queue.task_id)"
        yield refuse(
            "another task holds the unique key of this one: cancel that task or wait until it ends",
            f"status = 'failed' AND {moved} = 'waiting' AND {other}",
        )
        yield refuse(
            "this task needs the command: onerow cancel ID, or: onerow fail ID",
            f"{moved} IN ('cancelled', 'failed') AND status <> 'processing' AND unique_for IS NOT NULL AND unique_for <> 'forever'",
        )
        yield refuse(
            "the history of this task is long: use: onerow cancel, fail or retry ID",
            f"{moved} IS NOT NULL AND length(logs) > {_MAX_HISTORY}",
        )

    def _other_phase(self, mine: str, moved: str) -> Iterator[str]:
        """Yield the refusal of a word of another phase."""
        phases, status = self.mapping.word_phases(), self.mapping.column_of("status")
        if status is None or not phases:
            return
        new, old = f"NEW.{quoted(status.name)}", f"OLD.{quoted(status.name)}"
        other = (
            f"CASE WHEN {moved} IS NULL THEN {case_of(new, self.mapping.shown_words())} <> {old} "
            f"ELSE {case_of(new, phases)} <> type END"
        )
        yield f"SELECT RAISE(ABORT, {literal(_PHASE_CHANGES)}) FROM task_queue WHERE {mine} AND {new} IS NOT {old} AND {other}"

    def _moves(self, mine: str, moved: str) -> Iterator[str]:
        """Yield the statements of the transitions: the same as the rules in core; a test compares them."""
        error = self.mapping.column_of("error")
        reason = f"coalesce(nullif(NEW.{quoted(error.name)}, ''), {self._note()})" if error else self._note()
        yield from self._cancel(mine, f"{moved} = 'cancelled'")
        yield _count(f"{mine} AND status = 'waiting' AND {moved} = 'failed'", "'failed'", 1)
        yield (
            f"UPDATE task_queue SET status = 'failed', error = {reason}, error_class = 'permanent', {_ENDED}, "
            f"logs = {self._entry('fail', error=reason)} WHERE {mine} AND status = 'waiting' AND {moved} = 'failed'"
        )
        yield _count(f"{mine} AND status = 'failed' AND {moved} = 'waiting'", "'failed'", -1)
        yield (
            f"UPDATE task_queue SET status = 'waiting', run_at = {NOW}, awaiting = NULL, attempt = 0, crash_count = 0, "
            f"rescue_count = 0, error = NULL, error_class = NULL, started_at = NULL, completed_at = NULL, held_key = unique_key, "
            f"held_until = NULL, retry_count = retry_count + 1, retry_base = retry_count + 1, "
            f"children = CASE WHEN children IS NULL THEN NULL ELSE 0 END, version = version + 1, updated_at = {NOW}, "
            f"logs = {self._entry('retry')} WHERE {mine} AND status = 'failed' AND {moved} = 'waiting'"
        )

    def _cancel(self, mine: str, wanted: str) -> Iterator[str]:
        yield (
            f"UPDATE task_queue SET cancel_requested = 1, version = version + 1, updated_at = {NOW}, logs = {self._entry('cancel')} "
            f"WHERE {mine} AND status = 'processing' AND NOT cancel_requested AND {wanted}"
        )
        yield _count(f"{mine} AND status = 'failed' AND {wanted}", "'failed'", -1)
        yield _count(f"{mine} AND status IN ('waiting', 'failed') AND {wanted}", "'cancelled'", 1)
        yield (
            f"UPDATE task_queue SET status = 'cancelled', {_ENDED}, logs = {self._entry('cancel')} "
            f"WHERE {mine} AND status IN ('waiting', 'failed') AND {wanted}"
        )

    def _note(self) -> str:
        return literal(f"through the view {self.mapping.name}")

    def _entry(self, what: str, error: str = "") -> str:
        """Return the history with one more entry."""
        more = f", 'error', {error}, 'error_class', 'permanent'" if error else ""
        entry = f"json_object('at', {NOW}, 'what', {literal(what)}, 'phase', type, 'by', 'sql', 'note', {self._note()}{more})"
        return f"CASE WHEN logs = '[]' THEN '[' || {entry} || ']' ELSE substr(logs, 1, length(logs) - 1) || ',' || {entry} || ']' END"

    def _changes(self, mine: str) -> Iterator[str]:
        """Yield the statements for columns that an UPDATE may change: priority, due time, metadata."""
        changed: list[Column] = []
        for column in self.mapping.columns:
            if column.role is not CHANGEABLE:
                continue
            differs = f"NEW.{quoted(column.name)} IS NOT OLD.{quoted(column.name)}"
            given = self.new_value(column)
            if column.path[0] == "metadata":
                changed.append(column)
            elif column.field == "priority":
                yield refuse(
                    "priority is a whole number from -100 to 100",
                    f"{differs} AND (typeof({given}) <> 'integer' OR {given} NOT BETWEEN -100 AND 100)",
                )
                yield f"SELECT RAISE(ABORT, 'the priority of an ended task does not change') FROM task_queue WHERE {mine} AND {differs} AND status NOT IN ('waiting', 'processing')"
                yield f"UPDATE task_queue SET priority = {given}, version = version + 1, updated_at = {NOW}, logs = {self._entry('set_priority')} WHERE {mine} AND {differs}"
            else:
                yield refuse(f"{column.name} is not a time", f"{differs} AND {given} IS NULL")
                yield f"SELECT RAISE(ABORT, 'only waiting tasks can be rescheduled') FROM task_queue WHERE {mine} AND {differs} AND status <> 'waiting'"
                yield (
                    f"UPDATE task_queue SET run_at = {given}, scheduled_time = CASE WHEN awaiting IS NULL THEN {given} ELSE scheduled_time END, "
                    f"version = version + 1, updated_at = {NOW}, logs = {self._entry('reschedule')} WHERE {mine} AND {differs}"
                )
        if not changed:
            return
        differs = " OR ".join(f"NEW.{quoted(column.name)} IS NOT OLD.{quoted(column.name)}" for column in changed)
        if changed[0].field == "metadata":
            value = self.new_object("metadata")
            yield refuse("metadata must be a JSON object", f"({differs}) AND json_type({value}) <> 'object'")
        else:
            sets = ", ".join(f"{path_of(column)}, {as_json(column)}" for column in changed)
            empty = ", ".join(
                f'CASE WHEN NEW.{quoted(column.name)} IS NULL THEN {path_of(column)} ELSE \'$."-"."-"\' END'
                for column in changed
            )
            value = f"json_remove(json_set(metadata, {sets}), {empty})"
        yield f"UPDATE task_queue SET metadata = {value}, version = version + 1, updated_at = {NOW} WHERE {mine} AND ({differs})"

    def delete_statements(self) -> Iterator[str]:
        """Yield the statements of a DELETE: remove what is not running, ask the rest to stop."""
        mine = self._mine()
        parent_open = "EXISTS (SELECT 1 FROM task_queue AS p WHERE p.task_id = task_queue.parent_id AND p.status IN ('waiting', 'processing'))"
        removable = (
            f"{mine} AND CASE status WHEN 'processing' THEN 0 "
            f"WHEN 'waiting' THEN children IS NULL AND parent_id IS NULL AND unique_for IS NULL "
            f"ELSE NOT {parent_open} AND (held_until IS NULL OR held_until <= {NOW}) END"
        )
        for table in ("onerow_log", "onerow_log_size"):
            yield f"DELETE FROM {table} WHERE task_id IN (SELECT task_id FROM task_queue WHERE {removable})"
        yield _count(f"{removable} AND status <> 'waiting'", "status", -1)
        yield f"DELETE FROM task_queue WHERE {removable}"
        yield from self._cancel(mine, "status IN ('waiting', 'processing')")


def _count(where: str, status: str, by: int) -> str:
    """Return the statement that changes the counters of ended tasks for the rows with this condition."""
    return (
        f"INSERT INTO onerow_tally (pipeline, type, status, count) SELECT pipeline, type, {status}, {by} FROM task_queue "
        f"WHERE {where} ON CONFLICT (pipeline, type, status) DO UPDATE SET count = count + excluded.count"
    )
