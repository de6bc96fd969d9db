"""JSON frames over a socket."""

import os
import socket

import pytest

from onerow.engine.processes.host.frames import BadFrame
from onerow.engine.runners.channel import Channel


def test_a_channel_that_is_closed_ends_the_frames() -> None:
    sender, receiver = map(Channel, socket.socketpair())
    sender.send({"a": 1})
    sender.close()
    sender.close()
    assert [receiver.receive(), receiver.receive()] == [{"a": 1}, None]
    receiver.close()


@pytest.mark.parametrize(
    "content",
    [b"\0\0\0\x09{}", b"\0\0", b"Traceback (most recent call last)", b"\0\0\0\x02[]", b'\0\0\0\x03"\xff"'],
    ids=["cut_off", "cut_off_early", "not_a_frame", "not_an_object", "not_utf8"],
)
def test_bytes_that_are_not_a_frame_are_refused(content: bytes) -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(content)
    theirs.close()
    receiver = Channel(ours)
    with pytest.raises(BadFrame):
        receiver.receive()
    receiver.close()


def test_descriptors_sent_by_a_handler_are_not_received() -> None:
    ours, theirs = socket.socketpair()
    before = set(os.listdir("/proc/self/fd"))
    socket.send_fds(theirs, [b"\0\0\0\x02{}"], [0, 1, 2])
    receiver = Channel(ours)
    assert receiver.receive() == {}
    assert set(os.listdir("/proc/self/fd")) == before
    receiver.close()
    theirs.close()
