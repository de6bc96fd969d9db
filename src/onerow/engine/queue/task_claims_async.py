"""Async methods, rendered by tools/render_async.py from task_claims.py; do not edit."""

# mypy: warn-return-any=False
from types import TracebackType
from typing import Any, Self

from onerow.engine.queue.in_thread import in_thread


class TaskClaimsAsync:
    """Async methods of TaskClaims."""

    async def try_claim_async(self, task_id: str, worker_id: str, lease_seconds: float = 14400) -> bool:
        """Async `try_claim`."""
        return await in_thread(self, "try_claim", task_id, worker_id, lease_seconds)

    async def mark_processing_async(self, task_id: str) -> bool:
        """Async `mark_processing`."""
        return await in_thread(self, "mark_processing", task_id)

    async def complete_async(self, task_id: str, result: Any = None) -> bool:
        """Async `complete`."""
        return await in_thread(self, "complete", task_id, result)

    async def fail_async(self, task_id: str, error: BaseException | str, *, retry: bool = True) -> bool:
        """Async `fail`."""
        return await in_thread(self, "fail", task_id, error, retry=retry)

    async def is_cancel_requested_async(self, task_id: str) -> bool:
        """Async `is_cancel_requested`."""
        return await in_thread(self, "is_cancel_requested", task_id)

    async def close_async(self) -> None:
        """Async `close`."""
        return await in_thread(self, "close")

    async def __aenter__(self) -> Self:
        await in_thread(self, "__enter__")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return await in_thread(self, "__exit__", kind, error, trace)
