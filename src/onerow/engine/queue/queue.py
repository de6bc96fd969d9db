"""The Queue: the API with which user code, commands and user interfaces add, read and change tasks."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, Self, overload

from msgspec.structs import replace

from onerow.core.addition import Addition
from onerow.core.durations import Duration, parse_duration
from onerow.core.errors import BadInput
from onerow.core.retry import Retry
from onerow.core.status import ENDS, FAILED, Status
from onerow.core.task import Task
from onerow.engine.control import definitions
from onerow.engine.control.alerts import Send, Webhook, watch
from onerow.engine.control.definitions import UNCHANGED
from onerow.engine.events.events import EventType, Hook, TaskAdded, TaskEvent
from onerow.engine.events.hooks import name_of
from onerow.engine.queue import insert, operations, purge
from onerow.engine.queue.bulk import Progress, Selection
from onerow.engine.queue.claim import pull
from onerow.engine.queue.compare_and_swap import operate
from onerow.engine.queue.lease import Leases
from onerow.engine.queue.operations import Operation
from onerow.engine.queue.puller import Puller
from onerow.engine.queue.schedules import Crons
from onerow.engine.queue.scope import Scope
from onerow.engine.queue.task_claims import TaskClaims
from onerow.pipelines.pipeline import Pipeline
from onerow.ports import Existing, Filter, Inserted


class Queue(Scope):
    """The tasks of one store; the first use opens the connection."""

    @overload
    def on(
        self, kind: type[EventType], *, timeout: Duration = "10s"
    ) -> Callable[[Hook[EventType]], Hook[EventType]]: ...

    @overload
    def on(self, kind: type[EventType], hook: Hook[EventType], *, timeout: Duration = "10s") -> Hook[EventType]: ...

    def on(self, kind: type[EventType], hook: Hook[EventType] | None = None, *, timeout: Duration = "10s") -> Any:
        """Call a function after each event of a kind: `queue.on(TaskFailed, notify_me)`, or as a decorator.

        On a queue for one user, only events of that user's tasks. While a worker runs in this process, the function is
        called in a separate thread; timeout: a longer call is reported, and events are dropped until it returns.
        """
        if hook is None:
            return lambda function: self.on(kind, function, timeout=timeout)
        limit = parse_duration(timeout, "timeout").total_seconds()
        user = self._user

        def own_tasks_only(event: EventType) -> None:
            if isinstance(event, TaskEvent) and event.task.user_id == user:
                hook(event)

        self.events.on_for_user(
            kind, hook if user is None else own_tasks_only, name_of(hook), limit, (hook, user, limit)
        )
        return hook

    def alert(self, to: str | Webhook | Send, **what: Any) -> None:
        """Have workers of this queue send alerts to a webhook URL or to a function that takes a list of alerts.

        failures (True): for each task that fails permanently. unserved_for ('5m'): a phase has had due tasks and no
        live worker for this long. overdue_for (None): tasks have been due for this long. again_after ('1h'): minimum
        time between two alerts about the same problem.
        """
        self._require_all_users()
        self.watches.append(watch(to, **what))

    # ── adding ──

    def add(
        self,
        pipeline: Pipeline | str,
        payload: Any = None,
        *,
        task_id: str | None = None,
        user_id: str = "",
        title: str | None = None,
        run_at: datetime | str | None = None,
        delay: Duration | None = None,
        priority: int = 0,
        unique: str | None = None,
        unique_for: Duration | None = None,
        limit_key: str = "",
        max_retries: int | None = None,
        metadata: dict[str, Any] | None = None,
        parent_id: str | None = None,
        tx: Any = None,
    ) -> Task:
        """Add one task and return it; if the unique key or id is taken, return the existing task.

        run_at: earliest start; delay ('10m'): the same, from now on by the store's clock. unique: no second open task with this key (per pipeline and user);
        unique_for ('7d', 'forever') holds the key after the task has ended. limit_key: group for per_key limits.
        tx: your own open transaction on the same database; the task becomes visible when you commit.
        """
        addition = Addition(
            payload, task_id, user_id, title, run_at, priority, unique, unique_for, limit_key, max_retries, metadata,
            parent_id, delay,
        )  # fmt: skip
        return self._add(pipeline, [addition], addition, tx)[0]

    def add_new(self, pipeline: Pipeline | str, payload: Any = None, *, tx: Any = None, **terms: Any) -> Task | None:
        """Like `add`, but return None if the unique key or id is taken."""
        addition = Addition(payload, **terms)
        tasks = self._new_tasks(pipeline, [addition], addition, tx)
        (answer,) = self._insert(tasks, tx)
        task = insert.own(tasks[0], answer)
        return task if isinstance(answer, Inserted) else None

    def add_many(
        self, pipeline: Pipeline | str, payloads: Iterable[Any], *, tx: Any = None, **common: Any
    ) -> list[Task]:
        """Add many tasks in one transaction, all or none. An item is a payload or an Addition."""
        items = list(payloads)
        return self._add(pipeline, items, Addition(None, **insert.for_all(common)), tx) if items else []

    def add_children(
        self, pipeline: Pipeline | str, children: Sequence[Addition], since: datetime | None
    ) -> list[Task]:
        """Insert the children of a task; the worker sets their ids and their parent.

        created_at is at least `since`, even if clocks differ: the parent counts only children created from then on.
        """
        return self._add(pipeline, children, Addition(None), None, since) if children else []

    def _add(
        self,
        pipeline: Pipeline | str,
        items: Sequence[Any],
        common: Addition,
        tx: Any,
        not_before: datetime | None = None,
    ) -> list[Task]:
        tasks = self._new_tasks(pipeline, items, common, tx)
        if not_before is not None:
            tasks = [task if task.created_at >= not_before else replace(task, created_at=not_before) for task in tasks]
        answers = self._insert(tasks, tx)
        return [insert.own(task, answer) for task, answer in zip(tasks, answers, strict=True)]

    def _new_tasks(self, pipeline: Pipeline | str, items: Sequence[Any], common: Addition, tx: Any) -> list[Task]:
        store = self._store_for(tx)
        if isinstance(pipeline, str) and pipeline in self.pipelines:
            pipeline = self.pipelines[pipeline]
        declared = None
        if isinstance(pipeline, Pipeline):
            plan, declared = pipeline.plan, pipeline.payload_type
        else:
            plan = self.plan(pipeline)
        self._check_relocation(store)
        return insert.new_tasks(store, plan, declared, items, common, self._user)

    def _insert(self, tasks: list[Task], tx: Any) -> list[Inserted | Existing]:
        answers = insert.insert(self.store, tasks, tx)
        if self.events.wanted(TaskAdded) and tx is None:
            for answer in answers:
                if isinstance(answer, Inserted):
                    self.events.send(TaskAdded(answer.task))
        return answers

    def serve(self, *pipelines: Pipeline) -> Self:
        """Register the pipelines that workers of this queue run."""
        for pipeline in pipelines:
            known = self.pipelines.get(pipeline.name)
            if known is not None and known is not pipeline:
                raise BadInput(f"two different pipelines are named {pipeline.name!r}", field="pipeline")
            self.pipelines[pipeline.name] = pipeline
        return self

    # ── operations on tasks ──

    def cancel(self, task_id: str, *, by: str = "", note: str = "") -> Task:
        """Cancel a task and its children; a running attempt is stopped within about a second."""
        return self._operate(task_id, operations.cancel(by, note))

    def fail(self, task_id: str, error: str, *, error_class: str = "permanent", by: str = "", note: str = "") -> Task:
        """Fail a waiting task manually, for example because its signal will not arrive; `retry` undoes it."""
        return self._operate(task_id, operations.fail(self.masker.text(error), error_class, by, note))

    def retry(
        self,
        task_id: str,
        *,
        policy: Retry | None = None,
        retry_count: int | None = None,
        by: str = "",
        note: str = "",
    ) -> Task:
        """Retry a failed task from its current phase, with a new retry budget.

        policy: retry only if this policy allows it, after its back-off; without it, at once. retry_count: the value to
        store, for callers that count themselves; default: one more than before.
        """
        return self._operate(task_id, operations.retry(self.plan, by, note, policy, retry_count))

    def replay(self, task_id: str, phase: str | None = None, *, by: str = "", note: str = "") -> Task:
        """Run a completed or failed task again from an earlier phase; later results are cleared."""
        return self._operate(task_id, operations.replay(self.plan, phase, by, note))

    def finish(
        self, task_id: str, *, result: Any = None, phase_only: bool = False, by: str = "", note: str = ""
    ) -> Task:
        """Mark a waiting or failed task (or only its phase) as done manually; `result` is stored as its result."""
        return self._operate(task_id, operations.finish(self.plan, phase_only, by, note, result))

    def reschedule(self, task_id: str, run_at: datetime | str, *, by: str = "", note: str = "") -> Task:
        """Change when a waiting task is due."""
        return self._operate(task_id, operations.reschedule(run_at, by, note))

    def set_priority(self, task_id: str, priority: int, *, by: str = "", note: str = "") -> Task:
        """Change the priority of a task that has not ended (-100…100, lower first)."""
        return self._operate(task_id, operations.set_priority(priority, by, note))

    def signal(self, task_id: str, name: str, payload: Any = None, *, signal_id: str = "", by: str = "") -> Task:
        """Send a signal to a task; it is stored until the task waits for it."""
        return self._operate(task_id, operations.signal(name, payload, signal_id, by))

    def annotate(self, task_id: str, metadata: dict[str, Any]) -> Task:
        """Replace the task's metadata."""
        return self._operate(task_id, operations.annotate(metadata))

    def select(self, where: Filter | None = None, *, ids: Sequence[str] | None = None) -> Selection:
        """Return a selection for bulk operations: `queue.select(Filter(…)).cancel(pace="20/min")`."""
        if ids is not None and where is not None:
            raise BadInput("select tasks by a filter or by ids, not both", field="ids")
        return Selection(self, self._scoped(where), ids)

    def retry_failed(self, where: Filter | None = None, **how: Any) -> Progress:
        """Retry every matching failed task; takes the options of `Selection.retry`."""
        return self.select(replace(where or Filter(), statuses=frozenset({FAILED}))).retry(**how)

    def _operate(self, task_id: str, operation: Operation) -> Task:
        task = operate(self.store, task_id, lambda task: operation.rule(task, self.store.now()), self._user)
        self.after_operation(operation, task)
        return task

    # ── phases ──

    def pause(self, pipeline: Pipeline | str, phase: str = "*", *, by: str = "", reason: str = "") -> None:
        """Stop claims from a phase (default: the whole pipeline) until it is resumed; running attempts continue."""
        self._require_all_users()
        name = self._check_phase(pipeline, phase)
        definitions.set_pause(self.store, name, phase, operations.asking(by), reason)

    def resume(self, pipeline: Pipeline | str, phase: str = "*") -> bool:
        """Remove a pause; return whether there was one."""
        self._require_all_users()
        name = pipeline if isinstance(pipeline, str) else pipeline.name
        if self.store.drop_notes(definitions.PAUSE, [f"{name}/{phase}"]):
            return True  # also for a phase that no code defines any more
        self._check_phase(pipeline, phase)
        return False

    def set_limit(
        self,
        pipeline: Pipeline | str,
        phase: str,
        *,
        concurrency: int | Literal["unchanged"] | None = UNCHANGED,
        per_key: int | Literal["unchanged"] | None = UNCHANGED,
    ) -> None:
        """Override one or both limits defined in code; running tasks above the new limit finish first.

        None removes a limit; a limit that is not given stays as it is. `reset_limit` removes the overrides.
        """
        self._require_all_users()
        name = self._check_phase(pipeline, phase)
        definitions.set_limit(self.store, name, phase, {"concurrency": concurrency, "per_key": per_key})

    def reset_limit(self, pipeline: Pipeline | str, phase: str) -> bool:
        """Return to both limits defined in code; return whether one was overridden."""
        self._require_all_users()
        return self.store.drop_notes(definitions.LIMIT, [f"{self._check_phase(pipeline, phase)}/{phase}"]) > 0

    @property
    def crons(self) -> Crons:
        """List, pause and resume the schedules of all pipelines."""
        self._require_all_users()
        return Crons(self)

    def publish(self, *pipelines: Pipeline, force: bool = False) -> list[str]:
        """Write definitions to the store, for workers and for callers that add by name; return the names that changed.

        A definition that a newer one has replaced is skipped unless `force` is set. If workers are running, this
        returns when all of them follow the new definition, about two seconds later.
        """
        self._require_all_users()
        self.serve(*pipelines)
        written = definitions.publish(self.store, [each.plan for each in self.pipelines.values()], force=force)
        if written and definitions.has_workers(self.store, written):
            time.sleep(definitions.BINDS_AFTER.total_seconds())
        self.definitions.refresh()
        return written

    def _check_phase(self, pipeline: Pipeline | str, phase: str) -> str:
        plan = self._plan_of(pipeline)
        definitions.known_phases(plan, [phase])
        return plan.name

    # ── pulling ──

    def claim(
        self,
        pipeline: Pipeline | str,
        phase: str | None = None,
        *,
        limit: int = 1,
        ids: Sequence[str] | None = None,
        lease_for: Duration = timedelta(seconds=30),
        worker: str = "",
    ) -> Leases:
        """Claim due tasks for code that is not a handler; settle each lease or let it expire.

        As a context manager it extends the leases, and hands back unsettled tasks at the end.
        """
        plan, wanted = self.phase_of(pipeline, phase)
        span = parse_duration(lease_for, "lease_for")
        return pull(self, plan, wanted, limit=limit, ids=ids, lease_for=span, worker=worker)

    def puller(
        self,
        pipeline: Pipeline | str,
        phase: str | None = None,
        *,
        lease_for: Duration | None = None,
        worker: str = "",
    ) -> Puller:
        """Return a puller for repeated claims without a worker; it extends its leases and rescues tasks.

        lease_for: the phase's lease by default; all pullers of one phase should use the same value.
        """
        return Puller(self, pipeline, phase, lease_for, worker)

    def claims_by_id(self, pipeline: Pipeline | str, phase: str | None = None) -> TaskClaims:
        """Return claims by task id, for programs written around `try_claim(task_id, worker_id) -> bool`."""
        return TaskClaims(self, pipeline, phase)

    # ── purging ──

    def purge(
        self,
        *,
        older_than: Duration,
        statuses: Iterable[Status | str] = ENDS,
        pipeline: str | None = None,
        limit: int = 10_000,
    ) -> int:
        """Remove tasks that ended at least `older_than` ago, at most `limit`; held unique keys stay as tombstones."""
        where = self._scoped(Filter(statuses=purge.ended_statuses(statuses), pipeline=pipeline))
        return purge.purge(self.store, where, parse_duration(older_than, "older_than"), limit, self.log_files)

    # ── async methods: the same code, in a thread ──

    async def aadd(self, pipeline: Pipeline | str, payload: Any = None, *, tx: Any = None, **more: Any) -> Task:
        """Async `add`; `tx` may be a connection of the event loop."""
        if tx is None:
            return await asyncio.to_thread(lambda: self.add(pipeline, payload, **more))
        item = Addition(payload, **more)
        return (await self._add_in(tx, pipeline, [item], item))[0]

    async def aadd_many(
        self, pipeline: Pipeline | str, payloads: Iterable[Any], *, tx: Any = None, **common: Any
    ) -> list[Task]:
        """Async `add_many`; `tx` may be a connection of the event loop."""
        if tx is None:
            return await asyncio.to_thread(lambda: self.add_many(pipeline, payloads, **common))
        items = list(payloads)
        return await self._add_in(tx, pipeline, items, Addition(None, **insert.for_all(common))) if items else []

    async def _add_in(self, tx: Any, pipeline: Pipeline | str, items: Sequence[Any], common: Addition) -> list[Task]:
        """Add in the caller's transaction, in the caller's thread, because connections must not change threads."""
        tasks = await asyncio.to_thread(self._new_tasks, pipeline, items, common, tx)
        insert_async = getattr(self.store, "insert_async", None)
        answers = self.store.insert(tasks, tx=tx) if insert_async is None else await insert_async(tasks, tx)
        return [insert.own(task, answer) for task, answer in zip(tasks, answers, strict=True)]

    async def aget(self, task_id: str) -> Task:
        """Async `get`."""
        return await asyncio.to_thread(self.get, task_id)

    async def acancel(self, task_id: str, **more: Any) -> Task:
        """Async `cancel`."""
        return await asyncio.to_thread(lambda: self.cancel(task_id, **more))

    async def aretry(self, task_id: str, **more: Any) -> Task:
        """Async `retry`."""
        return await asyncio.to_thread(lambda: self.retry(task_id, **more))

    async def asignal(self, task_id: str, name: str, payload: Any = None, **more: Any) -> Task:
        """Async `signal`."""
        return await asyncio.to_thread(lambda: self.signal(task_id, name, payload, **more))
