"""P1 at system calls: the worker is killed at each system call by which claims and swaps are written."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing

import pytest

from onerow import Status, Task, Worker
from onerow.core.status import PROCESSING
from tests.engine.kit import PATIENCE, until
from tests.faults import app
from tests.faults.kit import Place, check_story

STRACE = shutil.which("strace")

pytestmark = [
    pytest.mark.faults,
    pytest.mark.promise("P1"),
    pytest.mark.skipif(STRACE is None, reason="strace is not installed: apt install strace"),
]

PHASES = ("first", "second")

FEW = [
    ("pwrite64", 1),
    ("pwrite64", 9),
    ("pwrite64", 22),
    ("pwrite64", 41),
    ("fdatasync", 3),
    ("fdatasync", 6),
    ("fcntl", 60),
]
MANY = [
    *(("pwrite64", number) for number in range(2, 80, 3)),
    *(("fdatasync", number) for number in range(1, 20)),
    *(("fcntl", number) for number in range(5, 200, 15)),
]


def killed_at(place: Place, call: str, number: int) -> bool:
    """Run a worker and kill it at the n-th such call of one of its threads; return False if it made fewer."""
    assert STRACE is not None
    inject = f"inject={call}:signal=SIGKILL:when={number}"
    argv = [STRACE, "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject]
    process = place.run([*argv, sys.executable, "-m", "tests.faults.drain"])
    try:
        code = process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert code in (0, -9, 137), place.output()[-3000:]
    return code != 0


def check_rows(place: Place, expected: int) -> None:
    with closing(sqlite3.connect(place.path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    rows = place.everything()
    assert len(rows) == expected
    for row in rows:
        assert row.status in (Status.WAITING, Status.PROCESSING, Status.COMPLETED), row.error
        check_story(row, PHASES)
    slots = [row.slot for row in rows if row.status is PROCESSING and row.phase == "second"]
    assert len(set(slots)) == len(slots)


def survive(place: Place, cases: Sequence[tuple[str, int]]) -> int:
    """Kill a worker at each of these calls, with new tasks each time; return how many were killed."""
    killed = 0
    total = 0
    for position, (call, number) in enumerate(cases):
        place.queue.add_many(app.quick, range(3))
        total += 3
        killed += killed_at(place, call, number)
        until(lambda: not place.living(), "the end of the killed")
        check_rows(place, total)
        if position % 2 or position == len(cases) - 1:
            # A worker that is not killed, in every second round, so that each round begins with few rows.
            until(lambda: all(row.ended for row in work_on(place)), "the end of all")
    check_rows(place, total)
    for row in place.everything():
        assert row.status is Status.COMPLETED
        assert row.results == {"first": row.payload + 1, "second": row.payload + 2}
    return killed


def work_on(place: Place) -> list[Task]:
    assert Worker(place.queue, [app.quick], until_idle=True, grace="1s").run() == 0
    return place.everything()


def test_a_worker_killed_at_some_system_calls_of_claim_and_swap_loses_nothing(place: Place) -> None:
    assert survive(place, FEW) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
def test_a_worker_killed_at_each_system_call_of_claim_and_swap_loses_nothing(place: Place, part: int) -> None:
    assert survive(place, MANY[part::6]) >= 3


def test_an_add_killed_at_any_system_call_is_stored_completely_or_not_at_all(place: Place) -> None:
    assert STRACE is not None
    script = "from tests.faults.app import queue, quick; queue.add_many(quick, range(200))"
    for call, number in (("pwrite64", 1), ("pwrite64", 6), ("fdatasync", 1), ("fcntl", 12)):
        before = len(place.everything())
        inject = f"inject={call}:signal=SIGKILL:when={number}"
        argv = [STRACE, "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject]
        place.run([*argv, sys.executable, "-c", script]).wait(PATIENCE)
        assert len(place.everything()) - before in (0, 200)


@pytest.mark.parametrize("number", [4, 5, 6])
def test_a_failed_commit_is_retried_at_no_cost_to_any_task(place: Place, number: int) -> None:
    """The disk refuses the n-th flush of each thread, which may be that of a claim or a settle."""
    assert STRACE is not None
    place.queue.add_many(app.quick, range(3))
    trace = place.folder / "trace.txt"
    inject = f"inject=fdatasync:error=EIO:when={number}"
    argv = [STRACE, "-f", "-qq", "-o", str(trace), "-e", "trace=fdatasync", "-e", inject]
    assert place.run([*argv, sys.executable, "-m", "tests.faults.drain"]).wait(PATIENCE) == 0, place.output()[-3000:]
    assert "(INJECTED)" in trace.read_text()
    for row in place.everything():
        assert row.status is Status.COMPLETED
        assert (row.retry_count, row.crash_count, row.rescue_count) == (0, 0, 0)
        check_story(row, PHASES)
        assert len(row.history) == len(PHASES)
