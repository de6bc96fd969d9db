"""The loop of the host process: fork reapers, and end the descendants of killed reapers.

It receives `{"reaper": number}` with one end of a new socket, and reports when that reaper and everything
under it have ended.
"""

import _socket
import gc
import os
import select
import sys

from . import protocol, tree
from .kernel import become_subreaper, drain, settle_signals, wake_on_child_end, watch
from .orphans import end_orphans
from .reaper import Reaper

_ORPHANS_REST_MS = 20
_MOST_REFUSALS = 100


class HostProcess:
    """The loop of the host process."""

    def __init__(self, line: _socket.socket, reports: int, worker: int | None) -> None:
        self._line = line
        self._reports = reports
        self._worker = worker
        self._reapers: dict[int, int] = {}
        self._ended: list[int] = []
        self._wake = wake_on_child_end()
        self._worker_ended = False
        self._refusals = 0
        self._poll = select.poll()
        for fd in (line.fileno(), self._wake, worker):
            if fd is not None:
                self._poll.register(fd, select.POLLIN)

    def serve(self) -> None:
        """Work until the worker, all reapers and all orphans have ended."""
        settled = True
        while not (self._worker_ended and settled and not self._reapers):
            for fd, _ in self._poll.poll(None if settled else _ORPHANS_REST_MS):
                if fd == self._wake:
                    drain(fd)
                elif not self._worker_ended:
                    self._receive(fd)
            settled = self._reap() or self._end_orphans()
            if settled:
                self._report_ended()

    def _receive(self, fd: int) -> None:
        received = protocol.receive(self._line) if fd == self._line.fileno() else None
        if received is None:
            # The worker has ended. Every reaper sees this too and ends its own tree; wait for them.
            self._worker_ended = True
            self._poll.unregister(self._line.fileno())
            if self._worker is not None:
                self._poll.unregister(self._worker)
            return
        message, fds = received
        self._fork_reaper(message["reaper"], _socket.socket(fileno=fds[0]))

    def _fork_reaper(self, number: int, line: _socket.socket) -> None:
        try:
            pid = os.fork()
        except OSError:
            line.close()  # so the worker sees that there is no reaper
            return
        if pid == 0:
            try:
                # The host's own socket must not stay open in a reaper: its end tells the worker that the host died.
                self._line.close()
                os.close(self._wake)
                Reaper(number, line, self._reports, self._worker).serve()
                os._exit(0)
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(1)  # never return to the host's loop
        self._reapers[pid] = number
        line.close()

    def _reap(self) -> bool:
        """Reap ended processes; return True if there can be no orphans."""
        try:
            while True:
                pid, _ = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid in self._reapers:
                    self._ended.append(self._reapers.pop(pid))
        except ChildProcessError:
            return True
        # Orphans come only from reapers that ended.
        return not self._ended

    def _end_orphans(self) -> bool:
        """Kill orphans of ended reapers; return True if there are none, or none that may be killed."""
        if not tree.descendants(skip=self._reapers):
            return True
        refusing = tree.end(skip=self._reapers)
        self._refusals = self._refusals + 1 if refusing else 0
        return self._refusals > _MOST_REFUSALS

    def _report_ended(self) -> None:
        for number in self._ended:
            protocol.report(self._reports, number, None)
        self._ended.clear()


def main(line: int, reports: int, worker: int) -> None:
    """Host the children of one worker until it has ended."""
    for fd in (line, reports):
        os.set_inheritable(fd, False)  # children must not inherit them
    settle_signals()
    become_subreaper(b"onerow-keeper")
    watched = watch(worker)
    if os.getppid() != worker:
        return  # the worker died during the start
    end_orphans()
    # Without collections, memory is not written to, and so stays shared with the reapers.
    gc.disable()
    gc.freeze()
    HostProcess(_socket.socket(fileno=line), reports, watched).serve()
