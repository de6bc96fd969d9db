"""A worker process: build the roles, start their threads, serve, drain and shut down."""

import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from time import monotonic, sleep

from onerow.core.durations import Duration, parse_duration
from onerow.core.errors import (
    BadInput,
    CodeTooOld,
    CorruptRow,
    QueueRelocated,
    RowRefused,
    StoreError,
    StoreMoved,
    UnknownName,
)
from onerow.core.plan import DEFAULT_LEASE, DEFAULT_TIMEOUT, Plan
from onerow.core.resources import Resources
from onerow.core.sizes import Size, parse_size
from onerow.engine.control import definitions
from onerow.engine.control.relocation import check_not_relocated
from onerow.engine.events.events import (
    AlertLost,
    DefinitionReplaced,
    PhaseTooHeavy,
    RoleFailed,
    StoreGone,
    WorkerHung,
    WorkerOutdated,
    WorkerStarted,
    WorkerStopped,
)
from onerow.engine.events.hooks import GuardState
from onerow.engine.handler.call import Call
from onerow.engine.handler.outcome import Stopped, Unstarted
from onerow.engine.processes import ProcessHost
from onerow.engine.queue.lease_watch import LeaseWatch
from onerow.engine.queue.queue import Queue
from onerow.engine.runners.attempt import Attempt, Runner, ServedPhase
from onerow.engine.runners.batch import BatchRunner
from onerow.engine.runners.capture import Capture
from onerow.engine.runners.command import Commands
from onerow.engine.runners.isolated import Isolated
from onerow.engine.runners.process_stop import StopDeadlines, TreeStopper
from onerow.engine.runners.threads import LoopRunner, ThreadRunner, run_in_thread
from onerow.engine.worker.checkpoint_service import CheckpointService
from onerow.engine.worker.host_resources import HostResources, host
from onerow.engine.worker.identity import Identity
from onerow.engine.worker.in_flight import InFlight
from onerow.engine.worker.producer import Producer
from onerow.engine.worker.roles.alert_sender import AlertSender, HookWatch
from onerow.engine.worker.roles.children import ChildrenSweeper
from onerow.engine.worker.roles.controls import PhaseControls
from onerow.engine.worker.roles.heartbeat import DeadlineWatcher, Heartbeat
from onerow.engine.worker.roles.log_writer import LogWriter
from onerow.engine.worker.roles.scheduler import Scheduler
from onerow.engine.worker.roles.stats_recorder import StatsRecorder
from onerow.engine.worker.roles.sweeps import MaintenanceRunner, Purger, Rescuer, WaitPhaseSweeper
from onerow.engine.worker.threads import Outage, Role, RoleThread
from onerow.pipelines.command import Command
from onerow.pipelines.pipeline import Pipeline
from onerow.ports import Maintainable

DEFAULT_CONCURRENCY = 16
TOO_OLD = 78
"""Exit code of a worker whose code is too old for the store, or whose queue has moved; a restart would not help."""

_GATHER_FOR = 0.002
_FIRST_PAUSE, _LONGEST_PAUSE, _LONGEST_PAUSE_IN_DRAIN = 0.02, 2.0, 0.25

# At least longer than a thread waits on a loaded machine. Two thirds of a long lease, so that a replacement worker is
# started before the leases end.
_SHORTEST_SILENCE, _SILENT_PART_OF_LEASE = 10.0, 2 / 3
_LAST_CALLS = 2.0  # seconds that hooks and alert receivers get for the last events of a stopping worker
_HUNG_GRACE = 5.0  # seconds that other attempts may run on in a process that ends because of hung work
_REACTION_TIME = 2.0  # seconds in which an attempt in this process reacts to a stop, unless it hangs too


