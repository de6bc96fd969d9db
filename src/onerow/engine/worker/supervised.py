"""The worker's connection to its supervisor: send signs of life, receive orders, and exit in time."""

import os
import sys
import threading
from collections.abc import Callable
from time import monotonic, sleep

from onerow.core.errors import OnerowError
from onerow.core.scaling import ScaleSettings
from onerow.engine.views import Views
from onerow.engine.worker.supervisor import HURRY, LEAVE, LEFT_BEHIND, RETIRE
from onerow.engine.worker.worker import (
    Worker,
    counters_of,
    ends_by,
    is_idle,
    leave_when_idle,
    longest_silence,
    overdue_for,
    retire,
    served_names,
)
from onerow.engine.worker.worker_process import LIFELINE, LIVENESS, Need

_SIGN_EVERY = 0.5
_READ_NEED_EVERY = 2.0


class Supervised:
    """The supervised side of a worker process; created before the user's code is imported."""

    def __init__(self, say: Callable[[str], None]) -> None:
        # Removed, so that an `onerow worker` started by a handler gets its own supervisor.
        self._orders = int(os.environ.pop(LIFELINE))
        self._signs = int(os.environ.pop(LIVENESS, "-1"))
        for descriptor in (self._orders, self._signs):
            if descriptor > 2:
                os.set_inheritable(descriptor, False)
        if self._signs >= 0:
            os.set_blocking(self._signs, False)
        self._say = say
        self._worker: Worker | None = None
        self._need: Need | None = None
        threading.Thread(target=self._give_signs, name="onerow-liveness", daemon=True).start()

    def serve(self, worker: Worker) -> None:
        """Forward orders to this worker, and exit the process if the worker does not end in time."""
        self._worker = worker
        self._sign()  # before the first task starts: until then the supervisor allows the long silence of an import
        threading.Thread(target=self._take_orders, name="onerow-lifeline", daemon=True).start()

    def report_need(self, worker: Worker, settings: ScaleSettings) -> None:
        """Read from the store, again and again, what the worker's phases need, and report it with the signs of life."""
        threading.Thread(target=self._read_need, args=(worker, settings), name="onerow-need", daemon=True).start()

    def _read_need(self, worker: Worker, settings: ScaleSettings) -> None:
        views = Views(worker.queue)
        while ends_by(worker) is None:
            if worker.ready.wait(_READ_NEED_EVERY):
                try:
                    self._need = _need_of(worker, views, settings)
                except OnerowError:
                    pass  # the store is unavailable, which the worker reports: the last need stays
                sleep(_READ_NEED_EVERY)

    def _give_signs(self) -> None:
        # A Python thread on purpose: while a C call holds the GIL, no sign is sent.
        while True:
            self._sign()
            worker = self._worker
            end = None if worker is None else ends_by(worker)
            if worker is not None and end is not None and monotonic() > end:
                self._leave(worker)
            sleep(_SIGN_EVERY if end is None else 0.1)

    def _sign(self) -> None:
        if self._signs < 0:
            return
        worker = self._worker
        try:
            os.write(self._signs, b"\n" if worker is None else _sign_of(worker, self._need))
        except OSError:
            pass  # the supervisor does not read, or has ended

    def _leave(self, worker: Worker) -> None:
        """Exit the process of a worker that the store or a handler keeps from ending."""
        left = worker.running
        self._say(f"worker {worker.name} did not end in time; it leaves {left} tasks, which run again elsewhere")
        sys.stderr.flush()
        os._exit(worker.exit_code or LEFT_BEHIND)

    def _take_orders(self) -> None:
        assert self._worker is not None
        try:
            while orders := os.read(self._orders, 16):
                if LEAVE in orders:
                    leave_when_idle(self._worker, True)
                if orders.strip(RETIRE + LEAVE):
                    self._worker.stop(hurry=HURRY in orders)
                elif RETIRE in orders:
                    retire(self._worker)
        except OSError:
            pass
        self._worker.stop()  # the supervisor has ended


def _need_of(worker: Worker, views: Views, settings: ScaleSettings) -> Need:
    # A newer definition may lack phases that this code knows.
    known = {f"{plan.name}.{phase.name}" for plan in views.plans().values() for phase in plan.phases}
    if not (scope := known.intersection(served_names(worker))):
        return Need(0, 0, 0)
    signal = views.scale_signal(settings, scope)
    return Need(signal.more_slots(settings.target_wait), signal.slots_used, signal.upkeep)


def _sign_of(worker: Worker, need: Need | None) -> bytes:
    silence, overdue, counters = longest_silence(worker), overdue_for(worker), counters_of(worker)
    state = "draining" if ends_by(worker) is not None else "idle" if is_idle(worker) else "-"
    fields = [f"{silence:.1f}", worker.running, counters.settled, _memory(), f"{overdue:.1f}", state]
    return " ".join(map(str, [*fields, *(need or ()), f"c={counters.text()}"])).encode() + b"\n"


def _memory() -> int:
    """Return the resident memory of this process in bytes; on macOS its peak."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
