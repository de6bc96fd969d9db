"""The keeper process itself: forks wardens, and ends what a killed warden leaves behind.

It hears `{"warden": number}` with one end of a new line, and reports when that warden and everything
under it are gone.
"""

import _socket
import gc
import os
import select
import sys

from . import protocol, tree
from .kernel import become_subreaper, drain, settle_signals, wake_on_child_end, watch
from .orphans import end_strays
from .reaper import Reaper

_ORPHANS_REST_MS = 20
_MOST_REFUSALS = 100


class HostProcess:
    """The loop of the keeper process."""

    def __init__(self, line: _socket.socket, reports: int, worker: int | None) -> None:
        self._line = line
        self._reports = reports
        self._worker = worker
        self._wardens: dict[int, int] = {}
        self._ended: list[int] = []
        self._wake = wake_on_child_end()
        self._alone = False
        self._refusals = 0
        self._poll = select.poll()
        for fd in (line.fileno(), self._wake, worker):
            if fd is not None:
                self._poll.register(fd, select.POLLIN)

    def serve(self) -> None:
        """Work until the worker is gone and so are all wardens and orphans."""
        settled = True
        while not (self._alone and settled and not self._wardens):
            for fd, _ in self._poll.poll(None if settled else _ORPHANS_REST_MS):
                if fd == self._wake:
                    drain(fd)
                elif not self._alone:
                    self._hear(fd)
            settled = self._reap() or self._end_orphans()
            if settled:
                self._tell_ended()

    def _hear(self, fd: int) -> None:
        heard = protocol.receive(self._line) if fd == self._line.fileno() else None
        if heard is None:
            # Every warden sees this too and ends its own tree; we wait for them.
            self._alone = True
            self._poll.unregister(self._line.fileno())
            if self._worker is not None:
                self._poll.unregister(self._worker)
            return
        message, fds = heard
        self._fork_warden(message["warden"], _socket.socket(fileno=fds[0]))

    def _fork_warden(self, number: int, line: _socket.socket) -> None:
        try:
            pid = os.fork()
        except OSError:
            line.close()  # the worker sees that nobody greets
            return
        if pid == 0:
            try:
                # Our own line must not stay open in a warden: its end tells the worker of our death.
                self._line.close()
                os.close(self._wake)
                Reaper(number, line, self._reports, self._worker).serve()
                os._exit(0)
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(1)  # never back into the keeper's loop
        self._wardens[pid] = number
        line.close()

    def _reap(self) -> bool:
        """Collect the dead; True if there is no orphan to look for."""
        try:
            while True:
                pid, _ = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid in self._wardens:
                    self._ended.append(self._wardens.pop(pid))
        except ChildProcessError:
            return True
        # Orphans come only from wardens that ended.
        return not self._ended

    def _end_orphans(self) -> bool:
        """Kill what wardens left to us; True if there is nothing, or nothing that we may kill."""
        if not tree.descendants(skip=self._wardens):
            return True
        refusing = tree.end(skip=self._wardens)
        self._refusals = self._refusals + 1 if refusing else 0
        return self._refusals > _MOST_REFUSALS

    def _tell_ended(self) -> None:
        for number in self._ended:
            protocol.report(self._reports, number, None)
        self._ended.clear()


def main(line: int, reports: int, worker: int) -> None:
    """Keep the children of one worker until it is gone."""
    for fd in (line, reports):
        os.set_inheritable(fd, False)  # they were made for us, not for the children
    settle_signals()
    become_subreaper(b"onerow-keeper")
    watched = watch(worker)
    if os.getppid() != worker:
        return  # it died while we started
    end_strays()
    # What is never collected is never written to, and so stays shared with the wardens.
    gc.disable()
    gc.freeze()
    HostProcess(_socket.socket(fileno=line), reports, watched).serve()
