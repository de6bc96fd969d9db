"""Start, watch and end child processes, so that a stopped task leaves no process behind."""

import itertools
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from errno import EAGAIN
from functools import partial
from pathlib import Path
from typing import Self

from .child import Child
from .host.frames import BadFrame, Message, receive_message, send_message
from .host.orphans import tag_prefix
from .program import CannotStart, Program

_HOST = f"import sys; sys.path.append({str(Path(__file__).parent)!r}); from host.host import main; "

# The host process or the reaper may be killed during a start; a killed process needs a moment to disappear.
_MOST_TRIES = 5
_NEXT_TRY_AFTER = 0.01

# An idle reaper costs one or two megabytes and saves the next start a fork.
_MOST_IDLE = 8

# The host process exits as soon as every tree has ended; only a process stuck in the kernel takes longer.
_EXITS_WITHIN = 5.0
_ENDS_FOR = 10.0


class ProcessHost:
    """The child processes of this worker; safe from any thread; starts nothing before the first child."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._tag_prefix = tag_prefix(self._owner)
        self._serial = itertools.count(1)
        self._lock = threading.Lock()
        self._closed = False
        self._running: set[Child] = set()
        self._host: _Host | None = None

    def start(self, program: Program, *, deadline: tuple[float, float] | None = None) -> Child:
        """Start a program and return when it runs; raise CannotStart.

        `deadline` (monotonic time, grace in seconds) stops the child at that time, unless `Child.extend` sets a later
        one: TERM, then KILL after the grace.
        """
        if os.getpid() != self._owner:
            raise CannotStart(program.name, "a forked process needs a ProcessHost of its own")
        tag = f"{self._tag_prefix}{next(self._serial)}"
        request, fds = program.request(tag)
        request["deadline"], request["grace"] = deadline or (None, 0.0)
        for _ in range(_MOST_TRIES):
            try:
                host, reaper = self._take(program)
                answer = _ask(program, reaper, request, fds)
            except ConnectionError:
                time.sleep(_NEXT_TRY_AFTER)
                continue
            if "pid" in answer:
                return self._add(program, Child(answer["pid"], tag, reaper, partial(self._ended, host, reaper)))
            self._ended(host, reaper)
            raise program.refusal(answer["refused"], answer["errno"])
        raise CannotStart(
            program.name,
            "no reaper starts for it; look at the limit of processes and at the worker's error output",
            EAGAIN,
        )

    def close(self, patience: float = _ENDS_FOR) -> None:
        """End every child with its tree, and the host process.

        Children that are stuck in the kernel after `patience` seconds are left to their reapers.
        """
        with self._lock:
            self._closed = True
            running = list(self._running)
        for child in running:
            child.stop(0)
        until = time.monotonic() + patience
        for child in running:
            if child.wait(max(0.0, until - time.monotonic())) is None:
                child.give_up()
        with self._lock:
            if self._host is not None:
                self._host.close()
                self._host = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, program: Program) -> tuple["_Host", socket.socket]:
        """Return a reaper without a child, and its host; raise CannotStart, or ConnectionError if it was killed."""
        with self._lock:
            if self._closed:
                raise CannotStart(program.name, "the process host is closed")
            if self._host is not None and not _is_open(self._host.line):
                self._host.close()  # it was killed; its reapers run on until their child ends
                self._host = None
            if self._host is None:
                try:
                    self._host = _Host()
                except OSError as error:
                    raise CannotStart(program.name, f"its host process cannot start ({error})") from error
            return self._host, self._host.take()

    def _add(self, program: Program, child: Child) -> Child:
        with self._lock:
            if not self._closed:
                self._running.add(child)
                return child
        child.stop(0)
        child.wait()
        raise CannotStart(program.name, "the process host was closed")

    def _ended(self, host: "_Host", reaper: socket.socket, child: Child | None = None) -> None:
        """Keep the reaper of an ended child for the next one, or close its socket, which ends it."""
        with self._lock:
            if child is not None:
                self._running.discard(child)
            if host is self._host and len(host.idle) < _MOST_IDLE:
                host.idle.append(reaper)
            else:
                reaper.close()


class _Host:
    """A running host process, and the sockets to its idle reapers."""

    def __init__(self) -> None:
        self.idle: list[socket.socket] = []
        self.line, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                # Isolated and without site: the user's environment cannot break or slow it.
                [sys.executable, "-I", "-S", "-c", f"{_HOST} main({theirs.fileno()}, {os.getpid()})"],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd="/",
                # Its own session: Ctrl-C reaches only the worker, which then decides.
                start_new_session=True,
            )
        except BaseException:
            self.line.close()
            raise
        finally:
            theirs.close()

    def take(self) -> socket.socket:
        """Return the socket to an idle or a new reaper; raise ConnectionError if the host was killed or cannot fork."""
        while self.idle:
            if _is_open(reaper := self.idle.pop()):
                return reaper
            reaper.close()
        reaper, theirs = socket.socketpair()
        with theirs, suppress(ConnectionError):
            send_message(self.line, {}, fds=[theirs.fileno()])
        if receive_message(reaper) is None:
            reaper.close()
            raise ConnectionError("no reaper was forked")
        return reaper

    def close(self) -> None:
        """Close the sockets; the host process then ends everything under it and exits."""
        for line in (self.line, *self.idle):
            line.close()
        # If it takes longer, the host goes on by itself until it has succeeded.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXITS_WITHIN)


def _ask(program: Program, reaper: socket.socket, request: Message, fds: Sequence[int]) -> Message:
    """Return the reaper's answer to a start; raise CannotStart, or ConnectionError if it was killed."""
    try:
        send_message(reaper, request, fds)
        if (answer := receive_message(reaper)) is None:
            raise ConnectionResetError("the reaper was killed")
        return answer
    except ConnectionError:
        reaper.close()
        raise
    except (OSError, BadFrame) as error:
        reaper.close()
        raise CannotStart(program.name, f"a descriptor to pass is not open, or too much is passed ({error})") from None


def _is_open(line: socket.socket) -> bool:
    """Whether the other end is open; reads nothing."""
    try:
        return line.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False
