"""JSON frames over a pipe or socket: four bytes of length, then UTF-8. Values only, never pickled objects."""

import os
import threading
from collections.abc import Mapping

import msgspec

# Rows are far smaller; a longer frame means that something else wrote to the pipe.
MOST_BYTES = 64 * 1024 * 1024


class BadFrame(Exception):
    """The received bytes are not a frame: cut off, too long, or not a JSON object."""


class Channel:
    """Frames in both directions over descriptors that the channel owns; any thread may send, one may receive."""

    def __init__(self, reading: int, writing: int | None = None) -> None:
        self._reading = reading
        self._writing = reading if writing is None else writing
        self._sending = threading.Lock()
        self._open = True

    def fileno(self) -> int:
        """Return the descriptor that is readable when a frame can be received."""
        return self._reading

    def send(self, frame: Mapping[str, object]) -> None:
        """Send one frame; raise BrokenPipeError if the other end is closed."""
        body = msgspec.json.encode(frame)
        if len(body) > MOST_BYTES:
            raise BadFrame(f"A frame of {len(body)} bytes is too long; at most {MOST_BYTES} can be sent.")
        rest = memoryview(len(body).to_bytes(4, "big") + body)
        with self._sending:
            while rest:
                rest = rest[os.write(self._writing, rest) :]

    def receive(self) -> dict[str, object] | None:
        """Return the next frame, or None if the other end is closed; raise BadFrame."""
        if (body := self.receive_bytes()) is None:
            return None
        try:
            return msgspec.json.decode(body, type=dict[str, object])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadFrame(f"A frame is not a JSON object: {error}") from None

    def receive_bytes(self) -> bytes | None:
        """Return the next frame before decoding, for callers that know its type."""
        head = self._exactly(4)
        if not head:
            return None
        size = int.from_bytes(head, "big")
        if len(head) < 4 or size > MOST_BYTES:
            raise BadFrame("What came is not a frame; does something else write into the channel?")
        body = self._exactly(size)
        if len(body) < size:
            raise BadFrame("The channel was closed in the middle of a frame.")
        return body

    def close(self) -> None:
        """Close both directions; a second call does nothing."""
        if self._open:
            self._open = False
            for fd in {self._reading, self._writing}:
                os.close(fd)

    def _exactly(self, size: int) -> bytes:
        whole = bytearray()
        while len(whole) < size:
            try:
                part = os.read(self._reading, min(size - len(whole), 1 << 20))
            except ConnectionResetError:
                break  # closed by the other end with unread bytes
            if not part:
                break
            whole += part
        return bytes(whole)
