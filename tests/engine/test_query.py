"""The query language: the meaning of each key, and errors with a hint."""

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given

from onerow.core.errors import BadInput
from onerow.core.filters import Filter
from onerow.core.status import FAILED, PROCESSING, WAITING, Status
from onerow.engine.views.query import KEYS, read_query
from tests.samples import NOW, texts

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    "query, fields",
    [
        ("", {}),
        ("   ", {}),
        ("status:failed", {"statuses": frozenset({FAILED})}),
        ("status:waiting,processing", {"statuses": frozenset({WAITING, PROCESSING})}),
        ("pipeline:videos phase:video,youtube", {"pipeline": "videos", "phases": frozenset({"video", "youtube"})}),
        ("user:u1", {"user_id": "u1"}),
        ("user:", {"user_id": ""}),
        ("error:timeout", {"error_class": "timeout"}),
        ("error:refused", {"error_text": "refused"}),
        ('error:"no such topic"', {"error_text": "no such topic"}),
        ("title:조수", {"title_text": "조수"}),
        ("key:k unique:u parent:p worker:w", {"limit_key": "k", "unique_key": "u", "parent_id": "p", "leased_by": "w"}),
        ("signal:images.ready", {"awaiting": "signal:images.ready"}),
        ("age:>1h", {"created_before": NOW - HOUR}),
        ("age:<1h30m", {"created_after": NOW - 1.5 * HOUR}),
        ("age:10m", {"created_after": NOW - HOUR / 6}),
        ("ended:<1h", {"ended_after": NOW - HOUR}),
        ("ended:>=2h", {"ended_before": NOW - 2 * HOUR}),
        ("is:parked", {"parked": True}),
        ("is:due", {"statuses": frozenset({WAITING}), "parked": False, "due_before": NOW}),
        ("is:cancelling", {"cancel_requested": True}),
        ("payload.topic:tide", {"payload": (("topic", "tide"),)}),
        ("payload.user.name:bob payload.n:5", {"payload": (("user.name", "bob"), ("n", "5"))}),
        ("some text", {"text": "some text"}),
        ('"status:failed"', {"text": "status:failed"}),
        ("some status:failed text", {"text": "some text", "statuses": frozenset({FAILED})}),
        ("status:failed status:failed", {"statuses": frozenset({FAILED})}),
    ],
)
def test_a_query_is_parsed_to_a_filter(query: str, fields: dict[str, Any]) -> None:
    assert read_query(query, NOW) == Filter(**fields)


@pytest.mark.parametrize(
    "query, hint",
    [
        ("status:borken", "there are waiting"),
        ("stauts:failed", "did you mean status:"),
        ("colour:red", "there are status:"),
        ("status:", "needs a value"),
        ("age:soon", "can't read the duration"),
        ("is:happy", "is:parked"),
        ('some "text', "never closes"),
        ("user:a user:b", "twice"),
        ("age:>2026-99-99", "is not a time"),
    ],
)
def test_an_invalid_query_is_refused_with_a_hint(query: str, hint: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_query(query, NOW)
    assert hint in str(refused.value)


@given(texts)
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with suppress(BadInput):
        read_query(text, NOW)


def test_every_key_is_documented() -> None:
    samples = {"status": "failed", "age": "1h", "ended": "1h", "is": "due", "payload.…": "x"}
    for key in KEYS:
        assert KEYS[key]
        assert read_query(f"{key.replace('…', 'x')}:{samples.get(key, 'x')}", NOW) != Filter()


@pytest.mark.parametrize(
    "names", [["failed", "waiting"], ("failed", WAITING), {FAILED, "waiting"}, iter(["failed", "waiting"])]
)
def test_a_filter_takes_any_iterable_of_statuses(names: Any) -> None:
    assert Filter(statuses=names) == Filter(statuses=frozenset({FAILED, WAITING}))
    assert all(type(status) is Status for status in Filter(statuses=["failed"]).statuses)  # type: ignore[arg-type]


def test_a_filter_takes_any_iterable_of_phases() -> None:
    assert Filter(phases=["video", "image"]).phases == frozenset({"video", "image"})  # type: ignore[arg-type]
    assert Filter(phases=[]) == Filter()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields, hint",
    [
        ({"statuses": "failed"}, "write statuses=['failed']"),
        ({"phases": "video"}, "write phases=['video']"),
        ({"phases": 7}, "phases takes several names"),
        ({"phases": None}, "write phases=['video']"),
        ({"phases": [7]}, "phases takes names like 'video', not 7"),
        ({"statuses": ["borken"]}, "no status 'borken'; there are waiting"),
    ],
)
def test_an_invalid_filter_is_refused_with_a_hint(fields: dict[str, Any], hint: str) -> None:
    with pytest.raises(BadInput) as refused:
        Filter(**fields)
    assert hint in str(refused.value)
