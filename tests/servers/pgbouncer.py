"""PgBouncer in transaction mode, in front of a PostgreSQL server."""

import shutil
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from tests.servers import CACHE, Missing
from tests.servers.process import Process, free_port, make_directory, readable_copy

UNPACKED = CACHE / "pgbouncer"


class PgBouncer:
    """PgBouncer in transaction mode: each transaction may use another server connection, so session settings are lost."""

    def __init__(self, postgres_url: str) -> None:
        binary, libraries = _find()
        behind = urlsplit(postgres_url)
        self._directory = make_directory("pgbouncer")
        self._port = free_port()
        config = self._directory / "pgbouncer.ini"
        password = f" password={behind.password}" if behind.password else ""
        config.write_text(
            "[databases]\n"
            f"* = host={behind.hostname} port={behind.port or 5432} user={behind.username}{password}\n"
            "[pgbouncer]\n"
            "listen_addr = 127.0.0.1\n"
            f"listen_port = {self._port}\n"
            "unix_socket_dir =\n"
            "auth_type = any\n"
            "pool_mode = transaction\n"
            "default_pool_size = 5\n"
            "max_client_conn = 500\n"
        )
        config.chmod(0o644)  # a module under test may have set the umask
        env = {"LD_LIBRARY_PATH": ":".join(str(readable_copy(path, self._directory)) for path in libraries)}
        binary = readable_copy(binary.parent, self._directory) / binary.name
        self._process = Process([binary, config], log=self._directory / "log", env=env if libraries else None)
        self._process.wait_until(
            lambda: psycopg.connect(self.in_front_of(postgres_url), prepare_threshold=None).close(),
            errors=psycopg.OperationalError,
        )

    def in_front_of(self, postgres_url: str) -> str:
        """Return the URL of the same database through PgBouncer."""
        return f"postgresql://postgres@127.0.0.1:{self._port}{urlsplit(postgres_url).path}"

    def close(self) -> None:
        self._process.kill()
        shutil.rmtree(self._directory, ignore_errors=True)


def _find() -> tuple[Path, list[Path]]:
    """Return the binary, and the directories of its libraries if they are not the system's."""
    if installed := shutil.which(
        "pgbouncer", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin"
    ):
        return Path(installed), []
    unpacked = UNPACKED / "usr" / "sbin" / "pgbouncer"
    if not unpacked.exists():
        raise Missing("PgBouncer is not here. On Debian and Ubuntu `make servers` fetches it; elsewhere install it.")
    return unpacked, sorted(path for path in (UNPACKED / "usr" / "lib").glob("*-linux-*"))
