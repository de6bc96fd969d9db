"""Rehearsal: the worker's roles, called by the test, over a memory store with a virtual clock."""

from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Any, Self, Unpack, overload

from onerow.core import schedule
from onerow.core.addition import AddOptions
from onerow.core.durations import Duration, parse_duration
from onerow.core.errors import ResourceError, UnknownName
from onerow.core.filters import Filter
from onerow.core.status import CANCELLED, COMPLETED, FAILED, PROCESSING, WAITING, Status
from onerow.core.suggest import did_you_mean
from onerow.core.task import Task
from onerow.core.times import FAR
from onerow.core.virtual_clock import VirtualClock
from onerow.engine.control.definitions import Definitions
from onerow.engine.handler.call import Call
from onerow.engine.handler.middleware import surround
from onerow.engine.handler.requests import Request
from onerow.engine.handler.resources import OpenResources, by_name
from onerow.engine.queue.queue import Queue
from onerow.engine.runners.attempt import Attempt, InFlight, ServedPhase
from onerow.engine.views import Views
from onerow.engine.worker.checkpoint_service import CheckpointService
from onerow.engine.worker.producer import Producer
from onerow.engine.worker.roles.children import ChildrenSweeper
from onerow.engine.worker.roles.controls import PhaseControls
from onerow.engine.worker.roles.scheduler import Scheduler
from onerow.engine.worker.roles.sweeps import WaitPhaseSweeper
from onerow.identity import Identity
from onerow.pipelines.pipeline import Pipeline
from onerow.pipelines.typed import Payload, Untyped
from onerow.stores.memory import MemoryStore
from onerow.testing.inline_runner import Accidents, InlineRunner

_MOST_ROUNDS = 100_000


