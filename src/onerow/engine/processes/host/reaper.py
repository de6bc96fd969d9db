"""A reaper: runs one child at a time and ends its whole process tree.

When the deadline passes it stops the tree, also if the worker is frozen or stopped. When the tree exceeds its memory limit,
or the worker has ended, it kills the tree.
"""

import os
import signal
import socket
import time
from contextlib import suppress

from . import memory, tree
from .frames import Message, send_message
from .inbox import Inbox
from .spawn import Refused, spawn

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

    def __init__(self, pid: int, request: Message) -> None:
        self.pid = pid
        self.deadline: float | None = request["deadline"]  # on the monotonic clock
        self.grace: float = request["grace"]
        self.stop_signal: int | None = request["stop_signal"]
        self.memory_limit: int | None = None
        self.look_at: float | None = None  # at the memory of the tree
        self.over_memory = False
        self.status: int | None = None
        self.stopped = False
        self.ask_at: float | None = None
        self.kill_at: float | None = None
        self.rest = _FIRST_REST
        self.refusals = 0
        self.limit_memory(request["memory_limit"])

    def due(self) -> float | None:
        """Return the time of the next signal to the tree, or None."""
        return min(
            (at for at in (self.ask_at, self.kill_at, self.deadline, self.look_at) if at is not None), default=None
        )

    def stop(self, now: float, grace: float) -> None:
        """Send TERM now and KILL after the grace; a second call can only make the KILL earlier."""
        self.deadline = None
        if not self.stopped:
            self.ask_at = now
        self.stopped = self.stopped or self.status is None
        self.kill_at = now + grace if self.kill_at is None else min(self.kill_at, now + grace)

    def kill(self, now: float) -> None:
        """Send KILL now, without TERM."""
        self.stop(now, 0)
        self.ask_at = None

    def limit_memory(self, limit: int | None) -> None:
        """Set the memory limit of the tree, and look at its memory at once."""
        self.memory_limit = limit
        self.look_at = None if limit is None else 0.0

    def look_at_memory(self, now: float) -> None:
        """Kill the tree, without TERM, if it uses more memory than its limit."""
        assert self.memory_limit is not None
        used = memory.used(tree.descendants(), self.memory_limit)
        if used > self.memory_limit:
            self.over_memory = True
            self.look_at = self.ask_at = self.deadline = None
            self.kill_at = now
        else:
            self.look_at = now + memory.next_look(used, self.memory_limit)

    def ended(self, status: int, now: float) -> None:
        """Record the end of the child, and schedule the end of its leftovers unless they are being stopped."""
        self.status = status
        self.look_at = None
        if self.kill_at is None:
            self.ask_at = now + _LEFTOVERS_END_FOR
            self.kill_at = self.ask_at + _LEFTOVERS_ASKED_FOR


class Reaper:
    """The loop of one reaper process."""

    def __init__(self, line: socket.socket, worker: int | None) -> None:
        tree.adopt_orphans(b"onerow-reaper")
        self._line = line
        self._inbox = Inbox(line, worker)
        self._run: Run | None = None

    def serve(self) -> None:
        """Work until the worker and the tree of the last child have ended."""
        self._send({"reaper": os.getpid()})
        while self._run or not self._inbox.worker_ended:
            due = self._run.due() if self._run else None
            message = self._inbox.wait(None if due is None else due - time.monotonic())
            if message:
                self._handle(message)
            if self._run and not self._reap(self._run):
                self._act(self._run, time.monotonic())

    def _handle(self, message: Message) -> None:
        run, now = self._run, time.monotonic()
        if "argv" in message:
            self._start(message)
        elif run is None:
            pass  # the message crossed the report
        elif "stop" in message:
            run.stop(now, message["stop"])
        elif "worker_ended" in message:
            run.kill(now)
        elif not run.stopped:
            run.deadline, run.grace = message["deadline"], message["grace"]
            if "memory_limit" in message:
                run.limit_memory(message["memory_limit"])

    def _start(self, request: Message) -> None:
        try:
            self._run = Run(spawn(request), request)
            self._send({"pid": self._run.pid})
        except Refused as refused:
            self._send({"refused": refused.step, "errno": refused.errno})
        finally:
            for fd in request["fds"]:
                os.close(fd)

    def _reap(self, run: Run) -> bool:
        """Reap ended processes; return True if none is left and the exit was reported."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return False
                if pid == run.pid:
                    run.ended(status, time.monotonic())
        except ChildProcessError:
            pass
        tree.signal_group(run.pid, signal.SIGKILL)
        self._report(run)
        return True

    def _act(self, run: Run, now: float) -> None:
        if run.deadline is not None and run.deadline <= now:
            run.stop(now, run.grace)
        if run.look_at is not None and run.look_at <= now:
            run.look_at_memory(now)
        if run.ask_at is not None and run.ask_at <= now:
            run.ask_at = None
            if run.stop_signal is not None and run.status is None:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(run.pid, run.stop_signal)
            tree.ask_to_end()
            tree.signal_group(run.pid, signal.SIGTERM)
        if run.kill_at is not None and run.kill_at <= now:
            self._kill(run)

    def _kill(self, run: Run) -> None:
        killed, refused = tree.end()
        tree.signal_group(run.pid, signal.SIGKILL)
        run.refusals = run.refusals + 1 if refused and not killed else 0
        if run.refusals > _MOST_REFUSALS:
            self._report(run)
            os._exit(0)  # processes are left over, so this reaper takes no other child
        run.kill_at = time.monotonic() + run.rest
        run.rest = min(run.rest * 2, _LONGEST_REST)

    def _report(self, run: Run) -> None:
        self._run = None
        self._send({"status": run.status, "stopped": run.stopped, "over_memory": run.over_memory})

    def _send(self, message: Message) -> None:
        # If the worker has ended, the inbox says so.
        with suppress(OSError):
            send_message(self._line, message)
