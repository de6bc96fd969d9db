"""The worker's ends of the sockets to a host process and to its reapers."""

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

# The host process exits as soon as every tree has ended; only a process stuck in the kernel takes longer.
_EXITS_WITHIN = 5.0


class LineLost(Exception):
    """The process at the other end has ended."""


class Host:
    """A running host process."""

    def __init__(self) -> None:
        self.alive = True
        self._numbers = itertools.count()
        self.line, theirs = socket.socketpair()
        self.reports, writing = os.pipe()
        os.set_blocking(self.reports, False)
        try:
            self._process = subprocess.Popen(
                # Isolated and without site: the user's environment cannot break or slow it.
                [sys.executable, "-I", "-S", str(_PROGRAM), *map(str, (theirs.fileno(), writing, os.getpid()))],
                pass_fds=(theirs.fileno(), writing),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd="/",
                # Its own session: Ctrl-C reaches only the worker, which then decides.
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
        """The host's process id."""
        return self._process.pid

    def fork_reaper(self) -> "Link":
        """Request another reaper, which sends a message on its socket once it runs; raise LineLost."""
        ours, theirs = socket.socketpair()
        link = Link(ours, self, next(self._numbers))
        with theirs:
            try:
                protocol.send(self.line, {"reaper": link.number}, fds=[theirs.fileno()])
            except ConnectionError:
                link.close()
                raise LineLost from None
        return link

    def let_go(self) -> None:
        """Close the worker's end of the socket; the host then ends everything under it and exits."""
        self.alive = False
        self.line.close()
        # If it takes longer, the host goes on by itself until it has succeeded.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXITS_WITHIN)

    def close(self) -> None:
        """Let go of the host and close its report pipe."""
        self.let_go()
        os.close(self.reports)


class Link:
    """The socket to one reaper."""

    def __init__(self, line: socket.socket, host: Host, number: int) -> None:
        self.line = line
        self.host = host
        self.number = number

    def ask(self, message: protocol.Message, fds: Sequence[int] = ()) -> None:
        """Send a message; raise LineLost if the reaper has ended."""
        try:
            protocol.send(self.line, message, fds)
        except ConnectionError:
            raise LineLost from None

    def offer(self, message: protocol.Message) -> None:
        """Send without waiting; a reaper that does not read (stopped by a signal) or has ended does not get it."""
        with suppress(BlockingIOError, ConnectionError):
            protocol.send_now(self.line, message)

    def receive(self) -> protocol.Message:
        """Return the next answer; raise LineLost."""
        if (received := protocol.receive(self.line)) is None:
            raise LineLost
        return received[0]

    def is_open(self) -> bool:
        """Whether the reaper's end is open; reads nothing."""
        try:
            return self.line.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close(self) -> None:
        """Close the socket; the reaper then ends everything under it and exits."""
        self.line.close()
