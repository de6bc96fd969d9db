"""The worker's ends of the lines to a keeper process and to its wardens."""

import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from .host import protocol

_PROGRAM = Path(__file__).parent / "host" / "__main__.py"

# The keeper leaves as soon as every tree is gone; only a process stuck in the kernel takes longer.
_LEAVES_FOR = 5.0


class LineLost(Exception):
    """The process at the other end is gone."""


class Host:
    """A keeper process, from its start on."""

    def __init__(self) -> None:
        self.alive = True
        self._numbers = itertools.count()
        self.line, theirs = socket.socketpair()
        self.reports, writing = os.pipe()
        os.set_blocking(self.reports, False)
        try:
            self._process = subprocess.Popen(
                # Isolated and without site: nothing of the user's surroundings can break or slow it.
                [sys.executable, "-I", "-S", str(_PROGRAM), *map(str, (theirs.fileno(), writing, os.getpid()))],
                pass_fds=(theirs.fileno(), writing),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd="/",
                # A session of its own: Ctrl-C is for the worker, which then decides.
                start_new_session=True,
            )
        except BaseException:
            self.line.close()
            os.close(self.reports)
            raise
        finally:
            theirs.close()
            os.close(writing)

    @property
    def pid(self) -> int:
        """The keeper's process id."""
        return self._process.pid

    def fork_warden(self) -> "Link":
        """Ask for another warden, which greets on its line once it runs; raises LineLost."""
        ours, theirs = socket.socketpair()
        link = Link(ours, self, next(self._numbers))
        with theirs:
            try:
                protocol.send(self.line, {"warden": link.number}, fds=[theirs.fileno()])
            except ConnectionError:
                link.close()
                raise LineLost from None
        return link

    def let_go(self) -> None:
        """Close our end of the line, upon which the keeper ends what runs under it and leaves."""
        self.alive = False
        self.line.close()
        # If it takes longer, it goes on without us until it has succeeded.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LEAVES_FOR)

    def close(self) -> None:
        """Let go, and hear no more reports."""
        self.let_go()
        os.close(self.reports)


class Link:
    """The line to one warden."""

    def __init__(self, line: socket.socket, host: Host, number: int) -> None:
        self.line = line
        self.host = host
        self.number = number

    def ask(self, message: protocol.Message, fds: Sequence[int] = ()) -> None:
        """Send; raises LineLost if nobody can have heard it."""
        try:
            protocol.send(self.line, message, fds)
        except ConnectionError:
            raise LineLost from None

    def offer(self, message: protocol.Message) -> None:
        """Send without waiting; a warden that does not read (stopped by a signal) or is gone does not get it."""
        with suppress(BlockingIOError, ConnectionError):
            protocol.send_now(self.line, message)

    def hear(self) -> protocol.Message:
        """The next answer; raises LineLost."""
        if (heard := protocol.receive(self.line)) is None:
            raise LineLost
        return heard[0]

    def is_open(self) -> bool:
        """Whether the warden still holds its end; reads nothing."""
        try:
            return self.line.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close(self) -> None:
        """Let the warden go, upon which it ends whatever still runs under it."""
        self.line.close()
