"""The report and the list of posts: sums that are right, and text that fits a terminal."""

import io
import json
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from rich.console import Console

from ai_tagger.jobs import tagging
from ai_tagger.offline.model_server import ModelServer
from ai_tagger.report import AccountReport, Report, report
from ai_tagger.tables import post_line, print_report
from apps.ai_tagger.tests.kit import Desk, a_post
from onerow.engine.control.definitions import set_hold

GYM = {"workspace": "gym", "account": "헬스장"}


def an_account(**changes: Any) -> AccountReport:
    fields: dict[str, Any] = {"workspace": "cafe", "account": "a", "took_part_in_calls": 0, "input_tokens": 0}
    fields |= {"output_tokens": 0, "cost": Decimal(0), "known_cost": Decimal(0)}
    return AccountReport(**(fields | changes))


def shown(*accounts: AccountReport, calls: int = 0, held: str | None = None) -> str:
    """Print a report at 80 columns; return what it prints."""
    console = Console(width=80, file=(out := io.StringIO()), highlight=False)
    print_report(Report(list(accounts), calls, held), console)
    assert max(map(len, out.getvalue().splitlines())) <= 80
    return out.getvalue()


def as_json(desk: Desk, *words: str) -> Any:
    return json.loads(desk.run(*words, "--json").stdout)


def test_a_call_for_two_accounts_is_one_call_in_the_sum(desk: Desk, model: ModelServer) -> None:
    desk.sync(a_post(1), a_post(2, account="other"))
    desk.work()
    assert len(model.calls) == 1
    found = as_json(desk, "report")
    assert [each["took_part_in_calls"] for each in found["accounts"]] == [1, 1]
    assert found["calls"] == 1
    assert "calls: 1 " in desk.run("report").stdout


def test_the_usage_of_deleted_accounts_stays_in_the_sum(desk: Desk, model: ModelServer) -> None:
    desk.sync(a_post(1), a_post(2, **GYM), a_post(3, account="other"))
    desk.work()
    reader = desk.member("cafe")
    desk.sql("DELETE FROM workspaces WHERE name = 'gym'")
    desk.sql("DELETE FROM workspace_threads_accounts WHERE name = 'other'")
    found = as_json(desk, "report")
    deleted = [each for each in found["accounts"] if each["account"] is None]
    assert {each["workspace"] for each in deleted} == {"cafe", None}
    ((paid,),) = desk.sql("SELECT sum(cost) FROM llm_usage_logs")
    assert sum(Decimal(each["cost"]) for each in found["accounts"]) == paid > 0
    printed = desk.run("report").stdout
    assert "cafe · deleted" in printed
    assert f"cost: {paid:.6f}" in printed
    assert {each["workspace"] for each in json.loads(desk.run("report", "--json", url=reader).stdout)["accounts"]} == {
        "cafe"
    }


def test_a_cost_that_is_unknown_is_not_shown_as_nothing(desk: Desk) -> None:
    desk.sync(a_post(1), a_post(2, **GYM))
    desk.sql(
        "INSERT INTO llm_usage_logs (call_id, workspace_id, workspace_threads_account_id, model, posts, cost) SELECT "
        "gen_random_uuid(), workspace_id, id, 'm', 1, CASE n WHEN 2 THEN 0.0000001 END "
        "FROM workspace_threads_accounts, generate_series(1, 2) AS n WHERE name <> '헬스장' OR n = 1"
    )
    cafe, gym = as_json(desk, "report")["accounts"]
    assert (cafe["cost"], cafe["known_cost"]) == (None, "0.0000001")
    assert (gym["cost"], gym["known_cost"]) == (None, "0")
    assert "?" in desk.run("report", "--workspace", "gym").stdout
    assert "cost: ≥ 0.000000" in " ".join(desk.run("report").stdout.split())


def test_costs_without_prices_are_explained_once() -> None:
    accounts = [an_account(account=name, input_tokens=1_500) for name in "ab"]
    assert shown(*accounts).count("TAGGER_INPUT_PRICE") == 1
    assert "TAGGER_INPUT_PRICE" not in shown(an_account())
    paid = an_account(input_tokens=1, cost=Decimal("0.5"), known_cost=Decimal("0.5"))
    assert "TAGGER_INPUT_PRICE" not in shown(*accounts, paid)


def test_nothing_vanishes_at_80_columns() -> None:
    one = an_account(
        workspace="週末電台" * 8, account="a" * 60, posts=1_234_567, tagged=1_000_000, pending=234_000, processing=123,
        failed=444, took_part_in_calls=123_456, cost=None, known_cost=Decimal("1234.123456"), tags={"food": 12},
        error="no\n\x1b[31mreason",
    )  # fmt: skip
    text = shown(one, calls=3)
    joined = "".join(text.split())
    assert "…" not in text
    assert joined.count("電") >= 8
    assert text.count("a" * 5) >= 3
    for number in ("1234567", "1000000", "234000", "123", "444", "123456", "≥1234.123456"):
        assert number in joined
    assert "food 12" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("seconds, words", [(59.4, "59 s"), (300, "5 min"), (10_800, "3 h"), (864_000, "10 days")])
def test_the_oldest_job_in_a_unit_that_fits(seconds: float, words: str) -> None:
    text = shown(an_account(pending=2, processing=1, oldest_pending_seconds=seconds))
    assert f"backlog: 2 pending, 1 processing, the oldest for {words} calls:" in " ".join(text.split())


def test_a_report_of_one_workspace(desk: Desk, model: ModelServer) -> None:
    desk.sync(a_post(1), a_post(2, **GYM))
    desk.work()
    found = as_json(desk, "report", "--workspace", "gym")
    assert [each["workspace"] for each in found["accounts"]] == ["gym"]
    assert found["calls"] == 1
    assert "no workspace 'bar'" in desk.run("report", "--workspace", "bar").stderr


def test_the_report_says_why_no_call_starts(desk: Desk) -> None:
    desk.sync(a_post())
    login = desk.member("cafe")
    store = desk.queue.store
    set_hold(
        store, tagging.name, "tag", store.now() + timedelta(minutes=5), "the provider says: too many requests (429)"
    )
    assert "held: the provider says: too many requests (429), until 2" in " ".join(desk.run("report").stdout.split())
    assert "held" not in desk.run("report", url=login).stdout
    assert report(desk.settings).held


def test_posts_of_a_workspace_one_line_each(desk: Desk) -> None:
    desk.sync(*(a_post(number, text=f"{number}\n\x1b[31m{'x' * 200}") for number in (3, 1, 2)), a_post(4, **GYM))
    lines = desk.run("posts", "--workspace", "cafe").stdout.splitlines()
    assert len(lines) == 3
    assert "\x1b" not in "".join(lines)
    assert lines[0].endswith(f"  cafe · 카페 ☕  [not tagged yet]  1 [31m{'x' * 93}…")
    listed = as_json(desk, "posts", "--workspace", "cafe")
    assert [each["text"][0] for each in listed] == ["1", "2", "3"]
    assert listed[0]["workspace"] == "cafe"
    assert len(listed[0]["text"]) == 207
    assert "no account 'none'" in desk.run("posts", "--account", "none").stderr
    assert "no workspace 'none'" in desk.run("posts", "--workspace", "none").stderr


def test_names_and_tags_cannot_control_the_terminal() -> None:
    post = {
        "id": "1",
        "workspace": "w\x9b",
        "account": "a\u202eb",
        "tags": ["t\nu"],
        "current": True,
        "text": "x\u2028y",
    }
    assert post_line(post) == "1  w · a b  [t u]  x y"
