"""The blocks of the pages about inboxes run as they stand, and do what the pages say."""

import asyncio
import hmac
import json
import os
import re
import socket
import threading
import time
import urllib.error
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from onerow import Pipeline, Queue, Status
from onerow.engine.receiving.receiver import Receiver
from onerow.inboxes import FolderInbox
from tests.engine.kit import until, work

DOCS = Path(__file__).parents[2] / "docs" / "how-to"


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def execute(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run all Python blocks of a page in a project folder."""
    (folder / "onerow.toml").write_text('store = "sqlite:///shop.db"\n')
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"__name__": "page", "__file__": str(folder / "app.py")}
    code = "\n".join(each for each in blocks(page, "python") if "urlopen" not in each).replace(
        "/srv/share", f"{folder}/share"
    )
    exec(compile(code, str(folder / "app.py"), "exec"), names)
    return names


def test_the_page_about_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = execute("folder-inbox.md", tmp_path, monkeypatch)
    queue, jobs = names["queue"], names["jobs"]
    assert isinstance(queue, Queue)
    assert isinstance(jobs, Pipeline)
    queue.publish(jobs)
    (job,) = blocks("folder-inbox.md", "json")
    _, inbox = queue.inboxes
    assert isinstance(inbox, FolderInbox)
    inbox.folder.mkdir(parents=True)
    (inbox.folder / "job.json").write_text(job)
    if os.getuid() == 0:  # owners=["root"]
        assert Receiver(queue, inbox, "w1").receive_available().added == 1
        work(queue, jobs)
        assert queue.get("talk-7").status is Status.COMPLETED
    queue.close()


def test_the_page_about_webhooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRIPE_SECRET", "whsec-of-the-page")
    names = execute("webhooks.md", tmp_path, monkeypatch)
    queue, orders = names["queue"], names["orders"]

    async def ask(event: dict[str, Any]) -> int:
        body = json.dumps(event).encode()
        stamp = str(int(time.time()))
        signature = hmac.digest(b"whsec-of-the-page", f"{stamp}.".encode() + body, "sha256").hex()
        headers = {"Stripe-Signature": f"t={stamp},v1={signature}"}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(names["app"]), base_url="http://test") as client:
            return (await client.post("/", content=body, headers=headers)).status_code

    assert asyncio.run(ask({"id": "e1", "type": "checkout.begun", "order": 7})) == 200
    assert asyncio.run(ask({"id": "e2", "type": "checkout.paid", "order": 7})) == 200
    work(queue, orders)
    task = queue.get("order-7")
    assert task.status is Status.COMPLETED
    assert task.result == {"shipped": 7, "charge": "e2"}
    queue.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # uvicorn imports old parts of websockets
def test_a_request_that_is_signed_by_hand_is_accepted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STRIPE_SECRET", "whsec-for-tests")
    names = execute("webhooks.md", tmp_path, monkeypatch)
    (sending,) = [each for each in blocks("webhooks.md", "python") if "urlopen" in each]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(names["app"], host="127.0.0.1", port=port, log_config=None, ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started, "the server")
        for _ in range(2):
            exec(sending.replace("8002", str(port)), {})
        with pytest.raises(urllib.error.HTTPError, match="401"):
            exec(sending.replace("8002", str(port)).replace("whsec-for-tests", "whsec-of-others"), {})
    finally:
        server.should_exit = True
        thread.join()
    assert capsys.readouterr().out == "200\n200\n"
    assert [task.task_id for task in names["queue"].find().tasks] == ["order-7"]
    names["queue"].close()


@pytest.mark.parametrize("page", ["folder-inbox.md", "webhooks.md"])
def test_the_commands_have_known_options(page: str) -> None:
    from onerow.cli.main import COMMANDS, main

    for line in "\n".join(blocks(page, "sh")).splitlines():
        words = line.partition("#")[0].split()
        if words[:1] == ["onerow"]:
            assert words[1] in COMMANDS
            command = main.get_command(None, words[1])  # type: ignore[arg-type]
            assert command is not None
            options = {option for parameter in command.params for option in parameter.opts}
            assert {word for word in words if word.startswith("--")} <= options
