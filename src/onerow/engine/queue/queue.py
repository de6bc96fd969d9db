"""The Queue: the API with which user code, commands and user interfaces add, read and change tasks."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, Self, Unpack, overload

from msgspec.structs import replace

from onerow.core import values
from onerow.core.durations import Duration, parse_duration
from onerow.core.errors import BadInput
from onerow.core.filters import Filter
from onerow.core.plan import Plan
from onerow.core.retry import Retry
from onerow.core.status import ENDS, FAILED, Status
from onerow.core.task import Task
from onerow.engine.control import definitions, drains
from onerow.engine.control.alerts import Send, Webhook, watch
from onerow.engine.control.definitions import UNCHANGED
from onerow.engine.control.event_webhooks import EVENTS, event_webhook
from onerow.engine.events.events import Event, EventType, Hook, TaskEvent
from onerow.engine.events.hooks import name_of
from onerow.engine.queue import bulk, operations, purge, task_log
from onerow.engine.queue.adding import Queue as Adding
from onerow.engine.queue.bulk import Selection
from onerow.engine.queue.claim import pull
from onerow.engine.queue.compare_and_swap import operate
from onerow.engine.queue.lease import Leases
from onerow.engine.queue.operations import Operation
from onerow.engine.queue.progress import BulkOptions, Progress
from onerow.engine.queue.puller import Puller
from onerow.engine.queue.queue_async import QueueAsync
from onerow.engine.queue.rate_change import faster_rate
from onerow.engine.queue.schedules import Crons
from onerow.engine.queue.scope import after_operation, filter_of, plan_of
from onerow.engine.queue.task_log import LogGap
from onerow.engine.queue.waiting import Waiting
from onerow.pipelines.extensions import interactive
from onerow.pipelines.pipeline import Pipeline
from onerow.pipelines.typed import Result, Signal
from onerow.ports import LogLine


class Queue(Adding, Waiting, QueueAsync):
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
        called in a separate thread.

        kind: the class of the events. hook: the function; it takes the event. timeout: a longer call is reported, and
        events are dropped until it returns.
        """
        if hook is None:
            return lambda function: self.on(kind, function, timeout=timeout)
        if not _is_event(kind) or not callable(hook):
            raise BadInput("on() takes an event class, such as TaskFailed, and a function of one event", field="on")
        limit = parse_duration(timeout, "timeout").total_seconds()
        user = self._user

        def own_tasks_only(event: EventType) -> None:
            if isinstance(event, TaskEvent) and event.task.user_id == user:
                hook(event)

        self.events.on_for_user(
            kind, hook if user is None else own_tasks_only, name_of(hook), limit, (hook, user, limit)
        )
        return hook

    def alert(
        self,
        to: str | Webhook | Send,
        *,
        failures: bool = True,
        unserved_for: Duration | None = "5m",
        overdue_for: Duration | None = None,
        again_after: Duration = "1h",
    ) -> None:
        """Have workers of this queue send alerts about problems.

        to: a webhook's URL, a Webhook, or a function of a list of alerts. failures: for each task that fails
        permanently. unserved_for: a phase has had due tasks and no live worker for this long. overdue_for: tasks have
        been due for this long. again_after: minimum time between two alerts about the same problem.
        """
        self._require_all_users()
        rule = watch(to, failures=failures, unserved_for=unserved_for, overdue_for=overdue_for, again_after=again_after)
        self.watches.append(rule)

    def send_events(
        self,
        url: str,
        *,
        secret: str,
        name: str = "events",
        events: Iterable[str] = EVENTS,
        pipelines: Iterable[str] = (),
        results: bool = False,
        timeout: Duration = "10s",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Have workers post a signed event to a URL when a task has ended: completed, failed or cancelled.

        Each event is sent at least once, in the order of the ends. Requests are signed as Standard Webhooks describes.

        url: where to post. secret: signs the requests. name: identifies the position in the store. events: which ends.
        pipelines: names; default: all. results: send the task's results too. timeout: how long one request may take.
        """
        self._require_all_users()
        rule = event_webhook(
            url, secret=secret, name=name, events=events, pipelines=pipelines, results=results, timeout=timeout,
            headers=headers,
        )  # fmt: skip
        if any(each.name == rule.name for each in self.event_webhooks):
            raise BadInput(f"there is already a webhook named {name!r}", fix="give it a name of its own", field="name")
        self.event_webhooks.append(rule)

    def serve(self, *pipelines: Pipeline) -> Self:
        """Register pipelines and return this queue. pipelines: what workers of this queue run."""
        for pipeline in pipelines:
            if not isinstance(pipeline, Pipeline):
                raise BadInput(f"pipelines must be Pipeline objects, not {type(pipeline).__name__}", field="pipeline")
            known = self.pipelines.get(pipeline.name)
            if known is not None and known is not pipeline and not interactive():
                raise BadInput(
                    f"two different pipelines are named {pipeline.name!r}",
                    fix="give one of them another name",
                    field="pipeline",
                )
            self.pipelines[pipeline.name] = pipeline
        return self

    def follow_logs(self, task_id: str, *, tail: int | None = None) -> Iterator[LogLine | LogGap]:
        """Iterate over the log lines of a task, then over new ones until the task has ended.

        A LogGap stands where lines were dropped, because the log is bounded. tail: begin with this many lines, the last
        ones.
        """
        return task_log.follow(self, task_id, tail=tail)

    # ── operations on tasks ──

    def cancel(self, task_id: str, *, by: str = "", note: str = "") -> Task:
        """Cancel a task and its children; a running attempt is stopped within about a second."""
        return self._operate(task_id, operations.cancel(by, note))

    def fail(self, task_id: str, error: str, *, error_class: str = "permanent", by: str = "", note: str = "") -> Task:
        """Fail a waiting task manually, for example because its signal will not arrive; `retry` undoes it."""
        return self._operate(
            task_id,
            operations.fail(self.masker.text(values.check_text(error, "error", 100_000)), error_class, by, note),
        )

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
        return self._operate(task_id, operations.retry(partial(plan_of, self), by, note, policy, retry_count))

    def replay(self, task_id: str, phase: str | None = None, *, by: str = "", note: str = "") -> Task:
        """Run a completed or failed task again from an earlier phase; later results are cleared."""
        return self._operate(task_id, operations.replay(partial(plan_of, self), phase, by, note))

    def finish(
        self, task_id: str, *, result: Any = None, phase_only: bool = False, by: str = "", note: str = ""
    ) -> Task:
        """Mark a waiting or failed task as done manually.

        phase_only: only its current phase; the task goes on with the next one.
        """
        return self._operate(task_id, operations.finish(partial(plan_of, self), phase_only, by, note, result))

    def reschedule(self, task_id: str, run_at: datetime | str, *, by: str = "", note: str = "") -> Task:
        """Change when a waiting task is due. run_at: a time, 'now', or '+10m' from now."""
        return self._operate(task_id, operations.reschedule(run_at, self.store.now(), by, note))

    def set_priority(self, task_id: str, priority: int, *, by: str = "", note: str = "") -> Task:
        """Change the priority of a task that has not ended (-100…100, lower first)."""
        return self._operate(task_id, operations.set_priority(priority, by, note))

    def signal(
        self,
        task_id: str,
        name: str | Signal[Result],
        payload: Result | None = None,
        *,
        signal_id: str = "",
        by: str = "",
    ) -> Task:
        """Send a signal to a task; it is stored until the task waits for it.

        name: the name of the signal, or what `wait_for` returned. payload: its value.
        """
        return self._operate(task_id, operations.signal(name, payload, signal_id, by))

    def annotate(self, task_id: str, metadata: dict[str, Any]) -> Task:
        """Replace the task's metadata."""
        return self._operate(task_id, operations.annotate(metadata))

    def select(self, where: Filter | str | None = None, *, ids: Sequence[str] | None = None) -> Selection:
        """Return the tasks that match a query or a filter: `queue.select("status:failed").retry(pace="20/min")`.

        ids: these tasks instead.
        """
        if ids is not None and where is not None:
            raise BadInput("select tasks by a filter or by ids, not both", field="ids")
        return Selection(self, filter_of(self, where), ids)

    def retry_failed(
        self,
        where: Filter | str | None = None,
        *,
        policy: Retry | None = None,
        by: str = "",
        note: str = "",
        **options: Unpack[BulkOptions],
    ) -> Progress:
        """Retry every matching failed task; takes the options of `Selection.retry`."""
        failed = self.select(replace(filter_of(self, where), statuses=frozenset({FAILED})))
        return failed.retry(policy=policy, by=by, note=note, **options)

    def _operate(self, task_id: str, operation: Operation) -> Task:
        task = operate(self.store, task_id, lambda task: operation.rule(task, self.store.now()), self._user)
        after_operation(self, operation, task)
        return task

    # ── phases ──

    def pause(self, pipeline: Pipeline | str, phase: str = "*", *, by: str = "", reason: str = "") -> None:
        """Stop claims from a phase (default: the whole pipeline) until it is resumed; running attempts continue."""
        self._require_all_users()
        plan, names = self._names_of(pipeline, phase)
        definitions.set_pause(self.store, plan.name, names[0], operations.asking(by), reason)

    def resume(self, pipeline: Pipeline | str, phase: str = "*") -> bool:
        """Remove a pause; return whether there was one."""
        self._require_all_users()
        name = pipeline.name if isinstance(pipeline, Pipeline) else pipeline
        if definitions.drop_controls(self.store, definitions.PAUSE, name, [phase]):
            return True  # also for a phase that no code defines any more
        plan, names = self._names_of(pipeline, phase)
        return definitions.drop_controls(self.store, definitions.PAUSE, plan.name, names)

    def set_limit(
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
        """Override limits and rates defined in code; running tasks above the new limit finish first.

        None removes a limit; a limit that is not given stays as it is. `reset_limit` removes the overrides. Workers
        follow within about two seconds; a faster rate per key waits for them and makes tasks due that the old rate had
        put off.

        concurrency, per_key: how many tasks may run at once. rate, rate_per_key: how many may start ('60/min').
        """
        self._require_all_users()
        plan = plan_of(self, pipeline)
        limits = {"concurrency": concurrency, "per_key": per_key, "rate": rate, "rate_per_key": rate_per_key}
        with faster_rate(self.store, plan.name, plan.phase(phase)):
            definitions.set_limit(
                self.store, plan.name, plan.phase(phase), limits, by=operations.asking(by), reason=reason
            )

    def reset_limit(self, pipeline: Pipeline | str, phase: str) -> bool:
        """Return to all limits and rates defined in code; return whether one was overridden."""
        self._require_all_users()
        plan = plan_of(self, pipeline)
        found = plan.phase(phase)
        with faster_rate(self.store, plan.name, found):
            return definitions.drop_controls(self.store, definitions.LIMIT, plan.name, found.names)

    def drain(self, worker: str, *, by: str = "") -> None:
        """Ask a live worker to drain: within some seconds it claims no more, finishes its tasks and ends.

        No other process takes its place. To stop work on a phase instead, use `pause`. worker: its name.
        """
        self._require_all_users()
        drains.ask_to_drain(self.store, worker, operations.asking(by))

    def bulk_operations(self) -> list[Progress]:
        """Return the latest operations on many tasks, the newest first, with their progress."""
        self._require_all_users()
        return bulk.records(self)

    def stop_bulk(self, name: str, *, by: str = "") -> None:
        """Ask an operation on many tasks to stop: within some seconds it changes no more; what it changed stays so.

        name: the `name` of its record in `bulk_operations`.
        """
        self._require_all_users()
        bulk.ask_to_stop(self.store, name, operations.asking(by))

    @property
    def crons(self) -> Crons:
        """List, pause and resume the schedules of all pipelines."""
        self._require_all_users()
        return Crons(self)

    def publish(self, *pipelines: Pipeline, force: bool = False) -> list[str]:
        """Write definitions to the store, for workers and for callers that add by name; return the names that changed.

        If workers are running, this returns when all of them follow the new definition, about two seconds later.

        pipelines: in addition to those that this queue serves. force: also write a definition that a newer one has
        replaced.
        """
        self._require_all_users()
        self.serve(*pipelines)
        written = definitions.publish(self.store, [each.plan for each in self.pipelines.values()], force=force)
        if written and definitions.has_workers(self.store, written):
            time.sleep(definitions.BINDS_AFTER.total_seconds())
        self.definitions.refresh()
        return written

    def _names_of(self, pipeline: Pipeline | str, phase: str) -> tuple[Plan, tuple[str, ...]]:
        """Return the definition, and the present and former names of a phase ('*': the whole pipeline)."""
        plan = plan_of(self, pipeline)
        return plan, ("*",) if phase == "*" else plan.phase(phase).names

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

        phase: by default the first. ids: only these tasks. lease_for: how long a lease lasts without a heartbeat.
        """
        span = parse_duration(lease_for, "lease_for")
        return pull(self, pipeline, phase, limit=limit, ids=ids, lease_for=span, worker=worker)

    def puller(
        self,
        pipeline: Pipeline | str,
        phase: str | None = None,
        *,
        lease_for: Duration | None = None,
        worker: str = "",
    ) -> Puller:
        """Return a puller for repeated claims without a worker; it extends its leases and rescues tasks.

        phase: by default the first. lease_for: the phase's lease by default; all pullers of one phase should use the
        same value.
        """
        return Puller(self, pipeline, phase, lease_for, worker)

    # ── purging ──

    def purge(
        self,
        *,
        older_than: Duration,
        statuses: Iterable[Status | str] = ENDS,
        pipeline: str | None = None,
        limit: int = 10_000,
    ) -> int:
        """Remove ended tasks, and return how many; held unique keys stay as tombstones.

        older_than: only tasks that ended at least this long ago. statuses: which ends; by default all. pipeline: only
        tasks of this one; by default all.
        """
        where = self._scoped(Filter(statuses=purge.ended_statuses(statuses), pipeline=pipeline))
        return purge.purge(self.store, where, parse_duration(older_than, "older_than"), limit, self.log_files)


def _is_event(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Event)
