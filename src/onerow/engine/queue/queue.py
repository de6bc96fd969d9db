"""The Queue: what user code, commands and faces call to add work, look at it and act on it."""

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self, overload

from msgspec.structs import replace

from onerow.core import values
from onerow.core.addition import Addition
from onerow.core.durations import Duration, parse_duration
from onerow.core.errors import BadInput, UnknownName
from onerow.core.plan import Plan
from onerow.core.retry import Retry
from onerow.core.status import ENDS, Status
from onerow.core.task import Task
from onerow.engine.control import definitions
from onerow.engine.control.alerts import AlertRule, Send, Webhook, watch
from onerow.engine.control.definitions import Definitions
from onerow.engine.control.relocation import RelocationCheck
from onerow.engine.events.events import (
    Events,
    EventType,
    Hook,
    TaskActed,
    TaskAdded,
    TaskCancelled,
    TaskEvent,
    TaskFailed,
)
from onerow.engine.events.hooks import name_of
from onerow.engine.output.files import LogFiles
from onerow.engine.output.masking import Masker
from onerow.engine.queue import insert, operations, purge
from onerow.engine.queue.bulk import Progress, Selection
from onerow.engine.queue.children import Children
from onerow.engine.queue.claim import pull
from onerow.engine.queue.compare_and_swap import act, find_task
from onerow.engine.queue.lease import Leases
from onerow.engine.queue.operations import Act
from onerow.engine.queue.puller import Puller
from onerow.engine.queue.rescue import rescue_all, rescue_ended
from onerow.engine.queue.schedules import Crons
from onerow.pipelines.pipeline import Pipeline
from onerow.ports import Existing, Filter, Inserted, LeaseRecord, LogPage, Order, Page, Store, TaskCount


