"""Output lines of tasks: ordered and bounded; the oldest lines are dropped first and counted."""

from collections.abc import Sequence

from onerow.core.output_bound import OutputBound, byte_size
from onerow.ports import LogLine, LogPage
from onerow.stores.postgres.fast.binary import Bigs, Column, Integers, Moments, Texts, column, moment
from onerow.stores.postgres.pipelining import Connection
from onerow.stores.postgres.statements import quoted, statement


def append(connection: Connection, schema: str, lines: Sequence[LogLine], bound: OutputBound) -> None:
    """Append lines, keeping the given order per task; in a pipeline, inside an open transaction."""
    # Sorted by task id, so that two writers do not deadlock; lines of a task stay in the given order.
    ordered = [line for _, line in sorted(enumerate(lines), key=lambda pair: (pair[1].task_id, pair[0]))]
    sizes: dict[str, tuple[int, int]] = {}
    positions = []
    for line in ordered:
        count, size = sizes.get(line.task_id, (0, 0))
        sizes[line.task_id] = (count + 1, size + byte_size(line.text))
        positions.append(count)
    per_task = {
        "ids": column(Texts, list(sizes)),
        "lines": column(Bigs, [count for count, _ in sizes.values()]),
        "sizes": column(Bigs, [size for _, size in sizes.values()]),
    }
    connection.execute(statement("log_reserve", schema), per_task)
    connection.execute(
        statement("log_append", schema),
        {
            "ids": column(Texts, [line.task_id for line in ordered]),
            "places": column(
                Bigs, [nth - sizes[line.task_id][0] for nth, line in zip(positions, ordered, strict=True)]
            ),
            "ats": column(Moments, [line.at for line in ordered]),
            "phases": column(Texts, [line.phase for line in ordered]),
            "attempts": column(Integers, [line.attempt for line in ordered]),
            "levels": column(Texts, [line.level for line in ordered]),
            "texts": column(Texts, [line.text for line in ordered]),
        },
    )
    connection.execute(
        statement("log_trim", schema), {"ids": per_task["ids"], "most_lines": bound.lines, "most_size": bound.size}
    )


def read_page(connection: Connection, schema: str, task_id: str, after: int, limit: int, tail: int | None) -> LogPage:
    """Return lines after a position, or the last `tail` lines, and the dropped count, from one snapshot."""
    columns = "seq, at, phase, attempt, level, text"
    backwards = " DESC" if tail is not None else ""
    sql = (
        f"SELECT (SELECT dropped FROM {quoted(schema)}.onerow_log_size WHERE task_id = %(task_id)s), {columns} "
        f"FROM (SELECT) AS always LEFT JOIN LATERAL ("
        f"SELECT {columns} FROM {quoted(schema)}.onerow_log WHERE task_id = %(task_id)s AND seq > %(after)s "
        f"ORDER BY seq{backwards} LIMIT %(limit)s) AS l ON TRUE"
    )
    given = {"task_id": task_id, "after": after, "limit": limit if tail is None else tail}
    rows = connection.execute(sql, given, binary=True).fetchall()
    lines = [
        LogLine(task_id, moment(at), phase, attempt, level, text, seq)
        for _, seq, at, phase, attempt, level, text in (reversed(rows) if tail is not None else rows)
        if seq is not None
    ]
    return LogPage(lines, lines[-1].seq if lines else after, rows[0][0] or 0)


def remove(connection: Connection, schema: str, task_ids: Column) -> None:
    """Delete the output of tasks that no longer exist, or that are tombstones."""
    for table in ("onerow_log", "onerow_log_size"):
        connection.execute(
            f"DELETE FROM {quoted(schema)}.{table} AS l WHERE l.task_id = ANY (%s) "
            f"AND NOT EXISTS (SELECT FROM {quoted(schema)}.task_queue AS t WHERE t.task_id = l.task_id AND t.purged_at IS NULL)",
            (task_ids,),
        )
