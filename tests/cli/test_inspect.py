"""Output of the inspecting commands against golden files, as text and as JSON."""

import json
import re
import shlex
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from onerow.core.schedule import Cron
from onerow.engine.control import definitions
from onerow.engine.control.schedules import PROGRESS
from onerow.engine.views import views
from onerow.ports import Note
from onerow.stores.sqlite import SqliteStore
from tests.cli.conftest import VIDEOS, Run
from tests.samples import NOW, SECOND, a_task

Golden = Callable[[str, str], None]

LOOKS = {
    "list": ["list"],
    "list-failed": ["list", "status:failed"],
    "list-page": ["list", "--limit", "3"],
    "list-nothing": ["list", "title:nothing"],
    "counts": ["counts"],
    "counts-query": ["counts", "user:u1"],
    "show-failed": ["show", "failed"],
    "show-runs": ["show", "runs"],
    "why-parked": ["why", "parked"],
    "why-waits": ["why", "waits"],
    "why-failed": ["why", "failed"],
    "logs": ["logs", "failed"],
    "failures": ["failures"],
    "workers": ["workers"],
    "inboxes": ["inboxes"],
    "cron": ["cron"],
    "stats": ["stats"],
    "watch": ["watch", "--once"],
}


@pytest.mark.parametrize("name", LOOKS)
def test_plain_text_output(run: Run, town: str, golden: Golden, name: str) -> None:
    result = run(*LOOKS[name], "--store", town)
    assert "\x1b" not in result.output, "what others wrote must not steer a terminal"
    golden(f"{name}.txt", f"{result.stdout}--- stderr\n{result.stderr}")


@pytest.mark.parametrize("name", LOOKS)
def test_json_output(run: Run, town: str, golden: Golden, name: str) -> None:
    result = run(*LOOKS[name], "--store", town, "--json")
    assert result.stderr == ""
    if name == "logs":
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        assert [line["text"] for line in lines] == ["looking for \x1b[2Jthe topic", "it is not there"]
        return
    assert json.loads(result.stdout) is not None
    golden(f"{name}.json", result.stdout.replace(town, "sqlite:///town.db"))


def test_columns_align_with_korean_and_japanese_text(run: Run, town: str) -> None:
    lines = run("list", "--store", town).stdout.splitlines()
    header, rows = lines[0], lines[1:]
    place = cell_len(header[: header.index("  added") + len("  added")])
    for row in rows:
        wide = 0
        shown = ""
        for char in row:
            wide += cell_len(char)
            shown += char
            if wide == place:
                break
        assert wide == place, row
        assert shown[-1] in "smhd", row


def test_the_cursor_of_a_page_leads_to_the_next(run: Run, town: str) -> None:
    seen: list[str] = []
    after: list[str] = []
    while True:
        page = json.loads(run("list", "--limit", "3", "--json", "--store", town, *after).stdout)
        seen += [task["task_id"] for task in page["tasks"]]
        if page["next"] is None:
            break
        after = ["--after", page["next"]]
    assert seen == ["waits", "later", "parked", "runs", "again", "failed", "done", "gone"]


@pytest.mark.parametrize(
    "words, what, fix",
    [
        (["list", "stauts:failed"], "query, column 1: no key stauts:", "quote it"),
        (["list", "--after", "nonsense"], "is not a cursor", "pass the `next` of a page"),
        (["show", "missing"], "no task 'missing'", "look at: onerow list"),
        (["why", "missing"], "no task 'missing'", "look at: onerow list"),
        (["logs", "missing"], "no task 'missing'", "look at: onerow list"),
        (["stats", "--over", "soon"], "can't read the duration 'soon'", "write it like"),
    ],
)
def test_an_error_is_two_lines_problem_and_fix(run: Run, town: str, words: list[str], what: str, fix: str) -> None:
    result = run(*words, "--store", town, code=64)
    first, second = result.stderr.splitlines()
    assert first.startswith("onerow: ")
    assert what in first
    assert fix in second
    assert result.stdout == ""


def test_a_schedule_that_fails_shows_why(run: Run, town: str) -> None:
    store = SqliteStore(town.removeprefix("sqlite:///"))
    crons = (Cron(name="daily", expression="0 9 * * *"), Cron(name="hourly", expression="0 * * * *"))
    definitions.publish(store, [replace(VIDEOS, crons=crons)])
    last = {"last": "2026-11-15T00:00:00.000Z"}
    store.write_notes(
        [
            Note(PROGRESS, "videos/daily", last | {"error": "payload needs a topic"}),
            Note(PROGRESS, "videos/hourly", last),
        ]
    )
    store.close()
    head, daily, hourly = run("cron", "--store", town).stdout.splitlines()
    assert head.endswith("problem")
    assert daily.endswith("adds no task: payload needs a topic")
    assert "adds no task" not in hourly
    assert (
        "✗ schedule daily of videos adds no task: payload needs a topic"
        in run("doctor", "--store", town, code=1).output
    )


@pytest.mark.parametrize("query", ["title:tides", "tides"])
def test_a_text_search_that_runs_out_of_time_says_how_far_it_looked_and_how_to_go_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.setattr(views, "TEXT_SEARCH_FOR", timedelta(0))
    store = SqliteStore(tmp_path / "many.db")
    store.prepare()
    store.insert([a_task(f"t{n:03d}", title="x" if n else "Tides", created_at=NOW + n * SECOND) for n in range(700)])
    store.close()
    found = run("list", query, "--store", store.url)
    assert "t000" not in found.stdout
    assert re.search(r"looked at about 500 tasks, back to .*, then time was up", found.output)
    command = re.search(r"more: onerow (list .*)", found.output)
    assert command is not None
    assert "t000" in run(*shlex.split(command[1]), "--store", store.url).stdout
