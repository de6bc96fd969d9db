"""Load the APP argument, `module[:queue]`, with errors that say what to do."""

import importlib
import os
import traceback
from pathlib import Path
from types import ModuleType

from onerow.core.errors import BadInput
from onerow.engine.import_guard import importing_app
from onerow.engine.queue import queue as engine
from onerow.pipelines.pipeline import Pipeline
from onerow.settings import VARIABLE
from onerow.wiring import Queue, open_store


class AppError(BadInput):
    """The app cannot be loaded, or lacks what the command needs."""


def load_app(name: str, store: str | None) -> engine.Queue:
    """Return the app's queue, which serves every pipeline of its module."""
    if store is not None:
        os.environ[VARIABLE] = store  # for each Queue() of the app, here and in processes that this one starts
    module_name, _, attribute = name.partition(":")
    module = _import(module_name)
    queue = _queue_of(module, attribute, store)
    pipelines = [value for value in vars(module).values() if isinstance(value, Pipeline)]
    queue.serve(*pipelines)
    if not queue.pipelines:
        raise AppError(
            f"{module_name} has no pipelines; make one at the top of the module: videos = Pipeline('videos')"
        )
    for pipeline in queue.pipelines.values():
        pipeline.plan  # noqa: B018  reports a pipeline's mistakes here, not at its first task
    return queue


def _import(name: str) -> ModuleType:
    if name.endswith(".py"):
        raise AppError(f"{name!r} is a file; give the module instead: {Path(name).stem}")
    try:
        with importing_app():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name.split(".")[0] or error.name == name:
            raise AppError(
                f"no module {name!r} here ({Path.cwd()}); run the command in the folder that holds it, or set PYTHONPATH"
            ) from None
        raise AppError(f"{name} imports {error.name!r}, which is not installed") from error
    except BadInput:
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise AppError(f"{name} can't be imported: {error!r} at {frame.filename}:{frame.lineno}") from error


def _queue_of(module: ModuleType, attribute: str, store: str | None) -> engine.Queue:
    if attribute:
        queue = getattr(module, attribute, None)
        if not isinstance(queue, engine.Queue):
            raise AppError(f"{module.__name__}:{attribute} is not a Queue")
        return _same_store(queue, store)
    queues = [value for value in vars(module).values() if isinstance(value, engine.Queue)]
    if len(queues) > 1:
        raise AppError(f"{module.__name__} has several queues; name one: {module.__name__}:NAME")
    if queues:
        return _same_store(queues[0], store)
    return Queue()


def _same_store(queue: engine.Queue, store: str | None) -> engine.Queue:
    if store is not None and open_store(store).url != queue.url:
        raise AppError(
            f"--store says {open_store(store).url}, but the app's queue is in {queue.url}; leave --store out, or write Queue() in the app"
        )
    return queue
