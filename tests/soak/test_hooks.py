"""Faults inside a worker: wake-ups that are lost or invented, a wrong store clock, a blocked loop."""

import time
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from onerow.soak import hooks
from onerow.soak.records import Recorder, read_records
from onerow.stores.memory import MemoryStore


class Waker:
    """Wakes at once, always."""

    def __init__(self) -> None:
        self.waits = 0

    def wait(self, timeout: float) -> bool:
        self.waits += 1
        return True

    def poke(self) -> None: ...

    def close(self) -> None: ...


def test_an_unreliable_waker_loses_some_wake_ups_and_invents_others() -> None:
    waker = Waker()
    unreliable = hooks.UnreliableWaker(waker, seed=1)
    calls = 0
    waits = set()
    for _ in range(200):
        before = waker.waits
        unreliable.wait(0.0)
        calls += 1
        waits.add(waker.waits - before)
    assert waits == {0, 1, 2}  # invented, delivered, and lost before the next one
    assert calls == 200


def test_the_store_clock_of_a_worker_can_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong = MemoryStore(), hooks.hooked(MemoryStore())
    monkeypatch.setattr(hooks, "_clock_offset", timedelta(hours=1))
    assert timedelta(minutes=59) < wrong.now() - right.now() < timedelta(minutes=61)


def test_a_blocked_loop_is_recorded_with_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "_block_for", [0.05])
    recorder = Recorder(tmp_path, "bodies")
    began = time.monotonic()
    hooks.block_if_asked(recorder)
    assert time.monotonic() - began >= 0.05
    hooks.block_if_asked(recorder)
    recorder.close()
    (record,) = read_records(tmp_path)
    assert (record.name, record.until > record.at) == ("block-loop", True)


def test_an_order_appears_whole(tmp_path: Path) -> None:
    hooks.send(tmp_path, 7, hooks.Order("hold-gil", 2.0))
    assert msgspec.json.decode((tmp_path / "7").read_bytes(), type=hooks.Order) == hooks.Order("hold-gil", 2.0)
    assert [path.name for path in tmp_path.iterdir()] == ["7"]
