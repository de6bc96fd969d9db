"""The event loop for plans of one phase: the same answers as `real_rules.py`, without rows and without a store.

Waiting tasks are tuples (run_at, number, limit key) in the order of a claim. Without limits per key and rates, tasks
become due in this order, so that a deque holds them; else a heap does, and tasks whose key is full wait apart. A death
takes the attempts of the worker out of the events, and its slots out of the free ones, so that no entry is ever stale.
"""

from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator
from datetime import timedelta
from heapq import heapify, heappop, heappush
from random import Random

from onerow.core import rates
from onerow.core.failure import Failure
from onerow.core.rates import Window, parse_rate
from onerow.core.scaling import PhaseSignal
from onerow.core.times import since_epoch
from onerow.core.virtual_clock import START
from onerow.simulator.arrivals import NEVER
from onerow.simulator.events import DIED, DUE, ENDED, PERIOD, READY, SCALE, WAKE, Event, attempts_of, opening
from onerow.simulator.fleet import Fleet
from onerow.simulator.keys import key_stream
from onerow.simulator.measurements import FINE, Recorder, Result, bucket
from onerow.simulator.model import SimulatedPlan, millis

SOON = 60_000
"""A task that is due within this time counts for the scaling decision."""
FAILURE = Failure("the attempt fails, as the plan says")
MILLI = timedelta(milliseconds=1)
Waiting = tuple[int, int, str]
_EPOCH = since_epoch(START)


def task_id(number: int) -> str:
    """Return the id of a task; the real rules derive the jitter of a retry from it."""
    return f"{number:010d}"


