"""Kill operations on SQLite at their system calls: `python -m tests.crash_points FOLDER [--points N] [OPERATION…]`.

A process of its own, because it forks: the operation runs in a traced child, and so does each check, untraced.
"""

import argparse
import os
import shutil
import sqlite3
import sys
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from onerow import Queue
from tests.crash_points.operations import OPERATIONS, Interrupted, Migrate
from tests.crash_points.tracing import killed_at


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--points", type=int, default=0, help="at most this many points of each; 0: all")
    parser.add_argument("operations", nargs="*", default=list(OPERATIONS))
    options = parser.parse_args()
    failed = 0
    for name in options.operations or list(OPERATIONS):
        total, points, broken = _try(name, options.folder / name, options.points)
        print(f"{name}: {total} system calls, killed at {points}, {broken} of them broke something", flush=True)
        failed += broken
    return 1 if failed else 0


def _try(name: str, folder: Path, most: int) -> tuple[int, int, int]:
    folder.mkdir(parents=True)
    start = folder / "start"
    start.mkdir()
    _in_child(lambda: _prepare(name, start))
    total = _killed(name, start, folder / "whole", None)
    numbers = range(1, total + 1)
    if most:
        numbers = range(1 + total % 3, total + 1, max(1, total // most))
    broken = 0
    for number in numbers:
        place = folder / f"at-{number}"
        _killed(name, start, place, number)
        if not _in_child(lambda place=place: _check(name, place)):  # type: ignore[misc]
            print(f"{name}: killed before system call {number} of {total}", file=sys.stderr, flush=True)
            broken += 1
        shutil.rmtree(place)
    return total, len(numbers), broken


def _queue(place: Path) -> Queue:
    return Queue(f"sqlite:///{place / 'onerow.db'}")


def _operation(name: str, place: Path) -> Interrupted:
    return OPERATIONS[name]("jobs", place)


def _prepare(name: str, place: Path) -> None:
    queue, operation = _queue(place), _operation(name, place)
    if not isinstance(operation, Migrate):
        queue.count()
    operation.before(queue)
    queue.close()


def _killed(name: str, start: Path, place: Path, number: int | None) -> int:
    shutil.copytree(start, place)
    return killed_at(number, lambda: _operation(name, place).ready(_queue(place)))


def _check(name: str, place: Path) -> None:
    if (place / "onerow.db").exists():
        with closing(sqlite3.connect(place / "onerow.db")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    queue, operation = _queue(place), _operation(name, place)
    operation.check(queue)
    operation.again(queue)
    queue.close()


def _in_child(work: Callable[[], None]) -> bool:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc(file=sys.stderr)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


if __name__ == "__main__":
    sys.exit(main())
