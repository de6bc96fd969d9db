"""A worker process: build it, run rounds until a stop, drain and shut down."""

import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic, sleep

from onerow.core.durations import Duration, parse_duration
from onerow.core.errors import BadInput, CodeTooOld, QueueRelocated, RowRefused, StoreError, StoreMoved, with_fix
from onerow.core.plan import DEFAULT_LEASE, Plan
from onerow.core.rules.attempts import Stopped, Unstarted
from onerow.engine import import_guard
from onerow.engine.control import definitions
from onerow.engine.control.relocation import check_not_relocated
from onerow.engine.control.stats import Outcomes
from onerow.engine.events.events import (
    DefinitionReplaced,
    LoopBlocked,
    ResourceFailed,
    RoleFailed,
    StoreGone,
    TasksStranded,
    WorkerHung,
    WorkerOutdated,
    WorkerStarted,
    WorkerStopped,
    WorkerUnusable,
)
from onerow.engine.handler.context import Link
from onerow.engine.handler.resources import OpenResources
from onerow.engine.processes import ProcessHost
from onerow.engine.queue.queue import Queue
from onerow.engine.runners.attempt import Attempt, InFlight
from onerow.engine.runners.attempt_process import TreeStopper
from onerow.engine.runners.capture import Capture
from onerow.engine.runners.shortage import Reserve
from onerow.engine.worker.background import LAST_CALLS, Background
from onerow.engine.worker.checkpoint_service import CheckpointService
from onerow.engine.worker.cores import cores
from onerow.engine.worker.counters import Counters
from onerow.engine.worker.phases import Runners, check_phases, phases_with_code
from onerow.engine.worker.producer import Producer
from onerow.engine.worker.stop_deadlines import StopDeadlines
from onerow.engine.worker.supervisor import HUNG, LEFT_BEHIND, STORE_MOVED, TOO_OLD
from onerow.engine.worker.threads import Outage
from onerow.identity import Identity, check_platform
from onerow.pipelines.pipeline import Pipeline

DEFAULT_CONCURRENCY = 16

_GATHER_FOR = 0.002
_LONGEST_REST, _LONGEST_REST_TO_END = 3600.0, 0.05  # the second while this worker waits for the last attempts
_FIRST_PAUSE, _LONGEST_PAUSE, _LONGEST_PAUSE_IN_DRAIN = 0.02, 2.0, 0.25
_IDLE_ROUNDS = 2
_REST_WHILE_OTHERS_WORK = 0.25
_CLAIM_WITHIN = 15.0  # seconds after a rest in which the next round must succeed, else this worker does not claim

# At least longer than a thread waits on a loaded machine. Two thirds of a long lease, so that a replacement worker is
# started before the leases end.
_SHORTEST_SILENCE, _SILENT_PART_OF_LEASE = 10.0, 2 / 3
_HUNG_GRACE = 5.0  # seconds that other attempts may run on in a process that must end
_REACTION_TIME = 2.0  # seconds in which an attempt in this process reacts to a stop, unless it hangs too


