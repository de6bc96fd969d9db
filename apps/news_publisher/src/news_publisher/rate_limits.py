"""Discord's rate limits, as read from its answers."""

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

_UNSAID = 60.0  # seconds to wait if a 429 does not say how long


class RateLimits:
    """The limit of one webhook or channel and the global limit; both must allow a request."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._free_at = 0.0
        self._missed = 0  # consecutive connection failures

    def wait(self) -> float:
        """Return the seconds until the next request may be sent."""
        return max(0.0, self._free_at - self._clock())

    def unreachable(self) -> float:
        """Record a connection failure; return the back-off in seconds."""
        self._missed += 1
        after = min(2.0 ** (self._missed - 1), _UNSAID)
        self._block(after)
        return after

    def reached(self, headers: Mapping[str, str]) -> None:
        """Read the remaining requests and the reset time from an answer."""
        self._missed = 0
        reset_after = _seconds(headers.get("X-RateLimit-Reset-After"))
        if headers.get("X-RateLimit-Remaining") == "0" and reset_after is not None:
            self._block(reset_after)

    def refused(self, headers: Mapping[str, str], body: Any) -> tuple[float, bool]:
        """Read a 429; return (seconds to wait, whether the limit is global)."""
        fields = body if isinstance(body, dict) else {}
        after = _seconds(fields.get("retry_after"))
        if after is None:
            after = _seconds(headers.get("Retry-After"))
        everything = bool(fields.get("global")) or headers.get("X-RateLimit-Global", "").lower() == "true"
        after = _UNSAID if after is None else after
        self._block(after)
        return after, everything

    def _block(self, seconds: float) -> None:
        self._free_at = max(self._free_at, self._clock() + seconds)


def _seconds(value: Any) -> float | None:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return seconds if 0 <= seconds < float("inf") else None
