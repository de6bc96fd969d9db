"""The context of a handler: task, progress, checkpoints, children and cancellation."""

from asyncio import to_thread
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence, Sized
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, ParamSpec, Protocol, TypeVar, Unpack, overload

from onerow.core import names, steps, values
from onerow.core.addition import Addition, ChildOptions
from onerow.core.durations import Duration, parse_duration
from onerow.core.outcomes import Cancelled
from onerow.core.task import Task
from onerow.engine.handler.checkpoints import Additions, Checkpoints, Child, ChildCounts
from onerow.engine.handler.requests import Request
from onerow.pipelines.pipeline import Pipeline
from onerow.pipelines.typed import Payload, Untyped

Item = TypeVar("Item")
P = ParamSpec("P")
R = TypeVar("R")


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


class BaseContext:
    """What the contexts of `def` and `async def` handlers have in common; nothing here blocks."""

    def __init__(self, task: Task, link: Link) -> None:
        self.task: Task = task  # as it was claimed
        self.tasks: Sequence[Task] = (task,)  # the same; several only for the middleware of a batch phase
        self._link = link
        self._checkpoints: Checkpoints | None = None

    @property
    def task_id(self) -> str:
        """The id of the task."""
        return self.task.task_id

    @property
    def user_id(self) -> str:
        """The owner of the task."""
        return self.task.user_id

    @property
    def phase(self) -> str:
        """The name of the phase."""
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
        """The metadata of the adder."""
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
        """Report progress; written to the store about once a second. note: a text that is shown with it."""
        self._link.progress(values.encode({"done": done, "total": total, "note": note}, "progress"))

    def track(self, items: Iterable[Item], total: int | None = None, note: str = "") -> Iterator[Item]:
        """Iterate over items, report progress after each, and raise Cancelled if the attempt must stop.

        items: any iterable. total: their number, if the iterable does not know it. note: a text that is shown with it.
        """
        size = total if total is not None else len(items) if isinstance(items, Sized) else None
        for index, item in enumerate(items):
            self.check()
            yield item
            self.progress(index + 1, size, note)
        self.check()

    def remembers(self, name: str) -> bool:
        """Whether this or an earlier attempt has completed a step. name: as given to `step`."""
        return self._memory.remembers(name)

    @property
    def _memory(self) -> Checkpoints:
        if self._checkpoints is None:
            self._checkpoints = Checkpoints(self.task, self._link.ask)
        return self._checkpoints

    def log(self, message: str, *, level: str = "info") -> None:
        """Add a line to the task's log. message: the line."""
        self._link.log(level, message)


class Context(BaseContext):
    """Passed to `def` handlers that have a parameter named `ctx`."""

    def step(self, name: str, function: Callable[P, R], /, *args: P.args, **named: P.kwargs) -> R:
        """Call a function once across all attempts of this phase; its result is stored as JSON and reused.

        The result is decoded to the return type that the function declares; without one, a tuple becomes a list and a
        model a dict. name: identifies the step in its phase. function: what to call. args, named: its arguments.
        """
        return self._memory.step(steps.check_call(name, function), function, args, named)  # type: ignore[no-any-return]

    def wait(self, signal: str, *, timeout: Duration | None = None) -> Any:
        """Return the payload of a signal; without one, the task waits without a slot and the phase then starts again.

        Put code that must not run twice in a step. Raises WaitExpired if no signal arrives in time. signal: its name.
        """
        return self._memory.wait(names.check_name(signal, "signal"), _span(timeout))

    def sleep(self, for_: Duration, *, name: str = "") -> None:
        """Wait without a slot: the attempt ends, and after `for_` the phase starts again and this call returns at once.

        Costs no retry. Put code that must not run twice in a step. name: identifies the sleep, together with its order
        among those of the same name.
        """
        self._memory.sleep(values.check_text(name, "name", 150), parse_duration(for_, "for_"))

    @overload
    def spawn(
        self,
        pipeline: Pipeline[Payload],
        payloads: Iterable[Payload | Addition],
        *,
        name: str = "",
        key: Callable[[Payload], str] | None = None,
        **options: Unpack[ChildOptions],
    ) -> int: ...

    @overload
    def spawn(
        self,
        pipeline: Pipeline[Untyped] | str,
        payloads: Iterable[Any],
        *,
        name: str = "",
        key: Callable[[Any], str] | None = None,
        **options: Unpack[ChildOptions],
    ) -> int: ...

    def spawn(
        self,
        pipeline: Pipeline[Any] | str,
        payloads: Iterable[Any],
        *,
        name: str = "",
        key: Callable[[Any], str] | None = None,
        **options: Unpack[ChildOptions],
    ) -> int:
        """Add child tasks; return how many. Repeating the spawn in a later attempt adds nothing.

        payloads: each is a payload, or an Addition with its own options; the options given here apply to all others.
        name: identifies the spawn in its phase; by default the pipeline's name. key: a function from a payload to a
        text that identifies the child; by default its position does.
        """
        additions = Additions(pipeline, payloads, key, options)
        return self._memory.spawn(name or additions.pipeline, additions)

    def join(self, *, timeout: Duration | None = None, all_must_succeed: bool = False) -> ChildCounts:
        """Count the ended children; until all have ended, the task waits without a slot, then the phase restarts.

        all_must_succeed: raise ChildrenFailed if one did not complete. timeout: raise WaitExpired after this time.
        """
        return self._memory.join(_span(timeout), all_must_succeed)

    def children(self) -> Iterator[Child]:
        """Iterate over the children, in no defined order."""
        return self._memory.children()


