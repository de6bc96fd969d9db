"""One run of a schedule: real workers (`Worker`, its producer and roles) over a memory store, in virtual time."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from onerow import Queue, Worker
from onerow.core.errors import IllegalMove, StoreError
from onerow.core.filters import Filter
from onerow.core.status import CANCELLED
from onerow.core.task import Task
from onerow.engine.events.events import RoleFailed
from onerow.identity import Identity
from onerow.soak.checks import check
from onerow.soak.history import History, Settings
from onerow.soak.records import Record
from onerow.stores.memory import MemoryStore
from tests.schedules import workload
from tests.schedules.runners import recording
from tests.schedules.schedule import Operation, Schedule, TaskPlan
from tests.schedules.store import Client, Network
from tests.schedules.world import Actor, Process, World, entered

START = datetime(2026, 1, 5, 9, tzinfo=UTC)
LIMIT = 200.0  # virtual seconds; every schedule is over long before
_OPERATOR = -1


class SimulatedIdentity(Identity, frozen=True):
    """The identity of a simulated process; `dead` has the pids of all that have ended."""

    dead: set[int] = msgspec.field(default_factory=set)

    def knows_dead(self, other: dict[str, Any]) -> bool:
        return bool(self.boot) and other.get("boot") == self.boot and other.get("pid") in self.dead


class Run:
    """What happened: violations by check, the number of steps of each worker, and the trace."""

    def __init__(self, schedule: Schedule, *, trace: bool = False) -> None:
        self.schedule = schedule
        self.world = World(schedule.seed, calm=schedule.calm)
        if trace:
            self.world.trace = []
        self.records: list[Record] = []
        self.errors: list[str] = []
        self.steps = [0] * schedule.workers
        self._clock_step = timedelta(0)
        self._bodies = 0
        self._ended_at: dict[str, float] = {}
        self._dead: set[int] = set()
        self._pids = 100
        self._operating = 0
        self._store = MemoryStore(lambda: START + timedelta(seconds=self.world.now) + self._clock_step)
        self._network = Network(self.world, self._store)
        self._network.inserted = self._on_inserted
        self._network.ended = self._on_ended
        self._at_step = {
            (each.worker, int(each.at)): each
            for each in schedule.faults
            if each.kind not in ("outage", "clock", "kill-body")
        }
        self._at_body = {int(each.at) for each in schedule.faults if each.kind == "kill-body"}
        self._workers: dict[int, Worker] = {}  # by slot

    # ── running ──

    def execute(self) -> dict[str, list[str]]:
        """Run to the end; return the violations of each promise that was broken."""
        recording.append(self.record)
        try:
            with entered(self.world) as world:
                self._plan_faults()
                self.record("limit", phase="store", name="phase", number=1)
                world.before_step = self._before_step
                self._operate("adder", self._add_tasks)
                for operation in self.schedule.operations:
                    self._operate(f"{operation.name} {operation.task}", partial(self._apply, operation))
                for slot in range(self.schedule.workers):
                    self._start_worker(slot, 0.0)
                world.run(self._is_done, LIMIT)
                return self._checked()
        finally:
            recording.pop()

    def record(self, what: str, **fields: Any) -> None:
        # No two records have the same time, as on a real clock.
        self.records.append(Record(at=self.world.now + len(self.records) * 1e-9, what=what, **fields))
        self.world.note(f"{what} {fields.get('phase', '')} {fields.get('name', '')} {fields.get('outcome', '')}")
        if what == "begin":
            self._bodies += 1
            if self._bodies - 1 in self._at_body:
                self._kill(self.world.process)

    def _is_done(self) -> bool:
        added = self.schedule.tasks
        return not self._operating and len(self._ended_at) >= len(added) and not self._open_tasks()

    def _open_tasks(self) -> bool:
        return any(not row.ended for row in self._store._rows.values())

    # ── faults ──

    def _plan_faults(self) -> None:
        for fault in self.schedule.faults:
            if fault.kind == "outage":
                self.world.at(1 + fault.at, partial(self._outage, fault.lasts))
            elif fault.kind == "clock":
                self.world.at(1 + fault.at, partial(self._step_clock, fault.lasts))

    def _outage(self, lasts: float) -> None:
        self._network.down_until = max(self._network.down_until, self.world.now + lasts)
        self.record("fault", name="cut", until=self._network.down_until)

    def _step_clock(self, lasts: float) -> None:
        self._clock_step += timedelta(seconds=lasts)
        self.record("fault", name="clock")

    def _before_step(self, actor: Actor) -> None:
        process = actor.process
        if process.slot == _OPERATOR:
            return
        step = self.steps[process.slot]
        self.steps[process.slot] = step + 1
        fault = self._at_step.get((process.slot, step))
        if fault is None:
            return
        if fault.kind == "kill":
            self._kill(process)
        elif fault.kind == "freeze":
            process.runs_at = self.world.now + fault.lasts
            self.record("fault", name="pause", worker=process.name, pid=process.pid, until=process.runs_at)
        elif fault.kind == "drain":
            if (worker := self._workers.get(process.slot)) is not None and worker.name == process.name:
                worker.stop()
            self.record("fault", name="drain", worker=process.name, pid=process.pid)
        else:
            process.call_fault = fault.kind
            self.record("fault", name=fault.kind, worker=process.name, pid=process.pid)

    def _kill(self, process: Process) -> None:
        self.record("fault", name="kill", worker=process.name, pid=process.pid)
        self.world.kill(process)

    # ── workers ──

    def _start_worker(self, slot: int, after: float) -> None:
        self._pids += 1
        process = Process(slot, self._pids, f"w{slot}-{self._pids}")
        process.ended = lambda: self._on_process_end(process)
        actor = self.world.start(process, "main", lambda: self._work(process))
        actor.wake_at = self.world.now + after

    def _on_process_end(self, process: Process) -> None:
        if process.pid in self._dead:
            return
        self._dead.add(process.pid)
        if not any(each.what == "fault" and each.pid == process.pid and each.name == "kill" for each in self.records):
            self.record("fault", name="kill", worker=process.name, pid=process.pid)  # by a handler, or at its own end
        self._start_worker(process.slot, 1.0)

    def _work(self, process: Process) -> None:
        queue = self._queue()
        worker = Worker(queue, [workload.work, workload.part], concurrency=3, interval=1.0, grace=4.0, prestart=0)
        worker._suspects_starting = 2  # on every machine
        boot = "host" if self.schedule.same_host else f"host-{process.pid}"
        worker._identity = SimulatedIdentity(
            process.name, boot, boot, "ns", process.pid, str(process.pid), START, self._dead
        )
        self._workers[process.slot] = worker
        try:
            worker._build()
            worker._reserve.close()  # a killed process of the simulation would keep them
            worker._start()
            worker._run_rounds(worker._stopping.is_set, 3600.0)
            worker._drain()
            worker._end()
        except StoreError:
            pass  # the store is unavailable at the start: the supervisor starts it again
        self.world.kill(process)

    def _queue(self) -> Queue:
        queue = Queue(Client(self._network), keep="30d")
        queue.on(RoleFailed, lambda event: self.errors.append(f"{event.role}: {event.error}\n{event.trace}"))
        return queue

    # ── operators ──

    def _operate(self, name: str, function: Callable[[], None]) -> None:
        process = Process(_OPERATOR, 0, "operator")
        self._operating += 1

        def main() -> None:
            function()
            self._operating -= 1

        self.world.start(process, name, main)

    def _insisting(self, call: Callable[[], Any]) -> Any:
        while True:
            try:
                return call()
            except StoreError:
                self.world.sleep(0.3)

    def _add_tasks(self) -> None:
        queue = self._queue()
        self._insisting(lambda: queue.publish(workload.work, workload.part))
        for plan in self.schedule.tasks:
            due = START + timedelta(seconds=self.world.now + plan.delay) + self._clock_step
            at = due if plan.delay else None
            self._insisting(partial(queue.add, workload.work, plan.payload, task_id=plan.task_id, run_at=at))
            if plan.signal_at:
                wait = 1 + plan.signal_at - self.world.now
                self._operate(f"signal {plan.number}", partial(self._signal, plan, wait, "first"))

    def _signal(self, plan: TaskPlan, after: float, signal_id: str) -> None:
        queue = self._queue()
        self.world.sleep(after)
        try:
            self._insisting(lambda: queue.signal(plan.task_id, "approved", signal_id=signal_id))
        except IllegalMove:
            pass  # the task has ended
        self.record("operation", name="signal", task=plan.task_id, hash="approved")

    def _apply(self, operation: Operation) -> None:
        queue = self._queue()
        task_id = f"task-{operation.task}"
        self.world.sleep(max(0.0, 1 + operation.at - self.world.now))
        # Recorded before and after: if the answer is lost, the write may have succeeded.
        self.record("operation", name=operation.name, task=task_id, outcome="asked")
        act = {"cancel": queue.cancel, "retry": queue.retry, "replay": queue.replay}[operation.name]
        try:
            task = self._insisting(lambda: act(task_id))
        except Exception as error:
            self.world.note(f"{operation.name} is refused: {error}")
            return
        if operation.name == "cancel":
            outcome = "accepted" if task.status is CANCELLED else "requested"
            self.record("operation", name="cancel", task=task_id, outcome=outcome)
        plan = self.schedule.tasks_by_number[operation.task]
        if operation.name == "replay" and plan.signal_at:  # the handler waits again
            self._signal(plan, 1.0, f"after replay at {operation.at}")

    # ── the history ──

    def _on_inserted(self, task: Task) -> None:
        due = (task.run_at - START).total_seconds()
        until = 0.0 if any(fault.kind == "clock" for fault in self.schedule.faults) else due
        parent = task.parent_id or ""
        self.record("add", task=task.task_id, phase=task.phase, hash=task.payload_json, parent=parent, until=until)

    def _on_ended(self, task: Task) -> None:
        self._ended_at[task.task_id] = self.world.now

    def _checked(self) -> dict[str, list[str]]:
        for task in self._store.find(Filter(), limit=1000).tasks:
            row = {
                "status": task.status.value,
                "phase": task.phase,
                "error": task.error or "",
                "history": [
                    {"what": each.what, "phase": each.phase, "attempt": each.attempt, "by": each.by, "at": each.at}
                    for each in task.history
                ],
                "results": {name: msgspec.json.encode(value).decode() for name, value in task.results.items()},
                "ended_at": self._ended_at.get(task.task_id) if task.ended else None,
                "child": task.parent_id is not None,
            }
            self.record("row", task=task.task_id, row=row)
        self.record("end of run")
        may_fail = frozenset(task.task_id for task in self.schedule.tasks if task.poison)
        settings = Settings(workload.PHASES, lease=workload.LEASE, recovery=4.0, may_fail=may_fail)
        found = {name: each for name, each in check(History(self.records, settings)).items() if each}
        if self.errors:
            found["errors"] = self.errors
        return found


def violations(schedule: Schedule) -> dict[str, list[str]]:
    return Run(schedule).execute()
