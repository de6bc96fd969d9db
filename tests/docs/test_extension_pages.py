"""The Python blocks of the pages about resources, middleware, sleeping, skipping and error classes run as they stand."""

import re
from pathlib import Path

import pytest

from onerow import Pipeline, Status, Task
from onerow.core.errors import OnerowError
from onerow.testing import Rehearsal

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, after: str = "") -> str:
    text = (DOCS / page).read_text(encoding="utf-8").partition(after)[2] if after else (DOCS / page).read_text("utf-8")
    return "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("page", ["how-to/resources.md", "how-to/middleware.md"])
def test_a_page_runs_from_start_to_end(page: str) -> None:
    exec(compile(blocks(page), page, "exec"), {"__name__": "page"})


def run(page: str, after: str, name: str, payload: object) -> tuple[Task, Rehearsal]:
    code = re.split(r"\n(?=from onerow import)", "\n" + blocks(page, after))[1]
    names: dict[str, object] = {"__name__": "page"}
    exec(compile(code, page, "exec"), names)
    pipeline = names[name]
    assert isinstance(pipeline, Pipeline)
    rehearsal = Rehearsal(pipeline)
    return rehearsal.run_until(rehearsal.add(pipeline, payload)), rehearsal


def test_the_handler_that_sleeps_prints_each_line_once(capsys: pytest.CaptureFixture[str]) -> None:
    task, rehearsal = run("how-to/wait-inside-a-handler.md", "## Sleep", "trials", {"name": "ann"})
    assert task.result == "asked ann for a review"
    assert capsys.readouterr().out == "welcome ann\na tip for ann\n"
    assert (rehearsal.now - task.created_at).days == 14


@pytest.mark.parametrize(
    "source, status, result",
    [
        ("deleted", Status.CANCELLED, None),
        ("silent", Status.COMPLETED, "published"),
        ("loud", Status.COMPLETED, "published with subtitles"),
    ],
)
def test_the_handler_that_skips_or_cancels(source: str, status: Status, result: str | None) -> None:
    task, _ = run("how-to/branching.md", "## Skip this phase", "videos", {"source": source})
    assert (task.status, task.result) == (status, result)


def test_the_pipeline_with_error_classes() -> None:
    task, _ = run("retries.md", "**Your own exceptions.**", "tickets", {"seat": "7a"})
    assert task.result == "7a"


def test_a_resource_that_is_not_replaced_is_made_and_closed(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"__name__": "page"}
    exec(compile(blocks("how-to/resources.md").partition("from onerow.testing")[0], "page", "exec"), names)
    pipeline = names["films"]
    assert isinstance(pipeline, Pipeline)
    with Rehearsal(pipeline) as rehearsal:
        assert rehearsal.run_until(rehearsal.add(pipeline, {"path": "a"})).result == "the words of a"
        with pytest.raises(OnerowError, match="did you mean 'model'"):
            rehearsal.replace(modle=1)
        assert capsys.readouterr().out == ""
    assert capsys.readouterr().out == "model closed\n"
