"""Sample tasks, plans and times for tests, and hypothesis strategies for values."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from onerow.core import rules, values
from onerow.core.failure import Failure
from onerow.core.plan import PhasePlan, Plan
from onerow.core.retry import Retry
from onerow.core.status import Status
from onerow.core.task import Task

NOW = datetime(2026, 11, 15, 2, 29, 57, 123000, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LEASE = timedelta(seconds=30)

PLAN = Plan(
    name="videos",
    phases=(
        PhasePlan(name="schedule", kind="wait_until", field="scheduled_time", timeout=None),
        PhasePlan(name="script", retry=Retry(3, wait="5s", factor=3)),
        PhasePlan(name="image", kind="wait_for", signal="images.ready", timeout=timedelta(days=3)),
        PhasePlan(name="video", retry=Retry(1), renamed_from=("film",)),
        PhasePlan(name="youtube"),
    ),
)
"""The pipeline of the tests: wait for a time, run, wait for a signal, run, run."""

BROKEN = Failure("ConnectionError: refused", "network", exception="ConnectionError", where="studio.py:12 in script")
HOPELESS = Failure("no such topic", "permanent")

_BLANK = Task(
    task_id="t1",
    pipeline="videos",
    phase="script",
    user_id="",
    title="",
    parent_id=None,
    created_at=NOW,
    scheduled_time=None,
    run_at=NOW,
    started_at=None,
    completed_at=None,
    updated_at=NOW,
    elapsed_time=None,
    priority=0,
    status=Status.WAITING,
    awaiting=None,
    cancel_requested=False,
    attempt=0,
    retry_count=0,
    max_retries=3,
    own_retries=False,
    retry_base=0,
    crash_count=0,
    rescue_count=0,
    generation=0,
    error=None,
    error_class=None,
    leased_by=None,
    leased_until=None,
    token=0,
    version=1,
    limit_key="",
    slot=None,
    key_slot=None,
    unique_key=None,
    unique_for=None,
    held_key=None,
    held_until=None,
    children=None,
    purged_at=None,
    payload_json="null",
    results_json="{}",
    steps_json="{}",
    signals_json="[]",
    progress_json="null",
    metadata_json="{}",
    logs_json="[]",
)


def a_task(task_id: str = "t1", **changes: Any) -> Task:
    """Return a new task at `script`, due now; `payload` and `unique` are values as in `Queue.add`."""
    if "payload" in changes:
        changes["payload_json"] = values.encode(changes.pop("payload"))
    if "unique" in changes:
        changes["unique_key"] = changes["held_key"] = changes.pop("unique")
    return replace(_BLANK, task_id=task_id, **changes)


def claimed(task: Task, now: datetime = NOW, worker: str = "w1") -> Task:
    return rules.claimed(task, worker, now + LEASE, now, None, None)


def in_status(status: Status, now: datetime = NOW, **changes: Any) -> Task:
    """Return a task that reached a status through the rules."""
    task = a_task(**changes)
    match status:
        case Status.WAITING:
            return task
        case Status.PROCESSING:
            return claimed(task, now)
        case Status.COMPLETED:
            return rules.finish(claimed(task, now), '"done"', now)
        case Status.FAILED:
            return rules.fail(claimed(task, now), HOPELESS, PLAN, now)
        case Status.CANCELLED:
            return rules.cancel(task, now)


# ── hypothesis strategies ─────────────────────────────────────────────────────────────────────────────────────────

texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    [
        "",
        "조수",
        "🎬🌊",
        "a%b_c\\",
        "'; DROP TABLE task_queue; --",
        '"',
        "\u2028",
        "\ufeff",
        "e\u0301",
        "\x7f",
        "\r\n",
        "$x",
    ]
)
"""Text that can be stored: any characters except NUL and lone surrogates."""

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
"""Values that JSON can represent."""

moments = st.datetimes(datetime(1970, 1, 1), datetime(9998, 12, 31), timezones=st.just(UTC)).map(
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
)
