"""Secrets: the key of the endpoint, and credentials in the URL of a job, are in no log, error, list or screen."""

import asyncio
import logging
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from apps.transcriber.tests.kit import GPT, KEY, drop, home_at, log_of, model_server, receive, work
from onerow import Queue
from onerow.cli.main import main as onerow_cli
from tests.tui.conftest import Session
from transcriber import add_job, monitor, open_queue
from transcriber.cli import main
from transcriber.settings import Settings

pytestmark = pytest.mark.xdist_group("transcriber, secrets")
PASSWORD, TOKEN, IN_KEY = "hunter2-canary", "canary-token", "canary7"
SECRETS = (KEY, PASSWORD, TOKEN, IN_KEY)
# It prints what it was given, as programs do that fail.
TELLING = """#!/bin/sh
echo "OPENAI_API_KEY is $OPENAI_API_KEY, arguments $*" >&2
echo "$OPENAI_API_KEY"
exit 1
"""


class Shown(NamedTuple):
    """What people see of two jobs that failed, by the place where they see it."""

    error: str
    log: str
    files: str
    lists: str
    details: str
    screen: str
    monitor_log: str
    reason: str


def secret_url(server: str, path: str) -> str:
    return f"{server.replace('//', f'//user:{PASSWORD}@')}{path}?token={TOKEN}&v=7&key={IN_KEY}"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """A job whose download succeeds and whose ffmpeg tells secrets, one whose URL is not found, and a file set aside."""
    folder = tmp_path_factory.mktemp("secrets")
    telling = folder / "ffmpeg"
    telling.write_text(TELLING)
    telling.chmod(0o755)
    with home_at(folder) as home, model_server() as models, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSCRIBER_FFMPEG", str(telling))
        models.files["/t.wav"] = (b"x", "audio/wav")
        queue = open_queue()
        add_job(secret_url(models.url, "/t.wav"), task_id="spoken", engine=GPT)
        add_job(secret_url(models.url, "/missing.wav"), task_id="missing", engine=GPT)
        add_job(secret_url(models.url, "/missing.m3u"), task_id="list", engine=GPT)
        work()
        drop(home, "bad.json", {"url": secret_url("ftp://host", "/a.wav")})
        receive()
        tasks = [queue.get(name) for name in ("spoken", "missing", "list")]
        assert [task.status for task in tasks] == ["failed"] * 3
        patch.setenv("ONEROW_STORE", queue.url)
        details = [CliRunner().invoke(onerow_cli, ["show", name]).output for name in ("spoken", "missing")]
        with monitor.run_log(Settings.of_environment(), queue.masker) as run_log:
            logging.getLogger("transcriber").info("opened for %s", secret_url("https://host", "/a"))
            screen = asyncio.run(watch(queue))
        seen = Shown(
            error=" ".join(str(task.error) for task in tasks),
            log="".join(log_of(task) for task in tasks),
            files="".join(path.read_text() for path in (home / "logs").glob("job-*")),
            lists=CliRunner().invoke(main, ["list"]).output,
            details="".join(details),
            screen=screen,
            monitor_log=run_log.read_text(),
            reason=(home / "queue" / "rejected" / "bad.json.reason").read_text(),
        )
        queue.close()
    return seen


async def watch(queue: Queue) -> str:
    """Return what the monitor shows of the jobs: the list, and all parts of the page of one."""
    app = monitor.opened(queue)
    async with app.run_test(size=(220, 60)) as pilot:
        session = Session(app, pilot)
        await session.sees("/t.wav", "/missing.wav")
        seen = session.text
    app = monitor.opened(queue, "id:spoken")
    async with app.run_test(size=(220, 60)) as pilot:
        session = Session(app, pilot)
        await session.sees("/t.wav")
        await session.press("enter")
        await session.sees("spoken", "transcribe")
        for _ in range(8):
            await session.read()
            seen += session.text
            await session.press("tab")
    return seen


@pytest.mark.contract("Secrets masked.", "Keys in the log.")
@pytest.mark.parametrize("place", Shown._fields)
def test_no_key_and_no_credentials_of_a_url_are_shown(shown: Shown, place: str) -> None:
    text = getattr(shown, place)
    assert [secret for secret in SECRETS if secret in text] == []
    assert "***" in text or place == "error"


@pytest.mark.contract("Secrets masked.")
def test_what_is_no_secret_in_a_url_stays(shown: Shown) -> None:
    assert "/t.wav?token=***&v=7&key=***" in shown.lists
    assert "user:***@" in shown.lists
    assert "404" in shown.error
