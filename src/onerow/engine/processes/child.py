"""A child process, as seen by the worker."""

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from .connection import LineLost, Link
from .exits import Exit
from .host.protocol import Message


class Child:
    """One started program and everything that it starts."""

    pid: int
    tag: str
    """The value of ONEROW_CHILD in the environment of the whole tree."""

    def __init__(self, link: Link, on_exit: Callable[[Exit], None]) -> None:
        self.link = link
        self.begun = False
        self.asked = False
        self._on_exit = on_exit
        self._lock = threading.Lock()
        self._attached = True
        self._gone = threading.Event()
        self._exit: Exit | None = None

    def stop(self, grace: float) -> None:
        """Stop the tree: TERM now, KILL after `grace` seconds; return at once.

        A second call can only make the KILL earlier; after the end it does nothing.
        """
        with self._lock:
            # After the detach, the socket may belong to the next child.
            if self._attached:
                self.asked = True
                # If the reaper has ended, the reader thread is about to notice.
                with suppress(LineLost):
                    self.link.ask({"stop": max(0.0, grace)})

    def extend(self, deadline: float, grace: float) -> None:
        """Set a later deadline for a child that was started with one; never blocks, does nothing after a stop."""
        with self._lock:
            if self._attached:
                self.link.offer({"deadline": deadline, "grace": grace})

    def wait(self, timeout: float | None = None) -> Exit | None:
        """Wait until the tree has ended and return its exit; None after `timeout` seconds."""
        self._gone.wait(timeout)
        return self._exit

    def begin(self, message: Message, fds: Sequence[int], while_starting: Callable[[], None]) -> Message | None:
        """Send the start request and return the reaper's answer, None if it died first; for HostPool."""
        # Locked, so that a report of the end before this answer is read does not release the socket.
        with self._lock:
            self.tag = message["tag"].decode()
            self.link.ask(message, fds)
            while_starting()
            try:
                answer = self.link.receive()
            except LineLost:
                return None
            match answer:
                case {"pid": int(pid)}:
                    self.pid = pid
                    self.begun = True
            return answer

    def detach(self) -> bool:
        """Stop using the socket; return whether the child was started; for HostPool."""
        with self._lock:
            self._attached = False
            return self.begun

    def finish(self, exit: Exit) -> None:
        """Record the exit, wake waiting threads and call `on_exit`; for HostPool."""
        self._exit = exit
        self._gone.set()
        try:
            self._on_exit(exit)
        except Exception:
            # Shown like any thread's exception; it must not stop the reader thread.
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