class Worker:
    """Run the phases of a queue's pipelines in this process until it is stopped.

    concurrency: attempts at once. interval: how often to look for due tasks without a wake-up.
    grace: how long running attempts may go on after a stop. phases: serve only these ('phase' or 'pipeline.phase').
    memory, cpus: what heavy phases of all workers on this host may take together; by default all that it has.
    republish: publish these pipelines' definitions even if newer ones have replaced them.
    """

    def __init__(
        self,
        queue: Queue,
        pipelines: Iterable[Pipeline] = (),
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        interval: Duration = 1.0,
        grace: Duration = 30.0,
        phases: Sequence[str] = (),
        until_idle: bool = False,
        memory: Size | None = None,
        cpus: float | None = None,
        republish: bool = False,
    ) -> None:
        if type(concurrency) is not int or not 1 <= concurrency <= 10_000:
            raise BadInput(
                f"concurrency must be a whole number from 1 to 10,000, not {concurrency!r}", field="concurrency"
            )
        queue.serve(*pipelines)
        if not queue.pipelines:
            raise BadInput("no pipelines to work on: pass them, or queue.serve(pipeline) first", field="pipelines")
        self.queue = queue
        self.identity = Identity.of_this_process()
        self.exit_code = 0
        self._concurrency = concurrency
        self._interval = parse_duration(interval, "interval").total_seconds()
        self._grace = parse_duration(grace, "grace").total_seconds()
        self._only = _chosen(queue, phases)
        has = host()
        # Starting an interpreter uses a whole core: more starts than cores would only slow each other down.
        self._suspects_starting = max(1, min(concurrency, int(has.cpus if cpus is None else cpus)))
        self._host_resources = HostResources(
            Resources(
                has.memory if memory is None else parse_size(memory, "memory"), has.cpus if cpus is None else cpus
            )
        )
        self._until_idle = until_idle
        self._republish = republish
        self._stopping = threading.Event()
        self._deadlines = StopDeadlines(self._grace)
        self._pause = _FIRST_PAUSE
        self._condemned: set[str] = set()
        self._signalled = False
        self._store_moved = threading.Event()
        self._stop_grace = min(self._grace, 10.0)
        self.ready = threading.Event()

    @property
    def name(self) -> str:
        """The name of this process start; the `leased_by` of its tasks."""
        return self.identity.name

    @property
    def ends_by(self) -> float | None:
        """The monotonic time by which `run` should have returned; None until a stop is requested."""
        return self._deadlines.end_until if self._stopping.is_set() else None

    @property
    def silent_at_most(self) -> float:
        """Seconds for which this process may send no sign of life; below the shortest lease, unless that is very short."""
        return max(_SHORTEST_SILENCE, self._shortest_lease().total_seconds() * _SILENT_PART_OF_LEASE)

    @property
    def running(self) -> int:
        """The number of attempts in flight."""
        return len(self._in_flight.attempts) if self.ready.is_set() else 0

    def stop(self, *, hurry: bool = False, by_signal: bool = False) -> None:
        """Drain: claim no more, let running attempts end within the grace period, and hand the rest back.

        hurry: the grace period ends now. by_signal: this process got a SIGTERM, and perhaps its child processes too.
        """
        self._deadlines.ask(monotonic())
        if hurry or not self.ready.is_set():  # before it is ready it holds nothing
            self._deadlines.hurry(monotonic())
        self._signalled |= by_signal
        self._stopping.set()
        if self.ready.is_set():
            self._in_flight.wake()

    def run(self) -> int:
        """Work until stopped, or with `until_idle` until nothing is due and nothing runs; return the exit code."""
        self.queue.events.defer()
        try:
            self._build()
            try:
                self._start()
                self._serve()
                self._drain()
            finally:
                self._end()
        finally:
            self.queue.events.undefer(within=_LAST_CALLS)
        return self.exit_code

    # ── building ──

    def _build(self) -> None:
        queue = self.queue
        store = queue.store
        own = {name: pipeline.plan for name, pipeline in queue.pipelines.items()}
        check_not_relocated(store)
        definitions.publish(store, own.values(), force=self._republish)
        self._process_host = ProcessHost()
        self._in_flight = InFlight(store.now)
        self._in_flight.masker = queue.masker
        self._in_flight.stop_asked = self._stopping.wait
        self._in_flight.was_signalled = lambda: self._signalled
        children = queue.children
        self._in_flight.answer = CheckpointService(queue, children).answer
        self._children_sweeper = ChildrenSweeper(store, children, self.name)
        self._loop: LoopRunner | None = None
        self._runners: list[Runner] = []
        served_phases = self._build_served_phases()
        self._controls = PhaseControls(store, self.identity, served_phases, self._concurrency, queue.definitions)
        self._stats_recorder = StatsRecorder(store, self.name, queue.events)
        self._producer = Producer(
            store,
            self.name,
            self._in_flight,
            served_phases,
            self._controls,
            queue.events,
            concurrency=self._concurrency,
            interval=self._interval,
            statistics=self._stats_recorder.count,
            host_resources=self._host_resources,
            overlap=True,
            suspects_starting=self._suspects_starting,
        )
        for served in served_phases:
            if served.weight is not None and not served.weight.fits(self._host_resources.total):
                queue.events.send(PhaseTooHeavy(served.pipeline, served.phase.name))
        self._outage = Outage(queue.events)
        self._outage.moved = self._on_moved
        shortest = self._shortest_lease()
        lease_watch = LeaseWatch(store, self._lease_of, min(shortest, DEFAULT_LEASE), is_ours=self._in_flight.holds)
        plans = definitions.Following(queue.definitions, own)
        self._rescuer = Rescuer(store, self.identity, queue.events, lease_watch, plans)
        self._wait_phases = WaitPhaseSweeper(store, plans, queue.events)
        self._passes = any(not phase.has_code for plan in own.values() for phase in plan.phases)
        sweeps: list[Role] = [
            self._controls,
            self._wait_phases,
            self._rescuer,
            self._children_sweeper,
            Scheduler(queue, plans),
            self._stats_recorder,
        ]
        if isinstance(store, Maintainable):
            sweeps.append(MaintenanceRunner(store))
        if queue.keep is not None:
            keep = queue.keep
            sweeps.append(Purger(lambda: queue.purge(older_than=keep, limit=1000)))
        self._alert_senders = [AlertSender(queue, watch, queue.events) for watch in queue.watches]
        self._alert_threads = [self._thread("alarm", [alarm], alarm.close) for alarm in self._alert_senders]
        self._controls.hooks = self._report_hooks
        loop_watch = next((runner.watch for runner in self._runners if isinstance(runner, LoopRunner)), None)
        self._deadline_watcher = DeadlineWatcher(
            self._in_flight, self._stop_grace, self._on_hung, min(shortest, *_timeouts(served_phases)), loop_watch
        )
        self._heartbeat_thread = self._thread("heart", [Heartbeat(store, self.name, self._in_flight, shortest)])
        self._deadline_watcher_thread = self._thread("warden", [self._deadline_watcher, HookWatch(self._report_hooks)])
        self._sweep_thread = self._thread("sweeps", sweeps)
        self._log_writer = LogWriter(store, self._in_flight, queue.log_files)
        self._log_writer_thread = self._thread("scribe", [self._log_writer])
        self._waker = store.waker()
        self._in_flight.wake = self._waker.poke
        self._in_flight.wake_log_writer = self._log_writer_thread.wake
        self._producer.reached_codeless_phase = self._sweep_thread.wake
        self._wait_phases.passed = self._look_again
        self._children_sweeper.resumed = self._look_again
        self._children_sweeper.wake = lambda: self._sweep_thread.wake(self._children_sweeper)
        self._producer.parent_or_child_changed = self._wait_phases.parent_or_child_changed = (
            self._rescuer.parent_or_child_changed
        ) = self._children_sweeper.hear
        self._controls.outdated = self._on_outdated
        self._controls.replaced = self._on_replaced
        self._capture = Capture(queue.masker)

    def _thread(self, name: str, roles: Sequence[Role], last: Callable[[datetime], object] | None = None) -> RoleThread:
        return RoleThread(name, roles, self.queue.store.now, self.queue.events, self._outage, last)

    def _report_hooks(self) -> list[GuardState]:
        return self.queue.events.report_hooks([alarm.guard for alarm in self._alert_senders])

    def _build_served_phases(self) -> list[ServedPhase]:
        threads = ThreadRunner(self._concurrency, run_in_thread, "thread")
        isolated = ThreadRunner(self._concurrency, Isolated(self._process_host, self._stop_grace), "isolated")
        commands = ThreadRunner(self._concurrency, Commands(self._process_host, self._stop_grace), "command")
        self._runners += [threads, isolated, commands]
        served_phases = []
        for pipeline in self.queue.pipelines.values():
            for phase in pipeline.plan.phases:
                if phase.name not in pipeline.handlers or not self._serves(pipeline.name, phase.name):
                    continue
                handler = pipeline.handlers[phase.name]
                runner: Runner = isolated if handler.isolated else threads
                if isinstance(handler.function, Command):
                    served_phases.append(
                        ServedPhase(pipeline.plan, phase, Call(handler, pipeline.plan), commands, commands)
                    )
                    continue
                if handler.is_async and not handler.isolated:
                    if self._loop is None:
                        self._loop = LoopRunner(self._concurrency)
                        self._runners.append(self._loop)
                    runner = self._loop
                if phase.kind == "batch":
                    runner = BatchRunner(phase, self._concurrency, self._loop if handler.is_async else None)
                    self._runners.insert(0, runner)
                served_phases.append(ServedPhase(pipeline.plan, phase, Call(handler, pipeline.plan), runner, isolated))
        return served_phases

    def _lease_of(self, pipeline: str, phase: str) -> timedelta:
        """Return the lease of a phase, or the default lease of a phase that this app does not know."""
        plan = self.queue.pipelines[pipeline].plan if pipeline in self.queue.pipelines else None
        return plan.phase(phase).lease if plan is not None and plan.knows(phase) else DEFAULT_LEASE

    def _shortest_lease(self) -> timedelta:
        return min(
            (
                phase.lease
                for pipeline in self.queue.pipelines.values()
                for phase in pipeline.plan.phases
                if phase.name in pipeline.handlers and self._serves(pipeline.name, phase.name)
            ),
            default=DEFAULT_LEASE,
        )

    def _serves(self, pipeline: str, phase: str) -> bool:
        return not self._only or phase in self._only or f"{pipeline}.{phase}" in self._only

    def _start(self) -> None:
        self._controls.tick(self.queue.store.now())
        self._capture.start()
        usual = (self._heartbeat_thread, self._deadline_watcher_thread, self._sweep_thread, self._log_writer_thread)
        for thread in (*usual, *self._alert_threads):
            thread.start()
        self.ready.set()
        self.queue.events.send(WorkerStarted(self.name, self.queue.url, tuple(self.queue.pipelines)))

    # ── serving ──

    def _serve(self) -> None:
        idle_rounds = 0
        while not self._stopping.is_set():
            rest = self._run_round()
            if self._until_idle:
                quiet = not (
                    self._producer.may_be_due or self._in_flight.attempts or self._producer.found or self._producer.busy
                )
                idle_rounds = idle_rounds + 1 if quiet and self._nothing_due() else 0
                if idle_rounds >= 2:
                    return
                rest = min(rest, 0.05)
            if rest > 0:
                self._rest(rest)
            elif self._producer.gathering:
                sleep(_GATHER_FOR)

    def _run_round(self) -> float:
        """Run one round of the producer; retry after store outages and errors."""
        while True:
            try:
                rest = self._producer.run_round()
                if self._producer.store_answered:
                    self._outage.end()
                    self._pause = _FIRST_PAUSE
                return rest
            except CodeTooOld as error:
                self._on_outdated(error)
                raise
            except (StoreError, CorruptRow) as error:
                if isinstance(error, RowRefused | CorruptRow):  # one bad row: settle the others without it
                    self._settle_singly(error)
                else:
                    self._outage.begin(error)
                if self._store_moved.is_set():
                    return 0.0
            except Exception as error:
                self._settle_singly(error)
            if self._stopping.is_set():
                # One try at a time: the drain checks its deadline after each.
                pause = min(self._pause, _LONGEST_PAUSE_IN_DRAIN)
                sleep(pause)
                self._pause = pause * 2
                return pause
            self._stopping.wait(self._pause)
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def _settle_singly(self, error: Exception) -> None:
        """Report the error and settle each outcome in its own call."""
        self.queue.events.send(RoleFailed("Producer", str(error), traceback.format_exc()))
        try:
            self._producer.settle_singly()
        except StoreError as outage:
            self._outage.begin(outage)

    def _rest(self, seconds: float) -> None:
        self._in_flight.resting = True
        try:
            # An attempt that finished before `resting` was set has not woken this thread.
            if not self._in_flight.finished and self._waker.wait(seconds):
                self._producer.may_be_due = True
                if not self._in_flight.finished:  # else the wake-up most likely came from an own attempt that ended
                    self._producer.look()
                    if self._passes:
                        self._sweep_thread.wake(self._wait_phases)  # a new task may be at a phase without code
        except StoreError as error:
            self._outage.begin(error)
            sleep(min(seconds, 0.2))  # not `_stopping.wait`, which returns at once during a drain
        finally:
            self._in_flight.resting = False

    def _look_again(self) -> None:
        self._producer.look()
        if self._in_flight.resting:
            self._waker.poke()

    def _nothing_due(self) -> bool:
        self._wait_phases.tick(self.queue.store.now())
        return not self._producer.may_be_due

    # ── ending ──

    def _drain(self) -> None:
        self._producer.claiming = False
        if self._store_moved.is_set():
            self._stop_without_store()
            return
        self._controls.drain()
        for attempt in list(self._in_flight.attempts.values()):
            if attempt.started_at is None:
                attempt.ask_to_stop("drain")
        deadlines = self._deadlines
        deadlines.ask(monotonic())
        if self._condemned:
            deadlines.shorten(monotonic(), min(self._stop_grace, _HUNG_GRACE))
        self._settle_until(lambda: deadlines.work_until)
        for attempt in list(self._in_flight.attempts.values()):
            attempt.ask_to_stop("drain")
            if isinstance(attempt.handle, TreeStopper):
                attempt.handle.end_within(deadlines.kill_after)
        asked_at = monotonic()
        self._settle_until(lambda: deadlines.record_until, lambda: self._may_abandon_rest(asked_at))
        if self._condemned:
            self._hand_back_rest()
        try:
            self._producer.look_for_lost_claims()
        except StoreError as error:
            self._outage.begin(error)
        if self._in_flight.attempts:
            self.exit_code = self.exit_code or 70

    def _stop_without_store(self) -> None:
        """Stop running attempts, whose outcomes cannot be written, and wait for them within the grace period."""
        for attempt in list(self._in_flight.attempts.values()):
            attempt.ask_to_stop("lost")
        while monotonic() < self._deadlines.record_until and any(
            attempt.started_at is not None and not attempt.ended_at
            for attempt in list(self._in_flight.attempts.values())
        ):
            sleep(0.05)

    def _settle_until(self, deadline: Callable[[], float], enough: Callable[[], bool] = lambda: False) -> None:
        while (self._in_flight.attempts or self._producer.busy) and monotonic() < deadline() and not enough():
            if self._store_moved.is_set():
                self._stop_without_store()
                return
            rest = self._run_round()
            if rest > 0:
                self._rest(min(rest, 0.05))

    def _on_hung(self, attempt: Attempt) -> None:
        """Settle an attempt that does not stop, and drain: a new process takes over."""
        if attempt.task.task_id in self._condemned:
            return
        self._condemned.add(attempt.task.task_id)
        self.exit_code = self.exit_code or 75
        self.queue.events.send(WorkerHung(attempt.task, attempt.stop or ""))
        self._in_flight.finish(attempt, Stopped(attempt.stop or "timeout"))
        self._stopping.set()
        self._in_flight.wake()

    def _may_abandon_rest(self, asked_at: float) -> bool:
        """Whether the process ends because of hung work and the attempts left can only end with it."""
        if not self._condemned or monotonic() < asked_at + _REACTION_TIME:
            return False
        left = [attempt for attempt in list(self._in_flight.attempts.values()) if not attempt.ended_at]
        return not any(isinstance(attempt.handle, TreeStopper) for attempt in left)

    def _hand_back_rest(self) -> None:
        """Settle the attempts that end with this process; only a timeout counts against the task."""
        for attempt in list(self._in_flight.attempts.values()):
            if attempt.started_at is None:
                self._in_flight.finish(attempt, Unstarted())
            else:
                self._in_flight.finish(attempt, Stopped(attempt.stop or "drain"))
        self._settle_until(lambda: self._deadlines.end_until)

    def _on_moved(self, error: StoreMoved) -> None:
        """Stop at once, because the store has moved and writes would be lost; safe from any thread."""
        self._store_moved.set()
        self.exit_code = 66
        self.queue.events.send(StoreGone(self.name, str(error)))
        self.stop(hurry=True)

    def _on_outdated(self, error: CodeTooOld | QueueRelocated) -> None:
        if self.exit_code != TOO_OLD:
            self.queue.events.send(WorkerOutdated(self.name, str(error)))
        self.exit_code = TOO_OLD
        self.stop()

    def _on_replaced(self, own: Plan, followed: Plan) -> None:
        unknown = tuple(phase.name for phase in followed.phases if phase.has_code and not own.knows(phase.name))
        self.queue.events.send(DefinitionReplaced(own.name, unknown))
        self._passes |= any(not phase.has_code for phase in followed.phases)

    def _end(self) -> None:
        self._deadlines.ask(monotonic())
        for runner in self._runners:
            runner.close()
        self._process_host.close(self._time_left())
        self._host_resources.close()
        self._capture.stop()
        self._log_writer_thread.stop(self._time_left())  # two log writers at once would lose lines
        self._if_store_available(self._keep_last_lines, self._controls.unregister)
        for thread in self._alert_threads:
            thread.ask_to_stop()
        for thread in (self._heartbeat_thread, self._deadline_watcher_thread, self._sweep_thread):
            thread.stop(self._time_left())
        self._stop_alert_senders(min(monotonic() + _LAST_CALLS, self._deadlines.end_until))
        self._if_store_available(lambda: self._stats_recorder.flush(self.queue.store.now()))
        self._producer.close()
        self._waker.close()
        why = "the store is gone" if self._store_moved.is_set() else "hung" if self._condemned else "drained"
        self.queue.events.send(WorkerStopped(self.name, why))

    def _stop_alert_senders(self, deadline: float) -> None:
        for alarm, thread in zip(self._alert_senders, self._alert_threads, strict=True):
            if not thread.stop(max(0.0, deadline - monotonic())) and alarm.unsent:
                self.queue.events.send(AlertLost(alarm.unsent, "the worker stopped before the receiver took them"))

    def _time_left(self) -> float:
        """Return the seconds that one step of the shutdown may take."""
        return max(0.05, min(5.0, self._deadlines.end_until - monotonic()))

    def _if_store_available(self, *calls: Callable[[], object]) -> None:
        """Make these store calls, unless the store is unavailable or the time is up."""
        try:
            for call in calls:
                if not self._outage.active and monotonic() < self._deadlines.end_until:
                    call()
        except StoreError as error:
            self._outage.begin(error)

    def _keep_last_lines(self) -> None:
        rest = 0.0
        while rest < 1.0 and monotonic() < self._deadlines.end_until:
            sleep(rest)
            try:
                rest = max(0.0, self._log_writer.tick(self.queue.store.now()))
            except StoreError:
                raise
            except Exception as error:  # the log writer drops lines that the store refuses, so this loop ends
                self.queue.events.send(RoleFailed("LogWriter", str(error), traceback.format_exc()))

    @property
    def condemned(self) -> bool:
        """Whether a thread of this process does not stop, so that the process should end."""
        return bool(self._condemned)


def _timeouts(served_phases: Iterable[ServedPhase]) -> list[timedelta]:
    return [served.phase.timeout for served in served_phases if served.phase.timeout is not None] or [DEFAULT_TIMEOUT]


def _chosen(queue: Queue, phases: Sequence[str]) -> frozenset[str]:
    known = {
        name
        for pipeline in queue.pipelines.values()
        for phase in pipeline.plan.phases
        for name in (phase.name, f"{pipeline.name}.{phase.name}")
    }
    for phase in phases:
        if phase not in known:
            raise UnknownName(f"no phase {phase!r} in this app; there are {', '.join(sorted(known))}", field="phases")
    return frozenset(phases)
