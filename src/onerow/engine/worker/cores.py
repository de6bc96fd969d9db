"""How many cores this process may use."""

import os
from pathlib import Path


def cores() -> int:
    """Return the cores of this host, or of the container of this process; at least 1."""
    found = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    try:
        quota, _, period = Path("/sys/fs/cgroup/cpu.max").read_text().strip().partition(" ")
    except OSError:
        quota = period = ""
    if quota.isdecimal() and period.isdecimal():
        found = min(found, int(quota) / int(period))
    return max(1, int(found))
