"""The process of an attempt: start it, read its output, stop its process tree, and say how it ended."""

import os
import select
import signal
from codecs import getincrementaldecoder
from collections.abc import Callable, Sequence
from time import sleep
from typing import Any

from onerow.core.failure import Failure, failure
from onerow.core.rules.attempts import Outcome, Unready, Unstarted
from onerow.core.sizes import spell_size
from onerow.engine.processes import Child, Exit, ProcessHost, Program, signal_name
from onerow.engine.runners.attempt import Attempt

# The worker stops the work when 0.85 of a lease has passed without a heartbeat; by its end nothing may run any more.
_LEFT_OF_LEASE = 0.1
# The process host does the same a little later, in case the worker is frozen or stopped.
_HOST_STOPS_AT, _HOST_KILLS_AFTER = 0.9, 0.05

# A child may get a SIGTERM for the whole service before the worker does.
_SIGNAL_ARRIVES_WITHIN = 1.0
_STOP_FOLLOWS_WITHIN = 0.2

_CHUNK = 16_384
# Seconds to pause after a full chunk, so that other threads can run; longer once it wrote more than will be stored.
_PAUSE, _FLOOD, _FLOOD_PAUSE = 0.0005, 1_000_000, 0.005

HOST_KILLED = "the process host of its worker was killed"
"""Why an attempt ended whose process was stopped because its process host was killed."""


class PipedProcess:
    """A started process, and the pipes from which its output is read."""

    def __init__(
        self, host: ProcessHost, argv: Sequence[str], *, deadline: tuple[float, float] | None = None, **options: Any
    ) -> None:
        """Start it; raise CannotStart. `options` are fields of `Program`."""
        self.output: dict[int, str] = {}  # descriptor → level
        theirs: list[int] = []
        try:
            for level in ("out", "err"):
                ours, their = os.pipe()
                self.output[ours] = level
                theirs.append(their)
            program = Program(argv=argv, stdout=theirs[0], stderr=theirs[1], **options)
            self.child = host.start(program, deadline=deadline)
        except BaseException:
            self.close()
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)

    def close(self) -> None:
        """Close the pipes."""
        for descriptor in self.output:
            os.close(descriptor)


class AttemptProcess:
    """Reads what the process of an attempt writes until its whole process tree has ended."""

    def __init__(self, attempt: Attempt, host: ProcessHost, grace: float, feed: Callable[[str, str], object]) -> None:
        self._attempt = attempt
        self._host = host
        self._grace = grace
        self._feed = feed  # called with a level and a chunk of output; an empty one ends the stream
        self._received = 0  # characters
        self._poll = select.poll()
        self._readers: dict[int, Callable[[], bool]] = {}
        self._process: PipedProcess

    def start(self, argv: Sequence[str], *, leased: bool = True, **options: Any) -> None:
        """Start the process; raise CannotStart. `options` are fields of `Program`."""
        deadline = process_deadline(self._attempt) if leased else None
        self.adopt(PipedProcess(self._host, argv, deadline=deadline, **options))

    def adopt(self, process: PipedProcess) -> None:
        """Make a started process the attempt's own, and close its pipes at its end."""
        self._process = process
        for descriptor, level in process.output.items():
            self.add_reader(descriptor, self._reader(descriptor, level))
        self._attempt.handle = TreeStopper(self._attempt, self.child, self._grace)
        if self._attempt.stop is not None:
            self._attempt.handle.interrupt()  # requested while the process was starting

    @property
    def child(self) -> Child:
        return self._process.child

    def add_reader(self, descriptor: int, read: Callable[[], bool]) -> None:
        """Call `read` whenever there is something to read, until it returns False."""
        self._readers[descriptor] = read
        self._poll.register(descriptor, select.POLLIN)

    def wait(
        self, *, before: Callable[[], object] = lambda: None, after_each: Callable[[], object] = lambda: None
    ) -> Exit | None:
        """Read until the end and return how it ended. If `before`, or `after_each` of a chunk, raises, it is killed."""
        try:
            with self.child:
                before()
                while self._readers:
                    ready = self._poll.poll(1000)
                    for descriptor, _ in ready:
                        if not self._readers[descriptor]():
                            self._poll.unregister(descriptor)
                            del self._readers[descriptor]
                    if not ready and self.child.wait(0) is not None:
                        break  # it has ended, although a process of another user still holds its output open
                    after_each()
        finally:
            self._process.close()
        return self.child.wait()

    def _reader(self, descriptor: int, level: str) -> Callable[[], bool]:
        decoder = getincrementaldecoder("utf-8")("replace")

        def read() -> bool:
            chunk = os.read(descriptor, _CHUNK)
            text = decoder.decode(chunk, final=not chunk)
            self._received += len(text)
            self._feed(level, text)
            if len(chunk) == _CHUNK:
                sleep(_FLOOD_PAUSE if self._received > _FLOOD else _PAUSE)
            return bool(chunk)

        return read


class TreeStopper:
    """Stops an attempt's process tree: TERM to all processes, and KILL after the grace period."""

    def __init__(self, attempt: Attempt, child: Child, grace: float) -> None:
        self._attempt = attempt
        self._child = child
        self._grace = grace

    def interrupt(self) -> None:
        lost = self._attempt.stop == "lost"
        self._child.stop(min(self._grace, self._attempt.served.lease * _LEFT_OF_LEASE) if lost else self._grace)

    def end_within(self, seconds: float) -> None:
        """Send the KILL within this many seconds."""
        self._child.stop(min(self._grace, seconds))

    def extend(self) -> None:
        """Extend the process's deadline after its lease was extended."""
        self._child.extend(*process_deadline(self._attempt))


def unready(attempt: Attempt, error: BaseException) -> Outcome | None:
    """Return the outcome of an attempt whose process could not start for a lack of resources; None for another cause."""
    why = attempt.in_flight.examine(error)
    if attempt.in_flight.unusable:
        return Unstarted()  # at once, in the process that takes over
    return Unready(f"its process could not start, because its worker {why}") if why else None


def process_deadline(attempt: Attempt) -> tuple[float, float]:
    """Return when the process host stops the work without a later heartbeat, and how long after that it kills."""
    lease = attempt.served.lease
    return attempt.beat_at + lease * _HOST_STOPS_AT, lease * _HOST_KILLS_AFTER


def ended_with_the_worker(attempt: Attempt, exit: Exit) -> bool:
    """Whether a child ended because it got the same SIGTERM as this worker.

    Service managers signal every process of a service at once (systemd: KillMode=control-group).
    """
    if exit.code == 0:
        return False
    if exit.signal == signal.SIGTERM or exit.code == 128 + signal.SIGTERM:
        return attempt.in_flight.stop_asked(_SIGNAL_ARRIVES_WITHIN)
    # A program with a handler for SIGTERM ends with its own exit code. A worker may learn of the signal after the
    # program has ended; most programs with such a code failed, so the wait is short.
    return attempt.in_flight.stop_asked(_STOP_FOLLOWS_WITHIN) and attempt.in_flight.was_signalled()


def too_much_memory(attempt: Attempt, limit: int | None) -> Failure:
    """Return the failure of an attempt whose process tree was killed because it exceeded its memory limit."""
    message = f"{attempt.task.phase} used more than {spell_size(limit or 0)} of memory (its memory_limit)"
    return failure(message, "resource", exception="MemoryLimit")


def how_it_ended(exit: Exit) -> str:
    """Return the end of a process in words."""
    return f"exited with code {exit.code}" if exit.signal is None else f"was killed by {signal_name(exit.signal)}"
