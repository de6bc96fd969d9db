"""Chromium for the browser tests: the system's, or Debian's package unpacked into .cache."""

import os
import shutil
from pathlib import Path

from tests.servers import CACHE, Missing

UNPACKED = CACHE / "chromium"
AXE = CACHE / "axe" / "package" / "axe.min.js"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip


def find_chromium() -> tuple[Path, dict[str, str]]:
    """Return the program and the environment that it needs; raise Missing if it is not here."""
    if installed := shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome"):
        return Path(installed), dict(os.environ)
    unpacked = UNPACKED / "usr" / "lib" / "chromium" / "chromium"
    if not unpacked.exists():
        raise Missing("Chromium is not here. On Debian `make servers` fetches it; elsewhere install it.")
    folders = ("*-linux-*", "*-linux-*/pulseaudio")
    libraries = [str(path) for folder in folders for path in (UNPACKED / "usr" / "lib").glob(folder)]
    return unpacked, os.environ | {"LD_LIBRARY_PATH": ":".join(libraries)}


def axe_script() -> str:
    """Return the source of axe-core, which checks a page for barriers; raise Missing if it is not here."""
    if not AXE.exists():
        raise Missing("axe-core is not here. `make servers` fetches it with npm.")
    return AXE.read_text(encoding="utf-8")
