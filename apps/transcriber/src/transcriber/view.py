"""The view transcription_jobs of the queue's database."""

import tomllib
from importlib.resources import files

from onerow import Queue
from onerow.core.adoption import check_plan
from onerow.core.table_mapping import TableMapping, read_mapping
from onerow.table_ports import Viewable


def jobs_mapping() -> TableMapping:
    """Return the columns and words of transcription_jobs."""
    return read_mapping(tomllib.loads(files("transcriber").joinpath("transcription_jobs.toml").read_text("utf-8")))


def make_view(queue: Queue) -> None:
    """Create or replace the view, if it is not there as it should be."""
    mapping, store = jobs_mapping(), queue.store
    check_plan(mapping, queue.pipelines["transcribe"].plan)
    assert isinstance(store, Viewable)
    if mapping not in store.views():
        store.create_view(mapping)
