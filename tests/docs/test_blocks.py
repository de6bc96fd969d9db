"""Every code block of README and docs/ is run, page by page.

The convention, for authors of pages:

- The blocks of a page run in order, in one empty folder. Languages: `python`, `sh`, `sql` (on PostgreSQL), `ini`
  and `json` (parsed). Names that a Python block defines, files and the current folder are there for the next blocks of the page.
- Public names of onerow (`Queue`, `Retry`, …) need no import. What else a fragment needs comes from a fixture that the
  page names in a comment directly above the block; readers do not see it:

      <!-- fixture: albums -->
      ```python

  The fixture is an ordinary one, in tests/docs/conftest.py. It writes into the fixture `names`, the namespace of the
  page's Python blocks, or prepares files in `folder`; after a `yield` it may check what the blocks defined.
- `postgresql://…`, `mongodb://…` and the local SQS endpoint become the test servers. `pip install` only checks that the extra exists.
- A block that can't be run says why, and is listed below:

      <!-- not run: REASON -->
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import LANGUAGES, PAGES, RENDERED, Block, PageRun, blocks_of

NOT_RUN = {
    "README.md": [
        "test_first_minutes.py runs it",
        "test_first_minutes.py runs it",
        "nothing is released yet",
        "output, which a test compares",
        "a test checks that the target exists",
    ],
    "docs/adr/0007-process-trees-end-by-subreaper-not-cgroups.md": ["a picture"],
    "docs/how-to/capacity-planning.md": ["needs the statistics of a day", "takes minutes"],
    "docs/how-to/coming-from-celery.md": ["Celery code, before", "needs Celery"],
    "docs/how-to/docker-and-systemd.md": ["needs Docker", "needs Docker", "needs systemd"],
    "docs/how-to/folder-inbox.md": ["test_inbox_pages.py runs it"] * 3 + ["runs until it is stopped"],
    "docs/how-to/dashboard.md": [
        "runs until it is stopped",
        "it is a part of a Django project; tests/web/test_mounting.py runs one",
    ],
    "docs/reliability.md": ["takes minutes, or hours"] * 3,
    "docs/how-to/http-api.md": [
        "it would serve until it is stopped; tests/web/test_command.py runs it",
        "needs the server of the block above; tests/web/test_api.py sends these requests",
    ],
    "docs/how-to/mongodb.md": ["needs mongosh"],
    "docs/how-to/monitor.md": ["runs until it is quit; tests/tui drive it"],
    "docs/how-to/rates.md": ["needs a published pipeline; tests/engine/test_live_rates.py changes rates"],
    "docs/how-to/sqs.md": ["runs until it is stopped"],
    "docs/how-to/scaling-aws.md": ["runs on EC2 and ECS only, until it is stopped"],
    "docs/how-to/scaling-one-host.md": [
        "runs until it is stopped",
        "runs until it is stopped",
        "needs a running worker",
    ],
    "docs/how-to/telemetry.md": [
        "sentry_sdk.init() changes the whole process; tests/telemetry/test_sentry.py runs it",
    ],
    "docs/how-to/web-security.md": ["it asks for a password", "a part of nginx's configuration"],
    "docs/how-to/webhooks.md": [
        "test_inbox_pages.py runs it",
        "runs until it is stopped",
        "test_inbox_pages.py runs it",
        "runs until it is stopped",
    ],
    "docs/query-language.md": ["output"],
    "docs/how-to/postgresql.md": ["runs until it is stopped", "a URL"],
}
"""Every block that is not run, by page, with its reason. A new one needs a good reason."""

OUTPUT = {
    "docs/reference/python.md": ["no pipeline 'vidoes' in the store (videos)\n", "did you mean 'videos'?\n"],
    "docs/how-to/scaling-one-host.md": ["scale_out  0 → 3 workers", '"desired_workers": 3'],
    "docs/how-to/scaling-aws.md": [
        "scale_out  0 → 2 workers  asg:encoders",
        "scale_out  0 → 2 workers  ecs:media/encoders",
    ],
    "docs/how-to/django.md": ["completed", "packed: True"],
    "docs/how-to/scripts-and-notebooks.md": ["report 2\n", "A BETTER DRAFT ABOUT TIDES"],
    "README.md": ["completed  greetings.deliver", "It is not due until", "completed in deliver"],
    "docs/tutorial.md": [
        "It is parked for the signal packed until",
        "there are no unicorns",
        "cup by bike",
        "The phase charge was paused by",
        "because: the bank is down",
        "waiting\n",
        "2 passed",
    ],
}
"""Text that the blocks of a page must print."""

ON_AWS = ("docs/how-to/scaling-aws.md", "docs/how-to/sqs.md")
"""The pages whose fixtures ask for moto."""

CODE = {page: blocks_of(page) for page in PAGES if page not in RENDERED}


@pytest.fixture
def page_run(
    request: pytest.FixtureRequest, folder: Path, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[PageRun]:
    modules = set(sys.modules)
    run = PageRun(request, folder, names, monkeypatch)
    yield run
    run.close()
    for name in set(sys.modules) - modules:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]  # the `app` of this page, not of the next one


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.xdist_group("moto")] if page in ON_AWS else [])
        for page, blocks in CODE.items()
        if any(not block.not_run for block in blocks)
    ],
)
def test_the_code_of_a_page_runs(page: str, page_run: PageRun) -> None:
    for block in CODE[page]:
        if not block.not_run:
            page_run.run(block)
    for text in OUTPUT.get(page, []):
        assert text in page_run.output


def test_every_block_that_is_not_run_is_listed_with_its_reason() -> None:
    found = {page: [block.not_run for block in blocks if block.not_run] for page, blocks in CODE.items()}
    assert {page: reasons for page, reasons in found.items() if reasons} == NOT_RUN


def test_every_block_is_code_that_runs_or_says_why_not() -> None:
    def is_clear(block: Block) -> bool:
        return block.language in LANGUAGES or bool(block.not_run)

    assert [block.where for blocks in CODE.values() for block in blocks if not is_clear(block)] == []


@pytest.mark.parametrize("page", CODE)
def test_the_runner_finds_every_block(page: str) -> None:
    lines = (Path(__file__).parents[2] / page).read_text(encoding="utf-8").splitlines()
    fences = [line for line in lines if line.lstrip().startswith(("```", "~~~"))]
    comments = [line for line in lines if line.startswith(("<!-- fixture", "<!-- not run"))]
    assert len(fences) == 2 * len(CODE[page]), "an indented or unclosed block is not run"
    assert len(comments) == sum(bool(block.fixture or block.not_run) for block in CODE[page])


def test_the_readme_s_example_prints_what_the_readme_shows(page_run: PageRun) -> None:
    blocks = CODE["README.md"]
    (shown,) = [index for index, block in enumerate(blocks) if block.not_run.startswith("output")]
    for block in blocks[:shown]:
        if not block.not_run:
            page_run.run(block)
    head, row = blocks[shown].text.splitlines()
    assert head in page_run.output
    assert re.sub(r"\S+ *$", "", re.sub(r"^\S+", "", row)).rstrip() in page_run.output
