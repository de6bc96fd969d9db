"""A MongoDB replica set: mongod 7.0 for aarch64 on loopback ports, under qemu on other machines.

Under qemu the start of a member takes about 30 s of CPU time, to translate its code. `ONEROW_TEST_MONGO_MEMBERS` is
the number of members of the set that a run shares.
"""

import contextlib
import os
import platform
import shutil
import time
from pathlib import Path
from typing import Any

import pymongo
from pymongo.errors import AutoReconnect, PyMongoError

from tests.servers import CACHE, Missing
from tests.servers.mongo import MongoDatabases
from tests.servers.process import Process, free_port, make_directory, readable_copy

FETCHED = CACHE / "mongod"
NAME = "onerow"
PATIENCE = 240.0  # less than the limit of a test


class MongoReplicaSet(MongoDatabases):
    """A replica set for tests: its members can be killed, restarted and asked to step down."""

    def __init__(self, members: int = 3, *, election_timeout_ms: int = 10_000) -> None:
        if not (FETCHED / ".ready").exists():
            raise Missing(
                "The mongod of a replica set is not here. `make servers` fetches one (it needs Linux, npm and apt-get); "
                "or give a set of yours in ONEROW_TEST_MONGO_REPLICA_SET_URL."
            )
        self._directory = make_directory("mongod")
        fetched = readable_copy(FETCHED, self._directory)
        self._mongod = [*_runner(fetched), fetched / "mongod"]
        self._processes: dict[int, Process] = {}
        ports = [free_port() for _ in range(members)]
        super().__init__(f"mongodb://{','.join(f'127.0.0.1:{port}' for port in ports)}/?replicaSet={NAME}")
        try:
            for port in ports:
                self._start(port)
            for port in ports:
                self._wait_until_it_answers(port)
            self._initiate(ports, election_timeout_ms)
        except BaseException:
            self.close()
            raise

    @property
    def members(self) -> list[int]:
        """Return the ports of all members."""
        return list(self._processes)

    def primary(self) -> int:
        """Wait for a primary; return its port."""
        with pymongo.MongoClient[dict[str, Any]](self.url, serverSelectionTimeoutMS=int(PATIENCE * 1000)) as client:
            while True:
                with contextlib.suppress(PyMongoError):
                    client.admin.command("ping")
                    if client.address is not None:
                        return client.address[1]

    def kill(self, port: int) -> None:
        """Send SIGKILL to one member."""
        self._processes[port].kill()

    def start(self, port: int) -> None:
        """Restart a killed member on its data."""
        self._start(port)
        self._wait_until_it_answers(port)

    def step_down(self, seconds: int = 15) -> int:
        """Make the primary step down for some seconds; return its port."""
        deadline = time.monotonic() + PATIENCE
        while True:
            port = self.primary()
            url = f"mongodb://127.0.0.1:{port}/?directConnection=true"
            try:
                with pymongo.MongoClient[dict[str, Any]](url) as client:
                    client.admin.command("replSetStepDown", seconds, secondaryCatchUpPeriodSecs=10)
                return port
            except AutoReconnect:
                return port  # stepping down may close all connections
            except PyMongoError:
                if time.monotonic() > deadline:
                    raise  # otherwise no other member has caught up yet

    def close(self) -> None:
        super().close()
        for process in self._processes.values():
            process.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _start(self, port: int) -> None:
        data = self._directory / str(port)
        data.mkdir(exist_ok=True)
        shutil.chown(data, self._directory.stat().st_uid, self._directory.stat().st_gid)
        options = {
            "--dbpath": data,
            "--port": port,
            "--bind_ip": "127.0.0.1",
            "--replSet": NAME,
            "--oplogSize": 64,
            "--wiredTigerCacheSizeGB": 0.25,
            "--setParameter": "diagnosticDataCollectionEnabled=false",
        }
        words = [str(word) for option in options.items() for word in option]
        command = [*self._mongod, *words, "--nounixsocket", "--quiet"]
        self._processes[port] = Process(command, log=self._directory / f"{port}.log")

    def _wait_until_it_answers(self, port: int) -> None:
        def ping() -> None:
            url = f"mongodb://127.0.0.1:{port}/?directConnection=true"
            with pymongo.MongoClient[dict[str, Any]](url, serverSelectionTimeoutMS=2_000) as client:
                client.admin.command("ping")

        self._processes[port].wait_until(ping, errors=PyMongoError, seconds=PATIENCE)

    def _initiate(self, ports: list[int], election_timeout_ms: int) -> None:
        members = [{"_id": number, "host": f"127.0.0.1:{port}"} for number, port in enumerate(ports)]
        settings = {"electionTimeoutMillis": election_timeout_ms}
        with pymongo.MongoClient[dict[str, Any]](f"mongodb://127.0.0.1:{ports[0]}/?directConnection=true") as client:
            client.admin.command("replSetInitiate", {"_id": NAME, "members": members, "settings": settings})
        with pymongo.MongoClient[dict[str, Any]](self.url, serverSelectionTimeoutMS=int(PATIENCE * 1000)) as client:
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                with contextlib.suppress(PyMongoError):
                    found = {member["stateStr"] for member in client.admin.command("replSetGetStatus")["members"]}
                    if found <= {"PRIMARY", "SECONDARY"} and "PRIMARY" in found:
                        # The first writes are slow, because qemu translates their code; do them before the tests.
                        client.warm.warm.insert_one({})
                        return
                time.sleep(0.2)
        raise RuntimeError(f"the replica set {self.url} has no primary after {PATIENCE:.0f} s")


def _runner(fetched: Path) -> list[str | Path]:
    """Return the command that starts mongod with its fetched libraries."""
    root = fetched / "root"
    if platform.machine() == "aarch64":
        libraries = f"{root}/lib/aarch64-linux-gnu:{root}/usr/lib/aarch64-linux-gnu"
        return [root / "lib" / "ld-linux-aarch64.so.1", "--library-path", libraries]
    return [fetched / "qemu-aarch64-static", "-L", root]


def open_replica_set() -> MongoDatabases:
    """Return the set at ONEROW_TEST_MONGO_REPLICA_SET_URL, or start one."""
    given = os.environ.get("ONEROW_TEST_MONGO_REPLICA_SET_URL")
    if given:
        return MongoDatabases(given)
    return MongoReplicaSet(int(os.environ.get("ONEROW_TEST_MONGO_MEMBERS", "1")))
