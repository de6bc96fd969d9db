"""A rehearsal: the worker's own roles, called in turn by the test, over a memory store with a clock of its own."""

from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from onerow.core import schedule
from onerow.core.durations import Duration, parse_duration
from onerow.core.status import PROCESSING, WAITING, Status
from onerow.core.task import Task
from onerow.core.times import FAR
from onerow.engine.control.definitions import Definitions
from onerow.engine.handler.call import Call
from onerow.engine.handler.requests import Request
from onerow.engine.queue.queue import Queue
from onerow.engine.runners.attempt import Attempt, ServedPhase
from onerow.engine.views import Views
from onerow.engine.worker.checkpoint_service import CheckpointService
from onerow.engine.worker.identity import Identity
from onerow.engine.worker.in_flight import InFlight
from onerow.engine.worker.producer import Producer
from onerow.engine.worker.roles.children import ChildrenSweeper
from onerow.engine.worker.roles.controls import PhaseControls
from onerow.engine.worker.roles.scheduler import Scheduler
from onerow.engine.worker.roles.sweeps import WaitPhaseSweeper
from onerow.pipelines.pipeline import Pipeline
from onerow.ports import Filter
from onerow.stores.memory import MemoryStore
from onerow.testing.clock import VirtualClock
from onerow.testing.inline_runner import Accidents, InlineRunner

_MOST_ROUNDS = 100_000


class Rehearsal:
    """Runs pipelines in the test's own thread, without sleeping; time goes on only when the test says so."""

    def __init__(self, *pipelines: Pipeline, start: datetime | None = None) -> None:
        self.clock = VirtualClock(start)
        self.store = MemoryStore(self.clock)
        self.queue = Queue(self.store)
        self._accidents = Accidents()
        self._runner = InlineRunner(self._accidents)
        self._borrowed: list[tuple[Queue, dict[str, Any]]] = []
        self._stage: _Stage | None = None
        self.serve(*pipelines)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give borrowed queues their stores back."""
        self._runner.close()
        for queue, before in self._borrowed:
            queue.__dict__.update(before)
        self._borrowed.clear()

    # ── what is rehearsed ──

    def serve(self, *pipelines: Pipeline) -> Self:
        """Name the pipelines to run; `add` does so by itself."""
        self.queue.serve(*pipelines)
        self._stage = None
        return self

    def borrow(self, queue: Queue) -> Self:
        """Put the app's own queue over the memory store, until the rehearsal ends."""
        before = {name: queue.__dict__[name] for name in ("_store", "_ready", "definitions")}
        self._borrowed.append((queue, before))
        queue.__dict__.update(_store=self.store, _ready=True, definitions=Definitions(lambda: self.store))
        self.queue.events = queue.events  # the app's own hooks are part of what is rehearsed
        return self.serve(*queue.pipelines.values())

    def add(self, pipeline: Pipeline | str, payload: Any = None, **more: Any) -> Task:
        """`queue.add`, and the pipeline is served."""
        if isinstance(pipeline, Pipeline) and pipeline.name not in self.queue.pipelines:
            self.serve(pipeline)
        return self.queue.add(pipeline, payload, **more)

    def get(self, task: Task | str) -> Task:
        """The task as it stands now."""
        return self.queue.get(task if isinstance(task, str) else task.task_id)

    @property
    def now(self) -> datetime:
        return self.store.now()

    # ── accidents ──

    def fail(self, phase: str, error: BaseException, *, times: int = 1) -> Self:
        """The next attempts of a phase ('phase' or 'pipeline.phase') raise this instead of running."""
        self._accidents.plan("failure", phase, error, times)
        return self

    def time_out(self, phase: str, *, times: int = 1) -> Self:
        """The next attempts of a phase run too long and are stopped."""
        self._accidents.plan("timeout", phase, None, times)
        return self

    def crash_before(self, phase: str, *, times: int = 1) -> Self:
        """The process dies before the handler begins: the worker's the first time, after that the task's own."""
        self._accidents.plan("crash before", phase, None, times)
        return self

    def crash_after(self, phase: str, *, step: str | None = None, times: int = 1) -> Self:
        """The process dies after the handler (or one step of it) has done its work, before its outcome is recorded."""
        self._accidents.plan("crash after" if step is None else "crash after step", phase, step, times)
        return self

    def stub(self, phase: str, result: Any = None) -> Self:
        """A phase returns this (or what this function of the payload returns) without running its code."""
        self._runner.stubs[phase] = lambda attempt: result(attempt.task.payload) if callable(result) else result
        return self

    # ── running ──

    def run(self) -> int:
        """Whatever is due now, until nothing is; how many attempts that took. Time stands still."""
        return self._onstage.run()

    def run_until_idle(self) -> int:
        """Whatever can happen without anyone's doing: time goes on over retries, snoozes, due times and dead leases.

        Parked tasks stay parked: signal them, or let time go on with `forward`. Schedules fire only with `forward`.
        """
        attempts = self.run()
        while (moment := self._onstage.next_moment(deadlines=False)) is not None:
            self.clock.to(moment)
            attempts += self.run()
        return attempts

    def run_until(self, task: Task | str, phase: str | None = None, *, status: Status | None = None) -> Task:
        """Let happen what can, until the task stands at a phase, or in a status; without either, until it has ended."""

        def there(found: Task) -> bool:
            if phase is None and status is None:
                return found.ended
            return (phase is None or found.phase == phase) and (status is None or found.status is status)

        stage = self._onstage
        for _ in range(_MOST_ROUNDS):
            found = self.get(task)
            if there(found):
                return found
            if stage.round():
                continue
            moment = stage.next_moment(deadlines=False)
            if moment is None:
                break
            self.clock.to(moment)
        found = self.get(task)
        if there(found):
            return found
        why = Views(self.queue).why(found)
        raise AssertionError(
            f"task {found.task_id} did not get there; it is {found.status} at {found.phase}: {found.error or why.sentence}"
        )

    def forward(self, span: Duration) -> int:
        """Time goes on by a span; whatever becomes due on the way happens at its time. How many attempts that took."""
        end = self.now + parse_duration(span, "span")
        attempts = self.run()
        while (moment := self._onstage.next_moment(deadlines=True)) is not None and moment <= end:
            self.clock.to(moment)
            attempts += self.run()
        self.clock.to(end)
        return attempts + self.run()

    @property
    def _onstage(self) -> "_Stage":
        if self._stage is None or self._stage.pipelines != self.queue.pipelines:
            self._stage = _Stage(self.queue, self.store, self._runner)
        return self._stage


