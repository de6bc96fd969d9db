"""The background of a worker: its roles, the threads that run them, and their shutdown."""

import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from time import monotonic, sleep

from onerow.core.errors import StoreError
from onerow.core.plan import DEFAULT_LEASE, DEFAULT_TIMEOUT, Plan
from onerow.engine.events.events import AlertLost, RoleFailed
from onerow.engine.events.hooks import GuardState
from onerow.engine.queue.lease_watch import LeaseWatch
from onerow.engine.queue.queue import Queue
from onerow.engine.queue.retention_sweep import RetentionSweeper
from onerow.engine.receiving.receiver import WAIT
from onerow.engine.receiving.reception import Reception
from onerow.engine.runners.attempt import Attempt, InFlight, ServedPhase
from onerow.engine.runners.event_loop import LoopWatch
from onerow.engine.worker.roles.alert_sender import AlertSender, HookWatch
from onerow.engine.worker.roles.children import ChildrenSweeper
from onerow.engine.worker.roles.controls import PhaseControls
from onerow.engine.worker.roles.heartbeat import DeadlineWatcher, Heartbeat
from onerow.engine.worker.roles.log_writer import LogWriter
from onerow.engine.worker.roles.scheduler import Scheduler
from onerow.engine.worker.roles.stats_recorder import StatsRecorder
from onerow.engine.worker.roles.sweeps import Purger, Rescuer, WaitPhaseSweeper
from onerow.engine.worker.roles.webhook_sender import WebhookSender
from onerow.engine.worker.threads import Outage, Role, RoleThread
from onerow.identity import Identity

LAST_CALLS = 2.0
"""Seconds that hooks and alert receivers get for the last events of a stopping worker."""
_WAIT_UNTIL_IDLE = (
    1.0  # seconds that one receive waits; a long poll of SQS asks all of its servers, a short one does not
)


