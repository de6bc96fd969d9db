"""The workers of a simulation: they start, die, are replaced, and come and go by the real scaling decision."""

from heapq import heappush
from itertools import count
from random import Random

from onerow.core.scaling import Decision, PhaseSignal, ScaleState, Signal, WorkerSignal, decide
from onerow.simulator.events import DIED, READY, SCALE, Heap
from onerow.simulator.model import SimulatedPlan, millis


class Fleet:
    """Workers that are ready or starting, numbered in the order of their launches. Times are in milliseconds."""

    def __init__(self, plan: SimulatedPlan, heap: Heap) -> None:
        workers = plan.workers
        self._heap = heap
        self._scaling = plan.scaling
        self._slots = workers.slots
        self._draw_start = workers.starts_in.draw(Random(f"{plan.seed}/starts"))
        self._deaths = Random(f"{plan.seed}/deaths")
        self._mean_life = None if workers.dies_every is None else millis(workers.dies_every)
        self._state = ScaleState()
        self._numbers = count(1)
        self.ready: dict[int, None] = {}  # in the order of the launches
        self.starting: dict[int, None] = {}
        self._paid = 0
        self._paid_until = 0
        self.decisions: list[Decision] = []  # the last one
        self.reached_maximum = False  # a decision needed more workers
        for _ in range(workers.count):
            self._launch(0, 0)

    def _launch(self, now: int, starts_in: int) -> None:
        number = next(self._numbers)
        self.starting[number] = None
        heappush(self._heap, (now + starts_in, READY, number))

    def became_ready(self, number: int, now: int) -> bool:
        """Return whether a worker is ready; one that was stopped while it started is not."""
        if number not in self.starting:
            return False
        del self.starting[number]
        self.ready[number] = None
        if self._mean_life is not None:
            life = max(1, round(self._deaths.expovariate(1.0) * self._mean_life))
            heappush(self._heap, (now + life, DIED, number))
        return True

    def died(self, number: int, now: int) -> bool:
        """Remove a dead worker, and replace it if the number is fixed; return False if it had left before."""
        if number not in self.ready:
            return False
        self.paid(now)
        del self.ready[number]
        if self._scaling is None:
            self._launch(now, self._draw_start())
        return True

    def paid(self, now: int) -> int:
        """Return the time of all workers since the start; a worker is paid from its launch on."""
        self._paid += (len(self.ready) + len(self.starting)) * (now - self._paid_until)
        self._paid_until = now
        return self._paid

    def scale(self, now: int, phases: tuple[PhaseSignal, ...], running: dict[int, int]) -> list[int]:
        """Decide and apply the number of workers; return the ready workers that leave, all of them idle."""
        scaling = self._scaling
        assert scaling is not None
        current = len(self.ready) + len(self.starting)
        workers = tuple(WorkerSignal(str(number), self._slots, running.get(number, 0)) for number in self.ready)
        signal = Signal(at=now / 1000, phases=phases, workers=workers, current=current)
        decision = decide(signal, scaling.settings, self._state)
        self._state = decision.state
        self.decisions = [decision]
        self.reached_maximum |= decision.raw > scaling.settings.maximum
        self.paid(now)
        heappush(self._heap, (now + millis(scaling.every), SCALE))
        for _ in range(decision.workers - current):
            self._launch(now, self._draw_start())
        surplus = current - decision.workers
        # The newest first, and those that do not work yet before the idle ones.
        while surplus > 0 and self.starting:
            self.starting.popitem()
            surplus -= 1
        idle = [number for number in reversed(self.ready) if not running.get(number)]
        leaving = idle[: max(0, surplus)]
        for number in leaving:
            del self.ready[number]
        return leaving
