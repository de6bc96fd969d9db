"""How many cores a worker may use."""

from pathlib import Path

import pytest

from onerow.engine.worker.cores import cores


@pytest.mark.parametrize("quota, expected", [("350000 100000\n", 3), ("20000 100000\n", 1), ("max 100000\n", 8)])
def test_the_quota_of_a_container_limits_the_cores(monkeypatch: pytest.MonkeyPatch, quota: str, expected: int) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(Path, "read_text", lambda path: quota)
    assert cores() == expected
