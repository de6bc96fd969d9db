"""Views of one queue: each method provides one page of a user interface."""

import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from msgspec.structs import replace

from onerow.core.corruption import shown
from onerow.core.errors import BadInput, UnknownName
from onerow.core.filters import Filter, Order, reads_text
from onerow.core.json_schema import Problem
from onerow.core.labels import Labels, check_column
from onerow.core.messages import ORIGIN
from onerow.core.plan import Plan
from onerow.core.scaling import ScaleSettings, Signal
from onerow.core.status import CANCELLED, COMPLETED, ENDS, FAILED, PROCESSING, WAITING
from onerow.core.task import Task
from onerow.engine.control import definitions
from onerow.engine.control.definitions import WORKER
from onerow.engine.control.inbox_counts import INBOX, InboxCounts, sum_counts
from onerow.engine.control.rates import Rates
from onerow.engine.control.schedules import Scheduled
from onerow.engine.control.stats import Outcomes, quantile
from onerow.engine.queue.queue import Queue
from onerow.engine.queue.schedules import Crons
from onerow.engine.queue.scope import filter_of, query_of
from onerow.engine.views.board import Board, Overview, build_board
from onerow.engine.views.completion import Completions, Names, Sample, complete
from onerow.engine.views.counts import BackgroundCounts, Matching, count_matching, count_store
from onerow.engine.views.failures import Failures, group_failures
from onerow.engine.views.findings import CORRUPT_ROWS, MOST_CORRUPT, QueueFinding, examine
from onerow.engine.views.payload_form import PayloadForm, build_form, check_value
from onerow.engine.views.phases import PhaseLine, phase_line
from onerow.engine.views.pulse import MinuteCache, Pulse, bounded, build_pulse
from onerow.engine.views.rows import Row, TaskPage, TaskTable, cell
from onerow.engine.views.scaling import read_signal, usual_slots
from onerow.engine.views.task_detail import Relatives, TaskDetail, build_detail, has_failed
from onerow.engine.views.timeline import TaskView, view_task
from onerow.engine.views.why import Reason, why
from onerow.engine.views.workers import WorkerLine, check_worker, roll, serving
from onerow.pipelines.decoding import check_payload
from onerow.ports import Administrable, Finding, Search, Searchable, Sized, Store, StoreCounts, StoredSize
from onerow.sql_ports import PostgresDatabase

SEARCH_FOR = timedelta(milliseconds=60)
TEXT_SEARCH_FOR = timedelta(seconds=1)
COUNT_FOR = timedelta(seconds=2)
RECENT = timedelta(minutes=5)
_QUICK_SEARCH = timedelta(milliseconds=10)
_FULL_SEARCH = timedelta(minutes=1)
_MOST_LEASES = 5_000
_MOST_HELD = 1_000
_MOST_FAILURES = 500
_TRACE_LINES = 2_000
_RECENT_TASKS = 50
_USUAL_OVER = timedelta(hours=6)
_SHOWN_MASKED = ("title", "payload", "results", "steps", "signals", "metadata", "progress")


