"""When we may ask Discord again: what its answers said about its limits."""

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

_UNSAID = 60.0  # seconds to stay away when a refusal doesn't say how long


class RateLimits:
    """Of one webhook or channel, and of everything together; both must be free."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._free_at = 0.0
        self._missed = 0  # how often in a row Discord could not be reached

    def wait(self) -> float:
        """Seconds until the next request may be sent; 0: now."""
        return max(0.0, self._free_at - self._clock())

    def unreachable(self) -> float:
        """Nobody answered at all: how long to stay away, longer each time."""
        self._missed += 1
        after = min(2.0 ** (self._missed - 1), _UNSAID)
        self._block(after)
        return after

    def reached(self, headers: Mapping[str, str]) -> None:
        """An answer told how many requests are left, and when there will be more."""
        self._missed = 0
        reset_after = _seconds(headers.get("X-RateLimit-Reset-After"))
        if headers.get("X-RateLimit-Remaining") == "0" and reset_after is not None:
            self._block(reset_after)

    def refused(self, headers: Mapping[str, str], body: Any) -> tuple[float, bool]:
        """A 429: how long to stay away, and whether it holds for everything we ask of Discord."""
        told = body if isinstance(body, dict) else {}
        after = _seconds(told.get("retry_after"))
        if after is None:
            after = _seconds(headers.get("Retry-After"))
        everything = bool(told.get("global")) or headers.get("X-RateLimit-Global", "").lower() == "true"
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
