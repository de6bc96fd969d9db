"""The limit on failed log-ins."""

import threading
import time
from collections.abc import Callable

from onerow.web.problems import Problem, Refused

_TRIES_OF_NAME, _TRIES_OF_ADDRESS = 5, 20
_PER = 60.0
_MOST_KEYS = 10_000


class LogInRate:
    """Counts failed log-ins: 5 a minute for a name, 20 for an address. Right passwords are refused too until then."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[str, list[float]] = {}
        self._lock = threading.Lock()

    def check(self, name: str, address: str) -> None:
        """Raise Refused if there were too many failures."""
        with self._lock:
            now = self._clock()
            for key, most in ((f"name {name}", _TRIES_OF_NAME), (f"address {address}", _TRIES_OF_ADDRESS)):
                recent = [at for at in self._failures.get(key, ()) if now - at < _PER]
                if len(recent) >= most:
                    wait = int(_PER - (now - recent[0])) + 1
                    raise Refused(Problem(429, "too many tries", f"try again in {wait} s", retry_after=wait))

    def failed(self, name: str, address: str) -> None:
        with self._lock:
            now = self._clock()
            if len(self._failures) >= _MOST_KEYS:
                self._failures = {key: times for key, times in self._failures.items() if now - times[-1] < _PER}
            for key in (f"name {name}", f"address {address}"):
                self._failures[key] = [*(at for at in self._failures.get(key, ()) if now - at < _PER), now]
