"""How much a machine is disturbed: by how much longer short sleeps take than asked."""

import threading
import time
from collections.abc import Callable
from typing import Self

_NAP = 0.02  # seconds
_USUAL_DELAY = 0.005


class MachineLoad:
    """Measures while its block runs. On a machine that runs other programs, or is itself virtual and gets little time,
    threads wake up late."""

    def __init__(
        self, sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sleep = sleep
        self._clock = clock
        self._ended = threading.Event()
        self._late = 0.0
        self._began = 0.0
        self.share = 0.0
        """The share of the time by which sleeps took too long; known after the block."""
        self._thread = threading.Thread(target=self._measure, name="onerow-machine-load", daemon=True)

    def __enter__(self) -> Self:
        self._began = self._clock()
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ended.set()
        self._thread.join()
        self.share = self._late / max(self._clock() - self._began, _NAP)

    def _measure(self) -> None:
        while not self._ended.is_set():
            before = self._clock()
            self._sleep(_NAP)
            delay = self._clock() - before - _NAP
            if delay > _USUAL_DELAY:
                self._late += delay
