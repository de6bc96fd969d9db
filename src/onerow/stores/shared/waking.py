"""Wake-ups: whether written moves wake workers, and a pipe that ends a thread's wait."""

import os
from collections.abc import Iterable
from contextlib import suppress

from onerow.core.wakeups import wakes
from onerow.ports import Move


def any_wakes(moves: Iterable[Move]) -> bool:
    """Whether one of the moves wakes the workers."""
    return any(wakes(move.before, move.after) for move in moves)


class WakePipe:
    """A pipe that becomes readable by `poke`, for a thread that waits in select()."""

    def __init__(self) -> None:
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)

    def fileno(self) -> int:
        return self._read_end

    def poke(self) -> None:
        with suppress(OSError):  # the pipe is full or closed
            os.write(self._write_end, b"!")

    def clear(self) -> None:
        drain(self._read_end)

    def close(self) -> None:
        for descriptor in (self._read_end, self._write_end):
            os.close(descriptor)
        self._read_end = self._write_end = -1


def drain(descriptor: int) -> None:
    """Read all that a non-blocking descriptor has."""
    with suppress(BlockingIOError):
        while os.read(descriptor, 65536):
            pass
