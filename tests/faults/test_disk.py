"""A full disk and a read-only file: clear errors, nothing lost, and work continues when there is space again."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from onerow import Queue, Status, StoreError
from onerow.cli.main import main
from onerow.core.errors import StoreFull, StoreReadOnly
from onerow.stores.sqlite import maintenance
from tests.engine.kit import until
from tests.faults import app
from tests.faults.kit import ROOT, a_place, a_small_disk

pytestmark = pytest.mark.faults

UNPRIVILEGED = 65534


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    with a_small_disk(tmp_path / "small", "2m") as folder:
        yield folder


def fill(queue: Queue, size: int = 20_000) -> int:
    """Add tasks until the disk is full; return how many were added."""
    for count in range(1000):
        try:
            queue.add(app.quick, count, metadata={"ballast": "x" * size})
        except StoreFull:
            return count
    raise AssertionError("the disk never filled up")


def test_an_add_on_a_full_disk_raises_a_clear_error_and_nothing_is_lost(small_disk: Path) -> None:
    queue = Queue(f"sqlite:///{small_disk}/onerow.db")
    try:
        ballast = small_disk / "ballast"
        queue.count()
        ballast.write_bytes(b"x" * 700_000)
        added = fill(queue)
        assert added > 0
        with pytest.raises(StoreFull, match="make room"):
            queue.add_many(app.quick, range(50), metadata={"ballast": "x" * 20_000})
        assert [tally.count for tally in queue.count()] == [added]
        ballast.unlink()
        queue.add(app.quick, -1)
        assert [tally.count for tally in queue.count()] == [added + 1]
    finally:
        queue.close()


def test_a_worker_on_a_full_disk_waits_for_space_and_continues(small_disk: Path) -> None:
    with a_place(small_disk) as place:
        ballast = small_disk / "ballast"
        ballast.write_bytes(b"x" * 1_300_000)  # removed later, to free the space that the worker needs
        worker = place.worker()
        task = place.queue.add(app.slow, {"kind": "async", "for": 3})
        place.begun(task)
        fill(place.queue, 2_000)
        until(lambda: "the disk is full" in place.output(), "the worker's word about the full disk")
        ballast.unlink()
        for each in place.everything():
            place.ended(each)
        assert {each.status for each in place.everything()} == {Status.COMPLETED}
        assert place.queue.get(task.task_id).crash_count == 0
        worker.terminate()
        worker.wait()


@contextmanager
def as_unprivileged() -> Iterator[None]:
    """Run as a user to whom file permissions apply, unlike root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(UNPRIVILEGED)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A read-only database with one task in it, in a folder that all users can read."""
    folder = Path(tempfile.mkdtemp(prefix="onerow-read-only-"))
    path = folder / "onerow.db"
    queue = Queue(f"sqlite:///{path}")
    queue.add(app.quick, 1, task_id="one")
    queue.close()
    for each in folder.iterdir():
        each.chmod(0o444)
    folder.chmod(0o555)
    yield path
    folder.chmod(0o755)
    for each in folder.iterdir():
        each.chmod(0o644)
        each.unlink()
    folder.rmdir()


def test_the_error_for_a_read_only_file_names_it_and_nothing_is_stored(read_only: Path) -> None:
    queue = Queue(f"sqlite:///{read_only}")
    with as_unprivileged():
        with pytest.raises(StoreError, match=str(read_only)) as refused:
            queue.add(app.quick, 2)
        queue.close()
    assert isinstance(refused.value, StoreReadOnly), refused.value
    assert "mode" in refused.value.fix or "owner" in refused.value.fix


def test_a_worker_on_a_read_only_file_reports_it(read_only: Path) -> None:
    # Without the supervisor, which would restart it; as another user after the imports.
    script = (
        "import os, onerow.cli.start.worker, onerow.cli.main, onerow.engine.worker, onerow.stores.sqlite, tests.faults.app\n"
        f"os.geteuid() or os.seteuid({UNPRIVILEGED})\n"
        "onerow.cli.main.main(['worker', 'tests.faults.app', '--until-idle'])"
    )
    found = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "FAULTS_STORE": f"sqlite:///{read_only}", "ONEROW_LIFELINE": "0"},
        cwd=ROOT, capture_output=True, timeout=900, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert found.returncode == 69, found.stderr.decode()
    assert str(read_only) in found.stderr.decode()
    assert "can't be written" in found.stderr.decode()
    assert "Traceback" not in found.stderr.decode()


def doctor(url: str, code: int) -> str:
    result = CliRunner().invoke(main, ["doctor", "--store", url])
    assert result.exit_code == code, result.output
    return result.output


def test_doctor_finds_a_full_disk(small_disk: Path) -> None:
    queue = Queue(f"sqlite:///{small_disk}/onerow.db")
    queue.add(app.quick, 1)
    queue.close()
    assert re.search(rf"✗ the disk of {small_disk}/onerow.db has [01] MB left", doctor(queue.url, 1))
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "ballast").write_bytes(b"x" * 4_000_000)
    assert "has 0 MB left" in doctor(queue.url, 1)


def test_doctor_finds_a_read_only_file(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue(f"sqlite:///{small_disk}/onerow.db")
    queue.serve(app.quick).publish()
    queue.close()
    monkeypatch.setattr(maintenance, "_LEAST_FREE", 0)
    assert "✓ the disk has room" in doctor(queue.url, 0)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], timeout=900, check=True)
    assert "✗" in doctor(queue.url, 1)
