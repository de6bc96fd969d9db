"""The limit on failed log-ins."""

import ipaddress
import threading
import time
from collections.abc import Callable

from onerow.web.problems import Problem, Refused

_TRIES_OF_NAME, _TRIES_OF_ADDRESS = 5, 20
_PER = 60.0
_MOST_KEYS = 10_000
_LONGEST_NAME = 100


class LogInRate:
    """Counts failed log-ins: 5 a minute for a name, 20 for an address. Right passwords are refused too until then."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[str, list[float]] = {}
        self._lock = threading.Lock()

    def begin(self, name: str, address: str) -> None:
        """Count a try as failed, because many may be under way at once; raise Refused if there were too many."""
        tries = dict(zip(_keys(name, address), (_TRIES_OF_NAME, _TRIES_OF_ADDRESS), strict=True))
        with self._lock:
            now = self._clock()
            if len(self._failures) >= _MOST_KEYS:
                self._failures = {key: times for key, times in self._failures.items() if now - times[-1] < _PER}
            recent = {key: [at for at in self._failures.get(key, ()) if now - at < _PER] for key in tries}
            for key, most in tries.items():
                if len(recent[key]) >= most:
                    wait = int(_PER - (now - recent[key][0])) + 1
                    raise Refused(Problem(429, "too many tries", f"try again in {wait} s", retry_after=wait))
            self._failures |= {key: [*times, now] for key, times in recent.items()}

    def succeeded(self, name: str, address: str) -> None:
        """Take back what `begin` counted."""
        with self._lock:
            for key in _keys(name, address):
                if len(times := self._failures.pop(key, [])) > 1:
                    self._failures[key] = times[:-1]


def _keys(name: str, address: str) -> tuple[str, str]:
    return f"name {name[:_LONGEST_NAME]}", f"address {_network(address)}"


def _network(address: str) -> str:
    """Return an address; of IPv6 its /64, all of which one client can use."""
    try:
        found = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))
