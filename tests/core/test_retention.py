"""Retention: which ended tasks are deleted, and when."""

from collections.abc import Iterable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from onerow import Pipeline
from onerow.core import rules
from onerow.core.errors import BadInput
from onerow.core.plan import Plan
from onerow.core.retention import Retention, Sweep, completed_unseen, parse_keep
from onerow.core.status import CANCELLED, COMPLETED, FAILED
from tests.samples import NOW, PLAN, a_task, claimed

DAY = timedelta(days=1)


def kept(**keep: timedelta) -> Plan:
    return replace(PLAN, keep=keep)


def test_one_age_is_for_every_status() -> None:
    assert parse_keep("30d") == {"cancelled": 30 * DAY, "completed": 30 * DAY, "failed": 30 * DAY}
    assert parse_keep({"completed": "7d", "failed": 90}) == {"completed": 7 * DAY, "failed": timedelta(seconds=90)}
    assert parse_keep(None) == {}


@pytest.mark.parametrize(
    "keep, problem",
    [
        ({"done": "7d"}, "'done' is not the status of ended tasks"),
        ({"waiting": "7d"}, "'waiting' is not the status of ended tasks"),
        ({"completed": "soon"}, "keep.completed: can't read the duration 'soon'"),
        ("never", "can't read the duration"),
        ({"failed": -1}, "between 0 seconds"),
    ],
)
def test_bad_retention(keep: object, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        Pipeline("p", keep=keep)  # type: ignore[call-overload]


def test_a_pipeline_wins_over_its_queue_by_status() -> None:
    retention = Retention(parse_keep({"completed": "7d", "failed": "30d"}))
    assert retention.of(kept(completed=DAY)) == {"completed": DAY, "failed": 30 * DAY}


def sweeps(found: Iterable[Sweep]) -> list[tuple[object, ...]]:
    return [tuple(each) for each in found]


def test_sweeps_are_by_pipeline_only_if_one_has_its_own_retention() -> None:
    retention = Retention(parse_keep({"completed": "7d", "failed": "7d", "cancelled": "1d"}))
    assert sweeps(retention.sweeps({"a": PLAN, "b": PLAN})) == [
        (None, {CANCELLED}, DAY),
        (None, {COMPLETED, FAILED}, 7 * DAY),
    ]
    assert sweeps(Retention().sweeps({"a": kept(completed=DAY), "b": PLAN})) == [("a", {COMPLETED}, DAY)]
    assert sweeps(Retention().sweeps({"a": PLAN})) == []


def test_what_is_deleted_at_its_end() -> None:
    plan = kept(completed=timedelta(0), failed=timedelta(0))
    held = claimed(a_task("t1"), NOW)
    done = rules.finish(held, "1", NOW)
    assert Retention().deletes_at_end(done, plan)
    assert Retention(parse_keep("0s")).deletes_at_end(done, PLAN)
    assert not Retention(parse_keep("0s")).deletes_at_end(done, kept(completed=DAY))
    assert not Retention().deletes_at_end(done, PLAN)
    assert not Retention().deletes_at_end(held, plan)
    assert not Retention().deletes_at_end(rules.cancel_itself(held, "", NOW), plan)
    child = replace(held, parent_id="parent")
    assert not Retention().deletes_at_end(rules.finish(child, "1", NOW), plan)
    unique = replace(held, unique_key="k", held_key="k")
    assert Retention().deletes_at_end(rules.finish(unique, "1", NOW), plan)
    remembered = replace(unique, unique_for="7d")
    assert not Retention().deletes_at_end(rules.finish(remembered, "1", NOW), plan)


def test_ends_that_are_still_read_from_the_row_are_stored() -> None:
    retention = Retention(parse_keep({"completed": "0s", "failed": "7d"}), at_least=timedelta(hours=1))
    assert not retention.deletes_at_end(rules.finish(claimed(a_task("t1"), NOW), "1", NOW), PLAN)
    assert sweeps(retention.sweeps({})) == [(None, {COMPLETED}, timedelta(hours=1)), (None, {FAILED}, 7 * DAY)]


def test_a_task_that_was_deleted_at_its_end_has_no_results() -> None:
    seen = replace(claimed(a_task("t1"), NOW), results_json='{"script":1}')
    after = completed_unseen(seen, NOW)
    assert (after.status, after.results, after.completed_at) == (COMPLETED, {}, NOW)
