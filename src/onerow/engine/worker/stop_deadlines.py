"""The deadlines of a stopping worker."""

# After the grace period: seconds for stopping the remaining work and recording it, then for everything else.
_RECORD_FOR = 3.0
_END_FOR = 1.5
_TERM_BEFORE_KILL = 2.0


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