class Rehearsal:
    """Runs pipelines in the test's thread without sleeping; time advances only when the test advances it.

    pipelines: those to serve; `add` and `ctx.spawn` serve others. start: the first time of the clock; by default a fixed one.
    """

    def __init__(self, *pipelines: Pipeline, start: datetime | None = None) -> None:
        self.clock: VirtualClock = VirtualClock(start)  # `forward` and `run_until_idle` advance it
        self.store: MemoryStore = MemoryStore(self.clock)  # where the tasks are
        self.queue: Queue = Queue(self.store)  # a queue of this store, for everything that a Queue can do
        self._accidents = Accidents()
        self._runner = InlineRunner(self._accidents)
        self._borrowed: list[tuple[Queue, dict[str, Any]]] = []
        self._roles: _Roles | None = None
        self._named: list[str] = []  # phases of failures and stubs that were planned before any pipeline was served
        self._resources = OpenResources()
        self._replaced: dict[str, Any] = {}
        self.serve(*pipelines)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close resources, and restore the stores of borrowed queues."""
        errors: list[str] = []
        self._resources.close(60.0, errors.append)
        self._runner.close()
        for queue, before in self._borrowed:
            queue.__dict__.update(before)
        self._borrowed.clear()
        if errors:
            raise ResourceError(errors[0])

    # ── pipelines and tasks ──

    def serve(self, *pipelines: Pipeline) -> Self:
        """Serve pipelines; `add` calls this for its own. pipelines: in addition to those that are served already."""
        self.queue.serve(*pipelines)
        self._roles = None
        return self

    def borrow(self, queue: Queue) -> Self:
        """Connect the app's queue to the memory store until this object is closed. queue: the app's."""
        before = {name: queue.__dict__[name] for name in ("_store", "_ready", "definitions")}
        self._borrowed.append((queue, before))
        queue.__dict__.update(_store=self.store, _ready=True, definitions=Definitions(lambda: self.store))
        self.queue.events = queue.events  # so that the app's hooks are called
        self.queue.middlewares = queue.middlewares
        return self.serve(*queue.pipelines.values())

    @overload
    def add(self, pipeline: Pipeline[Payload], payload: Payload, **options: Unpack[AddOptions]) -> Task: ...

    @overload
    def add(self, pipeline: Pipeline[Untyped] | str, payload: Any = None, **options: Unpack[AddOptions]) -> Task: ...

    def add(self, pipeline: Pipeline[Any] | str, payload: Any = None, **options: Unpack[AddOptions]) -> Task:
        """Add a task with `queue.add` and serve its pipeline."""
        if isinstance(pipeline, Pipeline) and pipeline.name not in self.queue.pipelines:
            self.serve(pipeline)
        return self.queue.add(pipeline, payload, **options)

    def get(self, task: Task | str) -> Task:
        """Return the stored task. task: the task or its id."""
        return self.queue.get(task if isinstance(task, str) else task.task_id)

    @property
    def now(self) -> datetime:
        """The time of the virtual clock."""
        return self.store.now()

    # ── injected failures ──

    def fail(self, phase: str, error: BaseException, *, times: int = 1) -> Self:
        """Let the next attempts of a phase ('phase' or 'pipeline.phase') raise this error instead of running.

        times: how many attempts.
        """
        self._accidents.plan("failure", self._known(phase), error, times)
        return self

    def time_out(self, phase: str, *, times: int = 1) -> Self:
        """Let the next attempts of a phase time out. times: how many attempts."""
        self._accidents.plan("timeout", self._known(phase), None, times)
        return self

    def crash_before(self, phase: str, *, times: int = 1) -> Self:
        """Kill the process before the handler starts: first the worker's process, after that the task's own.

        times: how many attempts.
        """
        self._accidents.plan("crash before", self._known(phase), None, times)
        return self

    def crash_after(self, phase: str, *, step: str | None = None, times: int = 1) -> Self:
        """Kill the process after the handler has run, before its outcome is stored.

        step: after this step instead of the whole handler. times: how many attempts.
        """
        self._accidents.plan("crash after" if step is None else "crash after step", self._known(phase), step, times)
        return self

    def stub(self, phase: str, result: Any = None) -> Self:
        """Replace the handler of a phase.

        result: what it returns, or a function of the payload that returns it.
        """
        self._runner.stubs[self._known(phase)] = lambda attempt: (
            result(attempt.task.payload) if callable(result) else result
        )
        return self

    def _known(self, phase: str) -> str:
        """Return the name of a phase, or remember it until a pipeline is served; raise UnknownName for any other."""
        self._named.append(phase)
        self._check_names()
        return phase

    def _check_names(self) -> None:
        """Raise UnknownName if a failure or stub was planned for a phase that no pipeline has."""
        plans = [pipeline.plan for pipeline in self.queue.pipelines.values()]
        if not plans:
            return  # checked when the first pipeline is served
        known = [name for plan in plans for phase in plan.phases for name in (phase.name, f"{plan.name}.{phase.name}")]
        for phase in self._named:
            if phase not in known:
                raise UnknownName(f"no pipeline has a phase {phase!r}", fix=did_you_mean(phase, known), field="phase")
        self._named.clear()

    def replace(self, **resources: Any) -> Self:
        """Give handlers these objects instead of the resources of these names, which are then not made.

        resources: the objects by name: `replace(client=FakeClient())`.
        """
        known = {name for pipeline in self.queue.pipelines.values() for name in pipeline.resources}
        for name in resources:
            if name not in known:
                raise UnknownName(
                    f"no pipeline here has a resource {name!r}", fix=did_you_mean(name, known), field=name
                )
        self._replaced |= resources
        self._roles = None
        return self

    # ── running ──

    def run(self) -> int:
        """Run due tasks until none is left, without advancing time; return the number of attempts."""
        attempts = 0
        for _ in range(_MOST_ROUNDS):
            found = self._current_roles.round()
            if not found:
                return attempts
            attempts += max(0, found - 1)
        raise AssertionError(
            f"after {_MOST_ROUNDS:,} rounds there is still something to do; does a task come back for ever?"
        )

    def run_until_idle(self) -> int:
        """Run tasks and advance time over retries, snoozes, due times and expired leases; return the number of attempts.

        Parked tasks stay parked: signal them, or advance time with `forward`. Schedules fire only with `forward`.
        """
        attempts = self.run()
        while (moment := self._current_roles.next_time(deadlines=False)) is not None:
            self.clock.to(moment)
            attempts += self.run()
        return attempts

    def run_until(self, task: Task | str, phase: str | None = None, *, status: Status | str | None = None) -> Task:
        """Run tasks and advance time until the task is in a phase or status; without either, until it has ended.

        Raises AssertionError with the reason if the task does not get there, and if it fails; the exception of the
        handler is its cause. To test a failure, ask for the status 'failed'.

        task: the task or its id. phase, status: what to wait for.
        """
        __tracebackhide__ = True  # pytest shows the line of the test
        if status is not None and status not in list(Status):
            raise UnknownName(f"no status {status!r}", fix=did_you_mean(status, Status), field="status")
        if phase is not None:
            self.queue.pipelines[self.get(task).pipeline].plan.position(phase)  # raises for an unknown phase

        def reached(found: Task) -> bool:
            if phase is None and status is None:
                return found.status in (COMPLETED, CANCELLED)
            return (phase is None or found.phase == phase) and (status is None or found.status == status)

        for _ in range(_MOST_ROUNDS):
            found = self.get(task)
            if reached(found):
                return found
            if found.status is FAILED:
                raise AssertionError(
                    f"task {found.task_id} failed at {found.phase}: {found.error}"
                ) from self._runner.raised.get(found.task_id)
            if self._current_roles.round():
                continue
            moment = self._current_roles.next_time(deadlines=False)
            if moment is None:
                break
            self.clock.to(moment)
        raise AssertionError(
            f"task {found.task_id} did not get there; it is {found.status} at {found.phase}: "
            f"{found.error or Views(self.queue).why(found).sentence}"
        )

    def forward(self, span: Duration) -> int:
        """Advance time by a duration and run what becomes due, each at its time; return the number of attempts.

        span: how far, for example '3h'.
        """
        end = self.now + parse_duration(span, "span")
        attempts = self.run()
        while (moment := self._current_roles.next_time(deadlines=True)) is not None and moment <= end:
            self.clock.to(moment)
            attempts += self.run()
        self.clock.to(end)
        return attempts + self.run()

    @property
    def _current_roles(self) -> "_Roles":
        if self._roles is None or self._roles.pipelines != self.queue.pipelines:
            self._check_names()
            self._roles = _Roles(self.queue, self.store, self._runner, self._hand_over)
        return self._roles

    def _hand_over(self, calls: list[Call]) -> None:
        """Make the resources that are not replaced, and give them to the handlers."""
        for call in calls:
            wanted = {name: each for name, each in call.handler.resources.items() if name not in self._replaced}
            self._resources.open(wanted.values(), self._runner.begin)
            call.resources = by_name(call.handler.resources, self._resources.values) | {
                name: self._replaced[name] for name in call.handler.resources if name in self._replaced
            }


class _Roles:
    """The roles of a worker for the current pipelines."""

    def __init__(
        self, queue: Queue, store: MemoryStore, runner: InlineRunner, hand_over: Callable[[list[Call]], None]
    ) -> None:
        self.pipelines = dict(queue.pipelines)
        if queue.pipelines:
            queue.publish(force=True)
        self._store = store
        self._plans = {name: pipeline.plan for name, pipeline in self.pipelines.items()}
        identity = Identity.of_this_process()
        self._in_flight = InFlight(store.now)
        children = queue.children
        self._in_flight.answer = _answering(CheckpointService(queue, children), runner)
        served_phases = [
            ServedPhase(pipeline.plan, phase, Call(pipeline.handlers[phase.name], pipeline.plan), runner, runner)
            for pipeline in self.pipelines.values()
            for phase in pipeline.plan.phases
            if phase.name in pipeline.handlers
        ]
        for served in served_phases:
            served.call.context = _serving(queue, served.call.context)
            if served.phase.kind != "command":
                surround(served.call, (*queue.middlewares, *self.pipelines[served.pipeline].middlewares))
        hand_over([served.call for served in served_phases])
        self._controls = PhaseControls(store, identity, served_phases, 1)
        self._producer = Producer(
            store,
            identity.name,
            self._in_flight,
            served_phases,
            self._controls,
            queue.events,
            concurrency=1,
            interval=3600,
            retention=queue.retention,
        )
        self._wait_phases = WaitPhaseSweeper(store, self._plans, queue.events)
        self._queue = queue
        self._children_sweeper = ChildrenSweeper(store, children, identity.name, pace=0)
        self._scheduler = Scheduler(queue, self._plans)
        self._moved = False
        self._wait_phases.passed = self._children_sweeper.resumed = self._note_move
        self._producer.parent_or_child_changed = self._wait_phases.parent_or_child_changed = self._children_sweeper.hear

    def round(self) -> int:
        """Run each role once; return 0 if nothing happened, else the number of attempts plus one."""
        now = self._store.now()
        self._moved = False
        self._queue.rescue()  # without observation: the virtual clock is always right
        for role in (self._controls, self._scheduler, self._wait_phases, self._children_sweeper):
            role.tick(now)
        producer = self._producer
        producer.look()
        producer.run_round()
        found = producer.found
        producer.claiming = False
        while self._in_flight.speaking or self._in_flight.finished:
            self._write_log_lines()
            producer.run_round()
        producer.claiming = True
        self._wait_phases.tick(now)
        self._children_sweeper.tick(now)
        return found + 1 if found or self._moved else 0

    def next_time(self, *, deadlines: bool) -> datetime | None:
        """Return the next due time or end of a lease; with deadlines, also of parked tasks and schedules."""
        now = self._store.now()
        moments = [moment for moment in self._producer.soon if moment > now]
        for task in self._store.find(Filter(statuses=frozenset({WAITING, PROCESSING})), limit=1_000_000).tasks:
            moment = task.leased_until if task.status is PROCESSING else task.run_at
            if moment is not None and now < moment < FAR and (deadlines or not task.parked):
                moments.append(moment)
        if deadlines:
            moments += [schedule.next_time(cron, now) for plan in self._plans.values() for cron in plan.crons]
        return min(moments, default=None)

    def _write_log_lines(self) -> None:
        while self._in_flight.speaking:
            output = self._in_flight.speaking.popleft()
            output.queued = False
            while lines := output.take(1_000):
                self._store.append_log(lines)
            self._in_flight.kept(output)

    def _note_move(self) -> None:
        self._moved = True


def _serving(queue: Queue, kind: Any) -> Any:
    """Return a class of contexts whose `spawn` serves the pipeline of the children."""

    def spawn(ctx: Any, pipeline: Pipeline | str, *given: Any, **options: Any) -> Any:
        if isinstance(pipeline, Pipeline):
            queue.serve(pipeline)
        return kind.spawn(ctx, pipeline, *given, **options)

    return type(kind.__name__, (kind,), {"spawn": spawn})


def _answering(checkpoints: CheckpointService, runner: InlineRunner) -> Callable[[Attempt, Request], str]:
    def answer(attempt: Attempt, request: Request) -> str:
        text = checkpoints.answer(attempt, request)
        runner.after_ask(attempt, request)
        return text

    return answer
