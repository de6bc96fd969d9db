"""Wake-ups: whether written moves wake workers, and a pipe that ends a thread's wait."""

import os
import select
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from onerow.core.wakeups import wakes
from onerow.ports import Move


def any_wakes(moves: Iterable[Move]) -> bool:
    """Whether one of the moves wakes the workers."""
    return any(wakes(move.before, move.after) for move in moves)


_SELECT_BELOW = 1024  # select() takes no descriptor from this number on


class WakePipe:
    """A pipe that becomes readable by `poke`, for a thread that waits in `readable`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # a descriptor that is closed during a poke may be another file's by then
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)

    def fileno(self) -> int:
        return self._read_end

    def poke(self) -> None:
        with self._lock, suppress(OSError):  # the pipe is full or closed
            os.write(self._write_end, b"!")

    def clear(self) -> None:
        drain(self._read_end)

    def close(self) -> None:
        with self._lock:
            for descriptor in (self._read_end, self._write_end):
                os.close(descriptor)
            self._read_end = self._write_end = -1


def readable(watched: Sequence[Any], timeout: float) -> list[Any]:
    """Wait until one of these can be read, at most `timeout` seconds; return those that can."""
    by_number = {each if isinstance(each, int) else each.fileno(): each for each in watched}
    if max(by_number) < _SELECT_BELOW:
        return select.select(watched, [], [], timeout)[0]
    poll = select.poll()
    for number in by_number:
        poll.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poll.poll(timeout * 1000)]


def drain(descriptor: int) -> None:
    """Read all that a non-blocking descriptor has."""
    with suppress(BlockingIOError):
        while os.read(descriptor, 65536):
            pass
