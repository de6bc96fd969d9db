"""The database file is deleted, moved or replaced while processes have it open: they report it and stop."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from onerow import Queue
from onerow.core.errors import StoreMoved
from tests.engine.kit import until
from tests.faults.app import quick, slow
from tests.faults.kit import Place

RESTART = "another starts"


def delete(path: Path) -> None:
    path.unlink()


def move(path: Path) -> None:
    path.rename(path.with_name("moved.db"))


def replace(path: Path) -> None:
    shutil.copy(path, path.with_name("copy.db"))
    os.replace(path.with_name("copy.db"), path)


@pytest.mark.parametrize(
    "harm, said",
    [
        (delete, "deleted or moved while it was in use; stop all processes"),
        (move, "deleted or moved while it was in use; stop all processes"),
        (replace, "replaced by another file while it was in use; start all processes"),
    ],
)
def test_a_worker_whose_database_file_is_gone_reports_it_and_is_not_restarted(
    place: Place, harm: Callable[[Path], None], said: str
) -> None:
    worker = place.worker("--interval", "1h")
    task = place.queue.add(slow, {"kind": "async"})
    place.begun(task)
    harm(place.path)
    assert worker.wait() == 66
    output = place.output()
    assert said in output
    assert RESTART not in output
    until(lambda: not place.living(), "the end of all processes")


@pytest.mark.parametrize("harm", [delete, move, replace])
def test_a_queue_whose_database_file_is_gone_writes_and_reads_nothing(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    path = tmp_path / "onerow.db"
    queue = Queue(f"sqlite:///{path}")
    task = queue.add(quick, 1)
    harm(path)
    for call in (lambda: queue.add(quick, 2), lambda: queue.add_many(quick, [3, 4]), lambda: queue.get(task.task_id)):
        with pytest.raises(StoreMoved, match="while it was in use"):
            call()
    queue.close()


def test_a_queue_works_again_when_the_file_is_back(tmp_path: Path) -> None:
    path = tmp_path / "onerow.db"
    queue = Queue(f"sqlite:///{path}")
    task = queue.add(quick, 1)
    move(path)
    with pytest.raises(StoreMoved):
        queue.get(task.task_id)
    path.with_name("moved.db").rename(path)
    assert queue.get(task.task_id).payload == 1
    queue.close()


def test_a_queue_that_is_closed_opens_the_file_that_replaced_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "onerow.db"
    queue = Queue(f"sqlite:///{path}")
    queue.add(quick, 1)
    queue.close()
    replace(path)
    assert queue.add(quick, 2).payload == 2
    queue.close()
