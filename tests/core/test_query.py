"""The query language: the meaning of each key, and errors with a hint."""

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from onerow.core.errors import BadInput, BadQuery, with_fix
from onerow.core.filters import Filter, narrowed, reads_text
from onerow.core.query import KEYS, Query, parse_query
from onerow.core.status import FAILED, PROCESSING, WAITING, Status
from tests.samples import NOW, texts

HOUR = timedelta(hours=1)
FAILURES = Filter(statuses=frozenset({FAILED}))
PARKED = Filter(statuses=frozenset({WAITING}), parked=True)


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
        ("status:parked", {"statuses": frozenset({WAITING}), "parked": True}),
        ("status:parked,waiting", {"statuses": frozenset({WAITING})}),
        ("status:failed,parked", {"any_of": (FAILURES, PARKED)}),
        ("status:failed OR status:parked", {"any_of": (FAILURES, PARKED)}),
        ("(status:failed or status:parked)", {"any_of": (FAILURES, PARKED)}),
        (
            "status:failed or user:u1 phase:video",
            {"any_of": (FAILURES, Filter(user_id="u1", phases=frozenset({"video"})))},
        ),
        ("phase:video (status:failed or user:u1)", {"phases": ["video"], "any_of": (FAILURES, Filter(user_id="u1"))}),
        (
            "(status:failed or user:u1) and (key:a or key:b)",
            {
                "any_of": (FAILURES, Filter(user_id="u1")),
                "all_of": (Filter(any_of=(Filter(limit_key="a"), Filter(limit_key="b"))),),
            },
        ),
        ("-status:failed", {"none_of": (FAILURES,)}),
        ("not status:failed", {"none_of": (FAILURES,)}),
        ("-(status:failed or user:u1)", {"none_of": (FAILURES, Filter(user_id="u1"))}),
        (
            "-(status:failed user:u1) -phase:a",
            {"none_of": (Filter(statuses=frozenset({FAILED}), user_id="u1"), Filter(phases=frozenset({"a"})))},
        ),
        ("not not user:u1", {"none_of": (Filter(none_of=(Filter(user_id="u1"),)),)}),
        ("tides -draft", {"text": "tides", "none_of": (Filter(text="draft"),)}),
        ('-"low tide"', {"none_of": (Filter(text="low tide"),)}),
        ('"or" "-x" "(y)"', {"text": "or -x (y)"}),
        ("tea or coffee", {"any_of": (Filter(text="tea"), Filter(text="coffee"))}),
        ('title:"f(x)"', {"title_text": "f(x)"}),
        ("title:a title:b", {"title_text": "a", "all_of": (Filter(title_text="b"),)}),
        ("status:failed,waiting status:waiting,processing", {"statuses": frozenset({WAITING})}),
        ("metadata.order.id:7", {"metadata": (("order.id", "7"),)}),
        ("id:3f2a", {"id_prefix": "3f2a"}),
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
    assert parse_query(query, NOW) == Query(Filter(**fields))