class Queue:
    """Tasks in one store. Making it opens nothing; the first use does."""

    def __init__(
        self,
        store: Store,
        *,
        keep: Duration | None = None,
        secrets: Iterable[str] = (),
        mask: Iterable[str | re.Pattern[str]] = (),
        log_files: str | Path | None = None,
    ) -> None:
        self._store = store
        self._ready = False
        self._user: str | None = None
        self.definitions = Definitions(lambda: self.store)
        self.pipelines: dict[str, Pipeline] = {}
        self.events = Events()
        self.watches: list[AlertRule] = []
        self.keep = None if keep is None else parse_duration(keep, "keep")
        self.log_files = None if log_files is None else LogFiles(Path(log_files).absolute())
        self._secrets = (tuple(secrets), tuple(mask))
        self._masker: Masker | None = None
        self._check_relocation = RelocationCheck()

    def __repr__(self) -> str:
        return f"Queue({self._store.url!r})"

    @property
    def url(self) -> str:
        """Where the store is, absolute, any password masked."""
        return self._store.url

    @property
    def store(self) -> Store:
        """The store, prepared."""
        if not self._ready:
            self._store.prepare()
            self._ready = True
        return self._store

    @property
    def user_id(self) -> str | None:
        """The tenant that this queue is for; None: for all."""
        return self._user

    @property
    def masker(self) -> Masker:
        """What keeps secrets out of logs, errors and faces: those of the environment as it was at first use."""
        if self._masker is None:
            self._masker = Masker.of_environment(*self._secrets)
        return self._masker

    def close(self) -> None:
        """Let go of connections; the next use opens them again."""
        self._store.close()

    def for_user(self, user_id: str) -> Self:
        """The same queue for one tenant: it sees, adds and touches only its own tasks."""
        scoped = object.__new__(type(self))
        scoped.__dict__ = self.__dict__ | {"_user": values.check_text(user_id, "user_id", 200)}
        return scoped

    @overload
    def on(
        self, kind: type[EventType], *, timeout: Duration = "10s"
    ) -> Callable[[Hook[EventType]], Hook[EventType]]: ...

    @overload
    def on(self, kind: type[EventType], hook: Hook[EventType], *, timeout: Duration = "10s") -> Hook[EventType]: ...

    def on(self, kind: type[EventType], hook: Hook[EventType] | None = None, *, timeout: Duration = "10s") -> Any:
        """Call a function after each event of a kind: `queue.on(TaskFailed, tell_me)`, or as a decorator.

        A queue for one user tells of that user's tasks only. While a worker runs in this process the function is called
        from a thread of its own; timeout: a call that takes longer is reported, and events are dropped until it returns.
        """
        if hook is None:
            return lambda function: self.on(kind, function, timeout=timeout)
        limit = parse_duration(timeout, "timeout").total_seconds()
        user = self._user

        def tell_own(event: EventType) -> None:
            if isinstance(event, TaskEvent) and event.task.user_id == user:
                hook(event)

        self.events.on_for_user(kind, hook if user is None else tell_own, name_of(hook), limit, (hook, user, limit))
        return hook

    def alert(self, to: str | Webhook | Send, **what: Any) -> None:
        """Have workers of this queue alert someone: a webhook's address, or a function that takes a list of alerts.

        failures (True): of each task that fails for good. unserved_for ('5m'): due tasks of a phase that no live worker
        serves. overdue_for (None): tasks that have been due for so long. again_after ('1h'): not the same again before.
        """
        self._everyone()
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
        priority: int = 0,
        unique: str | None = None,
        unique_for: Duration | None = None,
        limit_key: str = "",
        max_retries: int | None = None,
        metadata: dict[str, Any] | None = None,
        parent_id: str | None = None,
        tx: Any = None,
    ) -> Task:
        """Put one task in, and return it; with a unique key or id that is taken, the task that has it.

        run_at: not before this time. unique: no second open task with this key (for this pipeline and user);
        unique_for ('7d', 'forever') remembers the key after the end. limit_key: group for per_key limits.
        tx: your own open transaction on the same database; the task appears when you commit.
        """
        addition = Addition(
            payload, task_id, user_id, title, run_at, priority, unique, unique_for, limit_key, max_retries, metadata,
            parent_id,
        )  # fmt: skip
        return self._add(pipeline, [addition], addition, tx)[0]

    def add_new(self, pipeline: Pipeline | str, payload: Any = None, *, tx: Any = None, **terms: Any) -> Task | None:
        """As `add`, for callers who must know: None when the unique key or id is taken."""
        addition = Addition(payload, **terms)
        tasks = self._new_tasks(pipeline, [addition], addition)
        (answer,) = self._insert(tasks, tx)
        task = insert.own(tasks[0], answer)
        return task if isinstance(answer, Inserted) else None

    def add_many(
        self, pipeline: Pipeline | str, payloads: Iterable[Any], *, tx: Any = None, **common: Any
    ) -> list[Task]:
        """Put many tasks in, in one transaction: all or none. An item is a payload, or an Addition of its own."""
        items = list(payloads)
        return self._add(pipeline, items, Addition(None, **insert.for_all(common)), tx) if items else []

    def add_children(
        self, pipeline: Pipeline | str, children: Sequence[Addition], since: datetime | None
    ) -> list[Task]:
        """Insert the children of a task (for the worker, which names their ids and their parent).

        None is created before `since`, however clocks differ: the parent counts the children created from then on.
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
        tasks = self._new_tasks(pipeline, items, common)
        if not_before is not None:
            tasks = [task if task.created_at >= not_before else replace(task, created_at=not_before) for task in tasks]
        answers = self._insert(tasks, tx)
        return [insert.own(task, answer) for task, answer in zip(tasks, answers, strict=True)]

    def _new_tasks(self, pipeline: Pipeline | str, items: Sequence[Any], common: Addition) -> list[Task]:
        if isinstance(pipeline, str) and pipeline in self.pipelines:
            pipeline = self.pipelines[pipeline]
        declared = None
        if isinstance(pipeline, Pipeline):
            plan, declared = pipeline.plan, pipeline.payload_type
        else:
            plan = self.plan(pipeline)
        self._check_relocation(self.store)
        return insert.new_tasks(self.store, plan, declared, items, common, self._user)

    def _insert(self, tasks: list[Task], tx: Any) -> list[Inserted | Existing]:
        answers = insert.insert(self.store, tasks, tx)
        if self.events.wanted(TaskAdded) and tx is None:
            for answer in answers:
                if isinstance(answer, Inserted):
                    self.events.send(TaskAdded(answer.task))
        return answers

    def serve(self, *pipelines: Pipeline) -> Self:
        """Name the pipelines that a worker of this queue runs."""
        for pipeline in pipelines:
            known = self.pipelines.get(pipeline.name)
            if known is not None and known is not pipeline:
                raise BadInput(f"two different pipelines are named {pipeline.name!r}", field="pipeline")
            self.pipelines[pipeline.name] = pipeline
        return self

    # ── looking ──

    def get(self, task_id: str) -> Task:
        """The task as it stands now."""
        return find_task(self.store, task_id, self._user)

    def find(
        self, where: Filter | None = None, *, limit: int = 100, order: Order = "newest", after: str | None = None
    ) -> Page:
        """Tasks that match, a page at a time."""
        return self.store.find(self._scoped(where), limit=limit, order=order, after=after)

    def count(self, where: Filter | None = None) -> list[TaskCount]:
        """How many tasks there are, by pipeline, phase and status."""
        return self.store.count(self._scoped(where))

    def logs(self, task_id: str, *, after: int = 0, limit: int = 1000, tail: int | None = None) -> LogPage:
        """Output lines of a task."""
        self.get(task_id)
        return self.store.read_log(task_id, after=after, limit=limit, tail=tail)

    def plan(self, pipeline: str) -> Plan:
        """A pipeline's definition as tasks follow it: the published one, else that of the code served here."""
        if pipeline in self.pipelines:
            return self._follow(self.pipelines[pipeline].plan)
        self.definitions.refresh_if_stale(self._now())
        found = self.definitions.of(pipeline)
        return definitions.known_plan(definitions.load_plans(self.store), pipeline) if found is None else found

    def _follow(self, own: Plan) -> Plan:
        self.definitions.refresh_if_stale(self._now())
        return self.definitions.follow(own)

    def _known_plan(self, pipeline: str) -> Plan | None:
        try:
            return self.plan(pipeline)
        except UnknownName:
            return None

    def _scoped(self, where: Filter | None) -> Filter:
        where = where or Filter()
        if self._user is None:
            return where
        if where.user_id not in (None, self._user):
            raise UnknownName(f"this queue sees only user {self._user!r}", field="user_id")
        return replace(where, user_id=self._user)

    # ── acting ──

    def cancel(self, task_id: str, *, by: str = "", note: str = "") -> Task:
        """End a task for good; running work is stopped within about a second. Its children go with it."""
        return self._act(task_id, operations.cancel(by, note))

    def fail(self, task_id: str, error: str, *, error_class: str = "permanent", by: str = "", note: str = "") -> Task:
        """A waiting task fails by hand: what it waits for will not come. Retry it when it will after all."""
        return self._act(task_id, operations.fail(self.masker.text(error), error_class, by, note))

    def retry(
        self,
        task_id: str,
        *,
        policy: Retry | None = None,
        retry_count: int | None = None,
        by: str = "",
        note: str = "",
    ) -> Task:
        """A failed task runs again from its phase, with a fresh budget of retries.

        policy: only if this policy would try it again, and after its back-off; else at once. retry_count: what the row
        shall say, for those who count themselves; else one more than before.
        """
        return self._act(task_id, operations.retry(self.plan, by, note, policy, retry_count))

    def replay(self, task_id: str, phase: str | None = None, *, by: str = "", note: str = "") -> Task:
        """A completed or failed task runs again from an earlier phase; later results are cleared."""
        return self._act(task_id, operations.replay(self.plan, phase, by, note))

    def finish(
        self, task_id: str, *, result: Any = None, phase_only: bool = False, by: str = "", note: str = ""
    ) -> Task:
        """Mark a waiting or failed task (or only its phase) as done by hand; `result` is kept as what it returned."""
        return self._act(task_id, operations.finish(self.plan, phase_only, by, note, result))

    def reschedule(self, task_id: str, run_at: datetime | str, *, by: str = "", note: str = "") -> Task:
        """A waiting task is due at another time."""
        return self._act(task_id, operations.reschedule(run_at, by, note))

    def set_priority(self, task_id: str, priority: int, *, by: str = "", note: str = "") -> Task:
        """A task that has not ended gets another place in the order (-100…100, lower first)."""
        return self._act(task_id, operations.prioritise(priority, by, note))

    def signal(self, task_id: str, name: str, payload: Any = None, *, signal_id: str = "", by: str = "") -> Task:
        """Tell a task that something happened; one that doesn't wait for it yet will find it when it does."""
        return self._act(task_id, operations.signal(name, payload, signal_id, by))

    def annotate(self, task_id: str, metadata: dict[str, Any]) -> Task:
        """Replace the task's metadata."""
        return self._act(task_id, operations.annotate(metadata))

    def select(self, where: Filter | None = None) -> Selection:
        """All tasks that match, to be counted and acted on together: `queue.select(Filter(…)).cancel(pace="20/min")`."""
        return Selection(self, self._scoped(where))

    def retry_failed(self, where: Filter | None = None, **how: Any) -> Progress:
        """Retry every failed task that matches; takes what `Selection.retry` takes."""
        return self.select(replace(where or Filter(), statuses=frozenset({Status.FAILED}))).retry(**how)

    def _act(self, task_id: str, asked: Act) -> Task:
        task = act(self.store, task_id, lambda task: asked.rule(task, self._now()), self._user)
        self.acted(asked, task)
        return task

    def acted(self, asked: Act, task: Task) -> None:
        """What follows an act that was written: relatives are looked after, and hooks are told."""
        self._tell_relatives(task, asked.by, cancelled=asked.name == "cancel")
        self.events.send(TaskActed(task, asked.name, asked.by))
        if asked.name == "fail":
            self.events.send(TaskFailed(task))
        if asked.name == "cancel" and task.status is Status.CANCELLED:
            self.events.send(TaskCancelled(task))

    def _tell_relatives(self, task: Task, by: str, *, cancelled: bool) -> None:
        if task.children is not None and cancelled:
            self.family.cancel_children(task.task_id, self._now(), by)
        if task.parent_id is not None and task.ended:
            self.family.gather([task.parent_id])

    @property
    def family(self) -> Children:
        """Who looks after parents and children here."""
        return Children(self.store, self._plan_or_none, self.events)

    def _plan_or_none(self, pipeline: str) -> Plan | None:
        try:
            return self.plan(pipeline)
        except UnknownName:
            return None

    def _now(self) -> datetime:
        return self.store.now()

    # ── phases ──

    def pause(self, pipeline: Pipeline | str, phase: str = "*", *, by: str = "", reason: str = "") -> None:
        """Nobody claims from the phase (by default the whole pipeline) until it is resumed; what runs goes on."""
        self._everyone()
        name = self._known(pipeline, phase)
        definitions.set_pause(self.store, name, phase, operations.asking(by), reason)

    def resume(self, pipeline: Pipeline | str, phase: str = "*") -> bool:
        """Undo a pause; whether there was one."""
        self._everyone()
        name = pipeline if isinstance(pipeline, str) else pipeline.name
        if self.store.drop_notes(definitions.PAUSE, [f"{name}/{phase}"]):
            return True  # also where no code knows the phase any more
        self._known(pipeline, phase)
        return False

    def set_limit(
        self, pipeline: Pipeline | str, phase: str, *, concurrency: int | None = None, per_key: int | None = None
    ) -> None:
        """The limit in force from now on, whatever the code says; running tasks above it finish first."""
        self._everyone()
        name = self._known(pipeline, phase)
        definitions.set_limit(self.store, name, phase, {"concurrency": concurrency, "per_key": per_key})

    def reset_limit(self, pipeline: Pipeline | str, phase: str) -> bool:
        """Back to the limit that the code names; whether another was in force."""
        self._everyone()
        return self.store.drop_notes(definitions.LIMIT, [f"{self._known(pipeline, phase)}/{phase}"]) > 0

    @property
    def crons(self) -> Crons:
        """The schedules of all pipelines: look at them, pause and resume them."""
        self._everyone()
        return Crons(self)

    def publish(self, *pipelines: Pipeline, force: bool = False) -> list[str]:
        """Write definitions to the store, for those who add by name and for workers; the names of those that changed.

        A definition that a newer one has replaced is left out unless `force` is set. Where workers run, this returns
        when they all follow what was written, about two seconds later.
        """
        self._everyone()
        self.serve(*pipelines)
        written = definitions.publish(self.store, [each.plan for each in self.pipelines.values()], force=force)
        if written and definitions.has_workers(self.store, written):
            time.sleep(definitions.BINDS_AFTER.total_seconds())
        self.definitions.refresh()
        return written

    def _known(self, pipeline: Pipeline | str, phase: str) -> str:
        plan = pipeline.plan if isinstance(pipeline, Pipeline) else self.plan(pipeline)
        definitions.known_phases(plan, [phase])
        return plan.name

    def _everyone(self) -> None:
        if self._user is not None:
            raise BadInput("a queue for one user can't change what holds for all", field="user_id")

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
        """Take due tasks for code that is no handler; settle each lease, or leave them to run out.

        As a context manager the leases are kept alive, and what was not settled is handed back at the end.
        """
        plan = pipeline.plan if isinstance(pipeline, Pipeline) else self.plan(pipeline)
        wanted = plan.phase(phase) if phase is not None else plan.first
        if not wanted.has_code:
            raise BadInput(f"phase {wanted.name!r} has nothing to work on: it only waits", field="phase")
        if type(limit) is not int or not 1 <= limit <= 10_000:
            raise BadInput(f"limit must be a whole number from 1 to 10,000, not {limit!r}", field="limit")
        span = parse_duration(lease_for, "lease_for")
        if span < timedelta(milliseconds=100):
            raise BadInput("lease_for must be at least 100 ms", field="lease_for")
        tasks = pull(self.store, plan, wanted, limit=limit, ids=ids, lease_for=span, worker=worker, user=self._user)
        return Leases(self.store, lambda: self._follow(plan), tasks, span, self.events, self.masker)

    def puller(
        self,
        pipeline: Pipeline | str,
        phase: str | None = None,
        *,
        lease_for: Duration | None = None,
        worker: str = "",
    ) -> Puller:
        """Who claims again and again for a program without a worker, keeps alive what it holds, and rescues.

        lease_for: the phase's own lease by default; whoever pulls from one phase should ask for the same.
        """
        plan = pipeline.plan if isinstance(pipeline, Pipeline) else self.plan(pipeline)
        wanted = plan.phase(phase) if phase is not None else plan.first
        span = wanted.lease if lease_for is None else parse_duration(lease_for, "lease_for")
        return Puller(self, pipeline, plan.name, wanted.name, span, worker)

    def rescue(
        self,
        pipeline: str | None = None,
        phase: str | None = None,
        *,
        ended_for: Duration = timedelta(0),
        by: str = "",
    ) -> list[Task]:
        """Give back tasks whose lease ended so long ago; workers and pullers do it by themselves.

        After an outage of the store live holders need about a third of their lease to beat again: ask only for leases
        that ended long ago, unless you have seen the store up for as long as a lease lasts.
        """
        ended_before = self.store.now() - parse_duration(ended_for, "ended_for")
        phases = frozenset() if phase is None else frozenset({phase})
        where, who = self._scoped(Filter(pipeline=pipeline, phases=phases)), operations.asking(by)
        rescued = rescue_all(self.store, where, ended_before, self.events, by=who, plan_of=self._known_plan)
        return self._rescued(rescued, who)

    def rescue_ended(self, ended: Sequence[LeaseRecord], *, by: str) -> list[Task]:
        """Give back tasks whose leases were observed to have ended; for pullers."""
        now, user = self._now(), self._user
        rescued = rescue_ended(self.store, ended, now, self.events, by=by, user_id=user, plan_of=self._known_plan)
        return self._rescued(rescued, by)

    def _rescued(self, tasks: list[Task], by: str) -> list[Task]:
        for task in tasks:
            self._tell_relatives(task, by, cancelled=task.status is Status.CANCELLED)
        return tasks

    # ── clearing away ──

    def purge(
        self,
        *,
        older_than: Duration,
        statuses: Iterable[Status | str] = ENDS,
        pipeline: str | None = None,
        limit: int = 10_000,
    ) -> int:
        """Remove tasks that ended so long ago, at most `limit`; remembered keys stay behind as tombstones."""
        chosen = frozenset(_status(status) for status in statuses)
        if not chosen <= ENDS:
            raise BadInput("only tasks that have ended can be purged: completed, failed, cancelled", field="statuses")
        before = self.store.now() - parse_duration(older_than, "older_than")
        where = self._scoped(Filter(statuses=chosen, ended_before=before, pipeline=pipeline))
        return purge.purge(self.store, where, limit, self.log_files)

    # ── the async face: the same code, in a thread ──

    async def aadd(self, pipeline: Pipeline | str, payload: Any = None, *, tx: Any = None, **more: Any) -> Task:
        """`add`, awaited; `tx` may belong to the event loop."""
        if tx is None:
            return await asyncio.to_thread(lambda: self.add(pipeline, payload, **more))
        item = Addition(payload, **more)
        return (await self._add_in(tx, pipeline, [item], item))[0]

    async def aadd_many(
        self, pipeline: Pipeline | str, payloads: Iterable[Any], *, tx: Any = None, **common: Any
    ) -> list[Task]:
        """`add_many`, awaited; `tx` may belong to the event loop."""
        if tx is None:
            return await asyncio.to_thread(lambda: self.add_many(pipeline, payloads, **common))
        items = list(payloads)
        return await self._add_in(tx, pipeline, items, Addition(None, **insert.for_all(common))) if items else []

    async def _add_in(self, tx: Any, pipeline: Pipeline | str, items: Sequence[Any], common: Addition) -> list[Task]:
        """Add in a transaction of the caller's, here in its own thread: a connection is not to be used from another."""
        tasks = await asyncio.to_thread(self._new_tasks, pipeline, items, common)
        insert_async = getattr(self.store, "insert_async", None)
        answers = self.store.insert(tasks, tx=tx) if insert_async is None else await insert_async(tasks, tx)
        return [insert.own(task, answer) for task, answer in zip(tasks, answers, strict=True)]

    async def aget(self, task_id: str) -> Task:
        """`get`, awaited."""
        return await asyncio.to_thread(self.get, task_id)

    async def acancel(self, task_id: str, **more: Any) -> Task:
        """`cancel`, awaited."""
        return await asyncio.to_thread(lambda: self.cancel(task_id, **more))

    async def aretry(self, task_id: str, **more: Any) -> Task:
        """`retry`, awaited."""
        return await asyncio.to_thread(lambda: self.retry(task_id, **more))

    async def asignal(self, task_id: str, name: str, payload: Any = None, **more: Any) -> Task:
        """`signal`, awaited."""
        return await asyncio.to_thread(lambda: self.signal(task_id, name, payload, **more))


def _status(value: Status | str) -> Status:
    try:
        return Status(value)
    except ValueError:
        raise UnknownName(f"no status {value!r}; one of {', '.join(Status)}", field="status") from None
