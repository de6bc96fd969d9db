"""A child process as the worker sees it."""

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
    mark: str
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
        """Have the tree end: TERM now, KILL after `grace` seconds; returns at once.

        A second call can only bring the KILL nearer; after the end it does nothing.
        """
        with self._lock:
            # Once we are detached, the line may belong to the next child.
            if self._attached:
                self.asked = True
                # If the warden is gone, the reader is about to hear of it.
                with suppress(LineLost):
                    self.link.ask({"stop": max(0.0, grace)})

    def extend(self, deadline: float, grace: float) -> None:
        """Set a later deadline for a child that was started with one; never blocks, does nothing after a stop."""
        with self._lock:
            if self._attached:
                self.link.offer({"deadline": deadline, "grace": grace})

    def wait(self, timeout: float | None = None) -> Exit | None:
        """The exit, once the tree is gone; None if it is not within `timeout` seconds."""
        self._gone.wait(timeout)
        return self._exit

    def begin(self, message: Message, fds: Sequence[int], meanwhile: Callable[[], None]) -> Message | None:
        """Have the warden start us: its answer, None if it died without one; for the keeper."""
        # Locked, so that whoever hears of our end before this answer is read leaves the line to us.
        with self._lock:
            self.mark = message["mark"].decode()
            self.link.ask(message, fds)
            meanwhile()
            try:
                answer = self.link.hear()
            except LineLost:
                return None
            match answer:
                case {"pid": int(pid)}:
                    self.pid = pid
                    self.begun = True
            return answer

    def detach(self) -> bool:
        """Use the line no more; False if we never began; for the keeper."""
        with self._lock:
            self._attached = False
            return self.begun

    def finish(self, exit: Exit) -> None:
        """Record the exit and tell whoever waits; for the keeper."""
        self._exit = exit
        self._gone.set()
        try:
            self._on_exit(exit)
        except Exception:
            # Shown like any thread's; it must not keep the reader from telling the others.
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
