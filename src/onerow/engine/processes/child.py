"""A child process, as seen by the worker, and how it ended."""

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self

import msgspec

from .host.frames import Message, receive_message, send_message
from .host.orphans import end_tagged


class Exit(msgspec.Struct, frozen=True):
    """The end of a child and of everything it started."""

    code: int | None
    """The exit code; None if a signal ended it."""
    signal: int | None
    """The signal that ended it; KILL also if its end was not observed."""
    stopped: bool
    """Whether the worker had requested the stop, or the deadline had passed."""
    seen: bool = True
    """False if its end was not observed, because its reaper was killed."""
    over_memory: bool = False
    """Whether it was killed because it exceeded its memory limit."""

    @classmethod
    def of(cls, report: Message | None, asked: bool) -> Self:
        """Return the exit that a reaper reports; None means that the end was not observed."""
        if report is None or report["status"] is None:
            return cls(None, signal.SIGKILL, asked or bool(report and report["stopped"]), False)
        code = os.waitstatus_to_exitcode(report["status"])
        stopped = asked or report["stopped"]
        return cls(code if code >= 0 else None, -code if code < 0 else None, stopped, over_memory=report["over_memory"])


class Child:
    """One started program and everything that it starts; use it in a `with` block, or wait for it."""

    def __init__(self, pid: int, tag: str, reaper: socket.socket, on_end: Callable[["Child"], None]) -> None:
        self.pid = pid
        self.tag = tag
        """The value of ONEROW_CHILD in the environment of the whole tree."""
        self._reaper = reaper  # after the end, it belongs to another child
        self._on_end = on_end
        self._sending = threading.Lock()
        self._receiving = threading.Lock()
        self._exit: Exit | None = None
        self._asked = False
        self._given_up = False

    def stop(self, grace: float) -> None:
        """Stop the tree: TERM now, KILL after `grace` seconds; return at once.

        A second call can only make the KILL earlier; after the end it does nothing.
        """
        with self._sending:
            if self._exit is None:
                self._asked = True
                with suppress(ConnectionError):  # its reaper was killed, which ends the tree too
                    send_message(self._reaper, {"stop": max(0.0, grace)})

    def limit(self, deadline: float, grace: float, memory_limit: int | None) -> None:
        """Set the first deadline and the memory limit of a child that was started without them."""
        with self._sending, suppress(ConnectionError):
            if self._exit is None:
                message: Message = {"deadline": deadline, "grace": grace, "memory_limit": memory_limit}
                send_message(self._reaper, message)

    def extend(self, deadline: float, grace: float) -> None:
        """Set a later deadline; never blocks, does nothing after a stop."""
        # A reaper that does not read, because it was stopped by a signal, does not get it.
        with self._sending, suppress(BlockingIOError, ConnectionError):
            if self._exit is None:
                # The kernel accepts a message of this size completely or not at all.
                send_message(self._reaper, {"deadline": deadline, "grace": grace}, flags=socket.MSG_DONTWAIT)

    def wait(self, timeout: float | None = None) -> Exit | None:
        """Wait until the tree has ended and return its exit; None after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        if not self._receiving.acquire(timeout=-1 if timeout is None else timeout):
            return None
        try:
            if self._exit is None and self._is_readable(until):
                self._end(receive_message(self._reaper))
            return self._exit
        finally:
            self._receiving.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.stop(0)
        self.wait()

    def give_up(self) -> None:
        """Leave a child that does not end to its reaper; for ProcessHost."""
        with self._sending:
            if self._exit is None:
                self._given_up = True
                self._reaper.shutdown(socket.SHUT_RDWR)
        self.wait()

    def _is_readable(self, until: float | None) -> bool:
        if until is None:
            return True
        poll = select.poll()
        poll.register(self._reaper, select.POLLIN)
        return bool(poll.poll(max(0.0, until - time.monotonic()) * 1000))

    def _end(self, report: Message | None) -> None:
        if report is None and not self._given_up:
            # Its reaper was killed, and perhaps the host process too, which would have ended the tree.
            end_tagged(self.tag)
        with self._sending:
            self._exit = Exit.of(report, self._asked)
        self._on_end(self)


def signal_name(number: int) -> str:
    """Return the name of a signal, or the number of a real-time signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
