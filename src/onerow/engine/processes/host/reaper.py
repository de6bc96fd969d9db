"""A reaper: runs one child at a time and ends its whole process tree.

It receives `{"start": …}`, `{"stop": grace}` and `{"deadline": time, "grace": seconds}` from the worker and answers a
start with `{"pid"}` or `{"refused", "errno"}`. Once the whole tree has ended it reports that. When the worker has ended
it kills the tree and exits. When the deadline passes it stops the tree, also if the worker is frozen or stopped.
"""

import _socket
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from . import protocol, tree
from .kernel import become_subreaper, drain, wake_on_child_end
from .spawn import Order, Refused, spawn, variables

# Leftover descendants of an ended child may be about to end by themselves (a `tee` that drains its pipe). Seconds
# until they get TERM, and from then until they get KILL.
_LEFTOVERS_END_FOR = 0.2
_LEFTOVERS_ASKED_FOR = 0.5

# KILL is repeated until the kernel says that no child is left, each time after a longer pause.
_FIRST_REST, _LONGEST_REST = 0.001, 0.25

# How often in a row signals to processes of another user may be refused before the reaper reports them and gives up.
_MOST_REFUSALS = 12


class Run:
    """One child, from its start until its whole tree has ended."""

    def __init__(
        self, pid: int, deadline: float | None = None, grace: float = 0.0, stop_signal: int | None = None
    ) -> None:
        self.pid = pid
        self.deadline = deadline  # when the lease of the work is about to end, on the monotonic clock
        self.grace = grace
        self.stop_signal = stop_signal
        self.status: int | None = None
        self.max_rss = 0
        self.stopped = False
        self.ask_at: float | None = None
        self.kill_at: float | None = None
        self.rest = _FIRST_REST
        self.refusals = 0

    def due(self) -> float | None:
        """Return the time of the next signal to the tree, or None."""
        return min((at for at in (self.ask_at, self.kill_at, self.deadline) if at is not None), default=None)

    def stop(self, now: float, grace: float) -> None:
        """Send TERM now and KILL after the grace; a second call can only make the KILL earlier."""
        self.deadline = None
        if not self.stopped:
            self.ask_at = now
        self.stopped = self.stopped or self.status is None
        self.kill_at = now + grace if self.kill_at is None else min(self.kill_at, now + grace)

    def ended(self, status: int, max_rss: int, now: float) -> None:
        """Record the end of the child, and schedule the end of its leftovers unless they are being stopped."""
        self.status, self.max_rss = status, max_rss
        if self.kill_at is None:
            self.ask_at = now + _LEFTOVERS_END_FOR
            self.kill_at = self.ask_at + _LEFTOVERS_ASKED_FOR


class Reaper:
    """The loop of one reaper process."""

    def __init__(self, number: int, line: _socket.socket, reports: int, worker: int | None) -> None:
        self._number = number
        self._reports = reports
        self._reaps_orphans = become_subreaper(b"onerow-warden")
        self._line = line
        self._run: Run | None = None
        self._worker_ended = False
        self._env: tuple[bytes, dict[bytes, bytes]] = b"", {}
        self._poll = select.poll()
        self._callbacks: dict[int, Callable[[], None]] = {line.fileno(): self._receive}
        self._wake = wake_on_child_end()
        self._callbacks[self._wake] = lambda: drain(self._wake)
        if worker is not None:
            self._callbacks[worker] = self._worker_gone
        for fd in self._callbacks:
            self._poll.register(fd, select.POLLIN)

    def serve(self) -> None:
        """Work until the worker and the tree of the last child have ended."""
        self._send({"reaper": os.getpid()})
        while self._run or not self._worker_ended:
            for fd, _ in self._poll.poll(self._rest_ms()):
                self._callbacks[fd]()
            if self._run and not self._reap(self._run):
                self._act(self._run, time.monotonic())

    def _rest_ms(self) -> float | None:
        due = self._run.due() if self._run else None
        # Rounded up: an early wake-up would only wait again.
        return None if due is None else max(0.0, due - time.monotonic()) * 1000 + 0.5

    def _receive(self) -> None:
        if self._worker_ended:
            return
        if (received := protocol.receive(self._line)) is None:
            self._worker_gone()
            return
        message, fds = received
        if "start" in message:
            self._start(message, fds)
        elif self._run and "stop" in message:  # without a run, the message crossed the report
            self._run.stop(time.monotonic(), message["stop"])
        elif self._run and self._run.deadline is not None:
            self._run.deadline, self._run.grace = message["deadline"], message["grace"]

    def _start(self, message: protocol.Message, fds: list[int]) -> None:
        if message["env"] != self._env[0]:
            self._env = message["env"], variables(message["env"])
        try:
            pid = spawn(Order(message, self._env[1], fds))
            self._run = Run(pid, message["deadline"], message["grace"], message["stop_signal"])
            self._send({"pid": self._run.pid})
        except Refused as refused:
            self._send({"refused": refused.step, "errno": refused.errno})
        finally:
            for fd in fds:
                os.close(fd)

    def _worker_gone(self) -> None:
        if not self._worker_ended:
            self._worker_ended = True
            for fd in self._callbacks:
                if fd != self._wake:
                    self._poll.unregister(fd)
        if self._run:
            self._run.stop(time.monotonic(), 0)
            self._run.ask_at = None

    def _reap(self, run: Run) -> bool:
        """Reap ended processes; return True if none is left and the exit was reported."""
        try:
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return False
                if pid == run.pid:
                    run.ended(status, usage.ru_maxrss, time.monotonic())
        except ChildProcessError:
            pass
        if not self._reaps_orphans:
            _kill_group(run.pid, signal.SIGKILL)
        self._report(run, left=0)
        return True

    def _act(self, run: Run, now: float) -> None:
        if run.deadline is not None and run.deadline <= now:
            run.stop(now, run.grace)
        if run.ask_at is not None and run.ask_at <= now:
            run.ask_at = None
            if run.stop_signal is not None and run.status is None:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(run.pid, run.stop_signal)
            tree.ask_to_end()
            if not self._reaps_orphans:
                _kill_group(run.pid, signal.SIGTERM)
        if run.kill_at is not None and run.kill_at <= now:
            self._kill(run)

    def _kill(self, run: Run) -> None:
        refusing = tree.end()
        if not self._reaps_orphans:
            _kill_group(run.pid, signal.SIGKILL)
        run.refusals = run.refusals + 1 if refusing else 0
        if refusing and run.refusals > _MOST_REFUSALS:
            self._report(run, left=len(refusing))
            os._exit(0)  # processes are left over, so this reaper takes no other child
        run.kill_at = time.monotonic() + run.rest
        run.rest = min(run.rest * 2, _LONGEST_REST)

    def _report(self, run: Run, left: int) -> None:
        self._run = None
        max_rss = run.max_rss * (1 if sys.platform == "darwin" else 1024)
        protocol.report(self._reports, self._number, run.status, stopped=run.stopped, max_rss=max_rss, left=left)

    def _send(self, message: protocol.Message) -> None:
        # If the worker has ended, the next receive returns None.
        with suppress(OSError):
            protocol.send(self._line, message)


def _kill_group(leader: int, number: int) -> None:
    """Signal the process group: the only way to reach orphaned descendants on a system without subreapers."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
