"""Sentry: report the exceptions of handlers, with the task as tags. `queue.middleware(report_to_sentry)`."""

from collections.abc import Iterator

import sentry_sdk

from onerow.core.outcomes import Cancelled, CancelTask, Parked, SkipPhase, Snooze
from onerow.engine.handler.context import Context

_CHOSEN = (Snooze, SkipPhase, CancelTask, Cancelled, Parked)


def report_to_sentry(ctx: Context) -> Iterator[None]:
    """Middleware: send an exception of the attempt to Sentry. Payloads are not sent.

    It is reported at each attempt; Sentry groups the attempts of one fault.
    """
    task = ctx.task
    with sentry_sdk.new_scope() as scope:
        scope.set_tag("onerow.pipeline", task.pipeline)
        scope.set_tag("onerow.phase", task.phase)
        scope.set_tag("onerow.task_id", task.task_id)
        scope.set_context("onerow", {"attempt": task.attempt, "worker": task.leased_by, "retries": task.retry_count})
        scope.set_transaction_name(f"{task.pipeline}.{task.phase}")
        if task.user_id:
            scope.set_user({"id": task.user_id})
        try:
            yield
        except _CHOSEN:
            raise
        except Exception as error:
            scope.capture_exception(error)
            raise
