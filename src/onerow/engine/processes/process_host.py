"""Starting, watching and ending child processes so that a stopped task leaves no process behind."""

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from .child import Child
from .connection import LineLost
from .exits import CannotStart, Exit, refusal
from .host.orphans import mark
from .host_pool import HostPool
from .start_request import Order

# The keeper and every idle warden may have been killed since the last start.
_MOST_TRIES = 12
_ENDS_FOR = 10.0


class ProcessHost:
    """The children of this worker process; safe to use from any thread, and lazy until the first start."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._mark = mark(self._owner)
        self._serial = itertools.count(1)
        self._hosting = HostPool()

    def start(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | None,
        stdout: int | None,
        stderr: int | None,
        pass_fds: Sequence[int] = (),
        nice: int = 0,
        umask: int | None = None,
        memory: int | None = None,
        cpu_seconds: int | None = None,
        deadline: tuple[float, float] | None = None,
        stop_signal: int | None = None,
        on_exit: Callable[[Exit], None],
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Child:
        """Start a program and return when it runs; raises CannotStart.

        `env` None means ours, a standard stream None means /dev/null; passed descriptors keep their
        numbers. `memory` (bytes of address space) and `cpu_seconds` bind each process of the tree.
        `on_exit` is called once, from the reader thread, when the whole tree is gone; that may be
        before this call returns. `meanwhile` is called once the order is on its way, for work that
        need not wait until the program runs; at most once, and not when the start fails early.
        `deadline` (monotonic time, grace in seconds) stops the child when that time comes, unless `Child.extend` sets a
        later one: TERM, then KILL after the grace. `stop_signal` is sent to the program before the TERM of every stop.
        """
        order = Order(
            argv=argv, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=pass_fds,
            nice=nice, umask=umask, memory=memory, cpu_seconds=cpu_seconds, stop_signal=stop_signal,
            deadline=None if deadline is None else deadline[0], grace=0.0 if deadline is None else deadline[1],
        )  # fmt: skip
        if os.getpid() != self._owner:
            raise CannotStart(order.program, "a forked process needs a Keeper of its own")
        return self._start(order, on_exit, meanwhile)

    def close(self, patience: float = _ENDS_FOR) -> None:
        """End every child and its tree, call their `on_exit`, and let the keeper process go, within some seconds."""
        self._hosting.close(patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, order: Order, on_exit: Callable[[Exit], None], meanwhile: Callable[[], None]) -> Child:
        message, fds = order.message(f"{self._mark}{next(self._serial)}")
        for _ in range(_MOST_TRIES):
            try:
                child = self._take(order.program, on_exit)
                answer = self._hosting.begin(child, message, fds, meanwhile)
            except LineLost:
                continue  # killed while idle; nothing was started, so another may
            except OSError as error:
                raise CannotStart(order.program, f"a descriptor to pass is not open ({error.strerror})") from None
            match answer:
                case {"pid": int()}:
                    return child
                case {"refused": str(step), "errno": int(errno)}:
                    raise refusal(order.argv, str(order.cwd), step, errno)
            raise CannotStart(order.program, "its warden was killed while starting it")
        raise CannotStart(
            order.program, "no warden starts for it; look at the limit of processes and at the worker's error output"
        )

    def _take(self, program: str, on_exit: Callable[[Exit], None]) -> Child:
        try:
            child = self._hosting.take(on_exit)
        except OSError as error:
            raise CannotStart(program, f"there is no keeper process, and a new one cannot start ({error})") from error
        if child is None:
            raise CannotStart(program, "the keeper is closed")
        return child
