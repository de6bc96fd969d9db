"""SIGKILL of a webhook's server before and after the row: the sender gets no answer, and its next try adds no second row."""

import hmac
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from onerow import Queue
from tests.engine.kit import everything, until
from tests.inboxes.killed_webhook import SECRET

pytestmark = pytest.mark.faults

ROOT = Path(__file__).resolve().parents[2]
BODY = b'{"payload": {"order": 7}}'
HEADERS = {
    "X-Hub-Signature-256": "sha256=" + hmac.digest(SECRET.encode(), BODY, "sha256").hex(),
    "X-GitHub-Delivery": "d1",
}


@contextmanager
def serving(store: str, when: str) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """Serve webhooks in another process; yield the address and the process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = [sys.executable, "-m", "tests.inboxes.killed_webhook", store, str(port), when]
    process = subprocess.Popen(program, cwd=ROOT)
    try:
        until(lambda: answers(port) or process.poll() is not None, "the server")
        yield f"http://127.0.0.1:{port}/", process
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("store", ["sqlite_url", "postgres_url"])
@pytest.mark.parametrize("when, stored", [("before", 0), ("after", 1)])
def test_a_killed_server_loses_and_doubles_nothing(
    request: pytest.FixtureRequest, store: str, when: str, stored: int
) -> None:
    url = request.getfixturevalue(store)
    queue = Queue(url)
    with serving(url, when) as (address, process):
        with pytest.raises(httpx.TransportError):
            httpx.post(address, content=BODY, headers=HEADERS, timeout=900)
        assert process.wait(900) == -9
    assert len(everything(queue)) == stored
    with serving(url, "never") as (address, _):
        for _ in range(2):
            assert httpx.post(address, content=BODY, headers=HEADERS, timeout=900).status_code == 200
    (task,) = everything(queue)
    assert task.payload == {"order": 7}
    queue.close()
