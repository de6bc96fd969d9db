"""What the parts of a queue share: the store, the user, the definitions, the events, and reading."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self, get_args

from msgspec.structs import replace

from onerow.core import values
from onerow.core.durations import Duration, parse_duration
from onerow.core.errors import BadInput, UnknownName
from onerow.core.filters import Filter, Order, narrowed
from onerow.core.history import cancel_reason
from onerow.core.plan import PhasePlan, Plan
from onerow.core.query import Query, parse_query
from onerow.core.retention import Keep, KeepOption, Retention, parse_keep
from onerow.core.status import CANCELLED
from onerow.core.task import Task
from onerow.engine.control import definitions
from onerow.engine.control.alerts import AlertRule
from onerow.engine.control.definitions import Definitions
from onerow.engine.control.event_webhooks import EventWebhook
from onerow.engine.control.relocation import RelocationCheck
from onerow.engine.events.events import Events, OperationApplied, TaskCancelled, TaskFailed
from onerow.engine.events.log import LogLines
from onerow.engine.output.files import LogFiles
from onerow.engine.output.masking import Masker
from onerow.engine.queue import operations
from onerow.engine.queue.children import Children
from onerow.engine.queue.compare_and_swap import find_task
from onerow.engine.queue.end_watch import EndWatch
from onerow.engine.queue.operations import Operation
from onerow.engine.queue.rescue import rescue_all, rescue_ended
from onerow.pipelines.extensions import Surroundable
from onerow.pipelines.pipeline import Pipeline, not_a_pipeline
from onerow.ports import Inbox, LeaseRecord, LogPage, Page, Store, TaskCount

_SENT_WITHIN = timedelta(hours=1)
"""How long ended tasks are stored at least if their ends are sent to webhooks."""


class Scope(Surroundable):
    """The tasks of one store, for all users or for one; the first use opens the connection."""

    def __init__(
        self,
        store: Store,
        *,
        keep: KeepOption | None = None,
        secrets: Iterable[str] = (),
        mask: Iterable[str | re.Pattern[str]] = (),
        log_files: str | Path | None = None,
    ) -> None:
        super().__init__()
        self._store = store
        self._ready = False
        self._user: str | None = None
        self.definitions: Definitions = Definitions(lambda: self.store)
        self.pipelines: dict[str, Pipeline] = {}
        self.events: Events = Events()
        self.log_lines: LogLines = LogLines(self.events, lambda: self.masker)
        self.watches: list[AlertRule] = []
        self.event_webhooks: list[EventWebhook] = []
        self.inboxes: list[Inbox] = []
        self._keep: Keep | None = None if keep is None else parse_keep(keep)
        self.log_files: LogFiles | None = None if log_files is None else LogFiles(Path(log_files).absolute())
        # Surrounds each add: takes the pipeline's name and the number of tasks, yields what their metadata carries.
        self.around_add: Callable[[str, int], AbstractContextManager[Mapping[str, str]]] | None = None
        self._secrets = (tuple(secrets), tuple(mask))
        self._masker: Masker | None = None
        self._check_relocation = RelocationCheck()
        self.end_watch: EndWatch = EndWatch(lambda: self.store)

    def __repr__(self) -> str:
        return f"Queue({self._store.url!r})"

    @property
    def url(self) -> str:
        """Absolute URL of the store, with any password masked."""
        return self._store.url

    @property
    def store(self) -> Store:
        """The store, prepared."""
        if not self._ready:
            self._store.prepare()
            self._ready = True
        return self._store

    def _store_for(self, tx: Any) -> Store:
        """Return the store for an add. In a caller's transaction it must have its tables already.

        Creating them could wait for that transaction, which in turn waits for this call.
        """
        if tx is not None and not self._ready:
            self._store.check()
            self._ready = True
        return self.store

    @property
    def retention(self) -> Retention:
        """How long ended tasks are stored: `keep`, else that of the settings file."""
        if self._keep is None:
            self._keep = self._configured_keep()
        # Webhooks read the ends of tasks from their rows.
        return Retention(self._keep, at_least=_SENT_WITHIN if self.event_webhooks else timedelta(0))

    def _configured_keep(self) -> Keep:
        return {}

    @property
    def user_id(self) -> str | None:
        """The only user whose tasks this queue sees; None: all users."""
        return self._user

    @property
    def masker(self) -> Masker:
        """The masker for logs, errors and views; it reads the environment at first use."""
        if self._masker is None:
            self._masker = Masker.of_environment(*self._secrets)
        return self._masker

    def close(self) -> None:
        """Close all connections; the next use opens them again."""
        self.end_watch.close()
        self._store.close()

    def for_user(self, user_id: str) -> Self:
        """Return this queue limited to one user: it reads, adds and changes only that user's tasks.

        user_id: the user.
        """
        scoped = object.__new__(type(self))
        scoped.__dict__ = self.__dict__ | {"_user": values.check_text(user_id, "user_id", 200)}
        return scoped

    def _scoped(self, where: Filter) -> Filter:
        where = narrowed(where)
        if self._user is None:
            return where
        if where.user_id not in (None, self._user):
            raise UnknownName(f"this queue sees only user {self._user!r}", field="user_id")
        return replace(where, user_id=self._user)

    def _require_all_users(self) -> None:
        if self._user is not None:
            raise BadInput("a queue for one user cannot change settings of all users", field="user_id")

    # ── reading ──

    def get(self, task_id: str) -> Task:
        """Return the current state of a task; raise UnknownName if there is none."""
        return find_task(self.store, task_id, self._user)

    def find_one(self, task_id: str) -> Task | None:
        """Return the current state of a task, or None if there is none."""
        try:
            return self.get(task_id)
        except UnknownName:
            return None

    def find(
        self,
        where: Filter | str | None = None,
        *,
        limit: int = 100,
        order: Order | None = None,
        after: str | None = None,
    ) -> Page:
        """Return one page of the tasks that match a query ('status:failed phase:video') or a filter.

        order: by default the order that the query names with sort:, else newest first. after: `next` of the page
        before.
        """
        if order not in (None, *get_args(Order)):
            raise BadInput(f"order is one of {', '.join(get_args(Order))}, not {order!r}", field="order")
        if type(limit) is not int:
            raise BadInput(f"limit must be a whole number, not {limit!r}", field="limit")
        asked = query_of(self, where)
        if order is not None and asked.order not in (None, order):
            raise BadInput(
                f"the query says sort:{asked.order}, but order is {order!r}", fix="give one of them", field="order"
            )
        return self.store.find(asked.where, limit=limit, order=order or asked.order or "newest", after=after)

    def count(self, where: Filter | str | None = None) -> list[TaskCount]:
        """Number of tasks that match a query or a filter, by pipeline, phase and status."""
        return self.store.count(filter_of(self, where))

    def logs(self, task_id: str, *, after: int = 0, limit: int = 1000, tail: int | None = None) -> LogPage:
        """Return log lines of a task. after: `next` of the page before. tail: this many lines, the last ones."""
        self.get(task_id)
        return self.store.read_log(task_id, after=after, limit=limit, tail=tail)

    def _plan_or_none(self, pipeline: str) -> Plan | None:
        try:
            return plan_of(self, pipeline)
        except UnknownName:
            return None

    # ── what follows a change ──

    def _update_relatives(self, task: Task, by: str, *, cancelled: bool) -> None:
        if task.children is not None and cancelled:
            self.children.cancel_children(task.task_id, self.store.now(), by)
        if task.parent_id is not None and task.ended:
            self.children.gather([task.parent_id])

    @property
    def children(self) -> Children:
        """The service that resumes parents and cancels children."""
        return Children(self.store, self._plan_or_none, self.events)

    def rescue(
        self,
        pipeline: str | None = None,
        phase: str | None = None,
        *,
        ended_for: Duration = timedelta(0),
        by: str = "",
    ) -> list[Task]:
        """Rescue tasks whose lease ended at least `ended_for` ago; workers and pullers do this automatically.

        After an outage of the store, live holders need about a third of their lease to send a heartbeat. So rescue only
        leases that ended long ago, unless you have observed the store available for the length of a lease.

        pipeline, phase: only tasks of these; by default all. ended_for: only leases that ended at least this long ago.
        """
        ended_before = self.store.now() - parse_duration(ended_for, "ended_for")
        phases = frozenset() if phase is None else frozenset({phase})
        where, who = self._scoped(Filter(pipeline=pipeline, phases=phases)), operations.asking(by)
        rescued = rescue_all(self.store, where, ended_before, self.events, by=who, plan_of=self._plan_or_none)
        return self._rescued(rescued, who)

    def _rescued(self, tasks: list[Task], by: str) -> list[Task]:
        for task in tasks:
            self._update_relatives(task, by, cancelled=task.status is CANCELLED)
        return tasks


def query_of(scope: Scope, where: Filter | str | None) -> Query:
    """Return what a filter or a query asks for, limited to the scope's user."""
    if not isinstance(where, Filter | str | None):
        raise BadInput(f"give a query like 'status:failed' or a Filter, not {where!r}", field="where")
    asked = parse_query(where, scope.store.now()) if isinstance(where, str) else Query(where or Filter())
    return Query(scope._scoped(asked.where), asked.order)


