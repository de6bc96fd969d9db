"""The context of a handler: task, progress, checkpoints, children and cancellation."""

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from onerow.core import names, steps, values
from onerow.core.durations import Duration, parse_duration
from onerow.core.outcomes import Cancelled
from onerow.core.task import Task
from onerow.engine.handler.checkpoints import Additions, Checkpoints, TaskCount, called, on_loop
from onerow.engine.handler.requests import Request
from onerow.pipelines.pipeline import Pipeline

Item = TypeVar("Item")


class Link(Protocol):
    """Connection of a running attempt to its worker: in the same process or over a pipe."""

    @property
    def tasks(self) -> Sequence[Task]:
        """The tasks of the attempt: one, or those of a batch."""

    def stop_reason(self) -> str | None: ...

    def progress(self, text: str) -> None: ...

    def log(self, level: str, text: str, *, echo: bool = True) -> None:
        """Write a message to the task log; with `echo` also where output is shown."""

    def write(self, level: str, text: str) -> None:
        """Write a piece of output; complete lines go to the log."""

    def ask(self, request: Request) -> str:
        """Block until the worker answers; return JSON text. Raise Cancelled if the attempt must stop."""


class Context:
    """Passed to handlers that have a parameter named `ctx`."""

    def __init__(self, task: Task, link: Link) -> None:
        self.task = task
        self.tasks: Sequence[Task] = (task,)  # several only for the middleware of a batch phase
        self._link = link
        self._checkpoints: Checkpoints | None = None

    @property
    def task_id(self) -> str:
        return self.task.task_id

    @property
    def user_id(self) -> str:
        return self.task.user_id

    @property
    def phase(self) -> str:
        return self.task.phase

    @property
    def attempt(self) -> int:
        """Number of this claim in the phase, from 1."""
        return self.task.attempt

    @property
    def token(self) -> int:
        """Fencing token: grows with each claim; store it with your side effects and refuse smaller ones."""
        return self.task.token

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this phase; different after a replay."""
        return f"{self.task.task_id}:{self.task.phase}:{self.task.generation}"

    @property
    def metadata(self) -> dict[str, Any]:
        return self.task.metadata

    @property
    def cancelled(self) -> bool:
        """Whether the attempt must stop: it was cancelled, timed out, or lost its lease."""
        return self._link.stop_reason() is not None

    def check(self) -> None:
        """Raise Cancelled if the attempt must stop; call this regularly in long loops."""
        reason = self._link.stop_reason()
        if reason is not None:
            raise Cancelled(reason)

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report progress; written to the store about once a second."""
        self._link.progress(values.encode({"done": done, "total": total, "note": note}, "progress"))

    def track(self, items: Iterable[Item], total: int | None = None, note: str = "") -> Iterator[Item]:
        """Iterate over items, report progress after each, and raise Cancelled if the attempt must stop."""
        size = total if total is not None else len(items) if isinstance(items, Sized) else None
        for index, item in enumerate(items):
            self.check()
            yield item
            self.progress(index + 1, size, note)
        self.check()

    def step(self, name: str, function: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
        """Call a function once across all attempts of this phase; its result is stored as JSON and reused.

        In an `async def` handler await it; a plain function then runs in a separate thread.
        """
        step = self._memory.astep if on_loop() else self._memory.step
        return step(steps.check_name(name), function, args, named)

    def remembers(self, name: str) -> bool:
        """Whether this or an earlier attempt has completed a step."""
        return self._memory.remembers(name)

    def wait(self, signal: str, *, timeout: Duration | None = None) -> Any:
        """Return the payload of a signal; without one, the task waits without a slot and the phase then starts again.

        Put code that must not run twice in a step. Raises WaitExpired if no signal arrives in time. In an `async def`
        handler await it.
        """
        names.check_name(signal, "signal")
        span = None if timeout is None else parse_duration(timeout, "timeout")
        return called(self._memory.wait, signal, span)

    def sleep(self, for_: Duration, *, name: str = "") -> Any:
        """Wait without a slot: the attempt ends, and after `for_` the phase starts again and this call returns at once.

        Costs no retry. Put code that must not run twice in a step. A sleep is identified by its name and its
        order among those of the same name. In an `async def` handler await it.
        """
        span = parse_duration(for_, "for_")
        return called(self._memory.sleep, values.check_text(name, "name", 150), span)

    def spawn(
        self,
        pipeline: Pipeline | str,
        payloads: Iterable[Any],
        *,
        name: str = "",
        key: Callable[[Any], str] | None = None,
        **terms: Any,
    ) -> int:
        """Add child tasks; return how many. Repeating the spawn in a later attempt adds nothing.

        An item is a payload, or an Addition with its own terms; `terms` (title, priority, limit_key, …) apply to all
        other items. A child is identified by its position or by `key`. In an `async def` handler await it.
        """
        target = pipeline if isinstance(pipeline, str) else pipeline.name
        additions = Additions(target, payloads, key, terms)
        return called(self._memory.spawn, name or target, additions)  # type: ignore[no-any-return]

    def join(self, *, timeout: Duration | None = None, all_must_succeed: bool = False) -> TaskCount:
        """Count the ended children; until all have ended, the task waits without a slot, then the phase restarts.

        Raises ChildrenFailed if all must succeed and one did not, WaitExpired after the timeout. In an `async def`
        handler await it.
        """
        span = None if timeout is None else parse_duration(timeout, "timeout")
        return called(self._memory.join, span, all_must_succeed)  # type: ignore[no-any-return]

    def children(self) -> Any:
        """Iterate over the children, in no defined order; in an `async def` handler use `async for`."""
        return self._memory.achildren() if on_loop() else self._memory.children()

    @property
    def _memory(self) -> Checkpoints:
        if self._checkpoints is None:
            self._checkpoints = Checkpoints(self.task, self._link.ask)
        return self._checkpoints

    def log(self, message: str, *, level: str = "info") -> None:
        """Add a line to the task's log."""
        self._link.log(level, message)


current: ContextVar[Link | None] = ContextVar("onerow_attempt", default=None)
"""The attempt that runs in this context, for output capture."""
