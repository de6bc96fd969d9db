"""The supervisor: start worker processes, replace those that end or freeze, and forward stop signals.

It imports no user code, so that user code cannot hang or crash it.
"""

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType

from onerow.core.scaling import Decision
from onerow.core.sizes import spell_size
from onerow.engine.worker.counters import Counters
from onerow.engine.worker.health import Health, WorkerHealth
from onerow.engine.worker.pool_scaler import PoolScaler
from onerow.engine.worker.service_manager import ServiceManager
from onerow.engine.worker.worker_process import FIRST_PAUSE, LIFELINE, WorkerProcess

DRAIN, HURRY, RETIRE, LEAVE = b"d", b"h", b"r", b"l"
# Exit codes of a worker. With the first three a restart would not help.
WRONG_APP, STORE_MOVED, TOO_OLD = 64, 66, 78
LEFT_BEHIND, NEVER_READY, HUNG = 70, 71, 75
DISMISSED = 76  # an operator asked the worker to drain: it is not replaced; the supervisor itself ends with 0

_ROUND = 0.05
_STABLE = 10.0
_LONGEST_PAUSE = 30.0

# After this many starts in a row without a ready worker, the supervisor gives up, unless others work.
_MOST_FAILED_STARTS = 5

# A process that needs much memory from the beginning is not replaced again and again.
_SHORTEST_LIFE = 60.0

# Seconds until the next try, after a replacement that ended before it was ready.
_LONGEST_REPLACE_PAUSE = 600.0

# A worker that has not ended this many seconds after its grace period is killed.
_ENDS_AFTER_GRACE = 5.0