class Worker:
    """Run the phases of a queue's pipelines in this process until it is stopped.

    queue: where the tasks are. pipelines: what to serve, in addition to what the queue serves. concurrency: attempts at
    once. interval: how often to look for due tasks without a wake-up. until_idle: let `run` return when nothing is due,
    runs or waits in an inbox. grace: how long running attempts may go on after a stop. phases: serve only these
    ('phase' or 'pipeline.phase'). prestart: the most processes to keep ready for isolated handlers in use; by default
    one per core, 0 for none. republish: publish these pipelines' definitions even if newer ones have replaced them.
    show_output: write what handlers print also to the logger 'onerow.output', at most 100 lines a second.
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
        prestart: int | None = None,
        republish: bool = False,
        show_output: bool = False,
    ) -> None:
        check_platform()
        if type(concurrency) is not int or not 1 <= concurrency <= 10_000:
            raise BadInput(f"concurrency must be from 1 to 10,000, not {concurrency!r}", field="concurrency")
        if not isinstance(queue, Queue):
            raise BadInput(f"a worker needs a Queue, not {type(queue).__name__}", field="queue")
        if prestart is not None and (type(prestart) is not int or not 0 <= prestart <= 256):
            raise BadInput(f"prestart must be from 0 to 256, not {prestart!r}", field="prestart")
        queue.serve(*pipelines)
        if not queue.pipelines and not queue.inboxes:
            raise BadInput(
                "no pipelines to work on", fix="pass them, or call queue.serve(pipeline) first", field="pipelines"
            )
        self.queue = queue
        self._identity = Identity.of_this_process()
        self.exit_code: int = 0  # what `run` returns
        self._concurrency = concurrency
        self._interval = parse_duration(interval, "interval").total_seconds()
        self._grace = parse_duration(grace, "grace").total_seconds()
        self._only = check_phases(queue, phases)
        # Starting an interpreter uses a whole core: more starts than cores would only slow each other down.
        self._suspects_starting = min(concurrency, cores())
        self._prestart = self._suspects_starting if prestart is None else prestart
        self._until_idle = until_idle
        self._idle_rounds = 0
        self._leaves = True  # when it is idle
        self._batches = 0  # of messages that were stored
        self._republish = republish
        self._show_output = show_output
        self._stopping = threading.Event()
        self._deadlines = StopDeadlines(self._grace)
        self._pause = _FIRST_PAUSE
        self._claims_until = float("inf")  # monotonic; no round has ended yet
        self._hung: set[str] = set()  # task ids
        self._signalled = self._retiring = False
        self._handed_back = 0  # running tasks that did not end within the grace period
        self._store_moved = threading.Event()
        self._stop_grace = min(self._grace, 10.0)
        self.ready: threading.Event = threading.Event()  # set once it claims
        self._dismissed = False  # an operator asked it to drain: no other process takes its place

    @property
    def name(self) -> str:
        """The name of this process start; the `leased_by` of its tasks."""
        return self._identity.name

    @property
    def running(self) -> int:
        """The number of attempts in flight."""
        return len(self._in_flight.attempts) if self.ready.is_set() else 0

    @property
    def totals(self) -> Mapping[tuple[str, str], Outcomes]:
        """Outcomes of this worker by (pipeline, phase), some seconds behind."""
        return self._background.stats.totals if self.ready.is_set() else {}

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
        """Work until stopped, or with `until_idle` until nothing is due, runs or waits in an inbox; return the exit code."""
        import_guard.check("runs a worker", worker=True)
        self.queue.events.defer()
        self.queue.log_lines.start(self.name)
        try:
            try:
                self._build()
            except BaseException:
                self._close_unstarted()
                raise
            try:
                self._start()
                rest = _LONGEST_REST_TO_END / 2 if self._until_idle else _LONGEST_REST
                self._run_rounds(lambda: self._stopping.is_set() or (self._until_idle and self._may_leave()), rest)
                self._drain()
            finally:
                self._end()
        finally:
            self.queue.events.undefer(within=LAST_CALLS)
            self.queue.log_lines.stop(self.name)
        return self.exit_code

    def _build(self) -> None:
        queue = self.queue
        store = queue.store
        own = {name: pipeline.plan for name, pipeline in queue.pipelines.items()}
        check_not_relocated(store)
        before = definitions.stored(store)
        changed = definitions.publish(store, own.values(), force=self._republish)
        for found in definitions.stranded(store, before, {name: own[name] for name in changed}):
            queue.events.send(TasksStranded(*found))
        self._waker = store.waker()
        self._capture = Capture(queue.masker, show=self._show_output)
        self._outage = Outage(queue.events)
        self._outage.moved = self._on_moved
        self._in_flight = in_flight = InFlight(store.now)
        in_flight.masker, in_flight.echo = queue.masker, self._capture.echo
        in_flight.log_files = queue.log_files
        in_flight.stop_asked = self._stopping.wait
        in_flight.was_signalled = lambda: self._signalled
        in_flight.answer = CheckpointService(queue, queue.children).answer
        in_flight.wake = self._waker.poke
        in_flight.became_unusable, in_flight.replaceable = self._on_unusable, True
        self._outage.examine = in_flight.examine
        self._reserve = Reserve()
        self._process_host = ProcessHost()
        self._runners = Runners(
            self._concurrency, self._process_host, self._stop_grace, self._prestart, queue.middlewares
        )
        self._resources = OpenResources()
        served_phases = self._served_phases = [
            self._runners.serve(*phase) for phase in phases_with_code(queue, self._only)
        ]
        if self._runners.loop is not None:
            self._runners.loop.give_up = in_flight.give_up
            self._runners.loop.watch.on_block = self._on_block
        self._background = background = Background(
            queue,
            self._identity,
            in_flight,
            served_phases,
            definitions.Following(queue.definitions, own),
            self._outage,
            concurrency=self._concurrency,
            grace=self._stop_grace,
            hung=self._on_hung,
            loop=None if self._runners.loop is None else self._runners.loop.watch,
            prestarted=self._runners.prestarted,
            until_idle=self._until_idle,
        )
        self._producer = Producer(
            store,
            self.name,
            in_flight,
            served_phases,
            background.controls,
            queue.events,
            concurrency=self._concurrency,
            interval=self._interval,
            statistics=background.stats.count,
            overlap=True,
            suspects_starting=self._suspects_starting,
            retention=queue.retention,
        )
        self._producer.reached_codeless_phase = background.sweep_wait_phases
        self._producer.parent_or_child_changed = background.children.hear
        background.wait_phases.passed = background.children.resumed = self._look_again
        for receiver in background.receivers:
            receiver.wake = self._look_again
        background.controls.outdated = self._on_outdated
        background.controls.overdue = lambda: overdue_for(self)
        background.controls.asked_to_drain = self._on_asked_to_drain
        background.controls.replaced = self._on_replaced

    def _close_unstarted(self) -> None:
        """Close what a failed start has opened."""
        for name in ("_runners", "_process_host", "_waker", "_reserve"):
            if (opened := getattr(self, name, None)) is not None:
                opened.close()

    def _start(self) -> None:
        self._capture.start()
        self._runners.open_resources(self._resources, self._served_phases)
        self._background.start()
        self.ready.set()
        self.queue.events.send(WorkerStarted(self.name, self.queue.url, tuple(self.queue.pipelines)))

    # ── serving ──

    def _run_rounds(self, done: Callable[[], bool], longest_rest: float) -> None:
        """Run rounds of the producer until done; retry after store outages and errors."""
        while not done():
            try:
                rest = self._producer.run_round()
            except CodeTooOld as error:
                self._on_outdated(error)
                raise
            except Exception as error:
                self._on_failed_round(error)
                continue
            if self._producer.store_answered:
                if self._outage.active:
                    self._outage.end()
                self._pause = _FIRST_PAUSE
            self._claims_until = monotonic() + max(0.0, min(rest, longest_rest)) + _CLAIM_WITHIN
            if rest > 0:
                self._rest(min(rest, longest_rest))
            elif self._producer.gathering:
                sleep(_GATHER_FOR)

    def _on_failed_round(self, error: Exception) -> None:
        """Report the error, settle what can be settled, and pause."""
        if isinstance(error, StoreError) and not isinstance(error, RowRefused):
            self._outage.begin(error)
        else:  # perhaps one bad row: settle each outcome in its own call
            self._in_flight.examine(error)
            self.queue.events.send(RoleFailed("Producer", str(error), traceback.format_exc()))
            try:
                self._producer.settle_singly()
            except StoreError as outage:
                self._outage.begin(outage)
        if self._store_moved.is_set():
            return
        if self._stopping.is_set():  # the drain checks its deadline after each try
            self._pause = min(self._pause, _LONGEST_PAUSE_IN_DRAIN)
            sleep(self._pause)
        else:
            self._stopping.wait(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def _rest(self, seconds: float) -> None:
        self._in_flight.resting = True
        try:
            # An attempt that finished before `resting` was set has not woken this thread.
            if self._in_flight.finished:
                return
            if not self._waker.wait(seconds):
                self._producer.counters.wakeups_poll += 1
            else:
                self._producer.may_be_due = True
                if not self._in_flight.finished:  # else the wake-up most likely came from an own attempt that ended
                    self._producer.counters.wakeups_notify += 1
                    self._producer.look()
                    self._background.sweep_wait_phases()  # a new task may be at a phase without code
        except StoreError as error:
            self._outage.begin(error)
            sleep(min(seconds, 0.2))  # not `_stopping.wait`, which returns at once during a drain
        finally:
            self._in_flight.resting = False

    def _look_again(self) -> None:
        self._producer.look()
        if self._in_flight.resting:
            self._waker.poke()

    def _may_leave(self) -> bool:
        """Whether it is idle and all others are; while only it is, wait for a wake-up or its next look at the store."""
        idle = self._is_idle()
        if idle and not self._leaves:
            self._rest(_REST_WHILE_OTHERS_WORK)
            return False
        return idle

    def _is_idle(self) -> bool:
        """Whether nothing was due, in flight or under way in two rounds, and each inbox has looked and found nothing."""
        producer = self._producer
        received = self._received_everything()
        quiet = not (producer.may_be_due or self._in_flight.attempts or producer.found or producer.under_way)
        quiet = quiet and received and not producer.has_put_off_suspects
        if quiet:
            self._background.wait_phases.tick(self.queue.store.now())
        self._idle_rounds = self._idle_rounds + 1 if quiet and not producer.may_be_due else 0
        return self._idle_rounds >= _IDLE_ROUNDS

    def _received_everything(self) -> bool:
        """Whether each inbox found nothing at its last look; if messages were stored since the last call, look for tasks."""
        receivers = self._background.receivers
        empty = all(receiver.found_nothing for receiver in receivers)  # before the batches are counted
        batches = sum(receiver.batches for receiver in receivers)
        if batches != self._batches:
            self._batches = batches
            self._producer.look()
        return empty

    # ── ending ──

    def _drain(self) -> None:
        self._producer.claiming = False
        if self._store_moved.is_set():
            self._stop_without_store()
            return
        self._background.controls.drain()
        self._background.stop_receiving()
        for attempt in self._attempts():
            if attempt.started_at is None:
                attempt.ask_to_stop("drain")
        deadlines = self._deadlines
        if not self._retiring:
            deadlines.ask(monotonic())
        if must_end(self):
            deadlines.shorten(monotonic(), min(self._stop_grace, _HUNG_GRACE))
        self._settle_until(lambda: monotonic() >= deadlines.work_until)
        for attempt in self._attempts():
            attempt.ask_to_stop("drain")
            self._handed_back += attempt.stop == "drain"
            if isinstance(attempt.handle, TreeStopper):
                attempt.handle.end_within(deadlines.kill_after)
        asked_at = monotonic()
        self._settle_until(lambda: monotonic() >= deadlines.record_until or self._may_abandon_rest(asked_at))
        if must_end(self):
            self._hand_back_rest()
        try:
            self._producer.look_for_lost_claims()
        except StoreError as error:
            self._outage.begin(error)
        if self._in_flight.attempts:
            self.exit_code = self.exit_code or LEFT_BEHIND

    def _attempts(self) -> list[Attempt]:
        return list(self._in_flight.attempts.values())

    def _settle_until(self, enough: Callable[[], bool]) -> None:
        """Run rounds until all attempts are settled, or until it is enough."""
        attempts, producer, moved = self._in_flight.attempts, self._producer, self._store_moved
        self._run_rounds(
            lambda: not (attempts or producer.under_way) or enough() or moved.is_set(), _LONGEST_REST_TO_END
        )
        if self._store_moved.is_set():
            self._stop_without_store()

    def _stop_without_store(self) -> None:
        """Stop running attempts, whose outcomes cannot be written, and wait for them within the grace period."""
        for attempt in self._attempts():
            attempt.ask_to_stop("lost")
        while monotonic() < self._deadlines.record_until and any(
            attempt.started_at is not None and not attempt.ended_at for attempt in self._attempts()
        ):
            sleep(0.05)

    def _may_abandon_rest(self, asked_at: float) -> bool:
        """Whether the process must end and the attempts left can only end with it."""
        if not must_end(self) or monotonic() < asked_at + _REACTION_TIME:
            return False
        left = [attempt for attempt in self._attempts() if not attempt.ended_at]
        return not any(isinstance(attempt.handle, TreeStopper) for attempt in left)

    def _hand_back_rest(self) -> None:
        """Settle the attempts that end with this process; only a timeout counts against the task."""
        for attempt in self._attempts():
            started = attempt.started_at is not None
            self._in_flight.finish(attempt, Stopped(attempt.stop or "drain") if started else Unstarted())
        self._settle_until(lambda: monotonic() >= self._deadlines.end_until)

    def _end(self) -> None:
        self._reserve.close()
        self._deadlines.ask(monotonic())
        within = max(0.05, min(10.0, self._deadlines.end_until - monotonic()))
        self._resources.close(within, lambda why: self.queue.events.send(ResourceFailed(why)))
        self._runners.close()
        self._process_host.close(max(0.05, min(5.0, self._deadlines.end_until - monotonic())))
        self._capture.stop()
        self._background.stop(lambda: self._deadlines.end_until)
        if self._runners.loop is not None:
            self._runners.loop.watch.look(monotonic())  # reports a block by the last handler
        self._producer.close()
        self._waker.close()
        self.queue.events.send(WorkerStopped(self.name, self._in_flight.unusable or self._why_stopped()))

    def _why_stopped(self) -> str:
        if self._store_moved.is_set():
            return "the store is gone"
        if self._hung:
            return "an attempt did not stop"
        back = self._handed_back
        left = f", {back} running task{'' if back == 1 else 's'} handed back" if back else ""
        return f"on request{left}" if self._stopping.is_set() else "idle"

    # ── called by the roles, in their threads ──

    def _on_hung(self, attempt: Attempt, because: str) -> None:
        """Settle an attempt that does not stop, and drain: a new process takes over."""
        if attempt.task.task_id in self._hung:
            return
        self._hung.add(attempt.task.task_id)
        self.exit_code = self.exit_code or HUNG
        self.queue.events.send(WorkerHung(attempt.task, attempt.stop or "", because))
        reason = attempt.stop or "timeout"
        self._in_flight.finish(attempt, Stopped(reason, because if reason == "timeout" else ""))
        self._stopping.set()
        self._in_flight.wake()

    def _on_block(self, blocker: Link, seconds: float) -> None:
        self.queue.events.send(LoopBlocked(blocker.tasks[0], seconds))

    def _on_unusable(self) -> None:
        """Drain, because this process can run no more attempts: a new one takes over."""
        self._reserve.close()
        self.exit_code = self.exit_code or HUNG
        self.queue.events.send(WorkerUnusable(self.name, self._in_flight.unusable))
        self._stopping.set()
        self._in_flight.wake()

    def _on_moved(self, error: StoreMoved) -> None:
        """Stop at once, because the store has moved and writes would be lost."""
        self._store_moved.set()
        self.exit_code = STORE_MOVED
        self.queue.events.send(StoreGone(self.name, with_fix(error)))
        self.stop(hurry=True)

    def _on_outdated(self, error: CodeTooOld | QueueRelocated) -> None:
        if self.exit_code != TOO_OLD:
            self.queue.events.send(WorkerOutdated(self.name, with_fix(error)))
        self.exit_code = TOO_OLD
        self.stop()

    def _on_asked_to_drain(self) -> None:
        self._dismissed = True
        retire(self)

    def _on_replaced(self, own: Plan, followed: Plan) -> None:
        unknown = tuple(phase.name for phase in followed.phases if phase.has_code and not own.knows(phase.name))
        self.queue.events.send(DefinitionReplaced(own.name, unknown))


def retire(worker: Worker) -> None:
    """Let it claim no more; `run` returns when the running attempts have ended, however long they take."""
    worker._retiring = True
    worker._stopping.set()
    if worker.ready.is_set():
        worker._in_flight.wake()


def is_idle(worker: Worker) -> bool:
    """Whether a worker with `until_idle` found nothing to do in its last rounds."""
    return worker._idle_rounds >= _IDLE_ROUNDS


def leave_when_idle(worker: Worker, leaves: bool) -> None:
    """Whether it may leave when it is idle; else it waits for work of others that it could take over."""
    worker._leaves = leaves
    if worker.ready.is_set():
        worker._in_flight.wake()


def must_end(worker: Worker) -> bool:
    """Whether its process must end: a thread of it does not stop, or it can run no more attempts."""
    return bool(worker._hung) or (worker.ready.is_set() and worker._in_flight.unusable != "")


def is_dismissed(worker: Worker) -> bool:
    """Whether an operator asked it to drain: no other process takes its place."""
    return worker._dismissed


def ends_by(worker: Worker) -> float | None:
    """Return the monotonic time by which `run` should have returned; None until a stop is requested."""
    return worker._deadlines.end_until if worker._stopping.is_set() else None


def longest_silence(worker: Worker) -> float:
    """Return the seconds for which its process may send no sign of life; below the shortest lease, unless very short."""
    leases = [phase.lease for _, phase in phases_with_code(worker.queue, worker._only)]
    return max(_SHORTEST_SILENCE, min(leases, default=DEFAULT_LEASE).total_seconds() * _SILENT_PART_OF_LEASE)


def overdue_for(worker: Worker) -> float:
    """Return the seconds for which it should have claimed, and did not; 0 while it really claims."""
    return max(0.0, monotonic() - worker._claims_until) if worker.ready.is_set() else 0.0


def counters_of(worker: Worker) -> Counters:
    """Return what it counted since its start."""
    return worker._producer.counters if worker.ready.is_set() else Counters()


def served_names(worker: Worker) -> list[str]:
    """Return the phases that it serves, as 'pipeline.phase'; also those without code of its pipelines."""
    only = {(pipeline.name, phase.name) for pipeline, phase in phases_with_code(worker.queue, worker._only)}
    return [
        f"{name}.{phase.name}"
        for name, pipeline in worker.queue.pipelines.items()
        for phase in pipeline.plan.phases
        if (name, phase.name) in only or not phase.has_code
    ]
