"""Lease observation: when a lease counts as ended, with clocks controlled by the test."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from onerow import Pipeline, Queue, Status, Task
from onerow.core.errors import StoreUnavailable
from onerow.engine.queue.lease_watch import LeaseWatch
from onerow.engine.worker.roles.sweeps import Rescuer
from onerow.identity import Identity
from onerow.ports import Held, Lease, LeaseRecord, Lost
from onerow.stores.memory import MemoryStore

LEASE = timedelta(seconds=30)

posts = Pipeline("posts")


@posts.phase(lease=LEASE)
def publish(job: object) -> None: ...


class World:
    """A store with a holder and a rescuer, and separate wall and monotonic clocks."""

    def __init__(self) -> None:
        self.monotonic = 1_000.0
        self._wall = datetime(2026, 1, 1, tzinfo=UTC)
        self.store = Shaky(clock=lambda: self._wall, wait=self.forward)
        self.queue = Queue(self.store)
        self.queue.publish(posts)
        self.ours: set[str] = set()
        self.watch = self.another_watch()

    def another_watch(self) -> LeaseWatch:
        return LeaseWatch(
            self.store,
            lambda pipeline, phase: LEASE,
            LEASE,
            is_ours=lambda record: record.task_id in self.ours,
            clock=lambda: self.monotonic,
        )

    def forward(self, seconds: float) -> None:
        self.monotonic += seconds
        self._wall += timedelta(seconds=seconds)

    def step_wall_clock(self, seconds: float) -> None:
        self._wall += timedelta(seconds=seconds)

    def held(self, worker: str = "holder", lease_for: timedelta = LEASE) -> Task:
        self.queue.add(posts)
        (lease,) = self.queue.claim(posts, lease_for=lease_for, worker=worker)
        return lease.task

    def beat(self, task: Task) -> None:
        assert isinstance(self.store.extend([Lease(task.task_id, task.token)], LEASE)[0], Held)

    def look(self) -> list[str]:
        return [record.task_id for record in self.watch.look(self.store.now())]

    def ended_within(self, seconds: float, beating: Task | None = None) -> float | None:
        """Look once a second; return the seconds after which a lease has ended, None if it did not."""
        for second in range(int(seconds) + 1):
            if beating is not None and second % 10 == 0:
                self.beat(beating)
            if self.look():
                return second
            self.forward(1)
        return None


class Shaky(MemoryStore):
    """A store that can be unavailable, or make writers wait."""

    def __init__(self, *, clock: Callable[[], datetime], wait: Callable[[float], None]) -> None:
        super().__init__(clock=clock)
        self._wait = wait
        self.is_away = False
        self.locked_for = 0.0
        self.heartbeats = 0

    def leases(self, *, pipeline: str | None = None, phase: str | None = None, limit: int) -> list[LeaseRecord]:
        if self.is_away:
            raise StoreUnavailable("gone")
        return super().leases(pipeline=pipeline, phase=phase, limit=limit)

    def extend(self, leases: object, lease_for: timedelta) -> list[Held | Lost]:
        self.heartbeats += 1
        waited, self.locked_for = self.locked_for, 0.0
        self._wait(waited)
        return super().extend(leases, lease_for)  # type: ignore[arg-type]


@pytest.fixture
def world() -> World:
    return World()


def test_p9_a_lease_seen_from_its_start_has_ended_at_most_three_seconds_after_its_end(world: World) -> None:
    for late in (0.0, 0.3, 0.999):
        world.look()
        world.forward(late)
        world.held()  # the holder dies here
        world.forward(1 - late)
        ended = world.ended_within(60)
        assert ended is not None
        assert LEASE.total_seconds() <= ended + 1 - late <= LEASE.total_seconds() + 3
        world.queue.rescue()


def test_p9_a_rescuer_gives_the_task_back_at_most_three_seconds_after_the_lease_ended(world: World) -> None:
    rescuer = Rescuer(world.store, Identity.of_this_process(), world.queue.events, world.watch)
    rescuer.tick(world.store.now())
    task = world.held()
    assert task.leased_until is not None
    while world.queue.get(task.task_id).status is Status.PROCESSING:
        assert world.store.now() <= task.leased_until + timedelta(seconds=3)
        world.forward(rescuer.tick(world.store.now()))
    assert world.store.now() >= task.leased_until


def test_a_lease_that_is_extended_has_not_ended(world: World) -> None:
    task = world.held()
    assert world.ended_within(300, beating=task) is None


@pytest.mark.parametrize("step", [60.0, 3600.0, 86400.0 * 365])
def test_a_clock_that_steps_forward_ends_no_lease(world: World, step: float) -> None:
    task = world.held()
    assert world.ended_within(5) is None
    world.step_wall_clock(step)
    assert world.ended_within(20) is None
    assert world.ended_within(120, beating=task) is None


def test_a_clock_that_is_ahead_of_the_holders_ends_no_lease(world: World) -> None:
    task = world.held()
    for _ in range(10):
        world.look()
        world.beat(task)
        for _ in range(10):
            world.forward(1)
            world.step_wall_clock(3600)
            assert world.look() == []
            world.step_wall_clock(-3600)


def test_a_lease_longer_than_its_phases_default_is_observed_for_its_own_length(world: World) -> None:
    world.held(lease_for=timedelta(minutes=5))
    world.look()
    world.step_wall_clock(3600)
    assert world.ended_within(290) is None
    assert world.ended_within(20) is not None


def test_a_rescuer_that_starts_late_observes_for_a_whole_lease(world: World) -> None:
    world.held()
    world.forward(3600)
    ended = world.ended_within(60)
    assert ended is not None
    assert ended >= LEASE.total_seconds()


def test_a_lease_of_the_rescuer_itself_has_not_ended(world: World) -> None:
    task = world.held()
    world.ours.add(task.task_id)
    assert world.ended_within(300) is None


def test_time_in_which_the_store_did_not_answer_is_not_observed(world: World) -> None:
    task = world.held()
    assert world.ended_within(9) is None
    world.store.is_away = True
    for _ in range(600):
        with pytest.raises(StoreUnavailable):
            world.look()
        world.forward(1)
    world.store.is_away = False
    assert world.ended_within(15) is None, "the holder has not had time to reconnect"
    assert world.ended_within(120, beating=task) is None


def test_repeated_outages_delay_a_rescue_and_do_not_prevent_it(world: World) -> None:
    world.held()
    for second in range(180):
        world.store.is_away = second % 3 == 0
        try:
            if world.look():
                break
        except StoreUnavailable:
            pass
        world.forward(1)
    else:
        raise AssertionError("the lease never ended")
    assert second >= LEASE.total_seconds()


def test_time_in_which_the_store_was_not_writable_is_not_observed(world: World) -> None:
    task = world.held()
    assert world.ended_within(14) is None
    world.store.locked_for = 600.0  # the next write waits; reads are answered
    assert world.ended_within(14) is None, "a heartbeat that waited as well has had no chance yet"
    assert world.store.locked_for == 0.0, "the rescuer waited as well"
    assert world.ended_within(120, beating=task) is None


def test_no_write_is_tried_while_every_holder_extends_in_time(world: World) -> None:
    task = world.held()
    assert world.ended_within(100, beating=task) is None
    assert world.store.heartbeats == 11, "the holder's own"


def test_a_gap_in_which_all_processes_were_stopped_ends_no_lease(world: World) -> None:
    """A paused container: its processes stop, and the monotonic clock goes on."""
    task = world.held()
    assert world.ended_within(9) is None
    world.forward(3600)
    assert world.look() == []
    assert world.ended_within(120, beating=task) is None


def test_only_leases_that_are_in_force_are_remembered(world: World) -> None:
    for _ in range(20):
        world.held()
    world.look()
    assert len(world.watch._observations) == 20
    for task in world.queue.find().tasks:
        world.queue.store.remove([task])
    world.look()
    assert world.watch._observations == {}
