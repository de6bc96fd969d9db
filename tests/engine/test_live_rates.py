"""Limits and rates that operators change while workers run."""

from datetime import timedelta
from typing import Any

import pytest

from onerow import BadInput, Pipeline, Status
from onerow.core import rules
from onerow.core.filters import Filter
from onerow.core.rates import Window, admit, parse_rate
from onerow.core.times import read, since_epoch
from onerow.engine.control import definitions
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views
from tests.engine.conftest import until, working
from tests.engine.kit import ON_SQLITE
from tests.samples import NOW, SECOND, a_task, claimed

HOUR = timedelta(hours=1)
DONE = Filter(statuses=frozenset({Status.COMPLETED}))


def calls(**options: Any) -> Pipeline:
    pipeline = Pipeline("calls")

    @pipeline.phase(**options)
    def call(job: Any) -> None: ...

    return pipeline


def completed(queue: Queue) -> int:
    return sum(line.count for line in queue.count(DONE))


def test_setting_one_limit_leaves_the_others_and_records_who_and_why(queue: Queue) -> None:
    queue.publish(calls(concurrency=4, rate="60/min"))
    queue.set_limit("calls", "call", rate_per_key="2/s", by="ann", reason="their API is slow")
    queue.set_limit("calls", "call", rate="10/min", by="bob")
    queue.set_limit("calls", "call", concurrency=2, by="ann", reason="the encoder is broken")
    (line,) = Views(queue).phases()
    assert (line.lane.limit, line.lane.per_key, line.rate, line.rate_per_key) == (2, None, "10/min", "2/s")
    assert line.setting is not None
    assert line.setting.limits == {"rate_per_key": "2/s", "rate": "10/min", "concurrency": 2}
    assert (line.setting.by, line.setting.reason) == ("ann", "the encoder is broken")
    assert abs(read(line.setting.at) - queue.store.now()) < timedelta(minutes=5)
    queue.set_limit("calls", "call", rate=None)
    assert Views(queue).phases()[0].rate == ""
    assert queue.reset_limit("calls", "call")
    (line,) = Views(queue).phases()
    assert (line.lane.limit, line.rate, line.rate_per_key, line.setting) == (4, "60/min", "", None)
    assert not queue.reset_limit("calls", "call")


@pytest.mark.parametrize("rate", ["often", "0/s", "", 5, "5"])
def test_a_bad_rate_changes_nothing(queue: Queue, rate: Any) -> None:
    queue.publish(calls())
    with pytest.raises(BadInput) as raised:
        queue.set_limit("calls", "call", concurrency=3, rate=rate)
    assert raised.value.field == "rate"
    assert queue.store.notes(definitions.LIMIT) == []


def test_a_rate_set_while_a_worker_runs_applies_and_a_faster_one_too(queue: Queue) -> None:
    pipeline = calls()
    with working(queue, pipeline) as worker:
        queue.set_limit("calls", "call", rate="3/h", by="ann", reason="too many")
        until(lambda: worker._background.controls.rated, "the worker reads the rate")
        queue.add_many(pipeline, range(10))
        until(lambda: completed(queue) == 3, "three starts")
        waiting = queue.find("status:waiting", limit=1).tasks[0]
        reason = until(lambda: why if (why := Views(queue).why(waiting)).code == "rate" else None, "why")
        assert "The rate 3/h of call, set by ann because: too many, is used up" in reason.sentence
        assert completed(queue) == 3
        queue.set_limit("calls", "call", rate="1000/s")
        until(lambda: completed(queue) == 10, "the rest")


def test_a_rate_in_force_applies_to_pulling(queue: Queue) -> None:
    pipeline = calls()
    queue.publish(pipeline)
    queue.set_limit("calls", "call", rate="3/h")
    queue.add_many(pipeline, range(10))
    assert [len(queue.claim("calls", limit=n)) for n in (2, 5, 5)] == [2, 1, 0]


