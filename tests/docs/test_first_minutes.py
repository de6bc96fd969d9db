"""The first commands of a newcomer, in a fresh copy of the repository: `make demo`, what it recommends, the installation."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from onerow.cli.start.demo import in_this_shell
from tests.docs.blocks import ROOT, blocks_of

PARTS = ("Makefile", "README.md", "LICENSE", "pyproject.toml", "constraints.txt", "src")
"""What an installation needs of the repository."""
INSTALL = "test_first_minutes.py runs it"
WITHOUT_TOOLS = ("pytest", "mypy", "ruff")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone with blank"
    folder.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, folder)
    return folder


@pytest.fixture
def environment() -> dict[str, str]:
    """The environment of a person whose PATH has no onerow; packages come from the downloads of `make setup`."""
    own = {str(Path(sys.executable).parent), str(Path(sys.prefix) / "bin")}
    path = [
        str(Path(sys.base_prefix) / "bin"),
        *(each for each in os.environ["PATH"].split(os.pathsep) if each not in own),
    ]
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV", "MAKEFLAGS")}
    packages = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onerow" / "packages"
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(packages)} if packages.is_dir() else {}
    return {**kept, **offline, "PATH": os.pathsep.join(path)}


def run(command: str, folder: Path, environment: dict[str, str]) -> str:
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command], cwd=folder, env=environment, text=True, timeout=900, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-4_000:]
    return result.stdout


def test_what_the_demo_recommends_works_as_printed(clone: Path, environment: dict[str, str]) -> None:
    printed = run("make demo ARGS=--fast", clone, environment)
    assert "6 of 6 tasks completed" in printed
    assert "it is tried again in a second" in printed
    found = re.search(r"^Next: (.+)$", printed, re.MULTILINE)
    assert found is not None
    then = "cd my_project && onerow publish app && onerow add greetings name=Ann --id ann && onerow show ann"
    said = run(f"{found[1]} && {then}", clone, environment)
    assert "onerow worker app" in said
    assert "Hello Ann" in said
    assert not [name for name in WITHOUT_TOOLS if (clone / ".venv/bin" / name).exists()]


def test_the_installation_of_the_readme_works(clone: Path, environment: dict[str, str]) -> None:
    demo, install = [block.text for block in blocks_of("README.md") if block.not_run == INSTALL]
    assert demo == "make demo\n"
    said = run(f"{install}onerow --version\npython -c 'import onerow; print(onerow.__file__)'", clone, environment)
    assert str(clone / "src" / "onerow") in said


def test_the_demo_names_the_bare_command_where_it_is_on_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setenv("PATH", str(programs))
    assert in_this_shell("list") == f"{programs / 'python'} -m onerow list"
    (programs / "onerow").touch(mode=0o755)
    assert in_this_shell("list") == "onerow list"
