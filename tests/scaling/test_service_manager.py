"""systemd notifications, and health as the probes see it."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from onerow.engine.worker.health import Health, WorkerHealth
from onerow.engine.worker.service_manager import ServiceManager

CLAIMS = WorkerHealth(1, True, 3, False, 0.0)
STARTS = WorkerHealth(1, False, 0, False, 0.0)


@pytest.mark.parametrize(
    "health, ready, live",
    [
        (Health(False, 5.0, [STARTS]), False, True),
        (Health(False, 500.0, [STARTS]), False, False),
        (Health(False, 500.0, []), False, False),
        (Health(False, 500.0, [CLAIMS]), True, True),
        (Health(False, 500.0, [STARTS, CLAIMS]), True, True),
        (Health(False, 500.0, [CLAIMS._replace(draining=True)]), False, True),
        (Health(False, 500.0, [CLAIMS._replace(overdue=1.0)]), False, True),
        (Health(False, 500.0, [CLAIMS._replace(silent_for=5.1)]), False, True),
        (Health(False, 500.0, [CLAIMS._replace(overdue=301.0)]), False, False),
        (Health(True, 500.0, [CLAIMS]), False, True),
    ],
)
def test_health_is_true_only_while_a_process_claims(health: Health, ready: bool, live: bool) -> None:
    assert (health.is_ready, health.is_live) == (ready, live)


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket on which the service manager listens."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listening.bind(str(tmp_path / "notify"))
    listening.settimeout(30)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    yield listening
    listening.close()


def received(listening: socket.socket) -> list[str]:
    listening.setblocking(False)
    found = []
    try:
        while True:
            found.append(listening.recv(4096).decode())
    except BlockingIOError:
        return found


def test_a_service_is_ready_when_a_worker_claims_and_then_alive(systemd: socket.socket) -> None:
    service = ServiceManager()
    assert "NOTIFY_SOCKET" not in os.environ  # handlers' programs must not notify
    service.tick(Health(False, 1.0, [STARTS]))
    assert received(systemd) == ["WATCHDOG=1\nSTATUS=1 worker processes, 0 running tasks"]
    service.tick(Health(False, 2.0, [CLAIMS]))
    service.tick(Health(False, 2.1, [CLAIMS]))
    assert received(systemd) == ["READY=1"]  # the next sign of life is due in 10 s
    service.tick(Health(True, 3.0, [CLAIMS]))
    service.close()
    assert received(systemd) == ["STOPPING=1"]


def test_a_worker_that_does_not_claim_gets_no_watchdog_sign(systemd: socket.socket) -> None:
    service = ServiceManager()
    service.tick(Health(False, 900.0, [CLAIMS._replace(overdue=400.0)]))
    assert received(systemd) == []
    service.close()


def test_without_a_service_manager_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    service = ServiceManager()
    service.tick(Health(False, 1.0, [CLAIMS]))
    service.close()
