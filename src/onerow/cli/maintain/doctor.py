"""Findings of `onerow check` about an app and of `onerow doctor` about a store in use."""

import shlex
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from onerow.core.durations import spell_duration
from onerow.core.filters import Filter
from onerow.core.status import PROCESSING
from onerow.engine.control.definitions import Pause
from onerow.engine.control.relocation import relocation_of
from onerow.engine.events.hooks import GuardState
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views
from onerow.engine.views.why import resume_command, task_command
from onerow.ports import Finding

_LONG = timedelta(minutes=1)
_SKEW = timedelta(seconds=2)
_OVERDUE = timedelta(seconds=10)
_SHOWN = 5


def check_app(queue: Queue) -> list[Finding]:
    """Return findings about an app, without running it."""
    findings = []
    for pipeline in queue.pipelines.values():
        phases = " → ".join(phase.name for phase in pipeline.plan.phases)
        findings.append(Finding("good", f"pipeline {pipeline.name}: {phases}"))
        for phase in pipeline.plan.phases:
            handler = pipeline.handlers.get(phase.name)
            if handler is None or handler.is_async or handler.isolated:
                continue
            if phase.timeout is None or phase.timeout > _LONG:
                span = "without end" if phase.timeout is None else f"for {spell_duration(phase.timeout)}"
                findings.append(
                    Finding(
                        "slow",
                        f"{pipeline.name}.{phase.name} may run {span} in a thread, and a thread that hangs can't be "
                        f"stopped: the whole worker process has to be replaced",
                        f'@{pipeline.name}.phase(isolate="process"), a timeout of a minute, or async def',
                    )
                )
    return findings


def examine(queue: Queue, views: Views) -> list[Finding]:
    """Return findings about a store in use."""
    return [
        *_clock(queue), *_relocated(queue), *_leases(queue), *_corrupt(queue), *_workers(views), *_inboxes(views),
        *_lanes(views),
    ]  # fmt: skip


def _relocated(queue: Queue) -> Iterator[Finding]:
    gone = relocation_of(queue.store)
    if gone is not None:
        yield Finding("slow", f"this queue was moved: it takes no new tasks here, {gone.to} does", f"--store {gone.to}")


def _clock(queue: Queue) -> Iterator[Finding]:
    skew = abs(queue.store.now() - datetime.now(UTC))
    if skew > _SKEW:
        yield Finding(
            "slow",
            f"the store's clock and this machine's differ by {skew.total_seconds():.1f} s",
            "let both be set by NTP; leases go by the store's",
        )
    else:
        yield Finding("good", "the clock is right")


def _leases(queue: Queue) -> Iterator[Finding]:
    now = queue.store.now()
    where = Filter(statuses=frozenset({PROCESSING}), lease_ended_before=now - _OVERDUE)
    stuck = queue.find(where, limit=100, order="oldest").tasks
    if not stuck:
        yield Finding("good", "no lease is overdue")
        return
    some = "100 or more leases" if len(stuck) == 100 else f"{len(stuck)} lease" + ("" if len(stuck) == 1 else "s")
    yield Finding(
        "bad",
        f"{some} ended and no worker rescued the tasks, for example {stuck[0].task_id}",
        "onerow worker APP",
    )


def _corrupt(queue: Queue) -> Iterator[Finding]:
    found = queue.find(Filter(error_class="corrupt"), limit=_SHOWN + 1, order="latest").tasks
    for task in found[:_SHOWN]:
        yield Finding(
            "bad",
            f"task {task.task_id} was set aside: {task.error}",
            f"mend those columns of the row, then: {task_command('retry', task)}",
        )
    if len(found) > _SHOWN:
        yield Finding("bad", "more rows were set aside because they can't be read", "onerow list error:corrupt")
    if not found:
        yield Finding("good", "every row that was met can be read")


def _workers(views: Views) -> Iterator[Finding]:
    workers = views.workers(holds=False)
    alive = [worker for worker in workers if worker.alive and not worker.only_receives]
    for kind, found in (
        ("worker", [each for each in alive if not each.puller]),
        ("puller", [each for each in alive if each.puller]),
    ):
        if found:
            yield Finding("good", f"{len(found)} live {kind}" + ("" if len(found) == 1 else "s"))
    for worker in workers:
        for hook in worker.hooks:
            yield _hook(worker.name, hook)
        for inbox in worker.inboxes if worker.alive else ():
            if not inbox.error:
                yield Finding("good", f"{worker.name} receives from {inbox.name}")
            else:
                yield Finding(
                    "bad",
                    f"worker {worker.name} can't receive from {inbox.name}: {inbox.error}",
                    "it goes on by itself as soon as the inbox answers",
                )
        if not worker.alive:
            kind, fix = (
                ("puller", "the next puller removes it an hour later")
                if worker.puller
                else ("worker", "a live worker takes it off the roll")
            )
            yield Finding("slow", f"{kind} {worker.name} is silent since {worker.seen_at:%Y-%m-%d %H:%M:%S}Z", fix)
    if not alive:
        yield Finding("slow", "no worker is running", "onerow worker APP")


def _inboxes(views: Views) -> Iterator[Finding]:
    for name, counts in views.inboxes().items():
        if counts.rejected:
            yield Finding(
                "slow",
                f"{counts.rejected:,} message{'' if counts.rejected == 1 else 's'} of {name} "
                f"{'was' if counts.rejected == 1 else 'were'} rejected in the last day",
                "onerow inboxes",
            )


def _hook(worker: str, hook: GuardState) -> Finding:
    dropped = f"{hook.dropped:,} events for it were dropped"
    if hook.running_for:
        since = spell_duration(timedelta(seconds=int(hook.running_for)))
        return Finding(
            "bad",
            f"hook {hook.name} of worker {worker} has not returned for {since}; {dropped}",
            "give what it waits for a timeout, or do the work in a phase; then restart the worker",
        )
    return Finding("slow", f"hook {hook.name} of worker {worker} is too slow: {dropped}", "do its work in a phase")


def _lanes(views: Views) -> Iterator[Finding]:
    for pipeline in views.board().pipelines:
        for lane in pipeline.lanes:
            name, standing = f"{pipeline.name}.{lane.phase}", lane.waiting + lane.processing + lane.parked
            here = shlex.quote(f"pipeline:{pipeline.name} phase:{lane.phase}")
            if not lane.kind and standing:
                fix = (
                    f"put renamed_from={lane.phase!r} on the phase that replaces it and publish; to see them: "
                    f"onerow list {here}"
                )
                published = any(other.kind for other in pipeline.lanes)
                yield Finding(
                    "bad",
                    f"{standing:,} tasks stand at {name}, which no published code knows",
                    fix if published else "onerow publish APP",
                )
            if lane.paused is not None and (lane.paused.phase != "*" or lane is pipeline.lanes[0]):
                yield _pause(lane.paused)
            if lane.failed:
                yield Finding("slow", f"{lane.failed:,} tasks failed in {name}", f"onerow failures {here}")


def _pause(pause: Pause) -> Finding:
    whole = pause.phase == "*"
    what = pause.pipeline if whole else f"{pause.pipeline}.{pause.phase}"
    why = f": {pause.reason}" if pause.reason else ""
    return Finding("slow", f"{what} is paused by {pause.by}{why}", resume_command(pause))
