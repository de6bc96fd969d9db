"""Unpacks Debian packages into a directory, without installing them and without root."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.servers import Missing

SOURCES = Path("/etc/apt/sources.list.d/debian.sources")


def unpack(
    package: str, into: Path, *, suite: str | None = None, architecture: str | None = None, needs: bool | None = None
) -> None:
    """Unpack a package, and with `needs` (the default unless a suite is given) its missing dependencies.

    For another architecture all dependencies are unpacked, including the C library.
    """
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise Missing(f"{package} can only be fetched with apt-get")
    work = into.with_name(f"{into.name}-apt")
    shutil.rmtree(work, ignore_errors=True)
    (work / "lists" / "partial").mkdir(parents=True)
    (work / "archives" / "partial").mkdir(parents=True)
    # Separate lists and archives, so that the system's are not changed or locked.
    options = [
        f"Dir::State::lists={work / 'lists'}",
        f"Dir::Cache::archives={work / 'archives'}",
        "Dir::Cache::pkgcache=",
        "Dir::Cache::srcpkgcache=",
        "Debug::NoLocking=1",
        "APT::Sandbox::User=",
    ]
    if suite:
        (work / "suite.sources").write_text(_sources_of(suite))
        options += [f"Dir::Etc::sourcelist={work / 'suite.sources'}", "Dir::Etc::sourceparts=-"]
    if architecture:
        (work / "status").touch()
        options += [
            f"APT::Architecture={architecture}",
            f"APT::Architectures::={architecture}",
            f"Dir::State::status={work / 'status'}",
        ]
    apt = ["apt-get", "-qq", *(word for option in options for word in ("-o", option))]
    _run([*apt, "update"], work)
    if suite is None if needs is None else needs:
        _run([*apt, "install", "--download-only", "--no-install-recommends", "--yes", package], work)
    else:
        _run([*apt, "download", package], work / "archives")
    for archive in sorted((work / "archives").glob("*.deb")):
        _run(["dpkg-deb", "-x", str(archive), str(into)], work)
    shutil.rmtree(work)


def _sources_of(suite: str) -> str:
    """Return the system's first package source, changed to another suite."""
    if not SOURCES.exists():
        raise Missing(f"{SOURCES} is not here: this needs Debian 12 or newer")
    first = re.sub(r"^#.*\n", "", SOURCES.read_text(), flags=re.MULTILINE).strip().split("\n\n")[0]
    return re.sub(r"^Suites:.*$", f"Suites: {suite}", first, flags=re.MULTILINE) + "\n"


def _run(command: Sequence[str], cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"{command[0]} {command[-1]} failed:\n{done.stdout}{done.stderr}")