@pytest.mark.parametrize(
    "query, hint",
    [
        ("status:borken", "choose one of cancelled"),
        ("stauts:failed", "column 1: no key stauts:; did you mean 'status:'"),
        ("added:1h", "column 1: no key added:; did you mean 'age:'"),
        ("colour:red", "choose one of "),
        ("status:", "needs a value"),
        ("age:soon", "can't read the duration"),
        ("is:happy", "choose one of cancelling, due"),
        ("is:parked", "status:parked"),
        ('some "text', "column 6: this quotation mark is never closed"),
        ("user:a user:b", "column 8: this contradicts an earlier condition"),
        ("status:failed stauts:x", "column 15: no key stauts:; did you mean 'status:'"),
        ("status:failed,waitng", "column 1: no status 'waitng'; did you mean 'waiting'"),
        ("user:a or", "column 10: a condition is missing here"),
        ("or user:a", "column 1: a condition is missing here"),
        ("user:a or or user:b", "column 11: a condition is missing here"),
        ("user:a ()", "column 9: a condition is missing here"),
        ("user:a and", "column 8: AND needs a condition on both sides"),
        ("user:a not", "column 8: a condition must follow"),
        ("low - tide", "column 5: a condition must follow"),
        ("(user:a", "column 1: this parenthesis is never closed"),
        ("user:a)", "column 7: nothing opened this parenthesis"),
        ("title:f(x)", "column 8: quote a text with parentheses"),
        ("(a)b", "column 4: a blank must follow"),
        ("sort:newset", "column 1: no order 'newset'; did you mean 'newest'"),
        ("sort:newest user:a sort:oldest", "column 20: sort: may stand only once"),
        ("(sort:newest)", "column 2: sort: orders the whole result"),
        ("-sort:newest", "column 2: sort: is an order"),
        ("status:failed sort:due", "column 15: this contradicts"),
        (" or ".join(["user:a"] * 101), "at most 100 conditions"),
        ("-" * 30 + "a", "at most 20 groups"),
        ("age:>2026-99-99", "is not a time"),
    ],
)
def test_an_invalid_query_is_refused_with_a_hint(query: str, hint: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_query(query, NOW)
    assert isinstance(refused.value, BadQuery)
    assert refused.value.column
    assert hint in with_fix(refused.value)


@given(texts)
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with suppress(BadInput):
        parse_query(text, NOW)


def test_every_key_is_documented() -> None:
    samples = {"status": "failed", "age": "1h", "ended": "1h", "is": "due", "sort": "oldest"}
    page = Path("docs/query-language.md").read_text(encoding="utf-8")
    for key in KEYS:
        assert KEYS[key]
        assert f"`{key}:" in page
        assert parse_query(f"{key.replace('…', 'x')}:{samples.get(key, 'x')}", NOW) != Query(Filter())


@pytest.mark.parametrize("order", ["newest", "oldest", "ended", "latest"])
def test_a_query_may_name_its_order(order: str) -> None:
    assert parse_query(f"sort:{order}", NOW) == Query(Filter(), order)  # type: ignore[arg-type]
    assert parse_query(f"status:failed sort:{order} user:u1", NOW).order == order


def test_the_order_due_asks_for_waiting_tasks() -> None:
    assert parse_query("user:u1 sort:due", NOW) == Query(Filter(user_id="u1", statuses=["waiting"]), "due")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "query, implied",
    [
        ("status:failed or status:parked", {"statuses": {FAILED, WAITING}}),
        ("-status:failed -status:cancelled", {"statuses": set(Status) - {FAILED, Status.CANCELLED}}),
        ("-(status:failed user:u1)", {}),
        ("status:failed or user:u1", {}),
        ("phase:a user:u1 or phase:b user:u1", {"phases": {"a", "b"}, "user_id": "u1"}),
        ("(pipeline:p status:failed) or (pipeline:p status:waiting)", {"pipeline": "p", "statuses": {FAILED, WAITING}}),
        ("status:failed -status:failed", {"statuses": {FAILED}}),
    ],
)
def test_a_filter_says_what_its_groups_imply(query: str, implied: dict[str, Any]) -> None:
    where = parse_query(query, NOW).where
    found = narrowed(where)
    for field in ("statuses", "phases", "pipeline", "user_id"):
        expected = implied.get(field, getattr(Filter(), field))
        assert getattr(found, field) == expected
    assert (found.any_of, found.all_of, found.none_of) == (where.any_of, where.all_of, where.none_of)


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
        ({"statuses": ["borken"]}, "no status 'borken'; choose one of cancelled"),
    ],
)
def test_an_invalid_filter_is_refused_with_a_hint(fields: dict[str, Any], hint: str) -> None:
    with pytest.raises(BadInput) as refused:
        Filter(**fields)
    assert hint in with_fix(refused.value)


@pytest.mark.parametrize(
    "query, expected",
    [
        ("tides", True),
        ("title:tides status:failed", True),
        ('error:"timed out"', True),
        ("payload.topic:tides", True),
        ("status:failed or title:tides", True),
        ("-title:tides", True),
        ("status:failed user:u1 error:network age:>1h", False),
        ("id:t1 or not phase:video", False),
    ],
)
def test_a_query_reads_text_if_a_text_or_payload_is_in_any_part_of_it(query: str, expected: bool) -> None:
    assert reads_text(parse_query(query, NOW).where) == expected
