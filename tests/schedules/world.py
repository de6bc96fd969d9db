"""One thread, virtual time: processes are groups of greenlets, and a seed decides which of them runs next.

Code runs until it pauses: at a store call, in a sleep, at a wait. Only then may another greenlet run, a process be
killed or frozen, or time pass. The same seed gives the same run.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from greenlet import getcurrent, greenlet

NEVER = float("inf")


class Killed(BaseException):
    """Ends a greenlet of a killed process; nothing of the process runs after it."""


class Process:
    """A simulated process. `slot` is the same for all starts of one worker."""

    def __init__(self, slot: int, pid: int, name: str) -> None:
        self.slot = slot
        self.pid = pid
        self.name = name
        self.alive = True
        self.runs_at = 0.0  # frozen until then
        self.call_fault = ""  # what happens to its next store call
        self.ended: Callable[[], None] = lambda: None


class Actor:
    """One thread of control of a process."""

    __slots__ = ("done", "greenlet", "interruptible", "interruption", "name", "process", "wake_at", "world")

    def __init__(self, world: "World", process: Process, name: str, function: Callable[[], object]) -> None:
        self.world = world
        self.process = process
        self.name = name
        self.wake_at = world.now
        self.interruptible = False
        self.interruption: BaseException | None = None
        self.done = False

        def main() -> None:
            try:
                function()
            except Killed:
                pass
            finally:
                self.done = True

        self.greenlet = greenlet(main, world.hub)


class World:
    """The scheduler: who runs next, and what time it is."""

    def __init__(self, seed: int, *, calm: bool = False) -> None:
        self.dice = random.Random(seed)
        self.calm = calm  # no delays by chance, and the longest waiting runs first: for shrunk schedules
        self.now = 1.0
        self.hub = getcurrent()
        self.actors: list[Actor] = []
        self.running: Actor | None = None
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.before_step: Callable[[Actor], None] = lambda actor: None
        self.trace: list[str] | None = None

    # ── called by actors ──

    @property
    def process(self) -> Process:
        assert self.running is not None
        return self.running.process

    def monotonic(self) -> float:
        return self.now

    def pause(self) -> None:
        """Let others run."""
        actor = self.running
        assert actor is not None
        self.hub.switch()
        if not actor.process.alive:
            raise Killed

    def sleep(self, seconds: float) -> None:
        actor = self.running
        assert actor is not None
        if not actor.process.alive:
            raise Killed
        actor.wake_at = self.now + max(0.0, seconds)
        self.pause()

    def work(self, seconds: float) -> None:
        """Sleep as a handler does: a stop request ends it."""
        actor = self.running
        assert actor is not None
        actor.interruptible = True
        try:
            if actor.interruption is None:
                self.sleep(seconds)
            if actor.interruption is not None:
                raise actor.interruption
        finally:
            actor.interruptible = False

    def chance(self, share: float) -> bool:
        return not self.calm and self.dice.random() < share

    # ── called by anyone ──

    def start(self, process: Process, name: str, function: Callable[[], object]) -> Actor:
        actor = Actor(self, process, name, function)
        self.actors.append(actor)
        return actor

    def interrupt(self, actor: Actor, error: BaseException) -> None:
        actor.interruption = error
        if actor.interruptible:
            actor.wake_at = min(actor.wake_at, self.now)

    def at(self, time: float, call: Callable[[], None]) -> None:
        self.timers.append((time, call))
        self.timers.sort(key=lambda timer: timer[0], reverse=True)

    def kill(self, process: Process) -> None:
        """End a process between two of its steps."""
        process.alive = False
        if self.running is None:
            self._reap(process)  # else after the present step: only the hub may end greenlets

    def _reap(self, process: Process) -> None:
        for actor in [each for each in self.actors if each.process is process]:
            self.actors.remove(actor)
            if actor.greenlet:  # it has begun, and not ended
                actor.greenlet.throw(Killed)
        process.ended()

    def note(self, text: str) -> None:
        if self.trace is not None:
            who = "" if self.running is None else f"{self.running.process.name} {self.running.name}: "
            self.trace.append(f"{self.now:9.3f}  {who}{text}")

    # ── the loop ──

    def run(self, done: Callable[[], bool], limit: float) -> None:
        """Run until `done` or until the time limit."""
        while not done() and self.now < limit:
            while self.timers and self.timers[-1][0] <= self.now:
                self.timers.pop()[1]()
            now = self.now
            ready = [each for each in self.actors if each.wake_at <= now and each.process.runs_at <= now]
            if not ready:
                times = [max(each.wake_at, each.process.runs_at) for each in self.actors]
                if self.timers:
                    times.append(self.timers[-1][0])
                self.now = min(times, default=NEVER)
                continue
            self._step(min(ready, key=lambda actor: actor.wake_at) if self.calm else self.dice.choice(ready))

    def _step(self, actor: Actor) -> None:
        self.before_step(actor)
        if not actor.process.alive or actor.process.runs_at > self.now:
            return
        if self.calm:
            actor.wake_at = self.now  # to the end of the order
        self.running = actor
        try:
            actor.greenlet.switch()
        finally:
            self.running = None
        self._after_step(actor)

    def _after_step(self, actor: Actor) -> None:
        if not actor.process.alive:
            self._reap(actor.process)
        elif actor.done:
            self.actors.remove(actor)
        elif self.calm:
            self.actors.remove(actor)
            self.actors.append(actor)

    def close(self) -> None:
        for process in {actor.process for actor in self.actors}:
            process.ended = lambda: None
            self.kill(process)


class Event:
    """threading.Event in virtual time."""

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[Actor] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        for actor in self._waiting:
            actor.wake_at = min(actor.wake_at, actor.world.now)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float = NEVER) -> bool:
        world = current()
        actor = world.running
        assert actor is not None
        if not self._set:
            self._waiting.append(actor)
            try:
                world.sleep(timeout)
            finally:
                self._waiting.remove(actor)
        return self._set


class Lock:
    """threading.Lock for actors, which may be held during a store call."""

    def __init__(self) -> None:
        self._held = False

    def acquire(self, blocking: bool = True, timeout: float = NEVER) -> bool:
        world = current()
        until = world.now + timeout
        while self._held:
            if not blocking or world.now >= until:
                return False
            world.sleep(0.001)
        self._held = True
        return True

    def release(self) -> None:
        self._held = False

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class Thread:
    """threading.Thread as an actor of the process that starts it."""

    ident: int | None = None

    def __init__(self, *, target: Callable[[], object], name: str, daemon: bool = True) -> None:
        self._target = target
        self._name = name
        self._actor: Actor | None = None

    def start(self) -> None:
        world = current()
        self.ident = 1
        self._actor = world.start(world.process, self._name.removeprefix("onerow-"), self._target)

    def is_alive(self) -> bool:
        return self._actor is not None and not self._actor.done

    def join(self, timeout: float = NEVER) -> None:
        world = current()
        until = world.now + timeout
        while self.is_alive() and world.now < until:
            world.sleep(min(0.05, until - world.now))


_worlds: list[World] = []


def current() -> World:
    return _worlds[-1]


@contextmanager
def entered(world: World) -> Iterator[World]:
    """Make this the world whose time and threads patched modules use."""
    _worlds.append(world)
    try:
        yield world
    finally:
        world.close()
        _worlds.pop()


def monotonic() -> float:
    return current().now


def sleep(seconds: float) -> None:
    current().sleep(seconds)