class Supervisor:
    """Keep worker processes running until a stop is requested."""

    def __init__(
        self,
        argv: Sequence[str],
        processes: int,
        say: Callable[[str], None],
        *,
        grace: float = 30.0,
        once: bool = False,
        max_tasks: int | None = None,
        max_memory: int | None = None,
        scaler: PoolScaler | None = None,
        reload: bool = False,
    ) -> None:
        """max_tasks, max_memory (bytes): a worker process that reaches one of them is replaced.

        scaler: decides about the number of processes, which begins with `processes`. reload: an app that can't be loaded
        after a change is waited for, until the next `restart`.
        """
        self._argv = list(argv)
        self._workers = [WorkerProcess() for _ in range(processes)]
        self._say = say
        self._grace = grace
        self._once = once  # end when the workers end by themselves
        self._max_tasks = float("inf") if max_tasks is None else max_tasks
        self._max_memory = float("inf") if max_memory is None else max_memory
        self._signals: list[int] = []
        self._stops = 0  # 1: drain, 2: end now, 3: kill
        self._code = 0
        self._looked_at = time.monotonic()
        self._now = 0.0
        self._scaler = scaler
        self._reload = reload
        self._has_worked = False
        self._service = ServiceManager()
        self._counted = Counters()  # of processes that have ended

    @property
    def running(self) -> int:
        """The number of tasks that run in all worker processes."""
        return sum(worker.running for worker in list(self._workers))

    def health(self) -> Health:
        """Return what the probes show; called from other threads."""
        return Health(
            self._stops > 0,
            self._now,
            [
                WorkerHealth(
                    process.pid,
                    worker.ready,
                    worker.running,
                    worker.retiring or worker.draining,
                    worker.overdue,
                    self._now - worker.last_sign_at,
                )
                for worker in list(self._workers)
                if (process := worker.process) is not None
            ],
            sum((worker.counters for worker in list(self._workers)), self._counted),
        )

    def run(self) -> int:
        """Run until stopped, or with `once` until every worker has ended by itself; return the exit code."""
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        self._looked_at = time.monotonic()
        try:
            while self._round():
                self._service.tick(self.health())
                time.sleep(_ROUND)
        finally:
            self._service.close()
            for number, handler in before.items():
                signal.signal(number, handler)
        return self._code

    def restart(self) -> None:
        """Drain every worker and start a new one."""
        for worker in self._workers:
            if worker.process is not None:
                self._drain(worker)
            else:
                worker.start_at = self._now

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)

    def _round(self) -> bool:
        self._tick()
        while self._signals:
            self._stop(self._signals.pop(0))
        running = False
        for worker in list(self._workers):
            if worker.process is not None:
                code = worker.process.poll()
                if code is None:
                    running = True
                    self._watch(worker)
                    self._replace_if_due(worker)
                    continue
                self._ended(worker, code)
            if worker in self._workers and self._stops == 0 and not (self._once and worker.start_at == float("inf")):
                running = True
                if self._now >= worker.start_at:
                    self._start(worker)
        if self._once:
            self._let_all_leave()
        if self._scaler is not None and self._stops == 0:
            decision = self._scaler.tick(self._workers, self._now)
            if decision is not None:
                self._scale(decision)
        return running

    def _let_all_leave(self) -> None:
        """Tell the processes that they may leave, once all are idle: what one still runs may be for any of them."""
        left = [worker for worker in self._workers if worker.start_at < float("inf")]
        if all(worker.idle and worker.process is not None for worker in left):
            for worker in left:
                if not worker.may_leave:
                    worker.may_leave = True
                    worker.order(LEAVE)

    def _scale(self, decision: Decision) -> None:
        """Start processes, or retire idle ones: a busy one is never chosen."""
        more = decision.workers - decision.signal.count
        if more > 0:
            self._workers += [WorkerProcess() for _ in range(more)]
            self._say(f"scaling out to {decision.workers} processes: {decision.why}")
            return
        idle = [worker for worker in self._workers if worker.process is not None and worker.may_retire][more:]
        for worker in idle:
            worker.retiring = worker.surplus = True
            worker.order(RETIRE)
        if idle:
            left = decision.signal.count - len(idle)
            self._say(f"scaling in to {left} process{'' if left == 1 else 'es'}: {decision.why}")

    def _tick(self) -> None:
        """Advance the supervisor's clock, which leaves out times in which this process did not run.

        After a suspend, or when everything was stopped by a signal, no worker could send a sign of life either.
        """
        now = time.monotonic()
        self._now += min(now - self._looked_at, 1.0)
        self._looked_at = now

    def _watch(self, worker: WorkerProcess) -> None:
        if worker.has_sign():
            worker.last_sign_at = self._now
        silent_for = self._now - worker.last_sign_at
        if worker.killed:
            return
        if self._now >= worker.kill_at:
            worker.kill("did not end in time and was killed")
        elif silent_for > worker.silent_at_most:
            worker.kill(
                f"gave no sign of life for {silent_for:.0f} s (a call that holds the GIL, or a stopped process) "
                "and was killed"
            )

    def _start(self, worker: WorkerProcess) -> None:
        try:
            worker.start(self._argv)
        except OSError as error:
            # Too many processes, or no memory: the other workers go on, and this start is retried.
            worker.start_at = self._now + worker.pause
            self._say(f"cannot start a worker process ({error}); retrying in {worker.pause:g} s")
            worker.pause = min(worker.pause * 2, _LONGEST_PAUSE)
            return
        worker.started_at = worker.last_sign_at = self._now

    def _ended(self, worker: WorkerProcess, code: int) -> None:
        assert worker.process is not None
        pid, worker.process = worker.process.pid, None
        worker.has_sign()  # it may have become ready after the last round
        worker.close()
        self._counted, worker.counters = self._counted + worker.counters, Counters()
        if self._stops:
            if worker.killed:
                self._say(f"worker process {pid} {worker.killed}; its tasks run again elsewhere")
            self._code = self._code or (LEFT_BEHIND if worker.killed else 0 if code == DISMISSED else max(code, 0))
            return
        how = worker.killed or (f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}")
        if worker.retiring or worker.replacement or worker.replaces:
            self._workers.remove(worker)
            self._say(self._after_replacing(worker, pid, how))
            return
        if self._once and code == 0:
            worker.start_at = float("inf")
            return
        if code == DISMISSED:
            self._workers.remove(worker)
            self._say(f"worker process {pid} ended, because it was asked to drain")
            return
        self._has_worked = self._has_worked or worker.ready
        if code == WRONG_APP and self._reload and self._has_worked:
            worker.start_at = float("inf")
            self._say("the worker starts again when a file changes")
            return
        if code in (WRONG_APP, STORE_MOVED, TOO_OLD):  # a restart would not help
            self._code = code
            self._stop(None)
            return
        worker.failed_starts = 0 if worker.ready or code == 0 else worker.failed_starts + 1
        # While others work, the cause may pass: a store that takes no more connections, or too little memory.
        others_work = any(other.process is not None and other.ready for other in self._workers)
        if worker.failed_starts >= _MOST_FAILED_STARTS and not others_work:
            self._code = NEVER_READY
            self._say(
                f"worker process {pid} {how}; {worker.failed_starts} starts in a row ended before the worker was ready, "
                "so it is not started again: its output above has the cause"
            )
            self._stop(None)
            return
        lived = self._now - worker.started_at
        worker.pause = FIRST_PAUSE if lived > _STABLE else min(worker.pause * 2, _LONGEST_PAUSE)
        # A worker that ended because of hung work behaved as designed: its replacement starts at once.
        wait = 0.0 if code in (0, HUNG) or lived > _STABLE else worker.pause
        worker.start_at = self._now + wait
        self._say(f"worker process {pid} {how}; another starts" + (f" in {wait:.0f} s" if wait >= 1 else ""))

    def _replace_if_due(self, worker: WorkerProcess) -> None:
        """Start the replacement of a worker that reached a limit; retire the worker when the replacement is ready."""
        assert worker.process is not None
        replacement = worker.replacement
        if replacement is not None and replacement.ready:
            worker.replacement = replacement.replaces = None
            worker.retiring = True
            worker.order(RETIRE)
        elif not self._stops and not worker.retiring and self._now >= worker.replace_at:
            why = self._limit_reached(worker)
            # One at a time, because each start uses a whole core.
            if why and not any(other.replaces or other.replacement for other in self._workers):
                worker.replacement = WorkerProcess()
                worker.replacement.replaces = worker
                self._workers.append(worker.replacement)
                self._say(f"worker process {worker.process.pid} {why}; its replacement starts")

    def _limit_reached(self, worker: WorkerProcess) -> str:
        if worker.settled >= self._max_tasks:
            return f"has run {worker.settled:,} tasks"
        if worker.memory > self._max_memory and self._now - worker.started_at >= _SHORTEST_LIFE:
            return f"uses {spell_size(worker.memory)} of memory"
        return ""

    def _after_replacing(self, worker: WorkerProcess, pid: int, how: str) -> str:
        """Return what follows after the end of a worker that is being replaced, or of its replacement."""
        if worker.surplus:
            return f"worker process {pid} {how}; fewer are needed"
        if worker.retiring:
            return f"worker process {pid} {how}; it was replaced"
        if worker.replacement is not None:
            worker.replacement.replaces = None
            return f"worker process {pid} {how}; its replacement is starting"
        working = worker.replaces
        assert working is not None
        working.replacement = None
        wait, working.replace_pause = working.replace_pause, min(working.replace_pause * 2, _LONGEST_REPLACE_PAUSE)
        working.replace_at = self._now + wait
        return f"replacement {pid} {how} before it was ready; the old process goes on, the next try is in {wait:.0f} s"

    def _stop(self, number: int | None) -> None:
        """Drain at the first stop, hand back running tasks at the second, kill at the third."""
        self._stops += 1
        workers = [worker for worker in self._workers if worker.process is not None]
        count = sum(worker.running for worker in workers)
        running = f"{count} running task{'' if count == 1 else 's'}"
        if self._stops == 1:
            for worker in workers:
                self._drain(worker)
            if number is not None:
                again = "press Ctrl-C again" if number == signal.SIGINT else "send SIGTERM again"
                waits = f": waiting up to {self._grace:g} s for {running}" if count else ""
                self._say(f"stopping{waits}; {again} to stop now")
        elif self._stops == 2:
            for worker in workers:
                worker.order(HURRY)
                worker.kill_at = min(worker.kill_at, self._now + _ENDS_AFTER_GRACE)
            self._say("stopping now" + (f": handing back {running}" if count else ""))
        else:
            for worker in workers:
                worker.kill("was killed")

    def _drain(self, worker: WorkerProcess) -> None:
        worker.order(DRAIN)
        worker.kill_at = min(worker.kill_at, self._now + self._grace + _ENDS_AFTER_GRACE)


def is_supervised() -> bool:
    return LIFELINE in os.environ and sys.platform != "win32"


def ease_collector() -> None:
    """Make garbage collections rare, because each round allocates thousands of rows; for processes that only work."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