class FastPath:
    """One simulation of a plan with one phase."""

    def __init__(self, plan: SimulatedPlan) -> None:
        (self._phase,) = plan.phases
        self._plan = plan
        options = self._phase.options
        self._retry = options.retry
        self._lease = millis(options.lease)
        self._per_key = options.per_key
        self._rate = parse_rate(options.rate) if options.rate else None
        self._rate_per_key = parse_rate(options.rate_per_key) if options.rate_per_key else None
        self._rated = options.rated
        self._window = Window()
        self._wake_at = -1
        scaling = plan.scaling
        self._heap = opening(plan.end, millis(plan.period), None if scaling is None else millis(scaling.every))
        self._fleet = Fleet(plan, self._heap)
        self._recorder = Recorder(plan.workers)
        self._free: deque[int] = deque()  # a worker for each free slot, the longest free one first
        self._room = NEVER if options.concurrency is None else options.concurrency
        self._in_order: deque[Waiting] = deque()
        self._any_order: list[Waiting] = []  # a heap
        self._full_keys: dict[str, list[Waiting]] = {}  # heaps of the tasks whose key is full
        self._apart = 0  # the number of those
        self._due_at: dict[int, int] = {}  # of tasks that the rate of their key has put off, before it did so
        self._put_off = 0  # those of them that are not due again yet
        self._running_by_key: dict[str, int] = {}
        self._tried: dict[int, tuple[int, int]] = {}  # retries and rescues of tasks that have any
        self._leases = 0  # attempts of dead workers, until their leases end

    def run(self) -> Result:
        """Run the simulation to its end."""
        plan, phase, heap, free, recorder = self._plan, self._phase, self._heap, self._free, self._recorder
        plain = self._per_key is None and not self._rated
        limited = phase.options.concurrency is not None
        key_of = key_stream(plan) if plan.keys else None
        waiting = self._in_order
        add = waiting.append
        take = waiting.popleft
        draw = phase.takes.draw(Random(f"{plan.seed}/takes"))
        chance = Random(f"{plan.seed}/failures").random
        failures = phase.failures
        arrivals = plan.arrivals.stream(plan.end, Random(f"{plan.seed}/arrivals"))
        arrival = next(arrivals, NEVER)
        number = serial = counted = completed = at_once = 0
        tried = self._tried
        waits = recorder.waits
        waits_get = waits.get
        scale = False
        while True:
            now = heap[0][0]
            if arrival < now:
                now = arrival
            while heap[0][0] == now:
                event = heappop(heap)
                kind = event[1]
                if kind == ENDED:
                    free.append(event[4])
                    if event[5] or not plain:
                        completed += self._ended(event, now)
                    else:
                        completed += 1
                        if limited:
                            self._room += 1
                        if tried:
                            tried.pop(event[3], None)
                elif kind == DUE:
                    self._due(event, now, plain)
                elif kind == SCALE:
                    scale = True
                elif kind == READY:
                    if self._fleet.became_ready(event[2], now):
                        free.extend([event[2]] * plan.workers.slots)
                elif kind == DIED:
                    self._died(event[2], now)
                elif kind != WAKE:  # the end of a period or of the simulation
                    counts = recorder.counts
                    counts.arrived, counted = number - counted, number
                    counts.completed, completed = completed, 0
                    counts.started = at_once + sum(waits.values())
                    if at_once:
                        waits[0] = waits_get(0, 0) + at_once
                        at_once = 0
                    self._close_period(now)
                    if kind != PERIOD:
                        return self._result()
            while arrival == now:
                key = key_of() if key_of is not None else ""
                if plain:
                    add((now, number, key))
                else:
                    heappush(self._any_order, (now, number, key))
                number += 1
                arrival = next(arrivals, NEVER)
            if plain:
                while waiting and free and (not limited or self._room > 0):
                    run_at, task, key = take()
                    if limited:
                        self._room -= 1
                    if run_at == now:
                        at_once += 1
                    else:
                        waited = now - run_at
                        if waited >= FINE:
                            waited = bucket(waited)
                        waits[waited] = waits_get(waited, 0) + 1
                    fails = failures > 0.0 and chance() < failures
                    heappush(heap, (now + draw(), ENDED, serial, task, free.popleft(), fails, key))
                    serial += 1
                if waiting:
                    if len(waiting) > recorder.most_backlog:
                        recorder.most_backlog = len(waiting)
                    if not free:
                        recorder.lacked_slots = True
            else:
                for run_at, task, key in self._admitted(now):
                    waited = bucket(now - self._due_at.pop(task, run_at))
                    waits[waited] = waits_get(waited, 0) + 1
                    fails = failures > 0.0 and chance() < failures
                    heappush(heap, (now + draw(), ENDED, serial, task, free.popleft(), fails, key))
                    serial += 1
                ready = self._ready()
                recorder.most_backlog = max(recorder.most_backlog, ready + self._put_off)
                if ready and not free:
                    recorder.lacked_slots = True
            if scale:
                scale = False
                self._scale(now)

    def _ended(self, event: Event, now: int) -> int:
        """Apply the rules to an attempt that failed, or that has a key or a rate; return 1 if the task is completed."""
        _, _, _, task, _, fails, key = event
        self._release(key)
        if not fails:
            self._tried.pop(task, None)
            return 1
        counts = self._recorder.counts
        retries, _ = self._tried.get(task, (0, 0))
        wait = self._retry.after(FAILURE, retries, task_id(task))
        if wait is None or retries >= self._retry.max_retries:
            self._tried.pop(task, None)
            counts.failed += 1
        else:
            counts.retried += 1
            self._tried[task] = (retries + 1, 0)
            heappush(self._heap, (now + wait // MILLI, DUE, task, key, False))
        return 0

    def _due(self, event: Event, now: int, plain: bool) -> None:
        """Let a task wait for a slot; one of a dead worker is rescued before, or fails after too many rescues."""
        _, _, task, key, dead = event
        if dead:
            self._leases -= 1
            self._release(key)
            retries, rescues = self._tried.get(task, (0, 0))
            if rescues >= self._retry.max_rescues:
                self._tried.pop(task, None)
                self._recorder.counts.failed += 1
                return
            self._recorder.counts.rescued += 1
            self._tried[task] = (retries, rescues + 1)
        if task in self._due_at:
            self._put_off -= 1
        if plain:
            self._in_order.append((now, task, key))
        else:
            heappush(self._any_order, (now, task, key))

    def _release(self, key: str) -> None:
        """Free the slots that a task held in the limits of the phase and of its key."""
        self._room += 1
        if self._per_key is not None and key:
            self._running_by_key[key] -= 1
            if apart := self._full_keys.get(key):
                heappush(self._any_order, heappop(apart))
                self._apart -= 1

    def _died(self, worker: int, now: int) -> None:
        if not self._fleet.died(worker, now):
            return
        self._recorder.counts.died += 1
        heap = self._heap
        lost = attempts_of(heap, worker)
        if lost:
            heap[:] = [event for event in heap if event[1] != ENDED or event[4] != worker]
            heap += [(now + self._lease, DUE, event[3], event[6], True) for event in lost]
            heapify(heap)
            self._leases += len(lost)
        self._leave({worker})

    def _leave(self, workers: Container[int]) -> None:
        kept = [worker for worker in self._free if worker not in workers]
        self._free.clear()
        self._free.extend(kept)

    # ── limits per key, and rates ──

    def _admitted(self, now: int) -> Iterator[Waiting]:
        """Claim as long as slots are free, and yield the tasks that the rates admit; the others are put off."""
        while self._any_order and self._free:
            most = len(self._free)
            if self._rate is not None:
                most = min(most, rates.starts_left(self._rate, self._window.starts, _EPOCH + now))
                if most == 0:
                    self._wake(rates.free_at(self._rate, self._window.starts, _EPOCH + now) - _EPOCH)
            claimed = self._claim(most)
            if not claimed:
                return
            if not self._rated:
                yield from claimed
                continue
            keys = [key for _, _, key in claimed]
            verdict = rates.admit(self._window_of(keys), keys, self._rate, self._rate_per_key, _EPOCH + now)
            self._window.starts = verdict.window.starts
            self._window.keys.update(verdict.window.keys)
            self._window.booked.update(verdict.window.booked)
            self._window.pace = verdict.window.pace
            for position, until in verdict.put_off:
                run_at, task, key = claimed[position]
                self._release(key)
                self._due_at.setdefault(task, run_at)
                self._put_off += 1
                heappush(self._heap, (until - _EPOCH, DUE, task, key, False))
            for position in verdict.admitted:
                yield claimed[position]

    def _window_of(self, keys: Iterable[str]) -> Window:
        """Return the recent starts with those of some keys only: with all keys, each decision would look at all."""
        window = self._window
        by_key = {key: window.keys.pop(key) for key in dict.fromkeys(keys) if key in window.keys}
        booked = {key: window.booked.pop(key) for key in dict.fromkeys(keys) if key in window.booked}
        return Window(window.starts, by_key, booked, window.pace)

    def _claim(self, most: int) -> list[Waiting]:
        """Take the first waiting tasks that the limits admit."""
        claimed: list[Waiting] = []
        waiting, per_key = self._any_order, self._per_key
        while waiting and len(claimed) < most and self._room > 0:
            first = heappop(waiting)
            key = first[2]
            if per_key is not None and key:
                running = self._running_by_key.get(key, 0)
                if running >= per_key:
                    heappush(self._full_keys.setdefault(key, []), first)
                    self._apart += 1
                    continue
                self._running_by_key[key] = running + 1
            self._room -= 1
            claimed.append(first)
        return claimed

    def _wake(self, at: int) -> None:
        if at != self._wake_at:
            self._wake_at = at
            heappush(self._heap, (at, WAKE))

    # ── figures ──

    def _waiting(self) -> Iterator[Waiting]:
        yield from self._in_order
        yield from self._any_order
        for apart in self._full_keys.values():
            yield from apart

    def _ready(self) -> int:
        return len(self._in_order) + len(self._any_order) + self._apart

    def _close_period(self, now: int) -> None:
        fleet = self._fleet
        self._recorder.close_period(
            now,
            backlog=self._ready() + self._put_off,
            running=self._leases + sum(event[1] == ENDED for event in self._heap),
            workers=len(fleet.ready),
            starting=len(fleet.starting),
            paid=fleet.paid(now),
        )

    def _result(self) -> Result:
        plan = self._plan
        still = Counter(bucket(plan.end - run_at) for run_at, task, _ in self._waiting() if task not in self._due_at)
        still += Counter(bucket(plan.end - due_at) for due_at in self._due_at.values())
        return self._recorder.result(
            plan.name, plan.seed, "fast path", plan.end, still, reached_maximum=self._fleet.reached_maximum
        )

    def _scale(self, now: int) -> None:
        running: dict[int, int] = {}
        leases, soon = self._leases, 0
        for event in self._heap:
            if event[1] == ENDED:
                running[event[4]] = running.get(event[4], 0) + 1
                leases += 1
            elif event[1] == DUE and not event[4] and event[0] <= now + SOON:
                soon += 1
        options = self._phase.options
        signal = PhaseSignal(
            pipeline=self._plan.name,
            phase=options.name,
            ready=self._ready(),
            soon=soon,
            running=leases,
            limit=options.concurrency,
            startable=self._startable(now),
            limited_by="rate" if self._rated else "key",
            run_for=self._phase.takes.mean / 1000,
        )
        leaving = self._fleet.scale(now, (signal,), running)
        if leaving:
            self._leave(set(leaving))

    def _startable(self, now: int) -> int | None:
        """Return how many waiting tasks limits per key and the rate would let start; None without such limits."""
        found: int | None = None
        if self._per_key is not None:
            waiting = Counter(key for _, _, key in self._waiting())
            running = self._running_by_key
            found = sum(
                min(count, max(0, self._per_key - running.get(key, 0))) if key else count
                for key, count in waiting.items()
            )
        if self._rate is not None:
            left = rates.starts_left(self._rate, self._window.starts, _EPOCH + now)
            found = left if found is None else min(found, left)
        return found
