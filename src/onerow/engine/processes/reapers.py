"""The worker's side of one host process and its reapers."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from .host.frames import Message, receive_message, send_message

_HOST = f"import sys; sys.path.append({str(Path(__file__).parent)!r}); from host.host import main; "

# An idle reaper costs one or two megabytes and saves the next start a fork.
_MOST_IDLE = 8

# The host process exits as soon as every tree has ended; only a process stuck in the kernel takes longer.
_EXITS_WITHIN = 5.0


class Reapers:
    """A running host process, and the sockets to its idle reapers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._idle: list[socket.socket] = []
        self._line, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                # Isolated and without site: the user's environment cannot break or slow it.
                [sys.executable, "-I", "-S", "-c", f"{_HOST} main({theirs.fileno()}, {os.getpid()})"],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd="/",
                # Its own session: Ctrl-C reaches only the worker, which then decides.
                start_new_session=True,
            )
        except BaseException:
            self._line.close()
            raise
        finally:
            theirs.close()

    def has_host(self) -> bool:
        """Whether the host process runs."""
        return _is_open(self._line)

    def start(self, request: Message, fds: Sequence[int]) -> tuple[socket.socket, Message] | None:
        """Have a reaper start a program; return its socket and answer, or None if it was killed or cannot be forked.

        Raise OSError if a descriptor is not open, BadFrame if the request is too long.
        """
        if (reaper := self._take()) is None:
            return None
        answer = None
        try:
            send_message(reaper, request, fds)
            answer = receive_message(reaper)
        except ConnectionError:
            pass
        finally:
            if answer is None:
                reaper.close()
        return None if answer is None else (reaper, answer)

    def put_back(self, reaper: socket.socket) -> None:
        """Keep a reaper whose child has ended for the next child, or close its socket, which ends it."""
        with self._lock:
            if self._closed or len(self._idle) >= _MOST_IDLE:
                reaper.close()
            else:
                self._idle.append(reaper)

    def _take(self) -> socket.socket | None:
        with self._lock:
            while self._idle:
                if _is_open(reaper := self._idle.pop()):
                    return reaper
                reaper.close()
            reaper, theirs = socket.socketpair()
            with theirs, suppress(OSError):
                send_message(self._line, {}, fds=[theirs.fileno()])
            if receive_message(reaper) is not None:
                return reaper
            reaper.close()
            return None

    def close(self) -> None:
        """Close the sockets; the host process then ends everything under it and exits."""
        with self._lock:
            self._closed = True
            for line in (self._line, *self._idle):
                line.close()
            self._idle.clear()
        # If it takes longer, the host goes on by itself until it has succeeded.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXITS_WITHIN)


def _is_open(line: socket.socket) -> bool:
    """Whether the other end is open; reads nothing."""
    try:
        return line.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False
