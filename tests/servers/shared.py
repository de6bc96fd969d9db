"""One server of each kind for all processes of a test run.

The first process that needs a server starts its keeper, a process that starts the server and stops it when the run has
ended. A keeper is not a test process, so that no crash of one takes the server along.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TextIO

from tests.servers import Missing

_FOLDER = "ONEROW_TEST_RUN"  # where the processes of a run find each other; worker processes inherit it
_ROOT = Path(__file__).parents[2]

_folder = os.environ.get(_FOLDER, "")  # tests may change the environment
_kept: list[Any] = []  # open files, whose locks end with this process, and keepers


class _Server(Protocol):
    url: str

    def close(self) -> None: ...


def begin_run() -> None:
    """Begin a run: servers that its processes start live until this process ends or calls `end_run`."""
    global _folder
    _folder = os.environ[_FOLDER] = tempfile.mkdtemp(prefix="onerow-run-")
    _kept.append(_locked(Path(_folder) / "run", fcntl.LOCK_SH))


def end_run() -> None:
    """Let the keepers stop their servers, and wait for them."""
    folder = Path(_folder)
    with (folder / "keepers").open("a") as keepers:
        _kept.pop(0).close()
        fcntl.flock(keepers, fcntl.LOCK_EX)
    shutil.rmtree(folder, ignore_errors=True)


def shared(kind: str) -> str:
    """Return the URL of the run's server of this kind; the first call of the run starts it."""
    folder = Path(_folder)
    answer = folder / f"{kind}.json"
    with _locked(folder / f"{kind}.lock", fcntl.LOCK_EX):
        if not answer.exists():
            _start_keeper(kind, folder)
        said = json.loads(answer.read_text())
    if "missing" in said:
        raise Missing(said["missing"])
    url: str = said["url"]
    return url


def _start_keeper(kind: str, folder: Path) -> None:
    log = folder / f"{kind}.log"
    with log.open("w") as output:
        keeper = subprocess.Popen(
            [sys.executable, "-m", __name__, kind, folder],
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,  # the server must not receive Ctrl-C
        )
    _kept.append(keeper)
    assert keeper.stdout is not None
    with keeper.stdout as ready:
        if not ready.readline():
            raise RuntimeError(f"the {kind} server did not start:\n{log.read_text()[-4000:]}")


def _keep(kind: str, folder: Path) -> None:
    """Start a server and tell the run its URL; stop it when the run has ended."""
    _kept.append(_locked(folder / "keepers", fcntl.LOCK_SH))
    server = None
    try:
        server = _KINDS[kind]()
        _answer(folder / f"{kind}.json", url=server.url)
    except Missing as missing:
        _answer(folder / f"{kind}.json", missing=str(missing))
    else:
        _locked(folder / "run", fcntl.LOCK_EX).close()  # waits for the end of the run
    finally:
        if server is not None:
            server.close()
            shutil.rmtree(folder, ignore_errors=True)  # the process that began the run may have been killed


def _answer(path: Path, **said: str) -> None:
    path.write_text(json.dumps(said))
    print("ready", flush=True)


def _locked(path: Path, how: int) -> TextIO:
    file = path.open("a")
    fcntl.flock(file, how)
    return file


def _postgres() -> _Server:
    from tests.servers.postgres import open_postgres

    return open_postgres()


def _postgres_15() -> _Server:
    from tests.servers.postgres import DEBIAN_15, PostgresServer

    return PostgresServer(DEBIAN_15)


def _mongo() -> _Server:
    from tests.servers.mongo import open_mongo

    return open_mongo()


def _mongo_replica_set() -> _Server:
    from tests.servers.replica_set import open_replica_set

    return open_replica_set()


_KINDS: dict[str, Callable[[], _Server]] = {
    "postgres": _postgres,
    "postgres-15": _postgres_15,
    "mongo": _mongo,
    "mongo-replica-set": _mongo_replica_set,
}


if __name__ == "__main__":
    _keep(sys.argv[1], Path(sys.argv[2]))
