"""The context that a handler may ask for: where it is, how far it got, and whether it should stop."""

from collections.abc import Iterable, Iterator, Sized
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from onerow.core import values
from onerow.core.outcomes import Cancelled
from onerow.core.task import Task

Item = TypeVar("Item")


class Link(Protocol):
    """How a running attempt reaches its worker: in the same process, or over a pipe."""

    def stop_reason(self) -> str | None: ...

    def progress(self, text: str) -> None: ...

    def log(self, level: str, text: str) -> None: ...

    def write(self, level: str, text: str) -> None:
        """Output as it comes, in pieces; whole lines go to the log."""


class Context:
    """Given to handlers with a parameter named `ctx`."""

    def __init__(self, task: Task, link: Link) -> None:
        self.task = task
        self._link = link

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

    def log(self, message: str, *, level: str = "info") -> None:
        """Add a line to the task's log."""
        self._link.log(level, message)


current: ContextVar[Link | None] = ContextVar("onerow_attempt", default=None)
"""The attempt that runs here, for output capture."""
