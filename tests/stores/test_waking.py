"""Waiting for wake-ups in a process with many open files."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from onerow.stores.shared.waking import WakePipe, readable


@contextmanager
def many_files() -> Iterator[None]:
    """Take all descriptors below 1,100, so that new ones have higher numbers."""
    taken: list[int] = []
    try:
        while not taken or taken[-1] < 1100:
            taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)


@pytest.mark.parametrize("many", [False, True])
def test_a_poke_ends_the_wait(many: bool) -> None:
    if many:
        with many_files():
            pipe = WakePipe()
            assert pipe.fileno() > 1024
    else:
        pipe = WakePipe()
    other, other_end = os.pipe()
    try:
        assert readable([pipe, other], 0.001) == []
        pipe.poke()
        assert readable([pipe, other], 600) == [pipe]
        pipe.clear()
        os.write(other_end, b"x")
        assert readable([pipe, other], 600) == [other]
    finally:
        pipe.close()
        for descriptor in (other, other_end):
            os.close(descriptor)


def test_a_poke_of_a_closed_pipe_writes_to_no_other_file() -> None:
    pipe = WakePipe()
    pipe.close()
    ends = os.pipe()  # may have the numbers of the closed ones
    try:
        pipe.poke()
        fcntl.fcntl(ends[0], fcntl.F_SETFL, os.O_NONBLOCK)
        with pytest.raises(BlockingIOError):
            os.read(ends[0], 1)
    finally:
        for descriptor in ends:
            os.close(descriptor)
