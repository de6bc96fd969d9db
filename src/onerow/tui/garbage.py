"""Garbage collection in the pauses between keys: a full collection takes up to 0.4 s in a process with Textual."""

import gc
from time import monotonic

QUIET_FOR = 1.0
"""Seconds without a key after which a full collection may run."""
_EVERY = 30.0
_MOST_YOUNG = 50_000  # objects; a collection of the youngest generation at this number takes some milliseconds


class Collector:
    """Turns automatic collections off, and collects when no key was pressed for a moment."""

    def __init__(self) -> None:
        self._key_at = self._collected_at = monotonic()

    def start(self) -> None:
        """Call after the first page is shown: what exists then stays, and no collection visits it again."""
        gc.collect()
        gc.freeze()
        gc.disable()

    def stop(self) -> None:
        """Return to automatic collections."""
        gc.unfreeze()
        gc.enable()

    def key(self) -> None:
        """A key was pressed."""
        self._key_at = monotonic()

    def pause(self) -> None:
        """Call regularly; collects if it is time."""
        now = monotonic()
        if now - self._key_at < QUIET_FOR:
            return
        if now - self._collected_at >= _EVERY:
            self._collected_at = now
            gc.collect()
        elif gc.get_count()[0] >= _MOST_YOUNG:
            gc.collect(0)
