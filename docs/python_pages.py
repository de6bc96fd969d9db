"""What stands on which page of the Python reference, for docs/render_python.py."""

from collections.abc import Sequence
from typing import NamedTuple

COMMON = {
    "attempt": "The number of the attempt in its phase, from 1.",
    "by": "Who asked; stored in the history. Default: the user of the operating system.",
    "done": "How much is done.",
    "endpoint_url": "The address of another service that speaks the protocol of SQS.",
    "error": "What went wrong.",
    "error_class": "The class of the error; see [retries](../../retries.md).",
    "for_": "How long, for example '10m'.",
    "headers": "More headers of the request.",
    "level": "'debug', 'info', 'warning' or 'error'.",
    "limit": "At most this many.",
    "limit_key": "Group for per_key limits.",
    "max_retries": "The retry budget.",
    "metadata": "Your own JSON object, beside the payload.",
    "note": "A remark for the history.",
    "payload": "A JSON value, or an object of the pipeline's payload type.",
    "phase": "The name of a phase.",
    "pipeline": "A pipeline or its name.",
    "policy": "Only what this policy would try again, after its back-off.",
    "priority": "-100…100, lower first.",
    "reason": "Why; shown to others.",
    "region": "The region, if the URL does not contain it.",
    "result": "The result of the phase: a JSON value.",
    "run_at": "The earliest start: a datetime, or a text such as '2026-12-01T08:00Z'.",
    "scope": "'phase' holds the whole phase for this time, 'task' only the task.",
    "signal_id": "Identifies the signal: a task takes each id once.",
    "task_id": "The id of the task.",
    "timeout": "How long it may take, for example '30s'; None: without end.",
    "title": "The title that user interfaces show.",
    "total": "How much there is in all, if it is known.",
    "user_id": "The owner of the task, for example a tenant.",
    "where": "A query such as 'status:failed phase:video', or a Filter; default: all tasks.",
    "worker": "The name that is stored as `leased_by`; default: a new one.",
}
"""What these parameters mean if a method does not say it."""

COMMON_FIELDS = {
    "by": "Who asked.",
    "phase": "The name of the phase.",
    "pipeline": "The name of the pipeline.",
}
"""What these fields mean if a class does not say it; for others, COMMON."""


class Listed(NamedTuple):
    """A class or function of a page."""

    name: str
    home: str = "onerow"
    groups: dict[str, str] | None = None
    """Title → names of methods, for a class with many."""
    made: bool = True
    """Whether users call its constructor."""
    internal: str = ""
    """Names that are public for other modules of onerow, not for users."""
    methods: bool = True


class Page(NamedTuple):
    title: str
    intro: str
    listed: Sequence[Listed]


def _made(names: str) -> list[Listed]:
    """Classes whose constructor users call."""
    return [Listed(name) for name in names.split()]


def _given(names: str) -> list[Listed]:
    """Classes whose objects users get from methods."""
    return [Listed(name, made=False) for name in names.split()]


_QUEUE = {
    "Add": "add add_new add_many",
    "Read": "get find_one find count select logs follow_logs wait",
    "Change one task": "cancel retry replay finish fail reschedule set_priority signal annotate",
    "Change many tasks": "retry_failed bulk_operations stop_bulk",
    "Phases, schedules and workers": "pause resume set_limit reset_limit crons drain publish serve middleware",
    "Inboxes, events and alerts": "receive on alert send_events",
    "Pull without a worker": "claim puller rescue",
    "Other": "for_user purge url user_id store close",
}

