"""Async methods, rendered by tools/render_async.py from bulk.py; do not edit."""

# mypy: warn-return-any=False
import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, Unpack

from onerow.core.retry import Retry
from onerow.core.task import Task
from onerow.engine.queue.in_thread import in_thread
from onerow.engine.queue.progress import BulkOptions, Progress
from onerow.pipelines.typed import Result, Signal


class SelectionAsync:
    """Async methods of Selection."""

    async def count_async(self) -> int:
        """Async `count`."""
        return await in_thread(self, "__getattribute__", "count")

    async def cancel_async(self, *, by: str = "", note: str = "", **options: Unpack[BulkOptions]) -> Progress:
        """Async `cancel`."""
        return await in_thread(self, "cancel", by=by, note=note, **options)

    async def fail_async(
        self,
        error: str,
        *,
        error_class: str = "permanent",
        by: str = "",
        note: str = "",
        **options: Unpack[BulkOptions],
    ) -> Progress:
        """Async `fail`."""
        return await in_thread(self, "fail", error, error_class=error_class, by=by, note=note, **options)

    async def retry_async(
        self, *, policy: Retry | None = None, by: str = "", note: str = "", **options: Unpack[BulkOptions]
    ) -> Progress:
        """Async `retry`."""
        return await in_thread(self, "retry", policy=policy, by=by, note=note, **options)

    async def replay_async(
        self, phase: str | None = None, *, by: str = "", note: str = "", **options: Unpack[BulkOptions]
    ) -> Progress:
        """Async `replay`."""
        return await in_thread(self, "replay", phase, by=by, note=note, **options)

    async def finish_async(
        self,
        *,
        result: Any = None,
        phase_only: bool = False,
        by: str = "",
        note: str = "",
        **options: Unpack[BulkOptions],
    ) -> Progress:
        """Async `finish`."""
        return await in_thread(self, "finish", result=result, phase_only=phase_only, by=by, note=note, **options)

    async def reschedule_async(
        self, run_at: datetime | str, *, by: str = "", note: str = "", **options: Unpack[BulkOptions]
    ) -> Progress:
        """Async `reschedule`."""
        return await in_thread(self, "reschedule", run_at, by=by, note=note, **options)

    async def set_priority_async(
        self, priority: int, *, by: str = "", note: str = "", **options: Unpack[BulkOptions]
    ) -> Progress:
        """Async `set_priority`."""
        return await in_thread(self, "set_priority", priority, by=by, note=note, **options)

    async def signal_async(
        self,
        name: str | Signal[Result],
        payload: Result | None = None,
        *,
        signal_id: str = "",
        by: str = "",
        **options: Unpack[BulkOptions],
    ) -> Progress:
        """Async `signal`."""
        return await in_thread(self, "signal", name, payload, signal_id=signal_id, by=by, **options)

    async def annotate_async(self, metadata: dict[str, Any], **options: Unpack[BulkOptions]) -> Progress:
        """Async `annotate`."""
        return await in_thread(self, "annotate", metadata, **options)

    async def __aiter__(self) -> AsyncIterator[Task]:
        tasks = await in_thread(self, "__iter__")
        while (task := await asyncio.to_thread(next, tasks, None)) is not None:
            yield task