class AsyncContext(BaseContext):
    """Passed to `async def` handlers that have a parameter named `ctx`: the methods of Context, to be awaited."""

    @overload
    async def step(self, name: str, function: Callable[P, Awaitable[R]], /, *args: P.args, **named: P.kwargs) -> R: ...

    @overload
    async def step(self, name: str, function: Callable[P, R], /, *args: P.args, **named: P.kwargs) -> R: ...

    async def step(self, name: str, function: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
        """Async `Context.step`; a plain function runs in a separate thread."""
        return await self._memory.astep(steps.check_call(name, function), function, args, named)

    async def wait(self, signal: str, *, timeout: Duration | None = None) -> Any:
        """Async `Context.wait`."""
        return await to_thread(self._memory.wait, names.check_name(signal, "signal"), _span(timeout))

    async def sleep(self, for_: Duration, *, name: str = "") -> None:
        """Async `Context.sleep`."""
        await to_thread(self._memory.sleep, values.check_text(name, "name", 150), parse_duration(for_, "for_"))

    @overload
    async def spawn(
        self,
        pipeline: Pipeline[Payload],
        payloads: Iterable[Payload | Addition],
        *,
        name: str = "",
        key: Callable[[Payload], str] | None = None,
        **options: Unpack[ChildOptions],
    ) -> int: ...

    @overload
    async def spawn(
        self,
        pipeline: Pipeline[Untyped] | str,
        payloads: Iterable[Any],
        *,
        name: str = "",
        key: Callable[[Any], str] | None = None,
        **options: Unpack[ChildOptions],
    ) -> int: ...

    async def spawn(
        self,
        pipeline: Pipeline[Any] | str,
        payloads: Iterable[Any],
        *,
        name: str = "",
        key: Callable[[Any], str] | None = None,
        **options: Unpack[ChildOptions],
    ) -> int:
        """Async `Context.spawn`."""
        additions = Additions(pipeline, payloads, key, options)
        return await to_thread(self._memory.spawn, name or additions.pipeline, additions)

    async def join(self, *, timeout: Duration | None = None, all_must_succeed: bool = False) -> ChildCounts:
        """Async `Context.join`."""
        return await to_thread(self._memory.join, _span(timeout), all_must_succeed)

    def children(self) -> AsyncIterator[Child]:
        """Async `Context.children`: `async for child in ctx.children()`."""
        return self._memory.achildren()


def _span(timeout: Duration | None) -> timedelta | None:
    return None if timeout is None else parse_duration(timeout, "timeout")


current: ContextVar[Link | None] = ContextVar("onerow_attempt", default=None)
"""The attempt that runs in this context, for output capture."""
