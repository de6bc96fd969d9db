"""The threads of a worker's roles: a role that is woken is called, also if others are woken at the same time."""

import sys
import threading
from datetime import UTC, datetime
from types import FrameType
from typing import Any

from onerow.engine.events.events import Events
from onerow.engine.worker.threads import Outage, RoleThread

PATIENCE = 900.0


class Role:
    """A role that is called at the start and when it is woken; its calls can be held up."""

    def __init__(self) -> None:
        self.entered, self.may_end = threading.Event(), threading.Event()
        self.may_end.set()

    def tick(self, now: datetime) -> float:
        self.entered.set()
        assert self.may_end.wait(PATIENCE)
        return 3_600.0


class Interrupted(threading.Thread):
    """A thread that wakes a role, and is interrupted after some instructions of `RoleThread.wake`."""

    def __init__(self, thread: RoleThread, role: Role, instructions: int) -> None:
        super().__init__()
        self._roles = thread
        self._role = role
        self._left = instructions
        self.reached, self.go_on = threading.Event(), threading.Event()

    def run(self) -> None:
        sys.settrace(self._trace)
        self._roles.wake(self._role)
        sys.settrace(None)
        self.reached.set()

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code is not RoleThread.wake.__code__:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            self._left -= 1
            if self._left == 0:
                self.reached.set()
                assert self.go_on.wait(PATIENCE)
        return self._trace


def test_no_wake_up_is_lost_wherever_another_one_is_interrupted() -> None:
    events = Events()
    blocking, first, second = roles = [Role() for _ in range(3)]
    thread = RoleThread("test", roles, lambda: datetime.now(UTC), events, Outage(events))
    thread.start()
    for role in roles:
        assert role.entered.wait(PATIENCE)
    for instructions in range(1, 60):
        for role in roles:
            role.entered.clear()
        blocking.may_end.clear()
        interrupted = Interrupted(thread, first, instructions)
        interrupted.start()
        assert interrupted.reached.wait(PATIENCE)
        thread.wake(blocking)
        assert blocking.entered.wait(PATIENCE)
        thread.wake(second)  # while the thread is in the call of `blocking`
        interrupted.go_on.set()
        interrupted.join()
        blocking.may_end.set()
        assert second.entered.wait(PATIENCE), instructions
        assert first.entered.wait(PATIENCE), instructions
    assert thread.stop(PATIENCE)