class _Stage:
    """The roles of a worker, built for the pipelines of the moment."""

    def __init__(self, queue: Queue, store: MemoryStore, runner: InlineRunner) -> None:
        self.pipelines = dict(queue.pipelines)
        if queue.pipelines:
            queue.publish(force=True)
        self._store = store
        self._plans = {name: pipeline.plan for name, pipeline in self.pipelines.items()}
        identity = Identity.of_this_process()
        self._in_flight = InFlight(store.now)
        family = queue.family
        self._in_flight.answer = _answering(CheckpointService(queue, family), runner)
        served_phases = [
            ServedPhase(pipeline.plan, phase, Call(pipeline.handlers[phase.name], pipeline.plan), runner, runner)
            for pipeline in self.pipelines.values()
            for phase in pipeline.plan.phases
            if phase.name in pipeline.handlers
        ]
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
        )
        self._wait_phases = WaitPhaseSweeper(store, self._plans, queue.events)
        self._queue = queue
        self._parents = ChildrenSweeper(store, family, identity.name, pace=0)
        self._scheduler = Scheduler(queue, self._plans)
        self._moved = False
        self._wait_phases.passed = self._parents.resumed = self._note_move
        self._producer.concerns_family = self._wait_phases.concerns_family = self._parents.hear

    def run(self) -> int:
        attempts = 0
        for _ in range(_MOST_ROUNDS):
            found = self.round()
            if not found:
                return attempts
            attempts += max(0, found - 1)
        raise AssertionError(
            f"after {_MOST_ROUNDS:,} rounds there is still something to do; does a task come back for ever?"
        )

    def round(self) -> int:
        """One of each role; 0 when nothing happened, else one more than attempts were made."""
        now = self._store.now()
        self._moved = False
        self._queue.rescue()  # without observation: the clock is the test's own and never wrong
        for role in (self._controls, self._scheduler, self._wait_phases, self._parents):
            role.tick(now)
        producer = self._producer
        producer.look()
        producer.run_round()
        found = producer.found
        producer.claiming = False
        while self._in_flight.speaking or self._in_flight.finished:
            self._keep_lines()
            producer.run_round()
        producer.claiming = True
        self._wait_phases.tick(now)
        self._parents.tick(now)
        return found + 1 if found or self._moved else 0

    def next_moment(self, *, deadlines: bool) -> datetime | None:
        """When something may happen next: a task is due, a dead lease ends; with deadlines also parks and schedules."""
        now = self._store.now()
        moments = [moment for moment in self._producer.soon if moment > now]
        for task in self._store.find(Filter(statuses=frozenset({WAITING, PROCESSING})), limit=1_000_000).tasks:
            moment = task.leased_until if task.status is PROCESSING else task.run_at
            if moment is not None and now < moment < FAR and (deadlines or not task.parked):
                moments.append(moment)
        if deadlines:
            moments += [schedule.next_time(cron, now) for plan in self._plans.values() for cron in plan.crons]
        return min(moments, default=None)

    def _keep_lines(self) -> None:
        while self._in_flight.speaking:
            output = self._in_flight.speaking.popleft()
            output.queued = False
            while lines := output.take(1_000):
                self._store.append_log(lines)
            self._in_flight.kept(output)

    def _note_move(self) -> None:
        self._moved = True


def _answering(checkpoints: CheckpointService, runner: InlineRunner) -> Callable[[Attempt, Request], str]:
    def answer(attempt: Attempt, request: Request) -> str:
        text = checkpoints.answer(attempt, request)
        runner.after_ask(attempt, request)
        return text

    return answer
