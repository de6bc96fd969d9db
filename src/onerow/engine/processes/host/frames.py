"""Frames on a Unix stream socket: four bytes of length, then the body; a frame may pass descriptors.

Worker, host process and reapers exchange messages, dictionaries encoded with `marshal`: all of them run the same
interpreter and trust each other, and it costs a tenth of JSON.
"""

import marshal
import os
import socket
from collections.abc import Sequence

# Like typing.TYPE_CHECKING, without the cost of importing typing into every host process.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Message = dict[str, Any]
else:
    Message = dict

# A longer frame means that something else wrote to the socket.
MOST_BYTES = 64 * 1024 * 1024
# The kernel passes at most 253 descriptors in one message.
MOST_FDS = 253
_HEAD = 4


class BadFrame(Exception):
    """The received bytes are not a frame: cut off, too long, or not of the expected form."""


def send(line: socket.socket, body: bytes, fds: Sequence[int] = (), flags: int = 0) -> None:
    """Send one frame; raise BadFrame if it is too long, OSError if the other end is closed."""
    if len(body) > MOST_BYTES:
        raise BadFrame(f"A frame of {len(body)} bytes is too long; at most {MOST_BYTES} can be sent.")
    frame = len(body).to_bytes(_HEAD, "big") + body
    sent = socket.send_fds(line, [frame], list(fds), flags) if fds else line.send(frame, flags)
    if sent < len(frame):
        line.sendall(memoryview(frame)[sent:])


def receive(line: socket.socket, most_fds: int = 0) -> tuple[bytes, list[int]] | None:
    """Return the next frame's body and descriptors, which the caller then owns; None if the other end is closed."""
    try:
        # Descriptors come with the first byte, so only the header is read with them.
        head, fds, _, _ = socket.recv_fds(line, _HEAD, most_fds)
        if not head:
            return None
        for fd in fds:
            os.set_inheritable(fd, False)  # reapers have one thread, so no program starts between the two calls
        size = int.from_bytes(head + _exactly(line, _HEAD - len(head)), "big")
        if size > MOST_BYTES:
            raise BadFrame("What came is not a frame; does something else write into the socket?")
        return _exactly(line, size), fds
    except ConnectionResetError:
        return None  # closed by the other end with unread bytes


def send_message(line: socket.socket, message: Message, fds: Sequence[int] = (), flags: int = 0) -> None:
    """Send one message; raise OSError if the other end is closed."""
    send(line, marshal.dumps(message), fds, flags)


def receive_message(line: socket.socket) -> Message | None:
    """Return the next message, with its descriptors as `fds`; None if the other end is closed, also in a message."""
    try:
        received = receive(line, MOST_FDS)
    except BadFrame:
        return None
    return None if received is None else marshal.loads(received[0]) | {"fds": received[1]}


def _exactly(line: socket.socket, size: int) -> bytes:
    whole = bytearray()
    while len(whole) < size:
        part = line.recv(min(size - len(whole), 1 << 20))
        if not part:
            raise BadFrame("The socket was closed in the middle of a frame.")
        whole += part
    return bytes(whole)
