"""The simulation with the real rules: rows in a memory store on a virtual clock, real claims, limits, rates and retries.

Only time and chance are simulated: when a task arrives, how long its attempt takes, whether it fails, and when a worker
starts or dies. The loop is the same for every number of phases; `fast_path.py` gives the same answers for one phase.
"""

from collections import Counter, deque
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush
from random import Random

from onerow.core import rules
from onerow.core.addition import Addition, new_task
from onerow.core.filters import Filter
from onerow.core.rules.attempts import Done, Failed
from onerow.core.scaling import PhaseSignal
from onerow.core.slots import PhaseSlots
from onerow.core.status import COMPLETED, FAILED, PROCESSING, WAITING
from onerow.core.task import Task
from onerow.core.virtual_clock import START, VirtualClock
from onerow.engine.control.rates import Rates, give_back
from onerow.ports import Claim, Lease, Move, PhaseClaim, Swapped
from onerow.simulator.arrivals import NEVER
from onerow.simulator.events import DIED, DUE, END, ENDED, PERIOD, READY, SCALE, WAKE, Event, attempts_of, opening
from onerow.simulator.fast_path import FAILURE, MILLI, SOON, task_id
from onerow.simulator.fleet import Fleet
from onerow.simulator.keys import key_stream
from onerow.simulator.measurements import Recorder, Result, bucket
from onerow.simulator.model import Phase, SimulatedPlan, millis
from onerow.stores.memory import MemoryStore

_BY = "simulated"
_ALL = 1 << 40


