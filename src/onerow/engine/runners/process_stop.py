"""Stop attempts that run in their own process, and the deadlines of a stopping worker."""

import signal

from onerow.engine.processes import Child, Exit
from onerow.engine.runners.attempt import Attempt

# The worker stops the work when 0.85 of a lease has passed without a heartbeat; by its end nothing may run any more.
_LEFT_OF_LEASE = 0.1
# The process host does the same a little later, in case the worker is frozen or stopped.
_HOST_STOPS_AT, _HOST_KILLS_AFTER = 0.9, 0.05

# After the grace period: seconds for stopping the remaining work and recording it, then for everything else.
_RECORD_FOR = 3.0
_END_FOR = 1.5
_TERM_BEFORE_KILL = 2.0

# A child may get a SIGTERM for the whole service before the worker does.
_SIGNAL_ARRIVES_WITHIN = 1.0


HOST_KILLED = "the process host of its worker was killed"
"""Why an attempt ended whose process was stopped because its process host was killed."""


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


def process_deadline(attempt: Attempt) -> tuple[float, float]:
    """Return when the process host stops the work without a later heartbeat, and how long after that it kills."""
    lease = attempt.served.lease
    return attempt.beat_at + lease * _HOST_STOPS_AT, lease * _HOST_KILLS_AFTER


def ended_with_the_worker(attempt: Attempt, exit: Exit) -> bool:
    """Whether a child ended because it got the same SIGTERM as this worker.

    Service managers signal every process of a service at once (systemd: KillMode=control-group).
    """
    if exit.signal == signal.SIGTERM or exit.code == 128 + signal.SIGTERM:
        return attempt.in_flight.stop_asked(_SIGNAL_ARRIVES_WITHIN)
    # A program with a handler for SIGTERM ends with its own exit code.
    return attempt.in_flight.was_signalled() and exit.code != 0


class StopDeadlines:
    """Deadlines for running work, for recording its outcomes, and for the worker's end; monotonic times."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self.work_until = float("inf")
        self.hurried = False

    def ask(self, now: float) -> None:
        """Start the grace period; the first call counts."""
        if self.work_until == float("inf"):
            self.work_until = now + self._grace

    def hurry(self, now: float) -> None:
        """End the grace period now."""
        self.hurried = True
        self.work_until = min(self.work_until, now)

    def shorten(self, now: float, grace: float) -> None:
        """Let running work go on for at most `grace` seconds."""
        self.work_until = min(self.work_until, now + grace)

    @property
    def record_until(self) -> float:
        return self.work_until + _RECORD_FOR

    @property
    def end_until(self) -> float:
        return self.work_until + _RECORD_FOR + _END_FOR

    @property
    def kill_after(self) -> float:
        """Seconds between TERM and KILL for processes that still run after the grace period."""
        return 0.0 if self.hurried else _TERM_BEFORE_KILL
