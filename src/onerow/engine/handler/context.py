"""The context that a handler may ask for: where it is, how far it got, what it remembers, and whether to stop."""

from collections.abc import Callable, Iterable, Iterator, Sized
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from onerow.core import names, steps, values
from onerow.core.durations import Duration, parse_duration
from onerow.core.outcomes import Cancelled
from onerow.core.task import Task
from onerow.engine.handler.checkpoints import Additions, Checkpoints, TaskCount, waiting
from onerow.engine.handler.requests import Request
from onerow.pipelines.pipeline import Pipeline

Item = TypeVar("Item")


class Link(Protocol):
    """How a running attempt reaches its worker: in the same process, or over a pipe."""

    def stop_reason(self) -> str | None: ...

    def progress(self, text: str) -> None: ...

    def log(self, level: str, text: str) -> None: ...

    def write(self, level: str, text: str) -> None:
        """Output as it comes, in pieces; whole lines go to the log."""

    def ask(self, request: Request) -> str:
        """What the worker answers, as JSON text; blocks. Raises Cancelled when the work should stop."""


class Context:
    """Given to handlers with a parameter named `ctx`."""

    def __init__(self, task: Task, link: Link) -> None:
        self.task = task
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
        """Which claim in this phase this is, from 1."""
        return self.task.attempt

    @property
    def token(self) -> int:
        """Grows with every claim of the task: store it with your side effects and refuse smaller ones."""
        return self.task.token

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this phase; another after a replay."""
        return f"{self.task.task_id}:{self.task.phase}:{self.task.generation}"

    @property
    def metadata(self) -> dict[str, Any]:
        return self.task.metadata

    @property
    def cancelled(self) -> bool:
        """Whether the work should stop: it was cancelled, timed out, or belongs to someone else now."""
        return self._link.stop_reason() is not None

    def check(self) -> None:
        """Raise Cancelled when the work should stop; call it now and then in long loops."""
        reason = self._link.stop_reason()
        if reason is not None:
            raise Cancelled(reason)

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Say how far it got; shown by every face, written about once a second."""
        self._link.progress(values.encode({"done": done, "total": total, "note": note}, "progress"))

    def track(self, items: Iterable[Item], total: int | None = None, note: str = "") -> Iterator[Item]:
        """The items one by one, with progress after each, and a stop when the work should stop."""
        size = total if total is not None else len(items) if isinstance(items, Sized) else None
        for index, item in enumerate(items):
            self.check()
            yield item
            self.progress(index + 1, size, note)
        self.check()

    def step(self, name: str, function: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
        """Call a function once for all attempts of this phase: what it returned (as JSON) is remembered.

        In an `async def` handler await it; there a plain function runs in a thread of its own.
        """
        return waiting(
            lambda: self._memory.step(steps.check_name(name), function, args, named),
            lambda: self._memory.astep(steps.check_name(name), function, args, named),
        )

    def remembers(self, name: str) -> bool:
        """Whether this attempt or an earlier one has done a step."""
        return self._memory.remembers(name)

    def wait(self, signal: str, *, timeout: Duration | None = None) -> Any:
        """The payload of a signal; while there is none the task waits without a slot, and the phase begins anew.

        What must not happen twice belongs in a step. Raises WaitExpired when nothing came in time. In an `async def`
        handler await it.
        """
        names.check_name(signal, "signal")
        span = None if timeout is None else parse_duration(timeout, "timeout")
        return waiting(lambda: self._memory.wait(signal, span), lambda: self._memory.await_(signal, span))

    def spawn(
        self,
        pipeline: Pipeline | str,
        payloads: Iterable[Any],
        *,
        name: str = "",
        key: Callable[[Any], str] | None = None,
        **terms: Any,
    ) -> int:
        """Add tasks that belong to this one; how many. The same spawn of a later attempt adds nothing.

        An item is a payload, or an Addition with terms of its own; `terms` (title, priority, limit_key, …) hold for
        all. Children are told apart by their position, or by `key`. In an `async def` handler await it.
        """
        target = pipeline if isinstance(pipeline, str) else pipeline.name
        given = Additions(target, payloads, key, terms)
        return waiting(  # type: ignore[no-any-return]
            lambda: self._memory.spawn(name or target, given), lambda: self._memory.aspawn(name or target, given)
        )

    def join(self, *, timeout: Duration | None = None, all_must_succeed: bool = False) -> TaskCount:
        """How the children ended; while some have not, the task waits without a slot, and the phase begins anew.

        Raises ChildrenFailed when all must succeed and one did not, WaitExpired when the time is over. In an
        `async def` handler await it.
        """
        span = None if timeout is None else parse_duration(timeout, "timeout")
        return waiting(  # type: ignore[no-any-return]
            lambda: self._memory.join(span, all_must_succeed), lambda: self._memory.ajoin(span, all_must_succeed)
        )

    def children(self) -> Any:
        """The children one by one, in no order (their payloads tell them apart); in an `async def` handler use `async for`."""
        return waiting(lambda: self._memory.children(), lambda: self._memory.achildren())

    @property
    def _memory(self) -> Checkpoints:
        if self._checkpoints is None:
            self._checkpoints = Checkpoints(self.task, self._link.ask)
        return self._checkpoints

    def log(self, message: str, *, level: str = "info") -> None:
        """Add a line to the task's log."""
        self._link.log(level, message)


current: ContextVar[Link | None] = ContextVar("onerow_attempt", default=None)
"""The attempt that runs here, for output capture."""
