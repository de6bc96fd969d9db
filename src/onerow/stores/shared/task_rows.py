"""Compile functions that build a task from a row.

A call with 47 keyword arguments takes three times as long as one with positional arguments, and is most of what a claim
does in Python. So a store names the fields of a row, and the call with positional arguments is compiled from the names.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onerow.core.status import PROCESSING, Status
from onerow.core.task import FIELDS, TIME_FIELDS, Task

_NAMES = {"Task": Task, "PROCESSING": PROCESSING, "status_of": {status.value: status for status in Status}}


def task_reader(
    parameters: str,
    rows: Mapping[str, Sequence[str]],
    values: dict[str, str],
    *,
    time: Callable[[Any], Any],
    **names: Any,
) -> Callable[..., Task]:
    """Return a function that builds a task.

    `rows` maps each row, given as an expression, to the names of its values. A field's value is the expression in
    `values`, else the value of that name, converted by `time` if it is a time. `names` are used in expressions.
    """
    found = {field: field for fields in rows.values() for field in fields}
    found |= {field: f"None if {field} is None else time({field})" for field in TIME_FIELDS if field in found}
    found |= {"status": "status_of[status]"} | values
    lines = [f"def read({parameters}):"]
    lines += [f"    {', '.join(fields)}, = {row}" for row, fields in rows.items()]
    lines.append(f"    return Task({', '.join(found[field] for field in FIELDS)})")
    scope: dict[str, Any] = {**_NAMES, "time": time, **names}
    exec("\n".join(lines), scope)
    reader: Callable[..., Task] = scope["read"]
    return reader
