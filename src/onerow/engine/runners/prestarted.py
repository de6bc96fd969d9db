"""Processes that are started before an isolated attempt needs them; each still runs one attempt."""

import os
import select
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from time import monotonic

from onerow.engine.processes import BadFrame, CannotStart, ProcessHost
from onerow.engine.runners.attempt_process import PipedProcess
from onerow.engine.runners.channel import Channel
from onerow.engine.runners.child_main import STOP_SIGNAL, command

_IDLE_FOR = 300.0  # seconds after which an unused process is ended
_READY_WITHIN = 60.0  # seconds for the interpreter and the user's imports
_PAUSE = 60.0  # seconds without pre-started processes after one that never became ready
_LOOK_EVERY = 1.0


class HandlerProcess(PipedProcess):
    """An interpreter that runs one handler, and the channel to it."""

    def __init__(self, host: ProcessHost, prepare: Sequence[str] = ()) -> None:
        """Start it; raise CannotStart. prepare: names of handlers that it imports before it gets its attempt."""
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        self.prepared = bool(prepare)
        self.was_ready = False
        self.started_at = monotonic()
        with theirs:
            fd = theirs.fileno()
            super().__init__(host, command(fd), pass_fds=[fd], stop_signal=STOP_SIGNAL)
        if prepare:
            self._surroundings = _surroundings()
            with suppress(BrokenPipeError):
                self.channel.send({"prepare": list(prepare), "sys_path": sys.path})

    @property
    def is_ready(self) -> bool:
        """Whether it has imported its handlers and still runs."""
        if not self.was_ready and self._has_sent():
            with suppress(BadFrame):
                self.was_ready = self.channel.receive() == {"t": "ready"}
        return self.was_ready and not self._has_sent()  # the end of the process is readable too

    @property
    def is_current(self) -> bool:
        """Whether environment, current folder and import path of the worker are still those of its start."""
        return self._surroundings == _surroundings()

    @property
    def has_ended(self) -> bool:
        return self.child.wait(0) is not None

    def _has_sent(self) -> bool:
        poll = select.poll()
        poll.register(self.channel.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        super().close()
        self.channel.close()


class PrestartedProcesses:
    """Keeps processes ready for isolated attempts: none before the first attempt, then as many as were missed.

    The newest is taken first, so that those beyond the need stay unused and end after some minutes.
    """

    def __init__(self, host: ProcessHost, most: int) -> None:
        self.handlers: list[str] = []
        self._host = host
        self._most = most
        self._wanted = 0
        self._starting = 0
        self._paused_until = 0.0
        self._idle: list[HandlerProcess] = []  # the oldest first
        self._ending: list[HandlerProcess] = []
        self._lock = threading.Lock()
        self._closed = False

    @property
    def ready(self) -> int:
        """The number of processes that wait for an attempt."""
        with self._lock:
            return sum(process.is_ready for process in self._idle)

    def take(self) -> HandlerProcess | None:
        """Return a ready process, which then belongs to the caller; None if there is none."""
        with self._lock:
            for process in reversed(self._idle):
                if process.is_ready and process.is_current:
                    self._idle.remove(process)
                    return process
            self._wanted = min(self._wanted + 1, self._most)
            return None

    def refill(self) -> None:
        """Start the processes that are missing."""
        while self._reserve_start():
            process = None
            try:
                process = HandlerProcess(self._host, self.handlers)
            except (CannotStart, OSError):
                self._pause()  # the process of the next attempt reports it
            with self._lock:
                self._starting -= 1
                if process is not None:
                    self._idle.append(process)
                    if self._closed:
                        self._end(process)

    def tick(self, now: datetime) -> float:
        """End processes that are unused or never became ready, and forget those that have ended."""
        with self._lock:
            for process in list(self._idle):
                age = monotonic() - process.started_at
                if process.is_ready and process.is_current and age <= _IDLE_FOR:
                    continue
                if process.was_ready:
                    self._wanted -= age > _IDLE_FOR
                elif process.has_ended or age > _READY_WITHIN:
                    self._pause()  # its import failed or hangs; the process of the next attempt reports this
                else:
                    continue
                self._end(process)
            for process in [each for each in self._ending if each.has_ended]:
                self._ending.remove(process)
                process.close()
        return _LOOK_EVERY

    def close(self) -> None:
        """End all processes; the process host waits for them."""
        with self._lock:
            self._closed = True
            for process in list(self._idle):
                self._end(process)
            for process in self._ending:
                process.close()
            self._ending.clear()

    def _reserve_start(self) -> bool:
        with self._lock:
            if self._closed or monotonic() < self._paused_until:
                return False
            start = len(self._idle) + self._starting < self._wanted
            self._starting += start
            return start

    def _pause(self) -> None:
        self._paused_until = monotonic() + _PAUSE

    def _end(self, process: HandlerProcess) -> None:
        self._idle.remove(process)
        self._ending.append(process)
        process.child.stop(0)


def _surroundings() -> tuple[object, ...]:
    return dict(getattr(os.environ, "_data", os.environ)), os.getcwd(), tuple(sys.path)
