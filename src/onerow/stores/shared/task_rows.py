"""Build tasks from rows that have the values of all fields."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onerow.core.status import Status
from onerow.core.task import FIELDS, TIME_FIELDS, Task

_STATUS_OF = {status.value: status for status in Status}


def task_reader(
    *, time: Callable[[Any], Any], convert: Mapping[str, Callable[[Any], Any]] | None = None
) -> Callable[[Sequence[Any]], Task]:
    """Return a function that builds a task from the values of all fields, in their order.

    Times are converted by `time` unless they are None, the fields in `convert` by their function.
    """
    times = [FIELDS.index(field) for field in TIME_FIELDS]
    conversions = [(FIELDS.index(field), function) for field, function in (convert or {}).items()]
    conversions.append((FIELDS.index("status"), _STATUS_OF.__getitem__))

    def read(row: Sequence[Any]) -> Task:
        values = list(row)
        for position in times:
            if (value := values[position]) is not None:
                values[position] = time(value)
        for position, function in conversions:
            values[position] = function(values[position])
        return Task(*values)

    return read