class RealRules:
    """One simulation of a plan."""

    def __init__(self, plan: SimulatedPlan) -> None:
        self._plan = plan
        self._pipeline = plan.pipeline
        self._clock = VirtualClock()
        self._store = MemoryStore(self._clock)
        self._rates = Rates(self._store)
        self._phases = {phase.name: phase for phase in plan.phases}
        self._order = deque(plan.phases)  # of the next claim: round robin, as a worker claims
        takes = Random(f"{plan.seed}/takes")
        self._draw = {phase.name: phase.takes.draw(takes) for phase in plan.phases}
        self._chance = Random(f"{plan.seed}/failures").random
        self._key_of = key_stream(plan)
        scaling = plan.scaling
        self._heap = opening(plan.end, millis(plan.period), None if scaling is None else millis(scaling.every))
        self._fleet = Fleet(plan, self._heap)
        self._recorder = Recorder(plan.workers)
        self._free: deque[int] = deque()  # a worker for each free slot, the longest free one first
        self._held: dict[str, Task] = {}  # as claimed
        self._serial = 0
        self._added = 0
        self._backlog = 0  # tasks that are due and not started
        self._due_at: dict[str, int] = {}  # of tasks that the rate of their key has put off, before it did so
        self._put_off = 0  # those of them that are not due again yet
        self._wakes: set[int] = set()

    def run(self) -> Result:
        """Run the simulation to its end."""
        plan, heap = self._plan, self._heap
        arrivals = plan.arrivals.stream(plan.end, Random(f"{plan.seed}/arrivals"))
        arrival = next(arrivals, NEVER)
        while True:
            now = min(heap[0][0], arrival)
            self._clock.to(START + now * MILLI)
            scale = False
            while heap[0][0] == now:
                event = heappop(heap)
                match event[1]:
                    case kind if kind in (PERIOD, END):
                        self._close_period(now)
                        if kind == END:
                            return self._result()
                    case kind if kind == ENDED:
                        self._ended(event, now)
                    case kind if kind == DUE:
                        if not event[4] or self._rescue(event[3]):
                            self._backlog += 1
                            self._put_off -= event[3] in self._due_at
                    case kind if kind == READY:
                        if self._fleet.became_ready(event[2], now):
                            self._free.extend([event[2]] * plan.workers.slots)
                    case kind if kind == DIED:
                        self._died(event[2], now)
                    case kind if kind == SCALE:
                        scale = True
            while arrival == now:
                self._add()
                arrival = next(arrivals, NEVER)
            while self._claim(now):
                pass
            self._recorder.most_backlog = max(self._recorder.most_backlog, self._backlog + self._put_off)
            if self._backlog and not self._free:
                self._recorder.lacked_slots = True
            if scale:
                self._scale(now)

    # ── tasks ──

    def _add(self) -> None:
        now = self._store.now()
        given = Addition(limit_key=self._key_of())
        self._store.insert([new_task(self._pipeline, given, "null", task_id(self._added), now, None)])
        self._added += 1
        self._backlog += 1
        self._recorder.counts.arrived += 1

    def _claim(self, now: int) -> bool:
        """Claim tasks for the free slots and start those that the rates admit; return whether another claim may follow."""
        if not self._free:
            return False
        moment = self._store.now()
        wants = []
        for phase in self._order:
            options = phase.options
            limit = len(self._free)
            left = self._rates.starts_left(self._plan.name, options, moment)
            if left is not None:
                limit = min(limit, left)
                if left == 0:
                    self._wake(self._rates.free_at(self._plan.name, options, moment))
            if limit:
                wants.append(
                    PhaseClaim(
                        pipeline=self._plan.name,
                        phase=phase.name,
                        limit=limit,
                        lease_for=options.lease,
                        slots=options.concurrency,
                        key_slots=options.per_key,
                    )
                )
        self._order.rotate(-1)
        tasks = self._store.claim(Claim(_BY, wants, None, len(self._free)))
        self._backlog -= len(tasks)
        for phase in self._plan.phases:
            self._begin(phase, [task for task in tasks if task.phase == phase.name], now)
        return bool(tasks)

    def _begin(self, phase: Phase, tasks: list[Task], now: int) -> None:
        if phase.options.rated and tasks:
            tasks, put_off = self._rates.admit(self._plan.name, phase.options, tasks)
            for task, until in put_off:
                self._swap(give_back(task, until, self._store.now(), _BY))
                at = now if until is None else self._millis(until)
                heappush(self._heap, (at, DUE, int(task.task_id), task.task_id, False))
                self._due_at.setdefault(task.task_id, self._millis(task.run_at))
                self._put_off += 1
        for task in tasks:
            waited = bucket(now - self._due_at.pop(task.task_id, self._millis(task.run_at)))
            waits = self._recorder.waits
            waits[waited] = waits.get(waited, 0) + 1
            self._recorder.counts.started += 1
            fails = phase.failures > 0 and self._chance() < phase.failures
            self._held[task.task_id] = task
            ends_at = now + self._draw[phase.name]()
            heappush(self._heap, (ends_at, ENDED, self._serial, task.task_id, self._free.popleft(), fails))
            self._serial += 1

    def _ended(self, event: Event, now: int) -> None:
        _, _, _, held, worker, fails = event
        self._free.append(worker)
        task = self._held.pop(held)
        outcome = Failed(FAILURE) if fails else Done()
        after = rules.decide(task, self._pipeline, outcome, self._store.now(), _BY)
        assert after is not None
        self._swap(Move(task, after))
        if after.status is WAITING:
            if fails:
                self._recorder.counts.retried += 1
            heappush(self._heap, (self._millis(after.run_at), DUE, int(held), held, False))

    def _rescue(self, held: str) -> bool:
        """Rescue the task of a dead worker; return whether it waits again, and has not failed."""
        task = self._held.pop(held)
        after = rules.rescue(task, self._store.now(), by=_BY, plan=self._pipeline)
        self._swap(Move(task, after, if_dead=True))
        if after.status is not WAITING:
            return False
        self._recorder.counts.rescued += 1
        return True

    def _swap(self, move: Move) -> None:
        """Write a task; one that has ended is counted and removed, so that memory is bounded."""
        (answer,) = self._store.swap([move])
        assert isinstance(answer, Swapped)
        if answer.task.status is COMPLETED:
            self._recorder.counts.completed += 1
        if answer.task.status is FAILED:
            self._recorder.counts.failed += 1
        if answer.task.ended:
            self._store.remove([answer.task])

    # ── workers ──

    def _died(self, worker: int, now: int) -> None:
        """Lose a worker: its leases end one lease after its last heartbeat, which was now."""
        if not self._fleet.died(worker, now):
            return
        self._recorder.counts.died += 1
        lost = attempts_of(self._heap, worker)
        self._heap[:] = [event for event in self._heap if event[1] != ENDED or event[4] != worker]
        for event in lost:
            task = self._held[event[3]]
            lease = self._phases[task.phase].options.lease
            self._store.extend([Lease(task.task_id, task.token)], lease)
            self._held[event[3]] = self._store.fetch([task.task_id])[0]
            self._heap.append((now + millis(lease), DUE, int(task.task_id), task.task_id, True))
        heapify(self._heap)
        self._leave({worker})

    def _leave(self, workers: set[int]) -> None:
        self._free = deque(worker for worker in self._free if worker not in workers)

    def _scale(self, now: int) -> None:
        running = Counter(event[4] for event in self._heap if event[1] == ENDED)
        leaving = self._fleet.scale(now, tuple(self._signal(phase) for phase in self._plan.phases), running)
        self._leave(set(leaving))

    def _signal(self, phase: Phase) -> PhaseSignal:
        now, options = self._store.now(), phase.options
        ready = self._store.due(self._plan.name, phase.name, now, _ALL)
        in_a_minute = self._store.due(self._plan.name, phase.name, now + timedelta(milliseconds=SOON), _ALL)
        running = self._running(phase)
        startable: int | None = None
        if options.per_key is not None:
            slots = PhaseSlots(None, options.per_key, [(task.limit_key, task.slot, task.key_slot) for task in running])
            startable = sum(slots.take(task.limit_key) is not None for task in ready)
        left = self._rates.starts_left(self._plan.name, options, now)
        if left is not None:
            startable = left if startable is None else min(startable, left)
        return PhaseSignal(
            pipeline=self._plan.name,
            phase=phase.name,
            ready=len(ready),
            soon=len(in_a_minute) - len(ready),
            running=len(running),
            limit=options.concurrency,
            startable=startable,
            limited_by="rate" if options.rated else "key",
            run_for=phase.takes.mean / 1000,
        )

    def _running(self, phase: Phase) -> list[Task]:
        where = Filter(
            pipeline=self._plan.name, phases=frozenset({phase.name}), statuses=frozenset({PROCESSING}), parked=False
        )
        return self._store.find(where, limit=_ALL).tasks

    # ── figures ──

    def _close_period(self, now: int) -> None:
        fleet = self._fleet
        self._recorder.close_period(
            now,
            backlog=self._backlog + self._put_off,
            running=len(self._held),
            workers=len(fleet.ready),
            starting=len(fleet.starting),
            paid=fleet.paid(now),
        )

    def _due_before(self, now: int) -> list[Task]:
        """Return the tasks that became due before this instant and have not started."""
        moment = START + (now - 1) * MILLI
        return [
            task for phase in self._plan.phases for task in self._store.due(self._plan.name, phase.name, moment, _ALL)
        ]

    def _result(self) -> Result:
        plan = self._plan
        still = Counter(
            bucket(plan.end - self._millis(task.run_at))
            for task in self._due_before(plan.end)
            if task.task_id not in self._due_at
        )
        still += Counter(bucket(plan.end - due_at) for due_at in self._due_at.values())
        return self._recorder.result(
            plan.name, plan.seed, "real rules", plan.end, still, reached_maximum=self._fleet.reached_maximum
        )

    def _wake(self, moment: datetime) -> None:
        at = self._millis(moment)
        if at not in self._wakes:
            self._wakes.add(at)
            heappush(self._heap, (at, WAKE))

    def _millis(self, moment: datetime) -> int:
        return (moment - START) // MILLI
