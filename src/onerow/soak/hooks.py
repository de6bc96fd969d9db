"""Faults that happen inside a worker process of the soak: a held GIL, a blocked loop, a wrong clock, wake-ups, no proof of death.

The fault driver asks for the first three with a file that is named after the pid; the others are variables of the
environment, because they last for the whole life of a worker.
"""

import ctypes
import os
import random
import sys
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from onerow import identity
from onerow.ports import Store, Waker
from onerow.soak.records import Recorder

CONTROL, HIDE_PROC, WAKE_UPS = "ONEROW_SOAK_CONTROL", "ONEROW_SOAK_HIDE_PROC", "ONEROW_SOAK_WAKE_UPS"
_POLL = 0.05


class Order(msgspec.Struct, frozen=True):
    """What a worker shall do: hold-gil or block-loop for some seconds, clock-step by some seconds."""

    name: str
    seconds: float


in_worker = getattr(sys.modules["__main__"].__spec__, "name", "") == "onerow.cli.start.worker_process"
"""Whether this is a worker process, and not the process of an isolated attempt."""

_block_for: list[float] = []
_clock_offset = timedelta(0)


def hooked(store: Store) -> Store:
    """Return the store with the faults that the environment asks for; start the thread that reads orders."""
    given: Any = store
    right_now = store.now

    def shifted() -> datetime:
        return right_now() + _clock_offset

    given.now = shifted
    if os.environ.get(HIDE_PROC):
        # As in a container or with hidepid: no other worker can prove that this one has died, nor the reverse.
        identity._boot = lambda: ""
    if os.environ.get(WAKE_UPS):
        open_waker = store.waker
        given.waker = lambda: UnreliableWaker(open_waker(), int(os.environ[WAKE_UPS]))
    if in_worker and (folder := os.environ.get(CONTROL)):
        threading.Thread(target=_obey, args=(Path(folder) / str(os.getpid()),), name="soak-orders", daemon=True).start()
    return store


class UnreliableWaker:
    """Loses some wake-ups and invents others."""

    def __init__(self, waker: Waker, seed: int) -> None:
        self._waker = waker
        self._random = random.Random(seed)

    def wait(self, timeout: float) -> bool:
        chance = self._random.random()
        if chance < 0.2:
            return True  # there was none
        if self._waker.wait(timeout) and chance < 0.6:
            return self._waker.wait(timeout)  # the first one is lost
        return chance >= 0.6

    def poke(self) -> None:
        self._waker.poke()

    def close(self) -> None:
        self._waker.close()


def block_if_asked(recorder: Recorder) -> None:
    """Block the calling thread, which is the event loop's, if the fault driver asked for it."""
    if _block_for:
        seconds = _block_for.pop()
        recorder.write("fault", name="block-loop", pid=os.getpid(), until=time.monotonic() + seconds)
        time.sleep(seconds)


def _obey(path: Path) -> None:
    global _clock_offset
    recorder: Recorder | None = None
    while True:
        time.sleep(_POLL)
        try:
            text = path.read_bytes()
            path.unlink()
        except FileNotFoundError:
            continue
        order = msgspec.json.decode(text, type=Order)
        recorder = recorder or Recorder(path.parent.parent, f"orders-{os.getpid()}")
        until = time.monotonic() + order.seconds
        match order.name:
            case "hold-gil":
                recorder.write("fault", name=order.name, pid=os.getpid(), until=until)
                ctypes.PyDLL(None).usleep(int(order.seconds * 1_000_000))  # PyDLL keeps the GIL during the call
            case "block-loop":
                _block_for.append(order.seconds)
            case "clock-step":
                recorder.write("fault", name=order.name, pid=os.getpid(), number=int(order.seconds))
                _clock_offset += timedelta(seconds=order.seconds)


def send(folder: Path, pid: int, order: Order) -> None:
    """Give an order to a worker; the file appears whole."""
    draft = folder / f".{pid}"
    draft.write_bytes(msgspec.json.encode(order))
    draft.rename(folder / str(pid))