class Views:
    """Data for user interfaces; on a queue for one user, only that user's."""

    def __init__(self, queue: Queue, counts: BackgroundCounts | None = None) -> None:
        self._queue = queue
        self._minutes = MinuteCache()
        self._background_counts = counts

    def _counts(self) -> StoreCounts:
        count = count_store if self._background_counts is None else self._background_counts.read
        return count(self._store, self._queue.user_id)

    @property
    def _store(self) -> Store:
        return self._queue.store

    @property
    def sees_workers(self) -> bool:
        """Whether workers, pauses and limits can be read; not by the database role of a tenant."""
        store = self._queue.store
        return not isinstance(store, PostgresDatabase) or store.sees_all()

    def require_workers(self) -> None:
        """Raise BadInput if workers, pauses and limits can't be read."""
        if not self.sees_workers:
            raise BadInput(
                "this database role reads the tasks of a tenant, and no workers, pauses and limits",
                fix="connect as a service role",
                field="store",
            )

    def overview(self, over: timedelta = RECENT) -> Overview:
        """Return a summary of the whole store."""
        now, store_counts = self._store.now(), self._counts()
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
            self._counts(),
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

    def labels(self, pipeline: str) -> Labels:
        """Return how the tasks of a pipeline are to be shown, as its definition says; empty if it says nothing."""
        plan = self.plans().get(pipeline)
        return Labels() if plan is None or plan.labels is None else plan.labels

    def labels_of_query(self, query: str) -> tuple[str, Labels]:
        """Return the pipeline that a query names, or the only one there is ('' if neither), with its labels."""
        named = re.search(r'(?:^|[\s(])pipeline:"?([^\s")]+)', query)
        plans = self.plans()
        name = named[1] if named else next(iter(plans)) if len(plans) == 1 else ""
        return name, self.labels(name)

    def payload_form(self, pipeline: str) -> PayloadForm:
        """Return the fields of a pipeline's payload, from its published definition."""
        return build_form(definitions.known_plan(self.plans(), pipeline))

    def check_payload(self, pipeline: str, value: Any) -> list[Problem]:
        """Return what is wrong with a payload, by field; empty if `add` would accept it.

        By the published schema, and by the code too if this process has it.
        """
        plan = definitions.known_plan(self.plans(), pipeline)
        code = self._queue.pipelines.get(pipeline)
        by_code = None if code is None else partial(check_payload, code.payload_type, required=plan.required)
        return check_value(plan, value, by_code)

    def find(
        self, query: str | Filter = "", *, limit: int = 50, after: str | None = None, within: timedelta | None = None
    ) -> TaskPage:
        """Return a page of tasks, in the query's order, else newest first.

        Newest first is by completed_at if only ended tasks match, else by created_at. The search stops after `within`,
        by default a second for a text or a value of the payload, else 60 ms.
        """
        found = self._search(query, limit, after, within)
        return self._page(found)

    def table(
        self,
        query: str | Filter = "",
        columns: Sequence[str] = (),
        *,
        limit: int = 50,
        after: str | None = None,
        within: timedelta | None = None,
    ) -> TaskTable:
        """Return a page of tasks like `find`, with the values of columns such as 'title' or 'payload.url', masked."""
        names = [check_column(column) for column in columns]
        found = self._search(query, limit, after, within)
        mask = self._queue.masker.value
        cells = [[cell(task, column, mask) for column in names] for task in found.tasks]
        return TaskTable(names, cells, self._page(found))

    def _page(self, found: Search) -> TaskPage:
        return TaskPage(self._rows(found.tasks), found.next, found.looked_back_to, found.looked_at)

    def _search(self, query: str | Filter, limit: int, after: str | None, within: timedelta | None) -> Search:
        asked = query_of(self._queue, query)
        where, store = asked.where, self._store
        latest = bool(where.statuses) and where.statuses <= ENDS
        order: Order = asked.order or ("latest" if latest else "newest")
        if isinstance(store, Searchable):
            if within is None:
                within = TEXT_SEARCH_FOR if reads_text(where) else SEARCH_FOR
            return store.search(where, limit=limit, order=order, after=after, within=within)
        page = store.find(where, limit=limit, order=order, after=after)
        return Search(page.tasks, page.next)

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
        return self._view(task, self.plans().get(task.pipeline))

    def _view(self, task: Task, plan: Plan | None) -> TaskView:
        view = view_task(task, plan, self.why(task), self._queue.store.now())
        # Payloads and results are stored unmasked, because phases use them; they are masked only for display.
        masked = {field: self._queue.masker.value(view.task[field]) for field in _SHOWN_MASKED if field in view.task}
        return replace(view, task=view.task | masked)

    def detail(self, task_id: str, *, children: int = 50) -> TaskDetail:
        """Return everything that the page of a task shows: its view, attempts, segments, signals, relatives, links."""
        task = self._queue.get(task_id)
        plan = self.plans().get(task.pipeline)
        names = plan.phase(task.phase).names if plan is not None and plan.knows(task.phase) else (task.phase,)
        usual = self.statistics(_USUAL_OVER)
        return build_detail(
            task,
            self._view(task, plan),
            plan,
            self._queue.store.now(),
            pause=definitions.load_controls(self._store).pause_of(task.pipeline, names),
            lines=self._queue.logs(task_id, tail=_TRACE_LINES).lines if has_failed(task) else [],
            p50={phase: quantile(each.run, 0.5) for (name, phase), each in usual.items() if name == task.pipeline},
            relatives=self._relatives(task, children),
            masker=self._queue.masker,
        )

    def _relatives(self, task: Task, limit: int) -> Relatives:
        parent = None
        if task.parent_id is not None:
            with suppress(UnknownName):  # purged, or another user's
                (parent,) = self._rows([self._queue.get(task.parent_id)])
        page = self.find(Filter(parent_id=task.task_id), limit=limit)
        if not page.tasks:
            return Relatives(parent)
        return Relatives(parent, page, self._queue.count(Filter(parent_id=task.task_id)))

    def query_completions(self, text: str, cursor: int | None = None) -> Completions:
        """Return completions of a query at the cursor (default: its end), from definitions and some recent tasks."""
        names = Names(self.plans, lambda: [each.name for each in self.workers(holds=False)], self._recent)
        return complete(text, len(text) if cursor is None else cursor, names)

    def _recent(self) -> list[Sample]:
        mask = self._queue.masker
        page = self._store.find(Filter(user_id=self._queue.user_id), limit=_RECENT_TASKS, order="newest")
        return [
            Sample(
                mask.text(task.user_id),
                mask.text(task.limit_key),
                (task.awaiting or "").removeprefix("children").removeprefix("signal:"),
                mask.value(shown(task, "payload")),
                mask.value(shown(task, "metadata")),
            )
            for task in page.tasks
        ]

    def why(self, task: Task | str) -> Reason:
        """Explain in a sentence why a task is not running, with the command that changes it."""
        found = self._existing(task) if isinstance(task, str) else task
        plan = self.plans().get(found.pipeline)
        workers = self.workers(holds=False) if self.sees_workers else None
        reason = why(self._store, found, plan, workers, for_user=self._queue.user_id)
        metadata = shown(found, "metadata")
        return replace(reason, inbox=str(metadata.get(ORIGIN, "")) if isinstance(metadata, dict) else "")

    def _existing(self, task_id: str) -> Task:
        """Return a task. If there is none, name the inboxes that can't be reached: its message may wait there."""
        try:
            return self._queue.get(task_id)
        except UnknownName as error:
            lines = self.workers(holds=False)
            away = {inbox.name: inbox.error for line in lines if line.alive for inbox in line.inboxes if inbox.error}
            if not away or self._queue.user_id is not None:
                raise
            names = "; ".join(f"{name}: {reason}" for name, reason in sorted(away.items()))
            raise UnknownName(
                f"{error}, and an inbox is unavailable ({names})", fix="look at: onerow workers", field="task_id"
            ) from None

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

    def check_worker(self, name: str) -> list[Finding]:
        """Return whether a worker, given by its name or its host, really claims."""
        return check_worker(self.workers(holds=False), name)

    def inboxes(self) -> dict[str, InboxCounts]:
        """Counts of the last day by inbox."""
        return sum_counts(self._store.notes(INBOX))

    def schedules(self) -> list[Scheduled]:
        """Return the schedules; on a queue for one user, those that add that user's tasks."""
        user_id = self._queue.user_id
        return [each for each in Crons(self._queue).all() if user_id in (None, each.cron.user_id)]

    def statistics(self, over: timedelta) -> dict[tuple[str, str], Outcomes]:
        """Return outcomes by pipeline and phase; empty on a queue for one user, because they cover all users."""
        found: dict[tuple[str, str], Outcomes] = {}
        for by_phase in self.minutes(over).values():
            for phase, outcomes in by_phase.items():
                found.setdefault(phase, Outcomes()).add(outcomes)
        return found

    def scale_signal(self, settings: ScaleSettings, scope: Collection[str] = ()) -> Signal:
        """Return the work and the workers of some phases ('pipeline' or 'pipeline.phase'), for `core.scaling.decide`."""
        outcomes = self.statistics(RECENT) if settings.target_wait else None
        return read_signal(
            self._queue.store, self.plans(), settings, scope=scope, schedules=self.schedules(), outcomes=outcomes
        )

    def usual_slots(self) -> int:
        """Return the concurrency of the live workers, or of a worker by default."""
        return usual_slots(self.workers(holds=False))

    def minutes(self, over: timedelta) -> dict[str, dict[tuple[str, str], Outcomes]]:
        """Return outcomes per minute; empty on a queue for one user, because they cover all users."""
        if self._queue.user_id is not None:
            return {}
        return self._minutes.read(self._store, self._store.now(), over)

    def pulse(self, over: timedelta = timedelta(hours=1), pipeline: str | None = None) -> Pulse:
        """Return series for charts over the last hours, at most a day, and the present backlog by phase.

        On a queue for one user the series are zero, because statistics cover all users.
        """
        over = bounded(over)
        return build_pulse(self.minutes(over), self.board(), self._store.now(), over, pipeline)

    def phases(self, over: timedelta = timedelta(hours=1), pipeline: str | None = None) -> list[PhaseLine]:
        """Return each phase of the published definitions with its configuration and its performance over `over`."""
        store, plans = self._store, self.plans()
        workers, outcomes, rates = self.workers(holds=False), self.statistics(over), Rates(store)
        controls = definitions.load_controls(store)
        return [
            phase_line(
                lane,
                controls.in_force(board.name, plans[board.name].phase(lane.phase)),
                controls.setting_of(board.name, plans[board.name].phase(lane.phase).names),
                outcomes.get((board.name, lane.phase), Outcomes()),
                workers,
                rates,
                store.now(),
            )
            for board in self.board(over).pipelines
            if pipeline in (None, board.name)
            for lane in board.lanes
            if lane.kind
        ]

    def findings(self, *, quick: bool = False) -> list[QueueFinding]:
        """Return what needs attention in the queue, and what is right; `onerow doctor` prints it.

        With `quick` only the latest failed tasks are searched for rows that can't be read, for some milliseconds.
        """
        search_for = _QUICK_SEARCH if quick else _FULL_SEARCH
        if not quick:
            self._queue.store.leases(limit=_MOST_LEASES)  # sets aside processing tasks without a readable lease
        corrupt = self._search(CORRUPT_ROWS, MOST_CORRUPT, None, search_for).tasks
        workers, last_hour = self.workers(holds=False), self.statistics(timedelta(hours=1))
        return examine(self._queue, self.board(), corrupt, workers, self.inboxes(), last_hour, self.schedules())

    def store_findings(self, *, quick: bool = True) -> list[Finding]:
        """Return findings about the store itself; with `quick` only checks whose cost does not grow with the data.

        Empty on a queue for one user.
        """
        store = self._queue.store
        if self._queue.user_id is not None or not isinstance(store, Administrable):
            return []
        return store.inspect(quick=quick)

    def store_sizes(self) -> list[StoredSize]:
        """Return what the parts of the store take on disk; empty if it has none, or on a queue for one user."""
        store = self._queue.store
        return [] if self._queue.user_id is not None or not isinstance(store, Sized) else store.sizes()

    def attention(self) -> list[QueueFinding]:
        """Return what needs attention in the store and the queue, worst first."""
        about_store = [QueueFinding(each.level, each.what, each.fix, code="store") for each in self.store_findings()]
        found = [each for each in (*about_store, *self.findings(quick=True)) if each.level != "good"]
        return sorted(found, key=lambda each: each.level != "bad")
