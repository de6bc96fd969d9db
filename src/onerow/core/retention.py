"""How long ended tasks are stored: by status, for a whole queue and for each pipeline."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from onerow.core.durations import Duration, parse_duration
from onerow.core.errors import BadInput
from onerow.core.plan import Plan
from onerow.core.rules.transitions import ended
from onerow.core.status import COMPLETED, ENDS, Status
from onerow.core.suggest import did_you_mean
from onerow.core.task import Task

KeepOption = Duration | Mapping[str, Duration]
"""'30d' for every ended task, or by status: {'completed': '7d', 'failed': '90d'}; a status that is not named is kept."""
Keep = Mapping[str, timedelta]
_AT_ONCE = timedelta(0)
_SEEN_WITHIN = timedelta(minutes=1)  # in which who waits for a task looks at it


def parse_keep(given: KeepOption | None, field: str = "keep") -> dict[str, timedelta]:
    """Return the age at which tasks of each status are deleted; raise BadInput for an invalid status or age."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        return dict.fromkeys(map(str, sorted(ENDS)), parse_duration(given, field))
    for status in given:
        if status not in ENDS:
            raise BadInput(
                f"{field}: only ended tasks are deleted, and {status!r} is not the status of ended tasks",
                fix=did_you_mean(str(status), ENDS, "use completed, failed or cancelled"),
                field=field,
            )
    return {str(status): parse_duration(age, f"{field}.{status}") for status, age in given.items()}


class Sweep(NamedTuple):
    """Ended tasks to delete: those of a pipeline (None: of all) with one of the statuses, at this age."""

    pipeline: str | None
    statuses: frozenset[Status]
    age: timedelta


class Retention:
    """The retention of a queue; that of a pipeline wins, status by status.

    at_least: every ended task is stored this long, because its end is still read from the row.
    """

    def __init__(self, keep: Keep | None = None, *, at_least: timedelta = _AT_ONCE) -> None:
        self._keep: Keep = keep or {}
        self._at_least = at_least

    def of(self, plan: Plan) -> Keep:
        """Return the retention of a pipeline."""
        return {**self._keep, **plan.keep} if plan.keep else self._keep

    def deletes_at_end(self, task: Task, plan: Plan) -> bool:
        """Whether a task, as it is after its end, is deleted instead of written.

        Not a child, which its parent still counts and reads, and not a task whose unique key is remembered.
        """
        return (
            task.status is COMPLETED
            and not self._at_least
            and task.parent_id is None
            and task.held_key is None
            and plan.keep.get(COMPLETED, self._keep.get(COMPLETED)) == _AT_ONCE
        )

    def proves_completion(self, task: Task, plan: Plan) -> bool:
        """Whether a task that was seen open, and is gone, was completed: others are stored long enough to be seen."""
        keep = self.of(plan)
        others = [keep[status] for status in ENDS - {COMPLETED} if status in keep]
        return self.deletes_at_end(task, plan) and all(age >= _SEEN_WITHIN for age in others)

    def sweeps(self, plans: Mapping[str, Plan]) -> Iterator[Sweep]:
        """Yield what to look for; by pipeline only if one of the pipelines has a retention of its own."""
        if not any(plan.keep for plan in plans.values()):
            yield from self._sweeps(None, self._keep)
            return
        for name, plan in sorted(plans.items()):
            yield from self._sweeps(name, self.of(plan))

    def _sweeps(self, pipeline: str | None, keep: Keep) -> Iterator[Sweep]:
        ages = {Status(status): max(age, self._at_least) for status, age in keep.items()}
        for age in sorted(set(ages.values())):
            yield Sweep(pipeline, frozenset(status for status, each in ages.items() if each == age), age)


def completed_unseen(task: Task, now: datetime) -> Task:
    """Return an open task as it is after it was completed and deleted: its results are not known."""
    return msgspec.structs.replace(ended(task, COMPLETED, now, awaiting=None), results_json="{}")
