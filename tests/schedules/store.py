"""The memory store behind a simulated network: others may run before and after each call, and answers get lost."""

from collections.abc import Callable
from typing import Any

from onerow.core.errors import StoreUnavailable
from onerow.core.task import Task
from onerow.ports import Inserted, Swapped
from onerow.stores.memory import MemoryStore
from tests.schedules.world import Actor, Killed, World

PAST_LEASE = 3.5
_SLOW = (0.002, 0.05, 0.4)
_WRITES = frozenset(
    {"insert", "swap", "settle_and_claim", "claim", "extend", "remove", "append_log", "write_notes", "drop_notes"}
)
_DIRECT = frozenset({"now", "url", "prepare", "close", "check"})


class Network:
    """What all clients of the store share: whether it answers, and who waits for wake-ups."""

    def __init__(self, world: World, store: MemoryStore) -> None:
        self.world = world
        self.store = store
        self.down_until = 0.0
        self.changes = 0
        self.wakers: list[SimulatedWaker] = []
        self.inserted: Callable[[Task], None] = lambda task: None
        self.ended: Callable[[Task], None] = lambda task: None

    def call(self, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        world = self.world
        process = world.process
        if not process.alive:
            raise Killed
        if world.chance(0.05):
            world.sleep(world.dice.choice(_SLOW))
        elif name in _WRITES:  # before a read nothing has happened since the pause of the call before it
            world.pause()
        fault, process.call_fault = process.call_fault, ""
        if self.down_until > world.now or fault == "refuse":
            world.note(f"{name} is refused")
            raise StoreUnavailable("simulated outage")
        before = self.store._changes
        answer = getattr(self.store, name)(*args, **named)
        if world.trace is not None:
            world.note(f"{name}{_short(args)}")
        self._look_at(answer)
        if self.store._changes != before:
            self._wake()
        if fault == "delay":
            world.sleep(PAST_LEASE)
        elif world.chance(0.1):
            world.sleep(world.dice.choice(_SLOW))
        else:
            world.pause()
        if fault == "lose" or self.down_until > world.now:
            world.note(f"the answer of {name} is lost")
            raise StoreUnavailable("simulated: the answer is lost")
        return answer

    def _look_at(self, answer: Any) -> None:
        rows = answer[0] if isinstance(answer, tuple) else answer
        if isinstance(rows, list):
            for each in rows:
                if isinstance(each, Inserted):
                    self.inserted(each.task)
                elif isinstance(each, Swapped) and each.task.ended:
                    self.ended(each.task)

    def _wake(self) -> None:
        self.changes += 1
        for waker in self.wakers:
            if not self.world.chance(0.1):  # a lost wake-up
                waker.wake()


class Client:
    """A store as one process sees it."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def waker(self) -> "SimulatedWaker":
        return SimulatedWaker(self._network)

    def __getattr__(self, name: str) -> Any:
        if name in _DIRECT:
            return getattr(self._network.store, name)
        if name.startswith("_") or not hasattr(MemoryStore, name):
            raise AttributeError(name)
        network = self._network

        def call(*args: Any, **named: Any) -> Any:
            return network.call(name, args, named)

        self.__dict__[name] = call
        return call


class SimulatedWaker:
    """Wakes on writes to the store, unless the wake-up is lost."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._woken = False
        self._waiting: Actor | None = None
        network.wakers.append(self)

    def wait(self, timeout: float) -> bool:
        world = self._network.world
        if not self._woken:
            self._waiting = world.running
            try:
                world.sleep(timeout)
            finally:
                self._waiting = None
        woken, self._woken = self._woken, False
        return woken

    def wake(self) -> None:
        self._woken = True
        if self._waiting is not None:
            self._waiting.wake_at = min(self._waiting.wake_at, self._network.world.now)

    poke = wake

    def close(self) -> None:
        if self in self._network.wakers:
            self._network.wakers.remove(self)


def _short(args: tuple[Any, ...]) -> str:
    text = ", ".join(str(each)[:60] for each in args)
    return f"({text[:120]})"
