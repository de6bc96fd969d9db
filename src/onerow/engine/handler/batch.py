"""A batch as its handler sees it: items, each settled on its own."""

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from onerow.core.durations import Duration, parse_duration
from onerow.core.errors import BadInput
from onerow.core.failure import Failure, classify, failure
from onerow.core.outcomes import Snooze
from onerow.core.plan import PhasePlan
from onerow.core.task import Task
from onerow.engine.handler.call import Call
from onerow.engine.handler.context import Link
from onerow.engine.handler.outcome import Failed, Outcome, Snoozed, outcome_of_result, snoozed

Payload = TypeVar("Payload")
Settle = Callable[["Item[Any]", Outcome], None]


class Item(Generic[Payload]):
    """One task of a batch. What is said of it first counts; what is never said anything of is tried again."""

    def __init__(self, task: Task, payload: Payload, link: Link, settle: Settle) -> None:
        self.task = task
        self.payload = payload
        self._link = link
        self._settle = settle
        self.settled = False

    def __repr__(self) -> str:
        return f"Item({self.task.task_id!r})"

    @property
    def task_id(self) -> str:
        return self.task.task_id

    @property
    def results(self) -> dict[str, Any]:
        """What earlier phases returned, by phase."""
        return self.task.results

    @property
    def cancelled(self) -> bool:
        """Whether nothing that is said of this item counts any more."""
        return self._link.stop_reason() is not None

    def done(self, result: Any = None) -> None:
        """This item is done; a result (or a Jump, or a Finish) as a handler would return it."""
        self._say(outcome_of_result(result))

    def fail(self, error: BaseException | str, *, error_class: str = "unknown") -> None:
        """This item did not work; tried again later while its class and budget allow."""
        self._say(Failed(failure(error, error_class) if isinstance(error, str) else classify(error)))

    def snooze(self, for_: Duration) -> None:
        """Not now; costs no retry."""
        self._say(Snoozed(parse_duration(for_, "for_")))

    def log(self, message: str, *, level: str = "info") -> None:
        """Add a line to this task's log."""
        self._link.log(level, message)

    def _say(self, outcome: Outcome) -> None:
        if self.settled:
            raise BadInput(f"item {self.task_id} was settled already", field="item")
        self.settled = True
        self._settle(self, outcome)


def alone(call: Call, task: Task, link: Link, run: Callable[[Any], Any] = asyncio.run) -> Outcome:
    """A batch of one: what its handler said of it. For a task that crashed a worker, so that it takes none along.

    run: what awaits the coroutine of an `async def` handler.
    """
    said: list[Outcome] = []
    item: Item[Any] = Item(task, call.payload_of(task), link, lambda _, outcome: said.append(outcome))
    error: Exception | None = None
    try:
        result = call.function([item])
        if call.handler.is_async:
            run(result)
    except Exception as raised:
        error = raised
    if said:
        return said[0]
    return unmentioned(error, PhasePlan(name=task.phase), [task])


def unmentioned(error: BaseException | None, phase: PhasePlan, tasks: list[Task]) -> Outcome:
    """What becomes of the items that a handler said nothing of: all the same, so that they are tried again together."""
    if error is not None and issubclass(type(error), Snooze):
        return snoozed(error)
    why: Failure = (
        failure(f"{phase.name} ended without a word about this item", "unknown") if error is None else classify(error)
    )
    if why.after is None:
        seed = min(task.task_id for task in tasks)
        waits = [phase.retry.after(why, task.retry_count - task.retry_base, seed) for task in tasks]
        why = replace(why, after=max((wait for wait in waits if wait is not None), default=None))
    return Failed(why)
