"""Benchmarks of a folder inbox: files per second, time from a dropped file to its handler, cost while idle."""

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from bench.setting import Figure, Setting, finish, start
from bench.work import PAYLOAD, one_phase
from onerow.engine.receiving.receiver import Receiver
from onerow.inboxes.folder import FolderInbox, drop

_BATCH = 100


def files(setting: Setting) -> Iterator[Figure]:
    """Rate of files that become rows, against a loop that reads, inserts and renames, 100 in a transaction."""
    count = max(1_000, setting.tasks // 4)
    floor = None
    if setting.store == "sqlite":
        _fill(setting.folder / "minimal", count)
        floor = count / _minimal_loop(setting.folder / "minimal", setting.folder / "minimal.db")
    _fill(setting.folder / "inbox", count)
    pipeline, queue = one_phase(setting, 0), setting.queue()
    inbox = FolderInbox(setting.folder / "inbox", pipeline=pipeline.name, watch=False)
    receiver = Receiver(queue, inbox, "bench")
    began, cpu = time.perf_counter(), time.process_time()
    found = receiver.receive_available()
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    assert found.added == count
    queue.close()
    yield Figure("folder", setting.store, count / took, "files/s", floor, "minimal loop")
    yield Figure("folder cpu", setting.store, cpu / count * 1e6, "µs/file")


def latency(setting: Setting) -> Iterator[Figure]:
    """Time from a dropped file to the first line of its handler in another process, on an idle system."""
    count = 200
    folder = setting.folder / "drops"
    folder.mkdir()
    pipeline = one_phase(setting, 0)
    process = start(setting.url, pipeline.name, count=count, latency=True, folder=str(folder))
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(1.5)
    for _ in range(count):
        drop(folder, {"ts": time.time()})
        time.sleep(0.05)
    found = sorted(finish(process)["latencies"])
    yield Figure("drop to handler p50", setting.store, found[len(found) // 2] * 1000, "ms")
    yield Figure("drop to handler p99", setting.store, found[int(len(found) * 0.99)] * 1000, "ms")


def idle(setting: Setting) -> Iterator[Figure]:
    """CPU of an idle worker that receives from an empty folder, against one without an inbox."""
    folder = setting.folder / "idle"
    folder.mkdir()
    pipeline = one_phase(setting, 0).name
    without = finish(start(setting.url, pipeline, count=1, idle_for=5.0))["idle_cpu"]
    found = finish(start(setting.url, pipeline, count=1, idle_for=5.0, folder=str(folder)))["idle_cpu"]
    yield Figure("idle cpu with a folder", setting.store, found * 100, "% of a core", without * 100, "no inbox")


def folder(setting: Setting) -> Iterator[Figure]:
    """All figures of a folder inbox."""
    yield from files(setting)
    yield from latency(setting)
    yield from idle(setting)


def _fill(folder: Path, count: int) -> None:
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:08}.json").write_text(json.dumps(PAYLOAD))


def _minimal_loop(folder: Path, database: Path) -> float:
    """Do the least that a folder queue must do; return the seconds it took."""
    (folder / "archive").mkdir()
    connection = sqlite3.connect(database, isolation_level=None)
    for pragma in ("journal_mode = WAL", "synchronous = FULL"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("CREATE TABLE job (id TEXT PRIMARY KEY, state INT NOT NULL DEFAULT 0, payload TEXT NOT NULL)")
    began = time.perf_counter()
    with os.scandir(folder) as entries:
        names = [
            name for _, name in sorted((entry.stat().st_mtime_ns, entry.name) for entry in entries if entry.is_file())
        ]
    for first in range(0, len(names), _BATCH):
        batch = names[first : first + _BATCH]
        texts = [(folder / name).read_text() for name in batch]
        for text in texts:
            json.loads(text)
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO job (id, payload) VALUES (?, ?)", zip(batch, texts, strict=True))
        connection.execute("COMMIT")
        for name in batch:
            (folder / name).rename(folder / "archive" / name)
    took = time.perf_counter() - began
    connection.close()
    return took
