"""Start, watch and end child processes, so that a stopped task leaves no process behind."""

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from .child import Child
from .connection import LineLost
from .exits import CannotStart, Exit, refusal
from .host.orphans import tag_prefix
from .host_pool import HostPool
from .start_request import Order

# The host process and every idle reaper may have been killed since the last start.
_MOST_TRIES = 12
_ENDS_FOR = 10.0


class ProcessHost:
    """The child processes of this worker; safe from any thread; starts nothing before the first child."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._tag_prefix = tag_prefix(self._owner)
        self._serial = itertools.count(1)
        self._pool = HostPool()

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
        while_starting: Callable[[], None] = lambda: None,
    ) -> Child:
        """Start a program and return when it runs; raise CannotStart.

        `env` None means this process's environment, a standard stream None means /dev/null; passed descriptors keep
        their numbers. `memory` (bytes of address space) and `cpu_seconds` limit each process of the tree.
        `on_exit` is called once, from the reader thread, when the whole tree has ended; that may be before this call
        returns. `while_starting` is called at most once, after the request is sent, for work that need not wait until
        the program runs; not if the start fails early.
        `deadline` (monotonic time, grace in seconds) stops the child at that time, unless `Child.extend` sets a later
        one: TERM, then KILL after the grace. `stop_signal` is sent to the program before the TERM of every stop.
        """
        request = Order(
            argv=argv, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=pass_fds,
            nice=nice, umask=umask, memory=memory, cpu_seconds=cpu_seconds, stop_signal=stop_signal,
            deadline=None if deadline is None else deadline[0], grace=0.0 if deadline is None else deadline[1],
        )  # fmt: skip
        if os.getpid() != self._owner:
            raise CannotStart(request.program, "a forked process needs a Keeper of its own")
        return self._start(request, on_exit, while_starting)

    def close(self, patience: float = _ENDS_FOR) -> None:
        """End every child and its tree, call their `on_exit`, and end the host process, within some seconds."""
        self._pool.close(patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, request: Order, on_exit: Callable[[Exit], None], while_starting: Callable[[], None]) -> Child:
        message, fds = request.message(f"{self._tag_prefix}{next(self._serial)}")
        for _ in range(_MOST_TRIES):
            try:
                child = self._take(request.program, on_exit)
                answer = self._pool.begin(child, message, fds, while_starting)
            except LineLost:
                continue  # the reaper was killed while idle; nothing was started, so try another
            except OSError as error:
                raise CannotStart(request.program, f"a descriptor to pass is not open ({error.strerror})") from None
            match answer:
                case {"pid": int()}:
                    return child
                case {"refused": str(step), "errno": int(errno)}:
                    raise refusal(request.argv, str(request.cwd), step, errno)
            raise CannotStart(request.program, "its warden was killed while starting it")
        raise CannotStart(
            request.program, "no warden starts for it; look at the limit of processes and at the worker's error output"
        )

    def _take(self, program: str, on_exit: Callable[[Exit], None]) -> Child:
        try:
            child = self._pool.take(on_exit)
        except OSError as error:
            raise CannotStart(program, f"there is no keeper process, and a new one cannot start ({error})") from error
        if child is None:
            raise CannotStart(program, "the keeper is closed")
        return child
