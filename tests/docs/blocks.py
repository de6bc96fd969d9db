"""Find and run the code blocks of a page.

The convention for authors is in test_blocks.py.
"""

import ast
import asyncio
import configparser
import contextlib
import inspect
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

import onerow

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md"))]
RENDERED = {"docs/states.md"}
"""Pages that a program writes and a test compares; they show no code that readers copy."""
LANGUAGES = ("python", "sh", "sql", "ini", "json")
_BLOCK = re.compile(r"^(?:<!-- (fixture|not run): ([^\n]+) -->\n+)?```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SERVERS = {
    "postgres_url": re.compile(r"postgresql://[^\s\"')?]+"),
    "mongo_url": re.compile(r"mongodb://[^\s\"')?]+"),
    "sqs_endpoint": re.compile(r"http://127\.0\.0\.1:5001"),
}
_PIP = """#!{python}
import re, sys
from importlib.metadata import metadata
extras = [extra for word in sys.argv for found in re.findall(r"^onerow\\[(.*)\\]$", word) for extra in found.split(",")]
unknown = set(extras) - set(metadata("onerow").get_all("Provides-Extra"))
sys.exit(f"onerow has no extra {{unknown}}" if unknown else 0)
"""


@dataclass(frozen=True)
class Block:
    """One code block: its place, language and text, and what the comment above it says."""

    page: str
    line: int
    language: str
    text: str
    fixture: str
    not_run: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        kind, word, language, code = match.groups()
        line = text.count("\n", 0, match.start(4)) + 1
        fixture, reason = (word if kind == "fixture" else ""), (word if kind == "not run" else "")
        found.append(Block(page, line, language, code, fixture, reason))
    return found


class PageRun:
    """Runs the blocks of one page in order, in one folder; `cd` and Python names last until the end of the page."""

    def __init__(
        self, request: pytest.FixtureRequest, folder: Path, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._request = request
        self._monkeypatch = monkeypatch
        self._folder = folder
        self._names = names
        self._queues: set[onerow.Queue] = set()
        self.output = ""
        programs = folder.parent / "programs"
        programs.mkdir()
        (programs / "pip").write_text(_PIP.format(python=sys.executable), encoding="utf-8")
        (programs / "pip").chmod(0o755)
        path = [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
        monkeypatch.setenv("PATH", os.pathsep.join(path))
        for name in [name for name in os.environ if name.startswith("ONEROW_")]:
            monkeypatch.delenv(name)
        self._enter(folder)

    def run(self, block: Block) -> None:
        if block.fixture:
            self._request.getfixturevalue(block.fixture)
        text = self._with_test_servers(block.text)
        match block.language:
            case "python":
                self._python(block, text)
            case "sh":
                self._shell(block, text)
            case "sql":
                self._sql(text)
            case "ini":
                configparser.ConfigParser(strict=True).read_string(text)
            case "json":
                json.loads(text)
            case other:
                pytest.fail(f"{block.where}: {other!r} can't be run; write <!-- not run: REASON --> above it")
        self._queues |= {value for value in self._names.values() if isinstance(value, onerow.Queue)}

    def close(self) -> None:
        for queue in self._queues:
            queue.close()

    def _python(self, block: Block, text: str) -> None:
        # Empty lines in front, so that a traceback shows the line of the page.
        source = "\n" * (block.line - 1) + text
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(source, str(ROOT / block.page), "exec", flags=flags, dont_inherit=True)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            result = eval(code, self._names)
            if code.co_flags & inspect.CO_COROUTINE:
                asyncio.run(result)
        self.output += printed.getvalue()

    def _shell(self, block: Block, text: str) -> None:
        last = self._folder.parent / "last_folder"
        result = subprocess.run(
            ["bash", "-euxo", "pipefail", "-c", f"{text}\npwd > {last}"], text=True, timeout=900, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert result.returncode == 0, f"{block.where}:\n{result.stdout[-4_000:]}"
        self.output += result.stdout
        self._enter(Path(last.read_text(encoding="utf-8").strip()))

    def _sql(self, text: str) -> None:
        with psycopg.connect(self._request.getfixturevalue("postgres_url"), autocommit=True) as connection:
            connection.execute("SET search_path = onerow, public")
            for statement in filter(None, (part.strip() for part in text.split(";\n"))):
                cursor = connection.execute(statement.removesuffix(";").encode())
                if cursor.description:
                    self.output += f"{cursor.fetchall()}\n"

    def _with_test_servers(self, text: str) -> str:
        """Replace the addresses of servers by those of the test servers."""
        for fixture, address in _SERVERS.items():
            if address.search(text):
                url = self._request.getfixturevalue(fixture)
                text = address.sub(lambda _, url=url: url, text)  # type: ignore[misc]
        return text

    def _enter(self, folder: Path) -> None:
        self._monkeypatch.chdir(folder)
        self._monkeypatch.syspath_prepend(folder)
        self._monkeypatch.setattr(sys, "dont_write_bytecode", True)


def public_names() -> dict[str, Any]:
    return {"__name__": "page", **{name: getattr(onerow, name) for name in onerow.__all__ if name[0] != "_"}}
