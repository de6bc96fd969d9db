"""A worker in a network of its own, whose cable is pulled: no reset, no answer, nothing."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

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


class Island:
    """A network namespace with one cable to this host."""

    def __init__(self) -> None:
        self.name = f"onerow{uuid4().hex[:8]}"
        number = os.getpid() % 250
        self.shore, self._inside = f"10.213.{number}.1", f"10.213.{number}.2"
        self._cable = f"or{uuid4().hex[:8]}"
        _ip("netns", "add", self.name)
        _ip("link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        _ip("addr", "add", f"{self.shore}/30", "dev", self._cable)
        _ip("link", "set", self._cable, "up")
        _ip("-n", self.name, "addr", "add", f"{self._inside}/30", "dev", "eth0")
        _ip("-n", self.name, "link", "set", "eth0", "up")
        _ip("-n", self.name, "link", "set", "lo", "up")

    def pull(self) -> None:
        _ip("link", "set", self._cable, "down")

    def plug(self) -> None:
        _ip("link", "set", self._cable, "up")

    def run(self, *argv: str, output: Path) -> subprocess.Popen[bytes]:
        with output.open("wb") as file:
            return subprocess.Popen(["ip", "netns", "exec", self.name, *argv], stdout=file, stderr=file)

    def close(self) -> None:
        _ip("netns", "del", self.name)  # and the cable with it


def _ip(*argv: str) -> None:
    done = subprocess.run(["ip", *argv], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"ip {' '.join(argv)}: {done.stderr.strip()}")


@pytest.fixture
def island() -> Iterator[Island]:
    island = Island()
    yield island
    island.close()


def test_a_worker_whose_cable_was_pulled_goes_on_when_it_is_back(
    store: PostgresStore, postgres_url: str, island: Island, tmp_path: Path
) -> None:
    """It notices by itself, its tasks are given back meanwhile, and each has one recorded outcome."""
    queue = Queue(store)
    ids = added(queue, 600)
    proxy = Proxy(postgres_url, host=island.shore)
    output = tmp_path / "output.txt"
    url = f"{proxy.url}?tcp_user_timeout=1500&connect_timeout=2"
    worker = island.run(sys.executable, "-m", "tests.stores.postgres.worker", url, output=output)
    try:
        until(lambda: done(queue) > 50, f"the worker\n{output.read_text()}")
        island.pull()
        until(lambda: "away" in output.read_text(), f"that it notices\n{output.read_text()}")
        before = done(queue)
        assert before < len(ids)
        island.plug()
        until(lambda: done(queue) == len(ids), "the rest")
    finally:
        worker.kill()
        worker.wait()
        proxy.close()
    must_have_one_outcome(queue, ids)
