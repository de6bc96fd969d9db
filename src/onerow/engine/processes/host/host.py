"""The loop of the host process: fork reapers, and end the descendants of killed reapers."""

import gc
import os
import socket
import sys
from contextlib import suppress

from . import orphans, tree
from .inbox import Inbox, ignore_signals_for_the_worker, watch
from .reaper import Reaper

_ORPHANS_REST = 0.02
_MOST_REFUSALS = 100


class HostProcess:
    """The reapers of one worker, each with the host's copy of its socket."""

    def __init__(self, line: socket.socket, worker: int | None) -> None:
        self._worker = worker
        self._inbox = Inbox(line, worker)
        self._reapers: dict[int, socket.socket] = {}
        self._ended: list[socket.socket] = []
        self._refusals = 0

    def serve(self) -> None:
        """Work until the worker, all reapers and all orphans have ended."""
        while self._reapers or self._ended or not self._inbox.worker_ended:
            message = self._inbox.wait(_ORPHANS_REST if self._ended else None)
            for fd in message["fds"] if message else ():
                self._fork_reaper(socket.socket(fileno=fd))
            self._reap()
            # Orphans come only from reapers that ended.
            if self._ended and self._end_orphans():
                for line in self._ended:
                    line.close()  # tells the worker that nothing is left of this reaper's child
                self._ended.clear()

    def _fork_reaper(self, line: socket.socket) -> None:
        try:
            pid = os.fork()
        except OSError:
            line.close()  # so the worker sees that there is no reaper
            return
        if pid == 0:
            try:
                # The end of a socket tells the worker that its process has ended: no other may hold a copy.
                self._inbox.close()
                for other in (*self._reapers.values(), *self._ended):
                    other.close()
                Reaper(line, self._worker).serve()
                os._exit(0)
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(1)  # never return to the host's loop
        self._reapers[pid] = line

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                if pid in self._reapers:
                    self._ended.append(self._reapers.pop(pid))

    def _end_orphans(self) -> bool:
        """Kill orphans of ended reapers; return True if there are none, or none that may be killed."""
        killed, refused = tree.end(skip=self._reapers)
        self._refusals = 0 if killed or not refused else self._refusals + 1
        return not (killed or refused) or self._refusals > _MOST_REFUSALS


def main(line: int, worker: int) -> None:
    """Host the children of one worker until it has ended."""
    os.set_inheritable(line, False)  # children must not inherit it
    ignore_signals_for_the_worker()
    tree.adopt_orphans(b"onerow-host")
    watched = watch(worker)
    if os.getppid() != worker:
        return  # the worker died during the start
    orphans.end_all()
    # Without collections, memory is not written to, and so stays shared with the reapers.
    gc.disable()
    gc.freeze()
    HostProcess(socket.socket(fileno=line), watched).serve()
