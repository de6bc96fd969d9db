"""A program that pulls for a long time, without a worker: what it holds stays alive, what others dropped comes back."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from onerow.core.durations import Duration, parse_duration
from onerow.core.errors import StoreUnavailable
from onerow.core.pipeline import Pipeline
from onerow.engine.heartbeat import Heartbeat
from onerow.engine.pull import Leased, hand_back

if TYPE_CHECKING:
    from onerow.engine.queue import Queue

LONG_DEAD = 20
"""A lease that ended so many leases ago is dead, whoever looks: for programs that don't live for a whole lease."""


class Puller:
    """Claims tasks of one phase and holds them until they are settled or it is closed.

    Each claim first gives back what dead holders of the pipeline left. As a worker's rescuer, it does so only after it
    has itself seen the store up for one whole lease: after an outage live holders need the time to beat. So from its
    first claim on its heartbeat goes on, whether or not it holds anything.
    """

    def __init__(
        self,
        queue: "Queue",
        pipeline: Pipeline | str,
        phase: str | None = None,
        *,
        lease_for: Duration = timedelta(seconds=30),
        worker: str = "",
    ) -> None:
        self.worker = worker or f"pull-{uuid4().hex[:12]}"
        self._queue = queue
        self._pipeline = pipeline
        self._phase = phase
        self._lease_for = parse_duration(lease_for, "lease_for")
        self._sight = Sight(self._lease_for)
        self._heartbeat = Heartbeat(queue.store, self._lease_for, told=self._sight.told)
        self._leases: dict[str, Leased] = {}

    @property
    def held(self) -> Mapping[str, Leased]:
        """What is in our hands, by task id."""
        self._leases = {key: lease for key, lease in self._leases.items() if not lease.settled and not lease.lost}
        return self._leases

    def claim(self, limit: int = 1, *, ids: Sequence[str] | None = None) -> list[Leased]:
        """Due tasks, now ours; see `Queue.claim`."""
        try:
            self._rescue()
            leases = self._queue.claim(
                self._pipeline, self._phase, limit=limit, ids=ids, lease_for=self._lease_for, worker=self.worker
            )
        except StoreUnavailable:
            self._sight.told(False)
            raise
        self._sight.told(True)
        self.held  # noqa: B018  (forgets what is settled, so that a program that runs for years holds only what it holds)
        self._leases |= {lease.task.task_id: lease for lease in leases}
        self._heartbeat.add(leases)
        return list(leases)

    def _rescue(self) -> None:
        name = self._pipeline if isinstance(self._pipeline, str) else self._pipeline.name
        ended_for = timedelta(0) if self._sight.lasts else LONG_DEAD * self._lease_for
        self._queue.rescue(name, ended_for=ended_for, by=self.worker)

    def close(self) -> None:
        """Hand back what was not settled."""
        self._heartbeat.stop()
        hand_back(self.held.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Sight:
    """For how long we have seen the store up, without a gap as long as a lease."""

    def __init__(self, lease_for: timedelta, clock: Any = monotonic) -> None:
        self._lease = lease_for.total_seconds()
        self._clock = clock
        self._since: float | None = None
        self._last = 0.0

    def told(self, answered: bool) -> None:
        """The store answered, or it did not."""
        now = self._clock()
        if not answered:
            self._since = None
        elif self._since is None or now - self._last > self._lease:
            self._since = now  # nobody can vouch for what was before
        self._last = now

    @property
    def lasts(self) -> bool:
        """Whether it has lasted for a whole lease, until now."""
        now = self._clock()
        return self._since is not None and now - self._last <= self._lease and now - self._since >= self._lease