@ON_SQLITE
def test_a_worker_with_older_code_obeys_a_rate_of_the_newer_definition(queue: Queue) -> None:
    old = calls()
    with working(queue, old) as worker:
        definitions.publish(queue.store, [calls(rate="2/h").plan])
        until(lambda: worker._background.controls.rated, "the worker reads the definition")
        queue.add_many(old, range(6))
        until(lambda: completed(queue) == 2, "two starts")
        until(
            lambda: Views(queue).why(queue.find("status:waiting", limit=1).tasks[0]).code == "rate",
            "the rate is used up",
        )
        assert completed(queue) == 2


def test_tasks_put_off_by_a_slow_rate_per_key_become_due_with_a_faster_one(queue: Queue) -> None:
    pipeline = calls(rate_per_key="1/h")
    queue.publish(pipeline)
    for _ in range(6):
        queue.add(pipeline, 1, limit_key="k")
    assert len(queue.claim(pipeline, limit=10)) == 1
    put_off = queue.find("status:waiting").tasks
    assert max(task.run_at for task in put_off) > queue.store.now() + 4 * HOUR
    queue.set_limit("calls", "call", rate_per_key="2/h")
    assert len(queue.claim("calls", limit=10)) == 1, "two in an hour"
    late = max(task.run_at for task in queue.find("status:waiting").tasks)
    assert late < queue.store.now() + 3 * HOUR, "put off by the new rate, not by the old one"
    queue.set_limit("calls", "call", rate_per_key=None)
    assert len(queue.claim("calls", limit=10)) == 4


def test_a_worker_runs_tasks_that_the_old_rate_had_put_off(queue: Queue) -> None:
    pipeline = calls(rate_per_key="1/h")
    queue.add_many(pipeline, range(8), limit_key="k")
    with working(queue, pipeline):
        until(lambda: completed(queue) == 1 and len(queue.find("status:waiting").tasks) == 7, "one start")
        until(lambda: min(task.run_at for task in queue.find("status:waiting").tasks) > queue.store.now(), "put off")
        queue.set_limit("calls", "call", rate_per_key="1000/s")
        until(lambda: completed(queue) == 8, "the rest")


def test_booked_times_of_another_rate_do_not_count() -> None:
    slow, fast, now = parse_rate("1/h"), parse_rate("2/h"), since_epoch(NOW)
    window = admit(Window(), ["k"] * 50, None, slow, now).window
    assert window.booked["k"] > now + 48 * 3_600_000
    verdict = admit(window, ["k"] * 3, None, fast, now)
    assert verdict.admitted == [0]
    assert max(until for _, until in verdict.put_off) <= now + 2 * 3_600_000
    same = admit(window, ["k"], None, slow, now)
    assert same.put_off == [(0, window.booked["k"])], "at the same rate later tasks go behind the booked ones"


def test_only_tasks_that_a_rate_put_off_are_released() -> None:
    late = a_task(limit_key="k", run_at=NOW + HOUR)
    assert rules.was_put_off(late, NOW)
    assert rules.release(late, NOW).run_at == NOW
    others = [
        a_task(limit_key="k"),
        a_task(run_at=NOW + HOUR),
        a_task(limit_key="k", run_at=NOW + HOUR, scheduled_time=NOW + HOUR),
        a_task(limit_key="k", run_at=NOW + HOUR, error="refused"),
        a_task(limit_key="k", run_at=NOW + HOUR, awaiting="signal:go"),
        rules.snooze(claimed(a_task(limit_key="k")), HOUR, NOW),
        rules.sleep(claimed(a_task(limit_key="k")), "sleep:1", HOUR, NOW),
        rules.reschedule(a_task(limit_key="k"), NOW + HOUR, NOW),
        rules.hand_back(claimed(a_task(limit_key="k")), NOW, run_at=NOW + 30 * SECOND, note="no GPU"),
    ]
    assert [rules.was_put_off(task, NOW) for task in others] == [False] * len(others)
