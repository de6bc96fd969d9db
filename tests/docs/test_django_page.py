"""The blocks of docs/how-to/django.md on PostgreSQL; test_blocks.py runs them on SQLite."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.docs.blocks import PageRun, blocks_of


@pytest.fixture
def page_run(
    request: pytest.FixtureRequest, folder: Path, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[PageRun]:
    run = PageRun(request, folder, names, monkeypatch)
    yield run
    run.close()


@pytest.mark.slow  # six starts of Django: 48 s on a busy machine, and test_blocks.py runs the same on SQLite
def test_the_project_of_the_page_runs_on_postgresql(
    page_run: PageRun, folder: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = urlsplit(postgres_url)
    database = {
        "ENGINE": "django.db.backends.postgresql", "NAME": url.path[1:], "USER": url.username,
        "PASSWORD": url.password or "", "HOST": url.hostname, "PORT": url.port,
    }  # fmt: skip
    monkeypatch.setenv("ONEROW_STORE", postgres_url)
    first, *others = blocks_of("docs/how-to/django.md")
    page_run.run(first)
    with (folder / "mysite" / "settings.py").open("a", encoding="utf-8") as settings:
        settings.write(f"DATABASES = {{'default': {database}}}\n")
    for block in others:
        page_run.run(block)
    assert "packed: True" in page_run.output
    with psycopg.connect(postgres_url) as connection:
        rows = connection.execute("SELECT status, payload ->> 'order' FROM onerow.task_queue").fetchall()
        assert rows == [("completed", "1")]
