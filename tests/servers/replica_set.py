"""A MongoDB replica set: mongod 7.0 for aarch64 on loopback ports, under qemu where the machine is another.

Under qemu a start takes about 30 s of processor time for each member, to translate its code. So a test session has one
set, which its processes share; `ONEROW_TEST_MONGO_MEMBERS` says how many members it has.
"""

import contextlib
import fcntl
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymongo
from pymongo.errors import AutoReconnect, PyMongoError

from tests.servers import CACHE, Missing
from tests.servers.mongo import MongoDatabases
from tests.servers.process import Process, free_port, make_room, within_reach

FETCHED = CACHE / "mongod"
NAME = "onerow"
PATIENCE = 300.0


class MongoReplicaSet(MongoDatabases):
    """A replica set of our own: its members may be killed, started again and asked to step down."""

    def __init__(self, members: int = 3, *, election_timeout_ms: int = 10_000) -> None:
        if not (FETCHED / ".ready").exists():
            raise Missing(
                "The mongod of a replica set is not here. `make servers` fetches one (it needs Linux, npm and apt-get); "
                "or give a set of yours in ONEROW_TEST_MONGO_REPLICA_SET_URL."
            )
        self._room = make_room("mongod")
        fetched = within_reach(FETCHED, self._room)
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
        """The ports of all members."""
        return list(self._processes)

    def primary(self) -> int:
        """The port of the member that accepts writes, once there is one."""
        with pymongo.MongoClient[dict[str, Any]](self.url, serverSelectionTimeoutMS=int(PATIENCE * 1000)) as client:
            while True:
                with contextlib.suppress(PyMongoError):
                    client.admin.command("ping")
                    if client.address is not None:
                        return client.address[1]

    def kill(self, port: int) -> None:
        """kill -9 of one member."""
        self._processes[port].kill()

    def start(self, port: int) -> None:
        """Start a killed member again, on its own data."""
        self._start(port)
        self._wait_until_it_answers(port)

    def step_down(self, seconds: int = 15) -> int:
        """Ask the primary to hand over, and to stay a secondary for some seconds; its port."""
        deadline = time.monotonic() + PATIENCE
        while True:
            port = self.primary()
            url = f"mongodb://127.0.0.1:{port}/?directConnection=true"
            try:
                with pymongo.MongoClient[dict[str, Any]](url) as client:
                    client.admin.command("replSetStepDown", seconds, secondaryCatchUpPeriodSecs=10)
                return port
            except AutoReconnect:
                return port  # it may close all connections
            except PyMongoError:
                if time.monotonic() > deadline:
                    raise  # else no other member has caught up yet

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
        shutil.rmtree(self._room, ignore_errors=True)

    def _start(self, port: int) -> None:
        data = self._room / str(port)
        data.mkdir(exist_ok=True)
        shutil.chown(data, self._room.stat().st_uid, self._room.stat().st_gid)
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
        self._processes[port] = Process(command, log=self._room / f"{port}.log")

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
                        # The first writes are slow, since their code is translated too; no test should wait for that.
                        client.warm.warm.insert_one({})
                        return
                time.sleep(0.2)
        raise RuntimeError(f"the replica set {self.url} has no primary after {PATIENCE:.0f} s")


def _runner(fetched: Path) -> list[str | Path]:
    """How to start the mongod with the libraries that were fetched for it."""
    root = fetched / "root"
    if platform.machine() == "aarch64":
        libraries = f"{root}/lib/aarch64-linux-gnu:{root}/usr/lib/aarch64-linux-gnu"
        return [root / "lib" / "ld-linux-aarch64.so.1", "--library-path", libraries]
    return [fetched / "qemu-aarch64-static", "-L", root]


def open_replica_set() -> MongoReplicaSet:
    return MongoReplicaSet(int(os.environ.get("ONEROW_TEST_MONGO_MEMBERS", "1")))


@contextlib.contextmanager
def shared_replica_set(folder: Path, start: Callable[[], MongoDatabases]) -> Iterator[MongoDatabases]:
    """The set that the processes of one test session share: the first starts it, and ends it when none uses it."""
    given = os.environ.get("ONEROW_TEST_MONGO_REPLICA_SET_URL")
    if given:
        yield MongoDatabases(given)
        return
    address = folder / "mongo-replica-set.url"
    with (folder / "mongo-replica-set.users").open("a") as users:
        own = None
        with (folder / "mongo-replica-set.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            fcntl.flock(users, fcntl.LOCK_SH)
            found = address.read_text() if address.exists() else ""
            if not found:
                own = start()
                address.write_text(own.url)
        try:
            yield own or MongoDatabases(found)
        finally:
            if own is not None:
                # New users take the lock first, so none can come between the last user's end and the removal.
                with (folder / "mongo-replica-set.lock").open("a") as lock:
                    _wait_for_others(users, lock)
                    address.unlink()
                own.close()


def _wait_for_others(users: Any, lock: Any) -> None:
    """Until no other process uses the set; then the lock is ours, too."""
    while True:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            fcntl.flock(lock, fcntl.LOCK_UN)
            time.sleep(0.2)
