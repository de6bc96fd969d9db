"""`onerow inbox`: receive from a folder or from signed requests, once or until stopped."""

import hmac
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from onerow import Pipeline, Queue
from onerow.engine.control.definitions import WORKER
from onerow.ports import Note
from onerow.stores.sqlite import SqliteStore
from tests.cli.conftest import Run

SECRET = "a secret of the sender"
PATIENCE = 900.0
Golden = Callable[[str, str], None]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the URL of a store with the pipeline jobs."""
    jobs = Pipeline("jobs")
    jobs.phase(name="run")(lambda job: job)
    queue = Queue(f"sqlite:///{tmp_path}/tasks.db")
    queue.publish(jobs)
    queue.close()
    return f"sqlite:///{tmp_path}/tasks.db"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "inbox"
    path.mkdir()
    return path


def until(done: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := done()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


class Started:
    """A command in its own process."""

    def __init__(self, tmp_path: Path, *words: str, env: dict[str, str] | None = None, program: str = "onerow") -> None:
        self.log = tmp_path / f"log-{time.monotonic_ns()}.txt"
        plain = {name: value for name, value in os.environ.items() if not name.startswith("ONEROW_")}
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", program, *words], cwd=tmp_path, stdout=out, stderr=out,
                env={**plain, "PYTHONPATH": str(Path(__file__).parents[2]), **(env or {})},
            )  # fmt: skip

    def said(self, text: str) -> str:
        def found() -> str:
            log = self.log.read_text()
            assert self.process.poll() is None or text in log, log
            return log if text in log else ""

        return str(until(found))

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    started: list[Started] = []

    def begin(*words: str, **terms: Any) -> Started:
        started.append(Started(tmp_path, *words, **terms))
        return started[-1]

    yield begin
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()


# ── a folder ──


def test_once_receives_what_is_there_and_says_what_became_of_it(run: Run, url: str, folder: Path) -> None:
    (folder / "a.json").write_text('{"job_id": "a"}')
    (folder / "b.txt").write_text("x\ny\n")
    (folder / "c.json").write_text('{"priority": "high"}')
    said = run("inbox", f"folder://{folder}", "--pipeline", "jobs", "--once", "--store", url).stdout
    assert said == "received 3: added 3, found 0, duplicate 0, rejected 1, released 0\n"
    (folder / "d.json").write_text("{}")
    found = run("inbox", f"folder://{folder}", "--pipeline", "jobs", "--once", "--json", "--store", url).stdout
    assert (json.loads(found)["received"], json.loads(found)["added"]) == (1, 1)
    shown = json.loads(run("inboxes", "--json", "--store", url).stdout)[f"folder:{folder}"]
    assert (shown["received"], shown["added"], shown["rejected"]) == (4, 4, 1)
    assert f"1 message of folder:{folder} was rejected" in run("doctor", "--store", url).stdout


def test_botocore_is_quiet_about_where_it_found_credentials(run: Run, url: str, folder: Path) -> None:
    logger = logging.getLogger("botocore.credentials")
    try:
        run("inbox", f"folder://{folder}", "--pipeline", "jobs", "--once", "--store", url)
        assert [logger.isEnabledFor(level) for level in (logging.INFO, logging.WARNING)] == [False, True]
    finally:
        logging.getLogger("botocore").setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    "words, said, code",
    [
        (["folder:///tmp/x", "--pipeline", "nowhere"], "nowhere", 64),
        (["ftp://x"], "is not an inbox", 64),
        (["folder:///tmp/x", "--scheme", "github"], "onerow inbox webhook NAME", 64),
        (["folder:///tmp/x", "name"], "onerow inbox webhook NAME", 64),
        (["webhook"], "name the inbox", 64),
        (["webhook", "pay"], "--scheme", 64),
        (["webhook", "pay", "--scheme", "github"], "--secret-env", 64),
        (["webhook", "pay", "--scheme", "github", "--secret-env", "NOT_SET"], "NOT_SET is empty", 64),
        (["webhook", "pay", "--scheme", "other"], "other", 2),
        (["webhook", "pay", "--once"], "leave out --once", 64),
    ],
)
def test_mistakes_are_errors_that_say_what_to_do(run: Run, url: str, words: list[str], said: str, code: int) -> None:
    result = run("inbox", *words, "--store", url, code=code)
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_a_folder_that_cannot_be_read_is_an_error(run: Run, url: str, folder: Path) -> None:
    (folder / "file").write_text("")
    result = run("inbox", f"folder://{folder}/file/inbox", "--once", "--store", url, code=69)
    assert "Not a directory" in result.stderr


def test_the_help_tells_what_an_inbox_is(run: Run) -> None:
    said = run("inbox", "--help").stdout
    for word in ("folder:///absolute/path", "webhook NAME", "--once", "--pipeline", "--secret-env", "--store"):
        assert word in said


def test_an_inbox_receives_until_it_is_stopped(
    run: Run, start: Callable[..., Started], url: str, folder: Path, golden: Golden
) -> None:
    inbox = start("inbox", f"folder://{folder}", "--pipeline", "jobs", "--store", url)
    inbox.said("receiving from")
    (folder / "a.json").write_text('{"job_id": "a"}')
    until(lambda: "waiting" in run("list", "--store", url).stdout)
    (worker,) = until(lambda: json.loads(run("workers", "--json", "--store", url).stdout))
    assert [each["name"] for each in worker["inboxes"]] == [f"folder:{folder}"]
    assert f"folder:{folder}" in run("workers", "--store", url).stdout
    assert f"receives from folder:{folder}" in run("doctor", "--store", url).stdout
    why = json.loads(run("why", "a", "--json", "--store", url).stdout)
    assert why["code"] == "no-worker"
    assert why["inbox"] == f"folder:{folder}"
    golden("why-inbox-only.txt", run("why", "a", "--store", url).stdout.replace(str(folder), "FOLDER"))
    assert inbox.stop() == 0
    assert json.loads(run("inboxes", "--json", "--store", url).stdout)[f"folder:{folder}"]["added"] == 1
    assert json.loads(run("workers", "--json", "--store", url).stdout) == []


def test_an_unavailable_inbox_is_shown_by_workers_and_doctor(run: Run, url: str) -> None:
    store = SqliteStore(Path(url.removeprefix("sqlite:///")))
    state = {"name": "folder:/srv/in", "error": "/srv/in: Stale file handle"}
    store.write_notes(
        [Note(WORKER, "w1", {"host": "h", "pid": 7, "concurrency": 16, "phases": [], "inboxes": [state]})]
    )
    store.close()
    assert "Stale file handle" in run("workers", "--store", url).stdout
    said = run("doctor", "--store", url, code=1).stdout
    assert "worker w1 can't receive from folder:/srv/in: /srv/in: Stale file handle" in said
    assert "no worker is running" in said


# ── webhooks ──


def signed(body: bytes) -> dict[str, str]:
    return {"X-Hub-Signature-256": f"sha256={hmac.digest(SECRET.encode(), body, 'sha256').hex()}"}


def served(start: Callable[..., Started], url: str, **terms: Any) -> tuple[Started, str]:
    """Start the server on a free port; return it with its address."""
    words = ["webhook", "pay", "--scheme", "github", "--secret-env", "PAY_SECRET", "--pipeline", "jobs", "--port", "0"]
    env = {"PAY_SECRET": SECRET} | terms.pop("env", {})
    server = start("inbox", *words, "--store", url, env=env, **terms)
    said = server.said("receiving webhook:pay on ")
    return server, said.partition("receiving webhook:pay on ")[2].split()[0]


def test_signed_requests_become_tasks_until_the_server_is_stopped(
    run: Run, start: Callable[..., Started], url: str
) -> None:
    server, address = served(start, url)
    assert address.startswith("http://127.0.0.1:")
    body = b'{"payload": {"n": 1}, "task_id": "order-1"}'
    assert httpx.post(address, content=body, headers=signed(body), timeout=PATIENCE).status_code == 200
    assert httpx.post(address, content=body, headers=signed(b"{}"), timeout=PATIENCE).status_code == 401
    assert httpx.get(address, timeout=PATIENCE).status_code == 405
    assert json.loads(run("show", "order-1", "--json", "--store", url).stdout)["task"]["payload"] == {"n": 1}
    until(lambda: "webhook:pay" in run("workers", "--store", url).stdout)
    assert server.stop() == 0
    counts = json.loads(run("inboxes", "--json", "--store", url).stdout)["webhook:pay"]
    assert (counts["received"], counts["added"]) == (1, 1)
    assert SECRET not in server.log.read_text()
    assert "Traceback" not in server.log.read_text()


def test_a_port_that_is_taken_is_an_error(run: Run, start: Callable[..., Started], url: str) -> None:
    _, address = served(start, url)
    words = ["--scheme", "github", "--secret-env", "PAY_SECRET", "--port", address.rpartition(":")[2], "--store", url]
    os.environ["PAY_SECRET"] = SECRET
    try:
        assert "can't listen on 127.0.0.1" in run("inbox", "webhook", "pay", *words, code=64).stderr
    finally:
        del os.environ["PAY_SECRET"]


def test_without_uvicorn_it_says_what_to_install(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.setenv("PAY_SECRET", SECRET)
    words = ["inbox", "webhook", "pay", "--scheme", "github", "--secret-env", "PAY_SECRET", "--store", url]
    assert "pip install 'onerow[web]'" in run(*words, code=64).stderr


@pytest.mark.parametrize("moment, stored", [("before", 0), ("after", 1)])
def test_a_server_that_is_killed_around_the_row_loses_and_doubles_nothing(
    run: Run, start: Callable[..., Started], url: str, moment: str, stored: int
) -> None:
    server, address = served(start, url, program="tests.cli.killed_at_insert", env={"KILL": moment})
    body = b'{"payload": {"n": 1}}'
    with pytest.raises(httpx.TransportError):
        httpx.post(address, content=body, headers=signed(body), timeout=PATIENCE)
    assert server.process.wait(PATIENCE) == -signal.SIGKILL
    assert len(json.loads(run("list", "--json", "--store", url).stdout)["tasks"]) == stored
    again, address = served(start, url)
    for _ in range(2):  # the sender had no answer, and then repeats once more
        assert httpx.post(address, content=body, headers=signed(body), timeout=PATIENCE).status_code == 200
    (task,) = json.loads(run("list", "--json", "--store", url).stdout)["tasks"]
    assert task["status"] == "waiting"
    assert again.stop() == 0
