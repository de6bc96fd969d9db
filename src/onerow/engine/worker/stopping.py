"""How an attempt that runs as a process of its own is stopped."""

from onerow.engine.keeper import Child
from onerow.engine.worker.attempt import Attempt

# The work is stopped when 0.85 of a lease have passed without a beat; by its end nothing may run any more.
_LEFT_OF_LEASE = 0.1


HOST_KILLED = "the process host of its worker was killed"
"""Why an attempt ended whose process had to go because those that watch it were killed."""


class TreeStopper:
    """What `ThreadRunner.stop` calls: TERM to the whole tree, and KILL after the grace."""

    def __init__(self, attempt: Attempt, child: Child, grace: float) -> None:
        self._attempt = attempt
        self._child = child
        self._grace = grace

    def interrupt(self) -> None:
        lost = self._attempt.stop == "lost"
        self._child.stop(min(self._grace, self._attempt.lane.lease * _LEFT_OF_LEASE) if lost else self._grace)
