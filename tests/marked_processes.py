"""Processes that belong to one test: found by a variable of their environment, killed by their pids."""

import contextlib
import os
import subprocess
from collections.abc import Sequence

import psutil


def living(variable: str, value: str, word: str = "") -> list[psutil.Process]:
    """Return the running processes, other than this one, with the variable and with the word in their command line."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if (
                process.pid != os.getpid()
                and process.environ().get(variable) == value
                and process.status() != psutil.STATUS_ZOMBIE
                and (not word or any(word in part for part in process.cmdline()))
            ):
                found.append(process)
    return found


def kill_all(variable: str, value: str, started: Sequence["subprocess.Popen[bytes]"]) -> None:
    """Kill every process with the variable; repeated, because a dying process may have started others."""
    for _ in range(20):
        left = living(variable, value)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        for each in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                each.wait(5)
        if not left:
            break
