"""Importable names of functions, so that another interpreter can find them."""

import importlib
import importlib.machinery
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from onerow.core.errors import with_fix

# A script that is imported again must not be named __main__, or its `if __name__ == "__main__"` block would run.
_SCRIPT = "__onerow_main__"


def importable_name(function: Callable[..., Any]) -> str:
    """Return `module:qualname` or `/path/of/script.py:qualname` of a function; raise ValueError if it has neither."""
    module = getattr(function, "__module__", None)
    qualname = getattr(function, "__qualname__", None)
    shown = qualname or repr(function)
    if inspect.ismethod(function) and not inspect.isclass(function.__self__):
        raise ValueError(
            f"{shown} is a method of one object, which a fresh process does not have; use a function of a module."
        )
    if not isinstance(qualname, str) or not isinstance(module, str) or isinstance(function, type):
        raise ValueError(f"{shown} is not a function; a fresh process can only be given a function of a module.")
    if "<lambda>" in qualname:
        raise ValueError("A lambda has no name that a fresh process could import; use a function of a module (def).")
    if "<locals>" in qualname:
        raise ValueError(
            f"{shown} is defined inside another function, where a fresh process cannot find it; move it to a module."
        )
    return f"{_main_name(shown) if module == '__main__' else module}:{qualname}"


def resolve(name: str) -> Callable[..., Any]:
    """Return the function with this `importable_name`; raise ImportError that says what is missing."""
    where, _, qualname = name.rpartition(":")
    if not where or not qualname:
        raise ImportError(f"{name!r} is not of the form 'module:function'.")
    found: Any = _import(where, name)
    for part in qualname.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ImportError(f"Cannot find {name!r}: {where} has no {qualname!r}. Was it renamed or moved?") from None
    if not callable(found):
        raise ImportError(f"{name!r} is {type(found).__name__}, not a function.")
    return found  # type: ignore[no-any-return]


def _main_name(shown: str) -> str:
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name != "__main__":
        return str(spec.name)  # python -m package.module
    file = getattr(main, "__file__", None)
    if not file or not Path(file).is_file():
        raise ValueError(
            f"{shown} was typed in or read from standard input, so a fresh process cannot import it; put it in a file."
        )
    return str(Path(file).resolve())


def module_in_child(module: str) -> str:
    """Return the name that a module of this process has in a process that imports its functions."""
    if module != "__main__":
        return module
    name = _main_name(module)
    return _SCRIPT if name.startswith("/") else name


def _import(where: str, name: str) -> ModuleType:
    try:
        return _import_script(Path(where)) if where.startswith("/") else importlib.import_module(where)
    except Exception as error:
        raise ImportError(f"Cannot import {where!r} for {name!r}: {type(error).__name__}: {with_fix(error)}") from error


def _import_script(path: Path) -> ModuleType:
    known = sys.modules.get(_SCRIPT)
    if known is not None and known.__file__ == str(path):
        return known
    # With an explicit loader, because a script need not end in .py.
    loader = importlib.machinery.SourceFileLoader(_SCRIPT, str(path))
    spec = importlib.util.spec_from_file_location(_SCRIPT, path, loader=loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    sys.modules[_SCRIPT] = module
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[_SCRIPT]
        raise
    return module
