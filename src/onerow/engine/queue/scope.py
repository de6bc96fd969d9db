"""What the parts of a queue need of it, so that none of them imports the Queue itself."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from onerow.core.durations import Duration
from onerow.core.plan import Plan
from onerow.core.task import Task
from onerow.engine.queue.lease import Leases
from onerow.engine.queue.operations import Act
from onerow.pipelines.pipeline import Pipeline
from onerow.ports import Filter, LeaseRecord, Order, Page, Store, TaskCount


class Scope(Protocol):
    """One queue, for all users or for one: its store, its definitions, and its operations on tasks."""

    @property
    def store(self) -> Store: ...

    @property
    def pipelines(self) -> Mapping[str, Pipeline]: ...

    def plan(self, pipeline: str) -> Plan: ...

    def find(
        self, where: Filter | None = None, *, limit: int = 100, order: Order = "newest", after: str | None = None
    ) -> Page: ...

    def count(self, where: Filter | None = None) -> list[TaskCount]: ...

    def acted(self, asked: Act, task: Task) -> None: ...

    def claim(
        self,
        pipeline: Pipeline | str,
        phase: str | None = None,
        *,
        limit: int = 1,
        ids: Sequence[str] | None = None,
        lease_for: Duration = timedelta(seconds=30),
        worker: str = "",
    ) -> Leases: ...

    def rescue(
        self,
        pipeline: str | None = None,
        phase: str | None = None,
        *,
        ended_for: Duration = timedelta(0),
        by: str = "",
    ) -> list[Task]: ...

    def rescue_ended(self, ended: Sequence[LeaseRecord], *, by: str) -> list[Task]: ...
