"""Load the APP argument, `module[:queue]`, with errors that say what to do."""

import builtins
import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from onerow.core.errors import BadInput, OnerowError
from onerow.core.failure import user_frame
from onerow.core.suggest import did_you_mean
from onerow.engine.import_guard import CalledAtImport, importing_app
from onerow.environment import VARIABLE
from onerow.pipelines.pipeline import Pipeline
from onerow.wiring import Queue, open_store


class AppError(BadInput):
    """The app cannot be loaded, or lacks what the command needs."""


def load_app(name: str, store: str | None) -> Queue:
    """Return the app's queue, which serves every pipeline of its module. store: that of the option --store."""
    if store is not None:
        os.environ[VARIABLE] = store  # for each Queue of the app, here and in processes that this one starts
    module_name, _, attribute = name.partition(":")
    module = _import(module_name)
    queue = _queue_of(module, attribute)
    if store is not None:
        _check_store(queue, store)
    pipelines = [value for value in vars(module).values() if isinstance(value, Pipeline)]
    queue.serve(*pipelines)
    if not queue.pipelines:
        raise AppError(
            f"{module_name} has no pipelines", fix="make one at the top of the module: videos = Pipeline('videos')"
        )
    for pipeline in queue.pipelines.values():
        pipeline.plan  # noqa: B018  reports a pipeline's mistakes here, not at its first task
    return queue


def app_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument APP and --store to a command. ONEROW_STORE needs no mention: each Queue of the app reads it."""
    option = click.option(
        "--store", metavar="URL", help="Store URL, in place of the app's; default: ONEROW_STORE, then the app's."
    )
    return click.argument("app", metavar="APP")(option(function))


def shown_store(queue: Queue) -> str:
    """Return the store of an app, and who named it."""
    return f"{queue.url} (named by {queue.named_by})"


def _import(name: str) -> ModuleType:
    if name.endswith(".py"):
        raise AppError(f"{name!r} is a file", fix=f"give the module instead: {Path(name).stem}")
    try:
        with importing_app():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _located(error) from error
        modules = [path.stem for path in Path.cwd().glob("*.py")]
        fix = did_you_mean(name, modules, "run the command in the folder that holds it, or set PYTHONPATH")
        raise AppError(f"no module {name!r} here ({Path.cwd()})", fix=fix) from None
    except Exception as error:
        raise _located(error) from error


def _located(error: Exception) -> AppError:
    """Return an error that names the line of the user's code instead of a traceback."""
    if isinstance(error, CalledAtImport):
        return AppError(str(error), fix=error.fix)  # it names the line
    frame = user_frame(error)
    file, line = (frame.filename, frame.lineno) if frame else ("", None)
    if isinstance(error, SyntaxError) and error.filename:
        file, line = error.filename, error.lineno
    path = Path(file)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    what, fix = _explained(error)
    return AppError(f"{shown}:{line}: {what}" if file else what, fix=fix)


def _explained(error: Exception) -> tuple[str, str]:
    """Return what is wrong in the user's code, and the fix if it is known."""
    innermost = traceback.extract_tb(error.__traceback__)[-1]
    match error:
        case OnerowError():
            return str(error), error.fix
        case SyntaxError():
            return f"{type(error).__name__}: {error.msg}" + (f": {error.text.strip()}" if error.text else ""), ""
        case ModuleNotFoundError():
            return f"imports {error.name!r}, which is not installed", f"install it for {sys.executable}"
        case ImportError() if found := re.match(r"cannot import name '(\w+)' from '([\w.]+)'", str(error)):
            known = dir(sys.modules[found[2]]) if found[2] in sys.modules else ()
            return f"{found[2]} has no {found[1]!r}", did_you_mean(found[1], known, "check the name and the version")
        case KeyError() if Path(innermost.filename).name in ("os.py", "<frozen os>"):
            variable = str(error.args[0])
            return f"the environment variable {variable} is not set", f"set it: {variable}=… onerow …"
        case NameError() if error.name and error.__traceback__:
            *_, (frame, _) = traceback.walk_tb(error.__traceback__)
            names = [*frame.f_locals, *frame.f_globals, *dir(builtins)]
            near = did_you_mean(error.name, names, "define or import it")
            return f"NameError: {error.name!r} is not defined", near
    return f"{type(error).__name__}: {error}", ""


def _queue_of(module: ModuleType, attribute: str) -> Queue:
    if attribute:
        queue = getattr(module, attribute, None)
        if not isinstance(queue, Queue):
            names = [name for name, value in vars(module).items() if isinstance(value, Queue)]
            raise AppError(f"{module.__name__}:{attribute} is not a Queue", fix=did_you_mean(attribute, names))
        return queue
    queues = [value for value in vars(module).values() if isinstance(value, Queue)]
    if len(queues) > 1:
        raise AppError(f"{module.__name__} has several queues", fix=f"name one: {module.__name__}:NAME")
    return queues[0] if queues else Queue()


def _check_store(queue: Queue, store: str) -> None:
    if not queue.named_by.startswith(VARIABLE) and (named := open_store(store).url) != queue.url:
        raise AppError(
            f"--store names {named}, but the app's queue is in {queue.url}: it was made with a store object or memory://",
            fix="leave --store out, or write Queue() or Queue('URL') in the app",
        )
    queue.named_by = queue.named_by.replace(VARIABLE, "--store", 1)
