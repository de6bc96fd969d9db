"""Notifications to systemd (Type=notify): started, alive, stopping. Without NOTIFY_SOCKET it does nothing."""

import os
import socket
from time import monotonic

from onerow.engine.worker.health import Health


class ServiceManager:
    """Sends datagrams to the service manager of this process."""

    def __init__(self) -> None:
        # Removed, so that programs that handlers start do not notify in the name of this service.
        address = os.environ.pop("NOTIFY_SOCKET", "")
        watchdog_pid = os.environ.pop("WATCHDOG_PID", "")
        period = os.environ.pop("WATCHDOG_USEC", "")
        self._socket: socket.socket | None = None
        if address:
            # A leading @ means the abstract namespace.
            self._address = f"\0{address[1:]}" if address.startswith("@") else address
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | getattr(socket, "SOCK_CLOEXEC", 0))
            self._socket.setblocking(False)
        watched = period.isdecimal() and watchdog_pid in ("", str(os.getpid()))
        self._every = int(period) / 1_000_000 / 3 if watched else None
        self._alive_at = float("-inf")
        self._sent: set[str] = set()

    def tick(self, health: Health) -> None:
        """Say that the service is started when a worker claims, and that it is alive while one does."""
        if self._socket is None:
            return
        if health.is_ready:
            self._once("READY=1")
        if health.stopping:
            self._once("STOPPING=1")
        if self._every is not None and health.is_live and monotonic() >= self._alive_at + self._every:
            self._alive_at = monotonic()
            self._send(f"WATCHDOG=1\nSTATUS={_status(health)}")

    def close(self) -> None:
        if self._socket is not None:
            self._once("STOPPING=1")
            self._socket.close()
            self._socket = None

    def _once(self, state: str) -> None:
        if state not in self._sent and self._send(state):
            self._sent.add(state)

    def _send(self, state: str) -> bool:
        assert self._socket is not None
        try:
            self._socket.sendto(state.encode(), self._address)
        except OSError:
            return False  # it is tried again in the next round
        return True


def _status(health: Health) -> str:
    running = sum(worker.running for worker in health.workers)
    return f"{len(health.workers)} worker processes, {running} running tasks"
