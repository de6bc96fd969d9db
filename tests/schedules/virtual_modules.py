"""The engine's modules with virtual time and threads: what they import from time and threading is replaced."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import onerow.engine.worker.worker  # noqa: F401  so that every module of a worker is imported
from onerow.engine.queue.lease_watch import LeaseWatch
from tests.schedules import world
from tests.schedules.runners import NoCapture, NoProcesses, SimulatedRunners

_THREADING = SimpleNamespace(
    **(vars(threading) | {"Thread": world.Thread, "Event": world.Event, "Lock": world.Lock, "RLock": world.Lock})
)
_TIME = SimpleNamespace(monotonic=world.monotonic, sleep=world.sleep, time=time.time)
_WORKER = "onerow.engine.worker.worker"


@contextmanager
def virtual_modules() -> Iterator[None]:
    """Replace clocks, sleeps, threads and runners in the modules of a worker."""
    replaced: list[tuple[Any, str, Any]] = []
    for name, module in list(sys.modules.items()):
        if name.startswith("onerow.engine."):
            if getattr(module, "monotonic", None) is time.monotonic:
                replaced.append((module, "monotonic", world.monotonic))
            if getattr(module, "sleep", None) is time.sleep:
                replaced.append((module, "sleep", world.sleep))
            if getattr(module, "time", None) is time:
                replaced.append((module, "time", _TIME))
            if getattr(module, "threading", None) is threading:
                replaced.append((module, "threading", _THREADING))
    replaced += [
        (sys.modules[_WORKER], "Runners", SimulatedRunners),
        (sys.modules[_WORKER], "ProcessHost", NoProcesses),
        (sys.modules[_WORKER], "Capture", NoCapture),
    ]
    with patch.dict(LeaseWatch.__init__.__kwdefaults__ or {}, clock=world.monotonic):
        before = [(module, name, getattr(module, name)) for module, name, _ in replaced]
        for module, name, value in replaced:
            setattr(module, name, value)
        try:
            yield
        finally:
            for module, name, value in before:
                setattr(module, name, value)
