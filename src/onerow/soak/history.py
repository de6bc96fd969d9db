"""A recorded run, arranged for the checks: tasks, bodies with their true ends, faults and limits."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from onerow.soak.records import Record

_KILLS = frozenset({"kill", "kill-host", "kill-supervisor", "kill-group"})
_STALLS = frozenset({"pause", "hold-gil", "block-loop"})
_ABOUT_TO_BEGIN = 0.25
"""Seconds after a stop in which a handler may begin whose lease was checked just before the stop."""
_OUTAGES = frozenset({"restart-store", "cut", "write-lock", "disk-full"})


@dataclass(frozen=True)
class Settings:
    """What the run promised itself: lease and bounds in seconds, phases in order, names of tasks that may fail."""

    phases: Sequence[str]
    lease: float = 30.0
    recovery: float = 3.0  # seconds after the lease within which a lost task runs again
    may_fail: frozenset[str] = frozenset()
    last_phases: frozenset[str] = frozenset()  # in which a task may be completed; by default the last one

    @property
    def last(self) -> frozenset[str]:
        return self.last_phases or frozenset({self.phases[-1]})


@dataclass
class Body:
    """One run of a handler's code. end: None if it never ended by itself. gone: when its process died, if it did."""

    task: str
    phase: str
    worker: str
    pid: int
    token: int
    attempt: int
    key: str
    begin: float
    hash: str = ""
    end: float | None = None
    outcome: str = ""
    result: str = ""
    gone: float | None = None
    stalled: list[tuple[float, float]] = field(default_factory=list)
    stale: bool = False  # begun by a worker that was stopped past its lease and had not learned it yet

    @property
    def cut_by_kill(self) -> bool:
        """Whether its process was killed before it ended."""
        return self.gone is not None and (self.end is None or self.end > self.gone)

    @property
    def last(self) -> float:
        """When its code ran for the last time; infinite if it still runs."""
        times = [time for time in (self.end, self.gone) if time is not None]
        return min(times, default=float("inf"))

    def lived_until(self, lease: float) -> float:
        """Until when its worker was alive and able to send heartbeats."""
        if self.stale:
            return self.begin
        long = [start for start, end in self.stalled if end - start >= lease * 0.5 and start < self.last]
        return min([self.last, *long])


class History:
    """The records of a run by task, and what the checks derive from them."""

    def __init__(self, records: Iterable[Record], settings: Settings) -> None:
        self.settings = settings
        self.records = sorted(records, key=lambda record: record.at)
        self.by_task: dict[str, list[Record]] = defaultdict(list)
        for record in self.records:
            if record.task:
                self.by_task[record.task].append(record)

    def of(self, *kinds: str) -> list[Record]:
        return [record for record in self.records if record.what in kinds]

    @cached_property
    def ended_at(self) -> float:
        """When the final rows were read."""
        ends = self.of("end of run")
        return ends[-1].at if ends else float("inf")

    @cached_property
    def added(self) -> dict[str, Record]:
        first: dict[str, Record] = {}
        for record in self.of("add"):
            first.setdefault(record.task, record)
        return first

    @cached_property
    def rows(self) -> dict[str, dict[str, Any]]:
        return {record.task: record.row or {} for record in self.of("row")}

    @cached_property
    def faults(self) -> list[Record]:
        return self.of("fault")

    @cached_property
    def kills(self) -> list[Record]:
        return [each for each in self.faults if each.name in _KILLS]

    @cached_property
    def stepped(self) -> set[int]:
        """The pids of workers whose clock was set wrong."""
        return {each.pid for each in self.faults if each.name == "clock-step"}

    @cached_property
    def outages(self) -> list[tuple[float, float]]:
        """Times in which the store did not answer writes."""
        return [(each.at, each.until or self.ended_at) for each in self.faults if each.name in _OUTAGES]

    def outage_between(self, start: float, end: float) -> float:
        """Return the seconds of outages between two times."""
        return sum(max(0.0, min(end, stop) - max(start, begin)) for begin, stop in self.outages)

    @cached_property
    def bodies(self) -> list[Body]:
        """All bodies in the order of their begins."""
        found: list[Body] = []
        open_bodies: dict[tuple[str, int, int], Body] = {}
        deaths: dict[int, list[float]] = defaultdict(list)
        stalls: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for fault in self.faults:
            if fault.name in _KILLS:
                deaths[fault.pid].append(fault.at)
            if fault.name in _STALLS:
                stalls[fault.pid].append((fault.at, fault.until or self.ended_at))
        for record in self.of("begin", "end"):
            name = (record.task, record.token, record.pid)
            if record.what == "begin":
                body = Body(
                    record.task, record.phase, record.worker, record.pid, record.token, record.attempt, record.key,
                    record.at, record.hash,
                )  # fmt: skip
                index = bisect_right(deaths[record.pid], record.at)
                body.gone = deaths[record.pid][index] if index < len(deaths[record.pid]) else None
                # Without a store no worker can send heartbeats.
                body.stalled = [*stalls[record.pid], *self.outages]
                body.stale = any(
                    end - start >= self.settings.lease and 0 <= body.begin - end <= _ABOUT_TO_BEGIN
                    for start, end in stalls[record.pid]
                )
                open_bodies[name] = body
                found.append(body)
            elif (body_of_end := open_bodies.get(name)) is not None:
                body_of_end.end, body_of_end.outcome, body_of_end.result = record.at, record.outcome, record.hash
        return found

    @cached_property
    def bodies_of(self) -> dict[str, list[Body]]:
        by_task: dict[str, list[Body]] = defaultdict(list)
        for body in self.bodies:
            by_task[body.task].append(body)
        return by_task

    def operations(self, task: str, *names: str) -> list[Record]:
        return [each for each in self.by_task[task] if each.what == "operation" and each.name in names]

    def entries(self, task: str) -> list[dict[str, Any]]:
        """Return the history in the final row."""
        return list(self.rows.get(task, {}).get("history", []))