def filter_of(scope: Scope, where: Filter | str | None) -> Filter:
    """Return the filter of a query without an order, limited to the scope's user."""
    asked = query_of(scope, where)
    if asked.order is not None:
        raise BadInput("sort: orders a list of tasks", fix="leave it out here", field="query")
    return asked.where


def plan_of(scope: Scope, pipeline: Pipeline | str) -> Plan:
    """Return the definition of a pipeline; for a name, the one that tasks follow: published, else of the served code."""
    if isinstance(pipeline, Pipeline):
        return pipeline.plan
    if not isinstance(pipeline, str):
        raise not_a_pipeline(pipeline)
    if pipeline in scope.pipelines:
        return followed_plan(scope, scope.pipelines[pipeline].plan)
    scope.definitions.refresh_if_stale(scope.store.now())
    found = scope.definitions.of(pipeline)
    return definitions.known_plan(definitions.load_plans(scope.store), pipeline) if found is None else found


def followed_plan(scope: Scope, own: Plan) -> Plan:
    """Return the definition that tasks follow when the code has `own`."""
    scope.definitions.refresh_if_stale(scope.store.now())
    return scope.definitions.follow(own)


def phase_of(scope: Scope, pipeline: Pipeline | str, phase: str | None) -> tuple[Plan, PhasePlan]:
    """Return a definition and one of its phases (default: the first)."""
    plan = plan_of(scope, pipeline)
    return plan, plan.first if phase is None else plan.phase(phase)


def after_operation(scope: Scope, operation: Operation, task: Task) -> None:
    """Update relatives and send events after an operation was written."""
    scope._update_relatives(task, operation.by, cancelled=operation.name == "cancel")
    scope.events.send(OperationApplied(task, operation.name, operation.by))
    if operation.name == "fail":
        scope.events.send(TaskFailed(task))
    if operation.name == "cancel" and task.status is CANCELLED:
        scope.events.send(TaskCancelled(task, cancel_reason(task.logs_json)))


def rescue_observed(scope: Scope, ended: Sequence[LeaseRecord], now: datetime, *, by: str) -> list[Task]:
    """Rescue tasks whose leases were observed to have ended; used by pullers."""
    rescued = rescue_ended(
        scope.store, ended, now, scope.events, by=by, user_id=scope.user_id, plan_of=scope._plan_or_none
    )
    return scope._rescued(rescued, by)
