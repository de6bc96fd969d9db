"""Start, watch and end child processes, so that a stopped task leaves no process behind."""

import itertools
import os
import threading
import time
from typing import Self

from .child import Child
from .host.frames import BadFrame
from .host.orphans import tag_prefix
from .program import CannotStart, Program
from .reapers import Reapers

# The host process or the reaper may be killed during a start; a killed process needs a moment to disappear.
_MOST_TRIES = 5
_NEXT_TRY_AFTER = 0.01

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
        self._reapers: Reapers | None = None

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
            reapers = self._living(program)
            try:
                started = reapers.start(request, fds)
            except OSError as error:
                raise CannotStart(program.name, f"a descriptor to pass is not open ({error.strerror})") from None
            except BadFrame as error:
                raise CannotStart(program.name, str(error)) from None
            match started:
                case reaper, {"pid": int(pid)}:
                    return self._add(program, Child(pid, tag, reaper, reapers, self._running.discard))
                case reaper, {"refused": str(step), "errno": int(errno)}:
                    reapers.put_back(reaper)
                    raise program.refusal(step, errno)
            time.sleep(_NEXT_TRY_AFTER)
        raise CannotStart(
            program.name, "no reaper starts for it; look at the limit of processes and at the worker's error output"
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
        if self._reapers is not None:
            self._reapers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _living(self, program: Program) -> Reapers:
        """Return the reapers of a host process that runs; start one if there is none."""
        with self._lock:
            if self._closed:
                raise CannotStart(program.name, "the process host is closed")
            if self._reapers is None or not self._reapers.has_host():
                # Reapers of a killed host process run on until their child ends.
                if self._reapers is not None:
                    self._reapers.close()
                try:
                    self._reapers = Reapers()
                except OSError as error:
                    raise CannotStart(program.name, f"its host process cannot start ({error})") from error
            return self._reapers

    def _add(self, program: Program, child: Child) -> Child:
        with self._lock:
            if not self._closed:
                self._running.add(child)
                return child
        child.stop(0)
        child.wait()
        raise CannotStart(program.name, "the process host was closed")
