"""Findings about a queue in use: what needs attention and what is right, each with the command that mends it."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from onerow.core import schedule
from onerow.core.durations import spell_duration
from onerow.core.filters import Filter
from onerow.core.status import FAILED, PROCESSING
from onerow.core.task import Task
from onerow.core.times import read
from onerow.engine.control.definitions import Pause
from onerow.engine.control.inbox_counts import InboxCounts
from onerow.engine.control.relocation import relocation_of
from onerow.engine.control.schedules import PROGRESS, Scheduled, progress_name, read_progress
from onerow.engine.control.stats import Outcomes
from onerow.engine.events.hooks import GuardState
from onerow.engine.queue.queue import Queue
from onerow.engine.views.board import Board, Lane
from onerow.engine.views.why import resume_command, task_command
from onerow.engine.views.workers import WorkerLine
from onerow.ports import Finding

_SKEW = timedelta(seconds=2)
_OVERDUE = timedelta(seconds=10)
_SHOWN = 5
CORRUPT_ROWS = Filter(statuses=frozenset({FAILED}), error_class="corrupt")
MOST_CORRUPT = _SHOWN + 1
"""Rows of CORRUPT_ROWS that `examine` needs at most."""


class QueueFinding(Finding, frozen=True, kw_only=True):
    """A finding with the thing that it is about, for links and translations."""

    code: str  # one word for programs
    pipeline: str = ""
    phase: str = ""
    name: str = ""  # of a worker, inbox, hook or schedule, or the id of a task
    count: int = 0


def examine(
    queue: Queue,
    board: Board,
    corrupt: Sequence[Task],
    workers: Sequence[WorkerLine],
    inboxes: Mapping[str, InboxCounts],
    last_hour: Mapping[tuple[str, str], Outcomes],
    schedules: Sequence[Scheduled],
) -> list[QueueFinding]:
    """Return findings about a store in use; on a queue for one user, without those about other users' work."""
    everyones = queue.user_id is None
    found = [*_clock(queue), *_relocated(queue), *_leases(queue), *_corrupt(corrupt), *_workers(workers, everyones)]
    found += [*_inboxes(inboxes), *_rescued(last_hour)] if everyones else []
    found += [*_lanes(board), *_schedules(queue, schedules)]
    masked = queue.masker.text
    return [replace(finding, what=masked(finding.what)) for finding in found]


def _relocated(queue: Queue) -> Iterator[QueueFinding]:
    gone = relocation_of(queue.store)
    if gone is not None:
        what = f"this queue was moved: it takes no new tasks here, {gone.to} does"
        yield QueueFinding("slow", what, f"--store {gone.to}", code="moved")


def _clock(queue: Queue) -> Iterator[QueueFinding]:
    skew = abs(queue.store.now() - datetime.now(UTC))
    if skew > _SKEW:
        yield QueueFinding(
            "slow",
            f"the store's clock and this machine's differ by {skew.total_seconds():.1f} s",
            "let both be set by NTP; leases go by the store's",
            code="clock",
        )
    else:
        yield QueueFinding("good", "the clock is right", code="clock")


def _leases(queue: Queue) -> Iterator[QueueFinding]:
    now = queue.store.now()
    where = Filter(statuses=frozenset({PROCESSING}), lease_ended_before=now - _OVERDUE)
    stuck = queue.find(where, limit=100, order="oldest").tasks
    if not stuck:
        yield QueueFinding("good", "no lease is overdue", code="lease")
        return
    some = "100 or more leases" if len(stuck) == 100 else f"{len(stuck)} lease" + ("" if len(stuck) == 1 else "s")
    yield QueueFinding(
        "bad",
        f"{some} ended and no worker rescued the tasks, for example {stuck[0].task_id}",
        "onerow worker APP",
        code="lease",
        name=stuck[0].task_id,
        count=len(stuck),
    )


def _corrupt(found: Sequence[Task]) -> Iterator[QueueFinding]:
    for task in found[:_SHOWN]:
        yield QueueFinding(
            "bad",
            f"task {task.task_id} was set aside: {task.error}",
            f"mend those columns of the row, then: {task_command('retry', task)}",
            code="corrupt",
            name=task.task_id,
        )
    if len(found) > _SHOWN:
        what = "more rows were set aside because they can't be read"
        yield QueueFinding("bad", what, "onerow list error:corrupt", code="corrupt")
    if not found:
        yield QueueFinding("good", "every row that was met can be read", code="corrupt")


def _workers(workers: Sequence[WorkerLine], everyones: bool) -> Iterator[QueueFinding]:
    alive = [worker for worker in workers if worker.alive and not worker.only_receives]
    for kind, found in (
        ("worker", [each for each in alive if not each.puller]),
        ("puller", [each for each in alive if each.puller]),
    ):
        if found:
            what = f"{len(found)} live {kind}" + ("" if len(found) == 1 else "s")
            yield QueueFinding("good", what, code="workers", count=len(found))
    for worker in workers if everyones else ():
        for hook in worker.hooks:
            yield _hook(worker.name, hook)
        yield from _reception(worker)
        if not worker.alive:
            kind, fix = (
                ("puller", "the next puller removes it an hour later")
                if worker.puller
                else ("worker", "a live worker takes it off the roll")
            )
            what = f"{kind} {worker.name} is silent since {worker.seen_at:%Y-%m-%d %H:%M:%S}Z"
            yield QueueFinding("slow", what, fix, code="silent", name=worker.name)
    if not alive:
        yield QueueFinding("slow", "no worker is running", "onerow worker APP", code="no-worker")


