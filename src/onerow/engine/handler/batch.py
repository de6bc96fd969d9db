"""Batch items as seen by the handler: each is settled separately."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, TypeVar

from msgspec.structs import replace

from onerow.core.durations import Duration
from onerow.core.errors import BadInput
from onerow.core.failure import Classes, classify, failure, storable
from onerow.core.outcomes import Snooze
from onerow.core.plan import PhasePlan
from onerow.core.rules.attempts import CancelledItself, Failed, Outcome, Skipped, Snoozed
from onerow.core.task import Task
from onerow.engine.handler.call import Call, chosen_outcome, outcome_of_result
from onerow.engine.handler.context import Link

Payload = TypeVar("Payload")
Settle = Callable[["Item[Any]", Outcome, BaseException | None], None]
"""Settles an item with an outcome, and the exception of a failure."""


class Item(Generic[Payload]):
    """One task of a batch. It can be settled once; unsettled items are retried."""

    def __init__(
        self, task: Task, payload: Payload, link: Link, settle: Settle, errors: Sequence[Classes] = ()
    ) -> None:
        self.task: Task = task  # as it was claimed
        self.payload: Payload = payload  # decoded to the declared type
        self._link = link
        self._settle = settle
        self._errors = errors
        self.settled: bool = False  # whether one of the methods below was called

    def __repr__(self) -> str:
        return f"Item({self.task.task_id!r})"

    @property
    def task_id(self) -> str:
        """The id of the task."""
        return self.task.task_id

    @property
    def results(self) -> dict[str, Any]:
        """Results of earlier phases, by phase."""
        return self.task.results

    @property
    def cancelled(self) -> bool:
        """Whether this item was stopped, so that settling it has no effect."""
        return self._link.stop_reason() is not None

    def done(self, result: Any = None) -> None:
        """Settle this item as done. result: a JSON value, a Jump or a Finish."""
        self._settle_once(outcome_of_result(result))

    def fail(self, error: BaseException | str, *, error_class: str = "unknown") -> None:
        """Settle this item as failed; it is retried later if its error class and retry budget allow."""
        if isinstance(error, str):
            self._settle_once(Failed(failure(error, error_class)))
        else:
            self._settle_once(Failed(classify(error, self._errors)), error)

    def snooze(self, for_: Duration, reason: str = "", *, scope: Literal["task", "phase"] = "task") -> None:
        """Put this item off for a while, without using up a retry."""
        asked = Snooze(for_, reason, scope=scope)
        self._settle_once(Snoozed(asked.for_, storable(str(asked)), scope == "phase"))

    def cancel(self, reason: str = "") -> None:
        """Settle this item's task as cancelled; the reason goes to its history."""
        self._settle_once(CancelledItself(storable(reason)))

    def skip(self, reason: str = "") -> None:
        """Settle this item as skipped: its task goes on with the next phase, without a result of this one."""
        self._settle_once(Skipped(storable(reason)))

    def log(self, message: str, *, level: str = "info") -> None:
        """Add a line to this task's log. message: the line."""
        self._link.log(level, message)

    def _settle_once(self, outcome: Outcome, error: BaseException | None = None) -> None:
        if self.settled:
            raise BadInput(f"item {self.task_id} was settled already", field="item")
        self.settled = True
        self._settle(self, outcome, error)


def alone(call: Call, task: Task, link: Link, run: Callable[[Any], Any] = asyncio.run) -> Outcome:
    """Run a batch of one task and return its outcome, so that a task that crashed a worker cannot affect others.

    run: runs the coroutine of an `async def` handler.
    """
    outcomes: list[Outcome] = []
    item: Item[Any] = Item(
        task, call.payload_of(task), link, lambda _, outcome, __: outcomes.append(outcome), call.errors
    )
    error: Exception | None = None
    try:
        result = call.function([item], **call.resources)
        if call.handler.is_async:
            run(result)
    except Exception as raised:
        error = raised
    if outcomes:
        return outcomes[0]
    return _unsettled(error, task.phase, call.errors)


def unmentioned(error: BaseException | None, phase: PhasePlan, tasks: list[Task], errors: Sequence[Classes]) -> Outcome:
    """Return the outcome of the items that a handler did not settle: one for all, so that they are retried together."""
    outcome = _unsettled(error, phase.name, errors)
    if type(outcome) is not Failed or outcome.why.after is not None:
        return outcome
    seed = min(task.task_id for task in tasks)
    waits = [phase.retry.after(outcome.why, task.retry_count - task.retry_base, seed) for task in tasks]
    return Failed(replace(outcome.why, after=max((wait for wait in waits if wait is not None), default=None)))


def _unsettled(error: BaseException | None, phase: str, errors: Sequence[Classes]) -> Outcome:
    if error is None:
        return Failed(failure(f"{phase} did not settle this item", "unknown"))
    return chosen_outcome(error) or Failed(classify(error, errors))
