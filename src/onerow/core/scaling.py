"""How many workers the work needs: one pure function from a signal, settings and a state to a decision with its reason.

Times are seconds since 1970, because a state is stored as JSON and a simulation has no dates.

Three modes. `leases`: a slot for each running task and for each task that can start now. `inflight` and `visible`: the
formulas of message queues, ceil(visible / slots) plus the messages in flight, or plus a warm pool. In every mode a busy
worker is kept, and workers go only after the surplus has lasted.
"""

from math import ceil
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from onerow.core.errors import BadInput

Mode = Literal["leases", "inflight", "visible"]
Outcome = Literal["scale_out", "hold", "scale_in", "at_max"]

DEFAULT_SLOTS = 16
"""The concurrency of a worker that was started without --concurrency."""
MOST = 10_000
"""The most workers, and the most slots of one: what they could run together is counted, and must fit a store's limit."""


class PhaseSignal(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one phase."""

    pipeline: str
    phase: str
    ready: int = 0  # due and not parked
    soon: int = 0  # due within the next minute
    running: int = 0  # leases
    ahead: int = 0  # of these: claimed ahead by live workers, and in no slot until one of their slots is free
    per_slot: int = 1  # tasks that one slot runs together: of a batch
    limit: int | None = None  # of running tasks, over all workers
    startable: int | None = None  # how many more limits per key and rates allow; None: they don't apply
    capped: bool = False  # there may be more than `ready` and `soon`: they were counted up to a bound
    paused: bool = False
    limited_by: str = ""  # what `startable` comes from: 'key' or 'rate'
    run_for: float | None = None  # mean seconds of an attempt, if known
    oldest_for: float | None = None  # seconds since the oldest ready task became due

    @property
    def runnable(self) -> int:
        """How many more tasks could run now if there were slots; backlog behind a limit is not among them."""
        if self.paused:
            return 0
        count = self.ready + self.soon
        if self.limit is not None:
            count = min(count, max(0, self.limit - self.running))
        return count if self.startable is None else min(count, self.startable)

    @property
    def held_back_by(self) -> str:
        """What keeps ready tasks from running: 'paused', 'concurrency', 'key', 'rate', or '' if nothing does."""
        waiting = self.ready + self.soon
        if waiting == self.runnable:
            return ""
        if self.paused:
            return "paused"
        return (
            "concurrency" if self.limit is not None and self.limit - self.running <= self.runnable else self.limited_by
        )

    @property
    def slots_used(self) -> int:
        """The slots that its leases use: a batch uses one, a task claimed ahead none."""
        return ceil(max(0, self.running - self.ahead) / self.per_slot)

    def more_slots(self, target_wait: float | None) -> int:
        """Return how many slots it needs beyond those that it uses, to start its backlog in time."""
        more = ceil(self.runnable / self.per_slot)
        if target_wait and self.run_for is not None and not self.capped:
            # Leases that end free their slots: in `target_wait` seconds a slot starts target_wait / run_for batches.
            in_time = ceil(ceil((self.ready + self.soon) / self.per_slot) * self.run_for / target_wait)
            more = min(more, max(0, in_time - self.slots_used))
        return more


class WorkerSignal(msgspec.Struct, frozen=True):
    """One live worker process."""

    name: str
    slots: int
    running: int = 0  # leases
    draining: bool = False  # it claims nothing more and leaves


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about the work and the workers at one moment."""

    at: float
    phases: tuple[PhaseSignal, ...] = ()
    workers: tuple[WorkerSignal, ...] = ()
    current: int | None = (
        None  # workers wanted until now, as the applier knows it; None: the live ones that don't drain
    )
    upkeep: int = 0  # due work that needs a worker but no slot: waits that end, schedules, leases to rescue
    messages_visible: int = 0  # of a message queue, which are no rows yet
    messages_inflight: int = 0

    @property
    def ready(self) -> int:
        return sum(phase.ready for phase in self.phases)

    @property
    def soon(self) -> int:
        return sum(phase.soon for phase in self.phases)

    @property
    def running(self) -> int:
        return sum(phase.running for phase in self.phases)

    @property
    def slots_used(self) -> int:
        return sum(phase.slots_used for phase in self.phases)

    def more_slots(self, target_wait: float | None) -> int:
        """Return how many slots the backlogs of all phases need beyond those that are used."""
        return sum(phase.more_slots(target_wait) for phase in self.phases)

    @property
    def runnable(self) -> int:
        return sum(phase.runnable for phase in self.phases)

    @property
    def visible(self) -> int:
        """Work that waits and can run: messages that are no rows yet, and runnable rows."""
        return self.messages_visible + self.runnable

    @property
    def inflight(self) -> int:
        """Work under way. A lease counts though its message may be deleted; a message in flight may be one with a lease."""
        return max(self.messages_inflight, self.running)

    @property
    def busy(self) -> int:
        """The number of workers that hold leases and don't drain."""
        return sum(worker.running > 0 and not worker.draining for worker in self.workers)

    @property
    def count(self) -> int:
        """The number of workers wanted until now."""
        return sum(not worker.draining for worker in self.workers) if self.current is None else self.current


class ScaleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator wants. Times are in seconds."""

    slots: int = DEFAULT_SLOTS  # concurrent tasks of one worker
    minimum: int = 0
    maximum: int = 8
    warm_pool: int = 0  # workers kept beyond the need
    target_wait: float | None = None  # how long a ready task may wait; None: each gets a slot at once
    scale_out_cooldown: float = 0.0  # after scaling out, until the next scale-out
    scale_in_cooldown: float = 60.0  # after any change, until the next scale-in
    scale_in_after: float = 600.0  # how long the surplus (or zero, in the modes of message queues) must last
    mode: Mode = "leases"

    def __post_init__(self) -> None:
        for field, least in (("slots", 1), ("minimum", 0), ("maximum", 1), ("warm_pool", 0)):
            if not least <= getattr(self, field) <= MOST:
                raise BadInput(f"{field} is {getattr(self, field)}; it must be from {least} to {MOST:,}", field=field)
        if self.maximum < self.minimum:
            raise BadInput(
                f"maximum {self.maximum} is below minimum {self.minimum}", fix="raise the maximum", field="maximum"
            )
        for field in ("target_wait", "scale_out_cooldown", "scale_in_cooldown", "scale_in_after"):
            value = getattr(self, field)
            if value is not None and not 0 <= value < float("inf"):
                raise BadInput(f"{field} is {value}; it must be 0 or more seconds", field=field)

    @property
    def most_slots(self) -> int:
        """Up to how many runnable tasks are worth counting: one more than all workers have slots shows `at_max`."""
        return self.maximum * self.slots + 1


class ScaleState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a decision leaves for the next one."""

    zero_since: float | None = None  # nothing visible and nothing in flight since then
    surplus_since: float | None = None  # fewer workers would have been enough since then …
    surplus_need: int = 0  # … and this is the largest need in that time
    scaled_out_at: float | None = None
    scaled_in_at: float | None = None


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """How many workers there should be, why, and everything that it was decided from."""

    decision: Outcome
    workers: int
    raw: int  # the need before minimum, maximum and cool-downs
    backlog_add: int  # workers for the backlog alone
    why: str
    signal: Signal
    settings: ScaleSettings
    before: ScaleState
    state: ScaleState  # pass it to the next decision

    def fields(self, prefix: str) -> dict[str, Any]:
        """Return the fields of a queue-depth function's answer, named after a prefix such as `video`."""
        zero_since = self.state.zero_since
        return {
            f"{prefix}_visible": self.signal.visible,
            f"{prefix}_inflight": self.signal.inflight,
            f"{prefix}_backlog_add": self.backlog_add,
            f"{prefix}_desired_raw": self.raw,
            f"{prefix}_new_desired": self.workers,
            f"{prefix}_decision": self.decision,
            "stable_zero_since_epoch": None if zero_since is None else int(zero_since),
        }

    def answer(self) -> dict[str, Any]:
        """Return the decision as JSON for `/scale`; `desired_workers` is above 0 while a lease exists."""
        oldest = [phase.oldest_for for phase in self.signal.phases if phase.oldest_for is not None]
        return {
            "desired_workers": self.workers,
            "decision": self.decision,
            "workers": self.signal.count,
            "busy": self.signal.busy,
            "running": self.signal.running,
            "ready": self.signal.ready,
            "ready_soon_60s": self.signal.soon,
            "runnable": self.signal.runnable,
            "oldest_ready_age_s": round(max(oldest), 1) if oldest else None,
            "slots_per_worker": self.settings.slots,
            "minimum": self.settings.minimum,
            "maximum": self.settings.maximum,
            "why": self.why,
            "phases": {
                f"{phase.pipeline}.{phase.phase}": {
                    "ready": phase.ready,
                    "running": phase.running,
                    "runnable": phase.runnable,
                    "limit": phase.limit,
                    "limited_by": phase.held_back_by,
                }
                for phase in self.signal.phases
            },
        }


def decide(signal: Signal, settings: ScaleSettings, state: ScaleState) -> Decision:
    """Return how many workers there should be.

    Never fewer than the busy ones; never more than the maximum, unless more are busy, because none of them is stopped;
    with more ready tasks never fewer; and with a constant signal it changes in one direction only.
    """
    raw, backlog_add, reason = _need(signal, settings)
    # A lease without a live worker must be rescued, and needs one worker for that in every mode.
    kept = max(settings.minimum, signal.busy, 1 if signal.inflight or signal.upkeep else 0)
    wanted = max(min(raw, settings.maximum), kept)
    idle = signal.visible == 0 and signal.inflight == 0
    zero_since = signal.at if state.zero_since is None else state.zero_since
    state_now = replace(state, zero_since=zero_since if idle else None)
    if signal.count > max(settings.maximum, signal.busy):
        state_now = replace(state_now, scaled_in_at=signal.at, surplus_since=None, surplus_need=0)
        change = _Change(
            "scale_in", max(settings.maximum, signal.busy), f"the maximum is {settings.maximum}", state_now
        )
    elif wanted >= signal.count:
        change = _grow(signal, settings, state_now, wanted, kept, at_max=raw > settings.maximum)
    else:
        change = _shrink(signal, settings, state_now, wanted)
    least = f", at least {settings.minimum}" if settings.minimum > raw else ""
    return Decision(
        decision=change.decision,
        workers=change.workers,
        raw=raw,
        backlog_add=backlog_add,
        why=f"{reason}{least}; {signal.count} now{', ' if change.why else ''}{change.why}.",
        signal=signal,
        settings=settings,
        before=state,
        state=change.state,
    )


def restricted(decision: Decision, workers: int) -> Decision:
    """Return the decision with the number of workers that their group allows, because its platform refuses any other.

    More workers may be busy than the group may have, or it may have none.
    """
    if workers == decision.workers:
        return decision
    signal, before = decision.signal, decision.before
    outcome: Outcome = "scale_out" if workers > signal.count else "scale_in"
    if workers == signal.count:
        outcome = "at_max" if decision.workers > workers else "hold"
    state = replace(
        decision.state,
        scaled_out_at=signal.at if outcome == "scale_out" else before.scaled_out_at,
        scaled_in_at=signal.at if outcome == "scale_in" else before.scaled_in_at,
    )
    why = f"{decision.why} The group itself allows {workers}."
    return replace(decision, decision=outcome, workers=workers, why=why, state=state)


class _Change(NamedTuple):
    decision: Outcome
    workers: int
    why: str
    state: ScaleState


def _grow(
    signal: Signal, settings: ScaleSettings, state: ScaleState, wanted: int, kept: int, *, at_max: bool
) -> _Change:
    """Scale out to the wanted number, or hold."""
    current, most = signal.count, settings.maximum
    state = replace(state, surplus_since=None, surplus_need=0)
    cooling = _left(state.scaled_out_at, settings.scale_out_cooldown, signal.at)
    workers = max(current, kept) if cooling else wanted
    if workers > current:
        return _Change(
            "scale_out", workers, f"at most {most}" if at_max else "", replace(state, scaled_out_at=signal.at)
        )
    if at_max and current >= most:
        return _Change("at_max", current, f"and the maximum {most} is reached", state)
    why = f"and the next scale-out is possible in {cooling:.0f} s" if wanted > current else ""
    return _Change("hold", current, why, state)


def _shrink(signal: Signal, settings: ScaleSettings, state: ScaleState, wanted: int) -> _Change:
    """Scale in when the surplus has lasted, to the largest need of that time; until then hold."""
    since = signal.at if state.surplus_since is None else state.surplus_since
    need = wanted if state.surplus_since is None else max(wanted, state.surplus_need)
    state = replace(state, surplus_since=since, surplus_need=need)
    lasting: float | None = since
    if settings.mode != "leases":
        lasting, need = state.zero_since, wanted
    if lasting is None:
        lasts = f"{settings.scale_in_after:g} s"
        return _Change("hold", signal.count, f"scale-in needs nothing visible or in flight for {lasts}", state)
    changes = [at for at in (state.scaled_out_at, state.scaled_in_at) if at is not None]
    wait = max(
        settings.scale_in_after - (signal.at - lasting),
        _left(max(changes, default=None), settings.scale_in_cooldown, signal.at),
    )
    if wait > 0:
        return _Change("hold", signal.count, f"scale-in is possible in {wait:.0f} s", state)
    if need >= signal.count:  # the number of workers fell by other means since the largest need: observe again
        return _Change("hold", signal.count, "", replace(state, surplus_since=signal.at, surplus_need=wanted))
    why = f"fewer were enough for {signal.at - lasting:.0f} s"
    return _Change("scale_in", need, why, replace(state, scaled_in_at=signal.at, surplus_since=None, surplus_need=0))


def _need(signal: Signal, settings: ScaleSettings) -> tuple[int, int, str]:
    """Return the workers that the work needs, those for the backlog alone, and a sentence about both."""
    slots = settings.slots
    warm = f" + warm pool {settings.warm_pool}" if settings.warm_pool else ""
    if settings.mode != "leases":
        backlog_add = ceil(signal.visible / slots)
        formula = f"ceil({signal.visible} visible / {slots} slots) = {backlog_add}"
        if settings.mode == "visible":
            raw = backlog_add + settings.warm_pool
            return raw, backlog_add, f"needs {_workers(raw)}: {formula}{warm}"
        raw = signal.inflight + backlog_add
        return raw, backlog_add, f"needs {_workers(raw)}: {signal.inflight} in flight + {formula}"
    # Messages that are no rows yet need slots too; nothing is known about their limits.
    more = signal.more_slots(settings.target_wait) + signal.messages_visible
    used = signal.slots_used + more
    need = max(ceil(used / slots), 1 if signal.upkeep else 0)
    # The warm pool adds to the need, not to the busy workers: where tasks spread over many workers, each of them is busy
    # with few slots, and a pool beyond them would grow until the maximum.
    raw = max(signal.busy, need + settings.warm_pool)
    held_back = signal.ready + signal.soon - signal.runnable
    text = f"needs {_workers(raw)}: max({signal.busy} busy, ceil(({signal.slots_used} running + {more} to start) / {slots} slots) = {ceil(used / slots)}{warm})"
    if signal.running > signal.slots_used:
        text += f"; {signal.running} leases use {signal.slots_used} slots"
    if held_back > 0:
        text += f"; {held_back} of {signal.ready + signal.soon} waiting tasks can't run now ({_reasons(signal)})"
    if signal.upkeep and not used:
        text += "; a worker is needed for waits that end, schedules or leases to rescue"
    return raw, ceil(more / slots), text


def _reasons(signal: Signal) -> str:
    found = {f"{phase.pipeline}.{phase.phase}: {phase.held_back_by}" for phase in signal.phases if phase.held_back_by}
    return ", ".join(sorted(found)[:3]) + (", …" if len(found) > 3 else "")


def _left(since: float | None, length: float, now: float) -> float:
    return 0.0 if since is None else max(0.0, since + length - now)


def _workers(count: int) -> str:
    return f"{count} worker{'' if count == 1 else 's'}"
