"""Build tasks and leases from the values of rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onerow.core.corruption import LEASE_FIELDS
from onerow.core.status import PROCESSING, Status
from onerow.core.task import FIELDS, TIME_FIELDS, Task
from onerow.ports import LeaseRecord

_STATUS_OF = {status.value: status for status in Status}


def task_reader(
    *, time: Callable[[Any], Any], convert: Mapping[str, Callable[[Any], Any]] | None = None
) -> Callable[[Sequence[Any]], Task]:
    """Return a function that builds a task from the values of all fields, in their order.

    Times are converted by `time` unless they are None, the fields in `convert` by their function. The function raises
    ValueError for a processing task without a lease, which no worker would ever settle.
    """
    times = [FIELDS.index(field) for field in TIME_FIELDS]
    conversions = [(FIELDS.index(field), function) for field, function in (convert or {}).items()]
    conversions.append((status := FIELDS.index("status"), _STATUS_OF.__getitem__))
    holder, until = (FIELDS.index(field) for field in LEASE_FIELDS)

    def read(row: Sequence[Any]) -> Task:
        values = list(row)
        for position in times:
            if (value := values[position]) is not None:
                values[position] = time(value)
        for position, function in conversions:
            values[position] = function(values[position])
        if values[status] is PROCESSING and (values[holder] is None or values[until] is None):
            raise ValueError("a processing task needs a lease")
        return Task(*values)

    return read


def lease_reader(*, time: Callable[[Any], Any]) -> Callable[[Sequence[Any]], LeaseRecord]:
    """Return a function that builds a LeaseRecord from its values in their order; it raises if one is unreadable."""

    def read(row: Sequence[Any]) -> LeaseRecord:
        task_id, pipeline, phase, token, holder, until = row
        if holder is None or until is None:
            raise ValueError("a processing task needs a lease")
        return LeaseRecord(task_id, pipeline, phase, int(token), holder, time(until))

    return read
