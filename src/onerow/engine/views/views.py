"""Views of one queue: each method provides one page of a user interface."""

from datetime import timedelta

from msgspec.structs import replace

from onerow.core.filters import Filter, Order
from onerow.core.plan import Plan
from onerow.core.status import CANCELLED, COMPLETED, ENDS, FAILED, PROCESSING, WAITING
from onerow.core.task import Task
from onerow.engine.control import definitions
from onerow.engine.control.definitions import WORKER
from onerow.engine.control.inbox_counts import INBOX, InboxCounts, sum_counts
from onerow.engine.control.schedules import Scheduled
from onerow.engine.control.stats import STATS, Outcomes, add_up, minute_of
from onerow.engine.queue.queue import Queue
from onerow.engine.queue.scope import filter_of, query_of
from onerow.engine.views.board import Board, Overview, build_board
from onerow.engine.views.counts import Matching, count_matching, count_store
from onerow.engine.views.failures import Failures, group_failures
from onerow.engine.views.rows import Row, TaskPage
from onerow.engine.views.timeline import TaskView, view_task
from onerow.engine.views.why import Reason, why
from onerow.engine.views.workers import WorkerLine, roll, serving
from onerow.ports import Note, Searchable, Store

SEARCH_FOR = timedelta(milliseconds=80)
COUNT_FOR = timedelta(seconds=2)
RECENT = timedelta(minutes=5)
_MOST_HELD = 1_000
_MOST_FAILURES = 500
_SHOWN_MASKED = ("title", "payload", "results", "steps", "signals", "metadata")


class Views:
    """Data for user interfaces; on a queue for one user, only that user's."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    @property
    def _store(self) -> Store:
        """The store, or its read-only variant (a replica) if it has one."""
        store = self._queue.store
        return getattr(store, "for_views", lambda: store)()

    def overview(self, over: timedelta = RECENT) -> Overview:
        """Return a summary of the whole store."""
        store, now = self._store, self._store.now()
        store_counts = count_store(store, self._queue.user_id)
        counts: dict[tuple[object, bool], int] = {}
        for line in store_counts.counts:
            counts[line.status, line.parked] = counts.get((line.status, line.parked), 0) + line.count
        due = [t.oldest for t in store_counts.counts if t.status is WAITING and not t.parked and t.oldest is not None]
        return Overview(
            at=now,
            store=self._queue.url,
            waiting=counts.get((WAITING, False), 0),
            parked=counts.get((WAITING, True), 0),
            processing=counts.get((PROCESSING, False), 0),
            completed=counts.get((COMPLETED, False), 0),
            failed=counts.get((FAILED, False), 0),
            cancelled=counts.get((CANCELLED, False), 0),
            ended_at=store_counts.ended_at,
            oldest=min(due, default=None),
            workers=sum(worker.alive for worker in self.workers(holds=False)),
            per_minute=sum(found.done for found in self.statistics(over).values()) / (over / timedelta(minutes=1)),
        )

    def board(self, over: timedelta = RECENT) -> Board:
        """Return pipelines and phases with counts and rates."""
        store = self._store
        return build_board(
            self.plans(),
            count_store(store, self._queue.user_id),
            definitions.load_controls(store),
            self.statistics(over),
            serving(self.workers(holds=False)),
            store.now(),
            over,
            everyones=self._queue.user_id is None,
        )

    def plans(self) -> dict[str, Plan]:
        """Return the published definitions, and those of the served code that are not published."""
        served = {name: pipeline.plan for name, pipeline in self._queue.pipelines.items()}
        return served | definitions.load_plans(self._queue.store)

    def find(
        self, query: str | Filter = "", *, limit: int = 50, after: str | None = None, within: timedelta = SEARCH_FOR
    ) -> TaskPage:
        """Return a page of tasks, in the query's order, else newest first.

        Newest first is by completed_at if only ended tasks match, else by created_at.
        """
        asked = query_of(self._queue, query)
        where, store = asked.where, self._store
        latest = bool(where.statuses) and where.statuses <= ENDS
        order: Order = asked.order or ("latest" if latest else "newest")
        if isinstance(store, Searchable):
            found = store.search(where, limit=limit, order=order, after=after, within=within)
            return TaskPage(self._rows(found.tasks), found.next, found.looked_back_to, found.looked_at)
        page = store.find(where, limit=limit, order=order, after=after)
        return TaskPage(self._rows(page.tasks), page.next)

    def count(self, query: str | Filter = "", *, within: timedelta = COUNT_FOR) -> Matching:
        """Count the tasks that match a query; a lower bound if they must be read and the time runs out."""
        return count_matching(self._store, filter_of(self._queue, query), within)

    def _rows(self, tasks: list[Task]) -> list[Row]:
        """Return list rows with masked titles, because titles contain parts of the payload."""
        masked = self._queue.masker.text
        return [replace(Row.of(task), title=masked(task.title)) for task in tasks]

    def task(self, task_id: str) -> TaskView:
        """Return one task with its timeline and the reason for its current state."""
        task = self._queue.get(task_id)
        view = view_task(task, self.plans().get(task.pipeline), self.why(task), self._queue.store.now())
        # Payloads and results are stored unmasked, because phases use them; they are masked only for display.
        masked = {field: self._queue.masker.value(view.task[field]) for field in _SHOWN_MASKED if field in view.task}
        return replace(view, task=view.task | masked)

    def why(self, task: Task | str) -> Reason:
        """Explain in a sentence why a task is not running, with the command that changes it."""
        found = self._queue.get(task) if isinstance(task, str) else task
        plan = self.plans().get(found.pipeline)
        return why(self._store, found, plan, self.workers(holds=False), for_user=self._queue.user_id)

    def failures(self, query: str = "", *, limit: int = _MOST_FAILURES) -> Failures:
        """Return the latest failed tasks, grouped by cause."""
        where = replace(filter_of(self._queue, query), statuses=frozenset({FAILED}))
        page = self._store.find(where, limit=limit, order="latest")
        return group_failures(page.tasks, page.next is None)

    def workers(self, *, holds: bool = True) -> list[WorkerLine]:
        """Return the registered workers and, unless `holds` is False, the tasks that each holds."""
        store = self._store
        held: list[Task] = []
        if holds:
            where = Filter(statuses=frozenset({PROCESSING}), user_id=self._queue.user_id)
            held = store.find(where, limit=_MOST_HELD, order="oldest").tasks
        return roll(store.notes(WORKER), held, store.now())

    def inboxes(self) -> dict[str, InboxCounts]:
        """Counts of the last day by inbox."""
        return sum_counts(self._store.notes(INBOX))

    def schedules(self) -> list[Scheduled]:
        """List the schedules."""
        return self._queue.crons.all()

    def statistics(self, over: timedelta) -> dict[tuple[str, str], Outcomes]:
        """Return outcomes by pipeline and phase; empty on a queue for one user, because they cover all users."""
        if self._queue.user_id is not None:
            return {}
        store = self._store
        return add_up(store.notes(STATS, since=minute_of(store.now() - over)))

    def minutes(self, over: timedelta) -> dict[str, dict[tuple[str, str], Outcomes]]:
        """Return outcomes per minute, for charts."""
        store = self._store
        by_minute: dict[str, list[Note]] = {}
        for note in store.notes(STATS, since=minute_of(store.now() - over)):
            by_minute.setdefault(note.name.partition("/")[0], []).append(note)
        return {minute: add_up(notes) for minute, notes in by_minute.items()}
