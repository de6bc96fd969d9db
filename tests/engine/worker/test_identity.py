"""Proof of death: a worker counts as dead only if the kernel says so, or if another process has its pid."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import UNDER_CI
from onerow.identity import Identity

ME = Identity.of_this_process()
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="proof of death needs Linux")


def line_of(pid: int, born: str) -> dict[str, object]:
    """Return a worker's registry entry."""
    return {"boot": ME.boot, "namespace": ME.namespace, "pid": pid, "born": born}


def start_time_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs until the test ends it."""
    process = subprocess.Popen(["sleep", "300"])
    yield process
    process.kill()
    process.wait()


def test_a_process_that_runs_is_not_dead(other: subprocess.Popen[bytes]) -> None:
    assert not ME.knows_dead(line_of(other.pid, start_time_of(other.pid)))


def test_a_process_that_has_ended_is_dead_before_and_after_it_is_reaped(other: subprocess.Popen[bytes]) -> None:
    line = line_of(other.pid, start_time_of(other.pid))
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert ME.knows_dead(line), "a zombie"
    other.wait()
    assert ME.knows_dead(line)


def test_a_worker_is_dead_when_another_process_has_its_pid(other: subprocess.Popen[bytes]) -> None:
    assert ME.knows_dead(line_of(other.pid, str(int(start_time_of(other.pid)) - 1)))


def test_a_worker_whose_start_time_was_never_seen_is_dead_only_if_its_pid_is_free(
    other: subprocess.Popen[bytes],
) -> None:
    line = line_of(other.pid, "")
    assert not ME.knows_dead(line)
    other.kill()
    other.wait()
    assert ME.knows_dead(line)


def test_without_a_boot_id_or_a_namespace_nothing_is_proven() -> None:
    free = line_of(2**22 + 1, "1")
    assert ME.knows_dead(free)
    for unknown in ("boot", "namespace"):
        blind = Identity(
            ME.name,
            ME.host,
            "" if unknown == "boot" else ME.boot,
            "" if unknown == "namespace" else ME.namespace,
            ME.pid,
            ME.born,
            ME.started_at,
        )
        assert not blind.knows_dead(free | {unknown: ""})


LOOK = """
import json, os, sys
from onerow.identity import Identity
line = json.loads(sys.argv[1])
if sys.argv[2] == "another user":
    os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
try:
    visible = os.path.exists(f"/proc/{line['pid']}/stat")
finally:
    print(json.dumps([visible, Identity.of_this_process().knows_dead(line)]))
"""


def seen_from(line: dict[str, object], proc: str, user: str) -> tuple[bool, bool]:
    """Return whether a process is visible, and proven dead, where /proc is mounted with other options."""
    argv = ["unshare", "--mount", "sh", "-c", f'{proc} && exec "$@"', "sh", sys.executable, "-c", LOOK]
    done = subprocess.run([*argv, json.dumps(line), user], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    visible, dead = json.loads(done.stdout)
    return visible, dead


def can_mount() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    tried = ["unshare", "--mount", "mount", "-t", "proc", "proc", "/proc"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


@pytest.fixture
def mounts() -> None:
    if not can_mount():
        if UNDER_CI:
            pytest.fail("mounting /proc needs root and unshare")
        pytest.skip("mounting /proc needs root and unshare")


HIDDEN = "mount -t proc -o hidepid=2 proc /proc"
ORDINARY = "mount -t proc proc /proc"
NONE = "mount -t tmpfs none /proc"


@pytest.mark.usefixtures("mounts")
@pytest.mark.parametrize(
    "proc, user, is_visible, is_known",
    [
        (HIDDEN, "another user", False, True),
        (ORDINARY, "another user", True, True),
        (NONE, "root", False, False),
    ],
    ids=["hidepid", "other user", "no proc"],
)
def test_a_live_worker_that_cannot_be_seen_is_not_dead(
    other: subprocess.Popen[bytes], proc: str, user: str, is_visible: bool, is_known: bool
) -> None:
    line = line_of(other.pid, start_time_of(other.pid))
    assert seen_from(line, proc, user) == (is_visible, False)
    other.kill()
    other.wait()
    assert seen_from(line, proc, user) == (False, is_known)


@pytest.mark.usefixtures("mounts")
def test_the_proc_of_another_pid_namespace_proves_nothing(tmp_path: Path) -> None:
    """In that namespace, /proc shows the processes of the host under other pids."""
    script = tmp_path / "look.py"
    script.write_text(
        "import os, subprocess\n"
        "from onerow.identity import Identity\n"
        "me = Identity.of_this_process()\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "line = {'boot': me.boot, 'namespace': me.namespace, 'pid': child.pid, 'born': '1'}\n"
        "alive = me.knows_dead(line)\n"
        "child.kill(); child.wait()\n"
        "print(alive, me.knows_dead(line))\n"
    )
    argv = ["unshare", "--pid", "--fork", sys.executable, str(script)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=900, check=False)
    assert done.stdout.split() == ["False", "True"], done.stderr


def test_this_process_knows_when_it_started() -> None:
    assert ME.born == start_time_of(os.getpid())
    assert 0 < int(ME.born) / os.sysconf("SC_CLK_TCK") <= time.clock_gettime(time.CLOCK_BOOTTIME)
