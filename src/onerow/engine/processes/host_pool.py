"""Which children run under which host process, and how they are ended if it dies."""

import functools
import threading
from collections.abc import Callable, Sequence

from .child import Child
from .connection import Host, LineLost, Link
from .exits import Exit
from .host import protocol
from .host.orphans import end_tagged
from .reader import Reader

# An idle reaper costs one or two megabytes and saves the next start a fork.
_MOST_IDLE = 8

_Key = tuple[Host, int]


class HostPool:
    """The current host process, its idle reapers, and all running children."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._closed = False
        self._busy = 0
        self._running: dict[_Key, Child] = {}
        self._idle: list[Link] = []
        self._host: Host | None = None
        self._hosts: set[Host] = set()
        self._reader: Reader | None = None

    def take(self, on_exit: Callable[[Exit], None]) -> Child | None:
        """Return a child with its own reaper, not yet started; None if closed; raise LineLost."""
        with self._changed:
            if self._closed:
                return None
            link = self._idle.pop() if self._idle else self._new_reaper()
            child = Child(link, on_exit)
            # Before it is started: its end may be reported before the answer to the start is read.
            self._running[link.host, link.number] = child
            self._busy += 1
            return child

    def begin(
        self, child: Child, message: protocol.Message, fds: Sequence[int], while_starting: Callable[[], None]
    ) -> protocol.Message | None:
        """Return the reaper's answer to a start, None if it died first; raise LineLost if it never got the request."""
        answer: protocol.Message | None = None
        try:
            answer = child.begin(message, fds, while_starting)
            return answer
        finally:
            if not child.begun:
                self._running.pop((child.link.host, child.link.number), None)
                self._put_back(child.link, clean=answer is not None)
            elif not child.link.host.alive:
                self._watch(child)
            self._leave()
            if self._closed:
                child.stop(0)

    def close(self, patience: float) -> None:
        """End every child; those that are stuck in the kernel after `patience` seconds are left to their reapers."""
        if self._reader and self._reader.is_current():
            raise RuntimeError("A keeper cannot be closed from on_exit; close it from another thread.")
        with self._changed:
            if self._closed:
                return
            self._closed = True
            running = list(self._running.values())
        for child in running:
            child.stop(0)
        with self._changed:
            self._changed.wait_for(lambda: not self._running and not self._busy, patience)
        if self._reader:
            self._reader.close()
        for link in self._idle:
            link.close()
        for key in tuple(self._running):
            self._finish(key, None, stopped=True, left=1)
        for host in self._hosts:
            host.close()

    def _new_reaper(self) -> Link:
        if self._host is None or not self._host.alive:
            self._host = self._new_host()
        link = self._host.fork_reaper()
        try:
            link.receive()
        except LineLost:
            link.close()
            raise
        return link

    def _new_host(self) -> Host:
        self._reader = self._reader or Reader("onerow-keeper")
        host = Host()
        self._hosts.add(host)
        self._reader.add(host.reports, functools.partial(self._read_reports, host))
        self._reader.add(host.line.fileno(), functools.partial(self._host_died, host))
        return host

    def _put_back(self, link: Link, *, clean: bool) -> None:
        with self._changed:
            if clean and link.host.alive and not self._closed and len(self._idle) < _MOST_IDLE:
                self._idle.append(link)
                return
        link.close()

    def _read_reports(self, host: Host) -> None:
        reports = protocol.reports(host.reports)
        for number, status, stopped, max_rss, left in reports or ():
            self._finish((host, number), status, stopped=stopped, max_rss=max_rss, left=left)
        if reports is None:
            self._all_died(host)

    def _host_died(self, host: Host) -> None:
        """Handle the death of a host: its children run on under their reapers; the next start makes a new host."""
        assert self._reader
        self._reader.drop(host.line.fileno())
        with self._changed:
            host.let_go()
            idle, self._idle = self._idle, []
            running = [child for (of, _), child in self._running.items() if of is host]
        for link in idle:
            link.close()
        for child in running:
            self._watch(child)

    def _watch(self, child: Child) -> None:
        """Watch for the death of the child's reaper, because no host process can report it."""
        assert self._reader
        self._reader.add(child.link.line.fileno(), functools.partial(self._on_reaper_readable, child.link))

    def _on_reaper_readable(self, link: Link) -> None:
        if not link.is_open():
            self._read_reports(link.host)  # a report that it wrote before its death comes first
            self._finish((link.host, link.number), None)

    def _all_died(self, host: Host) -> None:
        """Handle the death of a host and all its reapers: the ends of their children were not observed."""
        assert self._reader
        self._reader.drop(host.reports)
        if host.alive:
            self._host_died(host)
        for key in [key for key in self._running if key[0] is host]:
            self._finish(key, None)
        self._hosts.discard(host)
        host.close()

    def _finish(self, key: _Key, status: int | None, *, stopped: bool = False, max_rss: int = 0, left: int = 0) -> None:
        with self._changed:
            child = self._running.pop(key, None)
            self._busy += 1
        try:
            # The death of an idle reaper has no effect. The death of one before its child began is handled by the
            # caller of `begin`.
            if child and child.detach():
                if self._reader and not child.link.host.alive:
                    self._reader.drop(child.link.line.fileno())
                    if status is None and not self._closed:
                        # Reaper and host were killed: this process must end the tree itself.
                        end_tagged(child.tag)
                self._put_back(child.link, clean=status is not None and not left)
                child.finish(Exit.of(status, stopped=stopped or child.asked, max_rss=max_rss, left=left))
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._changed:
            self._busy -= 1
            if self._closed:
                self._changed.notify_all()
