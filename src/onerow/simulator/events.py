"""The events of a simulation: tuples (time in ms, kind, …) in a heap. The kinds are in the order of one instant."""

from collections.abc import Sequence
from typing import Any

END = 0  # of the simulation
PERIOD = 1  # end of a period
READY = 2  # + worker: it has started
DIED = 3  # + worker
ENDED = 4  # + serial number, task, worker, whether the attempt fails, and what the loop adds
DUE = 5  # + number of the task, task, whether its worker died and it has to be rescued
WAKE = 6  # a rate allows the next start
SCALE = 7  # the number of workers is decided, after free slots were filled

Event = tuple[Any, ...]
Heap = list[Event]


def opening(end: int, period: int, scale_every: int | None) -> Heap:
    """Return the events that are known at the start, as a heap."""
    found: Heap = [(end, END)]
    found += [(at, PERIOD) for at in range(period, end, period)]
    if scale_every is not None:
        found += [(scale_every, SCALE)]
    return sorted(found)


def attempts_of(heap: Sequence[Event], worker: int) -> list[Event]:
    """Return the attempts that a worker runs, in the order of their starts."""
    return sorted((event for event in heap if event[1] == ENDED and event[4] == worker), key=lambda event: event[2])