class Background:
    """The roles that run beside the producer. A slow or hung one of a thread does not delay those of the others."""

    def __init__(
        self,
        queue: Queue,
        identity: Identity,
        in_flight: InFlight,
        served_phases: Sequence[ServedPhase],
        plans: Mapping[str, Plan],
        outage: Outage,
        *,
        concurrency: int,
        grace: float,
        hung: Callable[[Attempt, str], None],
        loop: LoopWatch | None,
        prestarted: Role,
        until_idle: bool,
    ) -> None:
        store, events = queue.store, queue.events
        self._queue = queue
        self._outage = outage
        self.controls = PhaseControls(store, identity, served_phases, concurrency, queue.definitions)
        self.controls.hooks = self._report_hooks
        self.stats = StatsRecorder(store, identity.name, events)
        self.wait_phases = WaitPhaseSweeper(store, plans, events)
        self.children = ChildrenSweeper(store, queue.children, identity.name)
        self.children.wake = lambda: self._sweeps.wake(self.children)
        shortest = min((served.phase.lease for served in served_phases), default=DEFAULT_LEASE)
        lease_watch = LeaseWatch(store, self._lease_of, min(shortest, DEFAULT_LEASE), is_ours=in_flight.holds)
        rescuer = Rescuer(store, identity, events, lease_watch, plans)
        rescuer.parent_or_child_changed = self.wait_phases.parent_or_child_changed = self.children.hear
        sweeps: list[Role] = [
            self.controls,
            self.wait_phases,
            rescuer,
            self.children,
            Scheduler(queue, plans),
            self.stats,
            Purger(RetentionSweeper(queue).delete_some),
        ]
        wait = _WAIT_UNTIL_IDLE if until_idle else WAIT
        self.receptions = [Reception(queue, inbox, identity.name, wait) for inbox in queue.inboxes]
        self.receivers = [receiver for reception in self.receptions for receiver in reception.receivers]
        self.controls.inboxes = lambda: [reception.report() for reception in self.receptions]
        self._log_writer = LogWriter(store, in_flight, queue.log_files)
        self._alert_senders = [AlertSender(queue, watch, events) for watch in queue.watches]
        timeouts = [served.phase.timeout for served in served_phases if served.phase.timeout is not None]
        deadlines = DeadlineWatcher(in_flight, grace, hung, min(shortest, *(timeouts or [DEFAULT_TIMEOUT])), loop)
        self._heartbeat = self._thread("heartbeat", [Heartbeat(store, identity.name, in_flight, shortest)])
        self._deadlines = self._thread("deadlines", [deadlines, HookWatch(self._report_hooks), prestarted])
        self._sweeps = self._thread("sweeps", sweeps)
        self._log = self._thread("log-writer", [self._log_writer])
        self._alerts = [self._thread("alerts", [sender], sender.close) for sender in self._alert_senders]
        self._webhook_senders = [
            WebhookSender(queue, webhook, events, identity.name) for webhook in queue.event_webhooks
        ]
        self._webhooks = [self._thread("webhooks", [sender], sender.close) for sender in self._webhook_senders]
        self._receiving = [self._thread("receiver", [receiver], receiver.close) for receiver in self.receivers]
        self._following = [
            self._thread("follower", [reception.follower], reception.follower.close)
            for reception in self.receptions
            if reception.follower is not None
        ]
        in_flight.wake_log_writer = lambda: self._log.wake(self._log_writer)

    def start(self) -> None:
        """Open the inboxes and read the controls, then start the threads."""
        for reception in self.receptions:
            reception.open()
        self.controls.tick(self._queue.store.now())
        own = (self._heartbeat, self._deadlines, self._sweeps, self._log, *self._alerts, *self._webhooks)
        for thread in (*own, *self._receiving, *self._following):
            thread.start()

    def sweep_wait_phases(self) -> None:
        """Look at once for tasks at phases without code, if there are such phases."""
        if self.wait_phases.has_phases:
            self._sweeps.wake(self.wait_phases)

    def stop_receiving(self) -> None:
        """Receive no more messages; what has been received is stored and acknowledged first."""
        for thread in self._receiving:
            thread.ask_to_stop()
        for reception in self.receptions:
            reception.interrupt()

    def stop(self, deadline: Callable[[], float]) -> None:
        """Write the last output and statistics, send the last alerts, and end the threads; by the deadline."""

        def left() -> float:
            """Return the seconds that one step may take."""
            return max(0.05, min(5.0, deadline() - monotonic()))

        self.stop_receiving()
        for thread in (*self._receiving, *self._following):
            thread.stop(left())
        for reception in self.receptions:
            reception.close()
        self._log.stop(left())  # two log writers at once would lose lines
        self._if_store_available(deadline, lambda: self._write_last_lines(deadline))
        for thread in (*self._alerts, *self._webhooks):
            thread.ask_to_stop()
        for thread in (self._heartbeat, self._deadlines, self._sweeps):
            thread.stop(left())
        self._if_store_available(deadline, self.controls.unregister)  # its thread would write the entry again
        for thread in self._webhooks:
            thread.stop(min(1.0, left()))  # an unsent event stays behind the cursor
        alerts_until = min(monotonic() + LAST_CALLS, deadline())
        for sender, thread in zip(self._alert_senders, self._alerts, strict=True):
            if not thread.stop(max(0.0, alerts_until - monotonic())) and sender.unsent:
                self._queue.events.send(
                    AlertLost(sender.unsent, "the worker stopped before the receiver accepted them")
                )
        self._if_store_available(deadline, lambda: self.stats.flush(self._queue.store.now()))

    def _thread(self, name: str, roles: Sequence[Role], last: Callable[[datetime], object] | None = None) -> RoleThread:
        return RoleThread(name, roles, self._queue.store.now, self._queue.events, self._outage, last)

    def _report_hooks(self) -> list[GuardState]:
        guards = [sender.guard for sender in self._alert_senders]
        return self._queue.events.report_hooks([*guards, *(sender.guard for sender in self._webhook_senders)])

    def _lease_of(self, pipeline: str, phase: str) -> timedelta:
        """Return the lease of a phase, or the default lease of a phase that this app does not know."""
        plan = self._queue.pipelines[pipeline].plan if pipeline in self._queue.pipelines else None
        return plan.phase(phase).lease if plan is not None and plan.knows(phase) else DEFAULT_LEASE

    def _if_store_available(self, deadline: Callable[[], float], *calls: Callable[[], object]) -> None:
        """Make these store calls, unless the store is unavailable or the time is up."""
        try:
            for call in calls:
                if not self._outage.active and monotonic() < deadline():
                    call()
        except StoreError as error:
            self._outage.begin(error)

    def _write_last_lines(self, deadline: Callable[[], float]) -> None:
        rest = 0.0
        while rest < 1.0 and monotonic() < deadline():
            sleep(rest)
            try:
                rest = max(0.0, self._log_writer.tick(self._queue.store.now()))
            except StoreError:
                raise
            except Exception as error:  # the log writer drops lines that the store refuses, so this loop ends
                self._queue.events.send(RoleFailed("LogWriter", str(error), traceback.format_exc()))
