"""JSON frames between the worker and a handler in its own process: values only, never pickled objects."""

import socket
import threading
from collections.abc import Mapping

import msgspec

from onerow.engine.processes.host import frames
from onerow.engine.processes.host.frames import BadFrame


class Channel:
    """Frames in both directions over a socket that the channel owns; any thread may send, one may receive."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._sending = threading.Lock()

    def fileno(self) -> int:
        """Return the descriptor that is readable when a frame can be received."""
        return self._line.fileno()

    def send(self, frame: Mapping[str, object]) -> None:
        """Send one frame; raise BrokenPipeError if the other end is closed, BadFrame if the frame is too long."""
        body = msgspec.json.encode(frame)
        with self._sending:
            frames.send(self._line, body)

    def receive(self) -> dict[str, object] | None:
        """Return the next frame, or None if the other end is closed; raise BadFrame."""
        if (received := frames.receive(self._line)) is None:
            return None
        try:
            return msgspec.json.decode(received[0], type=dict[str, object])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadFrame(f"A frame is not a JSON object: {error}") from None

    def close(self) -> None:
        """Close both directions; a second call does nothing."""
        self._line.close()