PAGES = {
    "queue": Page(
        "Queue",
        "Adds, reads and changes tasks. The connection is opened at the first use, and a Queue may be used in several threads.",
        [
            Listed(
                "Queue",
                groups=_QUEUE,
                internal="children masker retention definitions pipelines events log_lines watches event_webhooks "
                "inboxes around_add end_watch middlewares",
            ),
            *_made("AddOptions AddManyOptions ChildOptions Addition"),
        ],
    ),
    "pipeline": Page(
        "Pipeline and phases",
        "A pipeline is a definition: phases in the order in which their decorators and methods are called.",
        [
            Listed(
                "Pipeline",
                groups={
                    "Phases with code": "phase batch command",
                    "Phases without code": "wait_until wait_for wait_children",
                    "Other": "result_of cron resource middleware plan",
                },
                internal="handlers middlewares resources payload_type",
            ),
            Listed("RunOptions"),
            Listed("Retry", internal="allows after delays"),
            Listed("Signal", made=False),
            *_made("Labels Tab"),
        ],
    ),
    "handlers": Page(
        "In a handler",
        "A handler that has a parameter `ctx` gets a Context, or an AsyncContext if it is `async def`. The other names are for "
        "what a handler returns or raises.",
        [
            Listed("Context", made=False),
            Listed("AsyncContext", made=False, methods=False),
            *_given("Child ChildCounts Item"),
            *_made("Jump Finish Permanent RateLimited Snooze SkipPhase CancelTask"),
            *_given("Cancelled WaitExpired ChildrenFailed"),
        ],
    ),
    "worker": Page(
        "Worker",
        "`onerow worker APP` runs workers under a supervisor. The class is for programs of your own; `run` may be called in any "
        "thread.",
        [
            Listed("Worker"),
            Listed("lifespan", "onerow.asgi"),
        ],
    ),
    "task": Page(
        "Task, history and log",
        "Tasks are read-only values: what was in the row when it was read.",
        [
            Listed(
                "Task",
                made=False,
                internal="to become with_changes history_with payload_json results_json steps_json signals_json progress_json "
                "metadata_json logs_json",
            ),
            Listed("Status"),
            *_given("Entry Page TaskCount LogLine LogGap LogPage"),
        ],
    ),
    "selection": Page(
        "Selection and Filter",
        "`queue.select(…)` returns a Selection: iterate over it, or apply an operation to all of its tasks. See "
        "[bulk operations](../../how-to/operations-in-bulk.md).",
        [
            Listed("Selection", made=False),
            Listed("BulkOptions"),
            Listed("Progress", made=False),
            Listed("Filter"),
        ],
    ),
    "schedules": Page(
        "Schedules",
        "`queue.crons` lists, pauses and resumes the schedules of all pipelines. See [cron](../../how-to/cron.md).",
        [
            *_given("Crons Scheduled Cron Pause"),
        ],
    ),
    "pulling": Page(
        "Pulling without a worker",
        "For programs that are not handlers. See [pulling](../../how-to/pull.md).",
        [
            Listed("Leases", made=False),
            Listed("Leased", made=False, internal="heard extended ask_to_stop beat_at"),
            *_given("Puller"),
        ],
    ),
    "events": Page(
        "Events and alerts",
        "`queue.on(TaskFailed, function)` calls a function after each event of a kind. See "
        "[hooks and alerts](../../how-to/hooks-and-alerts.md).",
        [
            *_given("TaskAdded TaskAdvanced TaskCompleted TaskRetried TaskFailed TaskCancelled TaskRescued"),
            *_given("MessageHandled Alert"),
            Listed("Webhook"),
        ],
    ),
    "inboxes": Page(
        "Inboxes",
        "Imported from `onerow.inboxes`. `queue.receive(inbox)` has workers receive from it. A `Request` is what a message asks "
        "for: AddTasks, FindTask, SendSignal or CancelTask.",
        [
            Listed("FolderInbox", "onerow.inboxes", methods=False),
            Listed("drop", "onerow.inboxes"),
            Listed("SqsInbox", "onerow.inboxes", methods=False),
            Listed("WebhookInbox", "onerow.inboxes", methods=False),
            Listed("webhook", "onerow.asgi"),
            Listed("GitHub", "onerow.inboxes", methods=False),
            Listed("Stripe", "onerow.inboxes", methods=False),
            Listed("StandardWebhooks", "onerow.inboxes", methods=False),
            Listed("Scheme", "onerow.inboxes", made=False),
            Listed("Message", "onerow.inboxes"),
            Listed("AddTasks", "onerow.inboxes"),
            Listed("FindTask", "onerow.inboxes"),
            Listed("SendSignal", "onerow.inboxes"),
            Listed("CancelTask", "onerow.inboxes"),
            Listed("BadMessage", "onerow.inboxes", made=False, methods=False),
        ],
    ),
    "testing": Page(
        "Test kit",
        "Imported from `onerow.testing`. The pytest fixture `rehearsal` is a Rehearsal without pipelines. See "
        "[testing](../../how-to/testing.md).",
        [Listed("Rehearsal", "onerow.testing")],
    ),
}
