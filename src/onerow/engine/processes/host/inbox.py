"""What the host process and the reapers wait for: messages and the end of the worker, and ends of children."""

import os
import select
import signal
import socket
import sys

from .frames import Message, receive_message

WORKER_ENDED: Message = {"worker_ended": True, "fds": []}
"""The last message of every inbox."""

# Sent to whole process groups by terminals and service managers. The worker decides when its
# children end, so the host process and the reapers ignore these signals and exit when the worker does.
_FOR_THE_WORKER = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class Inbox:
    """One socket from the worker, the worker's pidfd, and a pipe to which the kernel's SIGCHLD is written."""

    def __init__(self, line: socket.socket, worker: int | None) -> None:
        self.worker_ended = False
        self._line = line
        self._worker = worker
        self._wake = os.pipe()
        for fd in self._wake:
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._poll = select.poll()
        for watched in (line.fileno(), worker, self._wake[0]):
            if watched is not None:
                self._poll.register(watched, select.POLLIN)

    def wait(self, seconds: float | None) -> Message | None:
        """Wait for a message, WORKER_ENDED included; return None after the end of a child or after `seconds`."""
        # Rounded up: an early wake-up would only wait again.
        ready = [fd for fd, _ in self._poll.poll(None if seconds is None else max(0.0, seconds) * 1000 + 0.5)]
        if self._wake[0] in ready:
            os.read(self._wake[0], 4096)  # bytes left over cause one more harmless wake-up
            ready.remove(self._wake[0])
        if not ready:
            return None
        # The worker's end comes first: what it asked for before it died is not to be started any more.
        received = None if self._worker in ready else receive_message(self._line)
        if received is None:
            self.worker_ended = True
            for watched in (self._line.fileno(), self._worker):
                if watched is not None:
                    self._poll.unregister(watched)
            return WORKER_ENDED
        return received

    def close(self) -> None:
        """Close the socket and the pipe, in a forked process that has its own inbox."""
        self._line.close()
        for fd in self._wake:
            os.close(fd)


def ignore_signals_for_the_worker() -> None:
    """Ignore signals that are meant for the worker, and unblock those that a worker thread may have blocked."""
    for number in _FOR_THE_WORKER:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def watch(pid: int) -> int | None:
    """Return a descriptor that becomes readable when a process ends; None if the system cannot.

    End of file on a socket is not enough: a process that user code forked from the worker holds a copy of it.
    """
    if sys.platform == "linux":
        try:
            return os.pidfd_open(pid)
        except (AttributeError, OSError):
            pass  # an old kernel, or a Python built for one
    return None
