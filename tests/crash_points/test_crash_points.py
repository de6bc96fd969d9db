"""Kill operations on SQLite at their system calls; afterwards each row is whole, and the operation can be repeated."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash_points.operations import OPERATIONS

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(sys.platform != "linux", reason="system calls are counted with ptrace as Linux has it"),
]


def crash(folder: Path, *arguments: str, within: float) -> list[str]:
    """Run the crash points in a process of their own, which forks; return a line for each operation."""
    argv = [sys.executable, "-m", "tests.crash_points", str(folder), *arguments]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=within, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    return done.stdout.splitlines()


def test_operations_killed_at_some_system_calls_leave_whole_rows(tmp_path: Path) -> None:
    lines = crash(tmp_path / "points", "--points", "3", within=900)
    assert [line.partition(":")[0] for line in lines] == list(OPERATIONS)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(OPERATIONS))
def test_an_operation_killed_at_each_system_call_leaves_whole_rows(tmp_path: Path, name: str) -> None:
    (line,) = crash(tmp_path / "points", name, within=1500)
    assert line.endswith("0 of them broke something")
