"""Listening sockets of commands that serve HTTP."""

import os
import socket
from typing import Any

from onerow.core.errors import BadInput


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise BadInput if the address is taken or not this machine's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=256)
    except OSError as error:
        raise BadInput(f"can't listen on {host}:{port}: {os.strerror(error.errno or 0)}", field="port") from None
    # Accepted connections have it too. Without it each small answer waits 40 ms for the client's acknowledgement.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def shown_address(listening: socket.socket) -> str:
    """Return host and port as they stand in a URL."""
    address: tuple[Any, ...] = listening.getsockname()
    return f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"
