"""A process that is short of file descriptors is recognised by a look, also if some were closed before it."""

import subprocess
import sys

import pytest

PROGRAM = """
import os
import resource
import sys

from onerow.engine.runners.shortage import shortage

resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = []
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
for _ in range(int(sys.argv[1])):
    os.close(held.pop())
for _ in range(20):  # a look keeps none open
    found = shortage(ValueError("the service could not be found"))
print(found)
"""


def look(free: int) -> str:
    """Return what a process finds that can open this many files, after an error that does not name the cause."""
    return subprocess.check_output([sys.executable, "-c", PROGRAM, str(free)], text=True)


@pytest.mark.parametrize("free", [0, 1, 10])
def test_few_descriptors_are_a_shortage(free: int) -> None:
    assert "Too many open files" in look(free)
    assert "lasts=True" in look(free)


def test_many_descriptors_are_none() -> None:
    assert look(100) == "None\n"
