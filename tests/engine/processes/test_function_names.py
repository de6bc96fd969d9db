"""Importable names of functions."""

import functools
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from onerow.engine.runners.function_names import importable_name, resolve
from tests.engine.processes.handlers import Handler, Handlers


def test_a_name_finds_its_function_again() -> None:
    assert importable_name(socket.create_connection) == "socket:create_connection"
    assert resolve(importable_name(Path.cwd)) == Path.cwd
    assert resolve(importable_name(importable_name)) is importable_name


@pytest.mark.parametrize(
    "function, reason",
    [
        (lambda: None, "A lambda has no name"),
        (functools.partial(print, 1), "is not a function"),
        (Path("/").exists, "method of one object"),
        (Handler, "is not a function"),
    ],
    ids=["lambda", "partial", "method", "class"],
)
def test_a_callable_without_an_importable_name_is_refused(function: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        importable_name(function)


def test_a_function_in_a_function_is_refused() -> None:
    def inner() -> None: ...

    with pytest.raises(ValueError, match="inside another function"):
        importable_name(inner)


@pytest.mark.parametrize("name", ["", "socket", ":x", "socket:", "socket:no.such", "socket:AF_INET6.name"])
def test_a_name_that_cannot_be_resolved_raises_an_import_error(name: str) -> None:
    with pytest.raises(ImportError, match=r"form|no 'no.such'|not a function"):
        resolve(name)


def test_the_import_error_names_the_exception_of_a_failing_module(tmp_path: Path) -> None:
    (script := tmp_path / "broken.py").write_text("1 / 0")
    with pytest.raises(ImportError, match="ZeroDivisionError: division by zero"):
        resolve(f"{script}:run")


SCRIPT = """
import sys
from onerow.engine.runners.function_names import importable_name

def video(payload, send):
    return [__name__, payload]

if __name__ == "__main__":
    print(importable_name(video))
"""


def names_printed(*argv: str, cwd: Path, text: str | None = None) -> "subprocess.CompletedProcess[str]":
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run([sys.executable, *argv], cwd=cwd, env=env, input=text, capture_output=True, text=True)


@pytest.mark.parametrize("file", ["app.py", "app-without-suffix"])
def test_a_function_of_the_main_script_is_found_by_path(run: Handlers, file: str) -> None:
    (run.folder / file).write_text(SCRIPT)
    name = names_printed(file, cwd=run.folder).stdout.strip()
    assert name == f"{run.folder.resolve() / file}:video"
    assert run(name, 1).frames() == [{"t": "result", "value": ["__onerow_main__", 1]}]


def test_a_function_of_a_module_run_with_m_is_found_by_module(run: Handlers) -> None:
    (run.folder / "studio").mkdir()
    (run.folder / "studio" / "__main__.py").write_text(SCRIPT)
    name = names_printed("-m", "studio", cwd=run.folder).stdout.strip()
    assert name == "studio.__main__:video"
    assert run(name, 1).frames() == [{"t": "result", "value": ["studio.__main__", 1]}]


def test_a_function_read_from_standard_input_is_refused(tmp_path: Path) -> None:
    assert "put it in a file" in names_printed("-", cwd=tmp_path, text=SCRIPT).stderr