def _reception(worker: WorkerLine) -> Iterator[QueueFinding]:
    for inbox in worker.inboxes if worker.alive else ():
        if not inbox.error:
            yield QueueFinding("good", f"{worker.name} receives from {inbox.name}", code="inbox", name=inbox.name)
        else:
            yield QueueFinding(
                "bad",
                f"worker {worker.name} can't receive from {inbox.name}: {inbox.error}",
                "it goes on by itself as soon as the inbox answers",
                code="inbox",
                name=inbox.name,
            )


def _hook(worker: str, hook: GuardState) -> QueueFinding:
    dropped = f"{hook.dropped:,} events for it were dropped"
    if hook.running_for:
        since = spell_duration(timedelta(seconds=int(hook.running_for)))
        return QueueFinding(
            "bad",
            f"hook {hook.name} of worker {worker} has not returned for {since}; {dropped}",
            "give what it waits for a timeout, or do the work in a phase; then restart the worker",
            code="hook",
            name=hook.name,
        )
    what = f"hook {hook.name} of worker {worker} is too slow: {dropped}"
    return QueueFinding("slow", what, "do its work in a phase", code="hook", name=hook.name)


def _inboxes(inboxes: Mapping[str, InboxCounts]) -> Iterator[QueueFinding]:
    for name, counts in inboxes.items():
        if counts.rejected:
            yield QueueFinding(
                "slow",
                f"{counts.rejected:,} message{'' if counts.rejected == 1 else 's'} of {name} "
                f"{'was' if counts.rejected == 1 else 'were'} rejected in the last day",
                "onerow inboxes",
                code="rejected",
                name=name,
                count=counts.rejected,
            )


def _rescued(last_hour: Mapping[tuple[str, str], Outcomes]) -> Iterator[QueueFinding]:
    count = sum(outcomes.rescued for outcomes in last_hour.values())
    if count:
        tasks = "1 task was" if count == 1 else f"{count:,} tasks were"
        what = f"{tasks} rescued in the last hour, because a worker died or lost its lease"
        yield QueueFinding("slow", what, "onerow stats", code="rescued", count=count)


def _lanes(board: Board) -> Iterator[QueueFinding]:
    for pipeline in board.pipelines:
        for lane in pipeline.lanes:
            published = any(other.kind for other in pipeline.lanes)
            yield from _unknown(lane, published)
            if lane.paused is not None and (lane.paused.phase != "*" or lane is pipeline.lanes[0]):
                yield _pause(lane.paused)
            due = lane.oldest is not None and lane.oldest <= board.at
            if lane.has_code and due and not lane.workers and lane.paused is None:
                tasks = "1 task waits" if lane.waiting == 1 else f"{lane.waiting:,} tasks wait"
                yield QueueFinding(
                    "slow",
                    f"{tasks} at {lane.pipeline}.{lane.phase}, which no live worker serves",
                    "onerow worker APP",
                    code="unserved",
                    pipeline=lane.pipeline,
                    phase=lane.phase,
                    count=lane.waiting,
                )
            if lane.failed:
                yield QueueFinding(
                    "slow",
                    f"{lane.failed:,} task{'' if lane.failed == 1 else 's'} failed in {lane.pipeline}.{lane.phase}",
                    f"onerow failures {_here(lane)}",
                    code="failed",
                    pipeline=lane.pipeline,
                    phase=lane.phase,
                    count=lane.failed,
                )


def _unknown(lane: Lane, published: bool) -> Iterator[QueueFinding]:
    standing = lane.waiting + lane.processing + lane.parked
    if lane.kind or not standing:
        return
    fix = f"put renamed_from={lane.phase!r} on the phase that replaces it and publish; to see them: onerow list {_here(lane)}"
    yield QueueFinding(
        "bad",
        f"{standing:,} task{' stands' if standing == 1 else 's stand'} at {lane.pipeline}.{lane.phase}, which no published code knows",
        fix if published else "onerow publish APP",
        code="unknown-phase",
        pipeline=lane.pipeline,
        phase=lane.phase,
        count=standing,
    )


def _here(lane: Lane) -> str:
    return shlex.quote(f"pipeline:{lane.pipeline} phase:{lane.phase}")


def _pause(pause: Pause) -> QueueFinding:
    whole = pause.phase == "*"
    what = pause.pipeline if whole else f"{pause.pipeline}.{pause.phase}"
    why = f": {pause.reason}" if pause.reason else ""
    said = f"{what} is paused by {pause.by}{why}"
    phase = "" if whole else pause.phase
    return QueueFinding("slow", said, resume_command(pause), code="paused", pipeline=pause.pipeline, phase=phase)


def _schedules(queue: Queue, schedules: Sequence[Scheduled]) -> Iterator[QueueFinding]:
    """Report schedules that fail, and those whose last nominal time has passed without a worker that handled it."""
    now = queue.store.now()
    handled = {note.name: read(read_progress(note.body).last) for note in queue.store.notes(PROGRESS)}
    for each in schedules:
        last = handled.get(progress_name(each.pipeline, each.cron))
        if last is None or each.pause is not None:
            continue
        if each.error:
            yield QueueFinding(
                "bad",
                f"schedule {each.cron.name} of {each.pipeline} adds no task: {each.error}",
                "correct it in the code and start the workers again",
                code="schedule",
                pipeline=each.pipeline,
                name=each.cron.name,
            )
            continue
        nominal = schedule.latest_time(each.cron, now - schedule.ON_TIME)
        if nominal is not None and nominal > last:
            yield QueueFinding(
                "slow",
                f"schedule {each.cron.name} of {each.pipeline} missed {nominal:%Y-%m-%d %H:%M:%S}Z: no worker was there",
                "onerow worker APP",
                code="missed",
                pipeline=each.pipeline,
                name=each.cron.name,
            )
