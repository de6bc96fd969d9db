"""Async methods, rendered by tools/render_async.py from scope.py, queue.py; do not edit."""

# mypy: warn-return-any=False
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, Unpack

from onerow.core.durations import Duration
from onerow.core.filters import Filter, Order
from onerow.core.retry import Retry
from onerow.core.status import ENDS, Status
from onerow.core.task import Task
from onerow.engine.control.definitions import UNCHANGED
from onerow.engine.queue.in_thread import in_thread
from onerow.engine.queue.lease import Leases
from onerow.engine.queue.progress import BulkOptions, Progress
from onerow.engine.queue.puller import Puller
from onerow.pipelines.pipeline import Pipeline
from onerow.pipelines.typed import Result, Signal
from onerow.ports import LogPage, Page, TaskCount


class QueueAsync:
    """Async methods of Queue."""

    async def close_async(self) -> None:
        """Async `close`."""
        return await in_thread(self, "close")

    async def get_async(self, task_id: str) -> Task:
        """Async `get`."""
        return await in_thread(self, "get", task_id)

    async def find_one_async(self, task_id: str) -> Task | None:
        """Async `find_one`."""
        return await in_thread(self, "find_one", task_id)

    async def find_async(
        self,
        where: Filter | str | None = None,
        *,
        limit: int = 100,
        order: Order | None = None,
        after: str | None = None,
    ) -> Page:
        """Async `find`."""
        return await in_thread(self, "find", where, limit=limit, order=order, after=after)

    async def count_async(self, where: Filter | str | None = None) -> list[TaskCount]:
        """Async `count`."""
        return await in_thread(self, "count", where)

    async def logs_async(self, task_id: str, *, after: int = 0, limit: int = 1000, tail: int | None = None) -> LogPage:
        """Async `logs`."""
        return await in_thread(self, "logs", task_id, after=after, limit=limit, tail=tail)

    async def rescue_async(
        self, pipeline: str | None = None, phase: str | None = None, *, ended_for: Duration = timedelta(0), by: str = ""
    ) -> list[Task]:
        """Async `rescue`."""
        return await in_thread(self, "rescue", pipeline, phase, ended_for=ended_for, by=by)

    async def cancel_async(self, task_id: str, *, by: str = "", note: str = "") -> Task:
        """Async `cancel`."""
        return await in_thread(self, "cancel", task_id, by=by, note=note)

    async def fail_async(
        self, task_id: str, error: str, *, error_class: str = "permanent", by: str = "", note: str = ""
    ) -> Task:
        """Async `fail`."""
        return await in_thread(self, "fail", task_id, error, error_class=error_class, by=by, note=note)

    async def retry_async(
        self, task_id: str, *, policy: Retry | None = None, retry_count: int | None = None, by: str = "", note: str = ""
    ) -> Task:
        """Async `retry`."""
        return await in_thread(self, "retry", task_id, policy=policy, retry_count=retry_count, by=by, note=note)

    async def replay_async(self, task_id: str, phase: str | None = None, *, by: str = "", note: str = "") -> Task:
        """Async `replay`."""
        return await in_thread(self, "replay", task_id, phase, by=by, note=note)

    async def finish_async(
        self, task_id: str, *, result: Any = None, phase_only: bool = False, by: str = "", note: str = ""
    ) -> Task:
        """Async `finish`."""
        return await in_thread(self, "finish", task_id, result=result, phase_only=phase_only, by=by, note=note)

    async def reschedule_async(self, task_id: str, run_at: datetime | str, *, by: str = "", note: str = "") -> Task:
        """Async `reschedule`."""
        return await in_thread(self, "reschedule", task_id, run_at, by=by, note=note)

    async def set_priority_async(self, task_id: str, priority: int, *, by: str = "", note: str = "") -> Task:
        """Async `set_priority`."""
        return await in_thread(self, "set_priority", task_id, priority, by=by, note=note)

    async def signal_async(
        self,
        task_id: str,
        name: str | Signal[Result],
        payload: Result | None = None,
        *,
        signal_id: str = "",
        by: str = "",
    ) -> Task:
        """Async `signal`."""
        return await in_thread(self, "signal", task_id, name, payload, signal_id=signal_id, by=by)

    async def annotate_async(self, task_id: str, metadata: dict[str, Any]) -> Task:
        """Async `annotate`."""
        return await in_thread(self, "annotate", task_id, metadata)

    async def retry_failed_async(
        self,
        where: Filter | str | None = None,
        *,
        policy: Retry | None = None,
        by: str = "",
        note: str = "",
        **options: Unpack[BulkOptions],
    ) -> Progress:
        """Async `retry_failed`."""
        return await in_thread(self, "retry_failed", where, policy=policy, by=by, note=note, **options)

    async def pause_async(self, pipeline: Pipeline | str, phase: str = "*", *, by: str = "", reason: str = "") -> None:
        """Async `pause`."""
        return await in_thread(self, "pause", pipeline, phase, by=by, reason=reason)

    async def resume_async(self, pipeline: Pipeline | str, phase: str = "*") -> bool:
        """Async `resume`."""
        return await in_thread(self, "resume", pipeline, phase)

    async def set_limit_async(
        self,
        pipeline: Pipeline | str,
        phase: str,
        *,
        concurrency: int | Literal["unchanged"] | None = UNCHANGED,
        per_key: int | Literal["unchanged"] | None = UNCHANGED,
        rate: str | None = UNCHANGED,
        rate_per_key: str | None = UNCHANGED,
        by: str = "",
        reason: str = "",
    ) -> None:
        """Async `set_limit`."""
        return await in_thread(
            self,
            "set_limit",
            pipeline,
            phase,
            concurrency=concurrency,
            per_key=per_key,
            rate=rate,
            rate_per_key=rate_per_key,
            by=by,
            reason=reason,
        )

    async def reset_limit_async(self, pipeline: Pipeline | str, phase: str) -> bool:
        """Async `reset_limit`."""
        return await in_thread(self, "reset_limit", pipeline, phase)

    async def drain_async(self, worker: str, *, by: str = "") -> None:
        """Async `drain`."""
        return await in_thread(self, "drain", worker, by=by)

    async def bulk_operations_async(self) -> list[Progress]:
        """Async `bulk_operations`."""
        return await in_thread(self, "bulk_operations")

    async def stop_bulk_async(self, name: str, *, by: str = "") -> None:
        """Async `stop_bulk`."""
        return await in_thread(self, "stop_bulk", name, by=by)

    async def publish_async(self, *pipelines: Pipeline, force: bool = False) -> list[str]:
        """Async `publish`."""
        return await in_thread(self, "publish", *pipelines, force=force)

    async def claim_async(
        self,
        pipeline: Pipeline | str,
        phase: str | None = None,
        *,
        limit: int = 1,
        ids: Sequence[str] | None = None,
        lease_for: Duration = timedelta(seconds=30),
        worker: str = "",
    ) -> Leases:
        """Async `claim`."""
        return await in_thread(self, "claim", pipeline, phase, limit=limit, ids=ids, lease_for=lease_for, worker=worker)

    async def puller_async(
        self, pipeline: Pipeline | str, phase: str | None = None, *, lease_for: Duration | None = None, worker: str = ""
    ) -> Puller:
        """Async `puller`."""
        return await in_thread(self, "puller", pipeline, phase, lease_for=lease_for, worker=worker)

    async def purge_async(
        self,
        *,
        older_than: Duration,
        statuses: Iterable[Status | str] = ENDS,
        pipeline: str | None = None,
        limit: int = 10000,
    ) -> int:
        """Async `purge`."""
        return await in_thread(self, "purge", older_than=older_than, statuses=statuses, pipeline=pipeline, limit=limit)
