"""`onerow web` as a process: addresses, credentials, signals; and a worker in TypeScript that pulls from it."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest

from onerow import Queue
from onerow.cli.start.listening import listen
from tests.servers.postgres import PostgresServer
from tests.web.kit import clips, until

ROOT = Path(__file__).parents[2]
ONEROW = [sys.executable, "-m", "onerow"]


@contextmanager
def serving(url: str, *options: str) -> Iterator[str]:
    """Run `onerow web` on a free loopback port; yield its address."""
    process = subprocess.Popen(
        [*ONEROW, "web", "--store", url, "--port", "0", *options], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                yield found[0]
                break
        else:
            raise AssertionError("it ended before it listened")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=900)
    assert process.returncode == 0


def onerow(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([*ONEROW, *words], input=text, capture_output=True, text=True, timeout=900)


def test_another_address_than_loopback_needs_a_credential(sqlite_url: str, queue: Queue, tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        refused = onerow("web", "--store", sqlite_url, "--host", host, "--port", "0")
        assert refused.returncode == 64
        assert "no credential is set up" in refused.stderr
        assert "onerow access token" in refused.stderr
    named = onerow("web", "--store", sqlite_url, "--allow-host", "queue.example.com", "--port", "0")
    assert named.returncode == 64
    (tmp_path / "empty.toml").write_text("")
    empty = onerow("web", "--store", sqlite_url, "--access", str(tmp_path / "empty.toml"))
    assert "has no user and no token" in empty.stderr


def test_the_lines_of_onerow_access_open_the_server(sqlite_url: str, queue: Queue, tmp_path: Path) -> None:
    made = onerow("access", "token", "ci", "--role", "operator")
    user = onerow("access", "user", "김", "--role", "admin", "--user", "u1", "--password-stdin", text="correct horse\n")
    path = tmp_path / "access.toml"
    path.write_text(made.stdout + user.stdout, encoding="utf-8")
    token = made.stderr.split()[-1]
    assert token not in made.stdout
    with serving(sqlite_url, "--access", str(path)) as address:
        assert httpx.get(f"{address}/healthz").json() == {"status": "ok"}
        assert httpx.get(f"{address}/readyz").json() == {"status": "ready"}
        assert httpx.get(f"{address}/metrics").status_code == 401
        headers = {"authorization": f"Bearer {token}"}
        assert "onerow_build_info" in httpx.get(f"{address}/metrics", headers=headers).text
        assert httpx.get(f"{address}/api/v1/overview", headers=headers).status_code == 200
        assert httpx.get(f"{address}/api/v1/overview", headers={**headers, "host": "evil.example"}).status_code == 421


def test_a_short_password_or_a_wrong_role_is_refused() -> None:
    short = onerow("access", "user", "kim", "--password-stdin", text="short\n")
    assert short.returncode == 64
    assert not short.stdout
    assert onerow("access", "token", "a b").returncode == 64
    assert onerow("access", "token", "ci", "--role", "king").returncode == 2


def test_small_answers_are_sent_at_once() -> None:
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.faults
def test_the_store_is_killed_and_comes_back(own_postgres: PostgresServer) -> None:
    url = own_postgres.fresh_database()
    queue = Queue(url)
    task_id = queue.add(clips(), {"topic": "x"}).task_id
    queue.close()
    own_postgres.stop("immediate")
    with serving(url) as address:  # it starts without the store
        away = httpx.get(f"{address}/api/v1/tasks/{task_id}", timeout=900)
        assert away.status_code == 503
        assert away.headers["content-type"] == "application/problem+json"
        assert away.json()["fix"]
        assert int(away.headers["retry-after"]) > 0
        assert httpx.get(f"{address}/healthz", timeout=900).status_code == 200
        assert httpx.get(f"{address}/readyz", timeout=900).status_code == 503
        assert "onerow_store_up 0.0" in httpx.get(f"{address}/metrics", timeout=900).text
        own_postgres.start()
        until(lambda: httpx.get(f"{address}/api/v1/tasks/{task_id}", timeout=900).status_code == 200)
        until(lambda: httpx.get(f"{address}/readyz", timeout=900).status_code == 200)
        own_postgres.stop("immediate")
        assert httpx.get(f"{address}/api/v1/tasks/{task_id}", timeout=900).status_code == 503
        own_postgres.start()
        until(lambda: httpx.get(f"{address}/api/v1/tasks/{task_id}", timeout=900).status_code == 200)


@pytest.mark.faults
def test_it_stops_although_the_store_does_not_answer(postgres_url: str) -> None:
    queue = Queue(postgres_url)
    queue.add(clips(), {"topic": "x"})
    queue.close()
    with psycopg.connect(postgres_url) as holder, serving(postgres_url) as address:
        holder.execute("LOCK TABLE onerow.task_queue IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(f"{address}/api/v1/tasks", timeout=5)


def _node() -> str:
    """Return a node that runs TypeScript: the one that Playwright brings."""
    from playwright._impl._driver import compute_driver_executable

    return str(compute_driver_executable()[0])


def test_a_worker_in_typescript_pulls_tasks(sqlite_url: str, queue: Queue, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-of-24-characters")
    source = (ROOT / "examples" / "worker.ts").read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 60
    tasks = [queue.add("clips", {"topic": topic}) for topic in ("tides", "조류", "海洋")]
    with serving(sqlite_url, "--token-file", str(token)) as address:
        worker = subprocess.Popen(
            [_node(), str(ROOT / "examples" / "worker.ts"), "clips", "script"],
            env={**os.environ, "ONEROW_URL": address, "ONEROW_TOKEN": token.read_text()},
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            until(lambda: all(queue.get(task.task_id).phase == "review" for task in tasks))
            for task in tasks:
                found = queue.get(task.task_id)
                assert found.results["script"] == {"shouted": task.payload["topic"].upper()}
                assert found.history[-1].by.startswith("node-")
        finally:
            worker.kill()
            worker.communicate(timeout=900)
