"""A worker in its own network namespace whose link goes down: no reset, no answer."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onerow import Queue
from onerow.stores.postgres import PostgresStore
from tests.engine.kit import until
from tests.stores.postgres.proxy import Proxy
from tests.stores.postgres.worker import added, done, must_have_one_outcome

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("ip") is None, reason="a network of its own needs root, and ip of iproute2"
    ),
]


class IsolatedNetwork:
    """A network namespace with one link to this host."""

    def __init__(self) -> None:
        self.name = f"onerow{os.getpid()}"  # no other run on this machine has it
        number = os.getpid() % 250
        self.host_address, self._inner_address = f"10.213.{number}.1", f"10.213.{number}.2"
        self._link = f"or{os.getpid()}"
        _ip("netns", "add", self.name)
        _ip("link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        _ip("addr", "add", f"{self.host_address}/30", "dev", self._link)
        _ip("link", "set", self._link, "up")
        _ip("-n", self.name, "addr", "add", f"{self._inner_address}/30", "dev", "eth0")
        _ip("-n", self.name, "link", "set", "eth0", "up")
        _ip("-n", self.name, "link", "set", "lo", "up")

    def disconnect(self) -> None:
        _ip("link", "set", self._link, "down")

    def reconnect(self) -> None:
        _ip("link", "set", self._link, "up")

    def run(self, *argv: str, output: Path) -> subprocess.Popen[bytes]:
        with output.open("wb") as file:
            return subprocess.Popen(["ip", "netns", "exec", self.name, *argv], stdout=file, stderr=file)

    def close(self) -> None:
        _ip("netns", "del", self.name)  # also deletes the link


def _ip(*argv: str) -> None:
    done = subprocess.run(["ip", *argv], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"ip {' '.join(argv)}: {done.stderr.strip()}")


@pytest.fixture
def network() -> Iterator[IsolatedNetwork]:
    network = IsolatedNetwork()
    yield network
    network.close()


def test_a_worker_resumes_after_its_network_was_cut(
    store: PostgresStore, postgres_url: str, network: IsolatedNetwork, tmp_path: Path
) -> None:
    """The worker detects the outage, and each task has one recorded outcome."""
    queue = Queue(store)
    ids = added(queue, 600)
    proxy = Proxy(postgres_url, host=network.host_address)
    output = tmp_path / "output.txt"
    url = f"{proxy.url}?tcp_user_timeout=1500&connect_timeout=2"
    worker = network.run(sys.executable, "-m", "tests.stores.postgres.worker", url, output=output)
    try:
        until(lambda: done(queue) > 50, f"the worker\n{output.read_text()}")
        network.disconnect()
        until(lambda: "away" in output.read_text(), f"that it notices\n{output.read_text()}")
        before = done(queue)
        assert before < len(ids)
        network.reconnect()
        until(lambda: done(queue) == len(ids), "the rest")
    finally:
        worker.kill()
        worker.wait()
        proxy.close()
    must_have_one_outcome(queue, ids)
