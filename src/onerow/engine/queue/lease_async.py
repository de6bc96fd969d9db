"""Async methods, rendered by tools/render_async.py from lease.py; do not edit."""

# mypy: warn-return-any=False
from types import TracebackType
from typing import Any, Self

from onerow.core.durations import Duration
from onerow.core.task import Task
from onerow.engine.queue.in_thread import in_thread


class LeasedAsync:
    """Async methods of Leased."""

    async def remember_async(self, name: str, value: Any) -> Task:
        """Async `remember`."""
        return await in_thread(self, "remember", name, value)

    async def progress_async(self, done: float, total: float | None = None, note: str = "") -> Task:
        """Async `progress`."""
        return await in_thread(self, "progress", done, total, note)

    async def complete_async(self, result: Any = None) -> Task:
        """Async `complete`."""
        return await in_thread(self, "complete", result)

    async def fail_async(self, error: BaseException | str, *, error_class: str = "unknown", retry: bool = True) -> Task:
        """Async `fail`."""
        return await in_thread(self, "fail", error, error_class=error_class, retry=retry)

    async def snooze_async(self, for_: Duration) -> Task:
        """Async `snooze`."""
        return await in_thread(self, "snooze", for_)

    async def cancel_async(self, reason: str = "") -> Task:
        """Async `cancel`."""
        return await in_thread(self, "cancel", reason)

    async def skip_async(self, reason: str = "") -> Task:
        """Async `skip`."""
        return await in_thread(self, "skip", reason)

    async def hand_back_async(self) -> Task:
        """Async `hand_back`."""
        return await in_thread(self, "hand_back")

    async def extend_async(self, lease_for: Duration | None = None) -> Task:
        """Async `extend`."""
        return await in_thread(self, "extend", lease_for)


class LeasesAsync:
    """Async methods of Leases."""

    async def __aenter__(self) -> Self:
        await in_thread(self, "__enter__")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return await in_thread(self, "__exit__", kind, error, trace)
