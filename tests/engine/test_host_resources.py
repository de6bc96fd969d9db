"""Resources of a host: all processes on it together do not use more than it has."""

import subprocess
import sys
from pathlib import Path

import pytest

from onerow import Pipeline, Status
from onerow.core.plan import PhasePlan
from onerow.core.resources import Resources
from onerow.engine.worker.host_resources import HostResources, host
from onerow.wiring import Queue
from tests.engine.conftest import ended, until, working
from tests.engine.test_commands import script

GB = 10**9


def test_the_scarcest_resource_limits_how_many_fit() -> None:
    left = Resources(10 * GB, 2.0)
    assert Resources(4 * GB, 0).fits(left) == 2
    assert Resources(4 * GB, 1.5).fits(left) == 1
    assert Resources(0, 0.1).fits(left) == 20
    assert Resources(11 * GB, 0).fits(left) == 0
    assert Resources().fits(left) > 1000
    assert Resources.of(PhasePlan(name="x", memory=GB, cpus=2)) == Resources(GB, 2.0)


def test_resources_taken_by_one_process_are_unavailable_to_others(tmp_path: Path) -> None:
    one, other = (HostResources(Resources(10 * GB, 4.0), tmp_path / "resources") for _ in range(2))
    assert one.take(Resources(4 * GB), 5) == 2
    assert other.take(Resources(4 * GB), 1) == 0
    assert other.take(Resources(GB), 5) == 2
    one.give_back(Resources(4 * GB))
    assert other.take(Resources(4 * GB), 1) == 1
    one.close()
    assert other.take(Resources(4 * GB), 2) == 1


def test_resources_of_a_killed_process_are_released(tmp_path: Path) -> None:
    take = f"""
import time
from pathlib import Path
from onerow.engine.worker.host_resources import HostResources, Resources
print(HostResources(Resources(10, 0), Path({str(tmp_path / "resources")!r})).take(Resources(10), 1), flush=True)
"""
    kept = (
        take.replace("print(HostResources(", "reserved = HostResources(").replace(").take(", ")\nprint(reserved.take(")
        + "\ntime.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", kept], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    resources = HostResources(Resources(10, 0), tmp_path / "resources")
    try:
        assert process.stdout.readline() == "1\n"
        assert resources.take(Resources(1), 1) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert resources.take(Resources(1), 20) == 10
    resources.close()


def test_the_resources_of_this_host_are_positive() -> None:
    assert host().memory > 10**8
    assert host().cpus > 0


@pytest.fixture
def films(tmp_path: Path) -> Pipeline:
    films = Pipeline("films")
    code = """
        import os, sys, time
        folder = sys.argv[1]
        mark = os.path.join(folder, f'running-{os.getpid()}')
        open(mark, 'w').close()
        print(len([name for name in os.listdir(folder) if name.startswith('running')]))
        time.sleep(0.15)
        os.unlink(mark)
    """
    films.command("cut", [*script(code), str(tmp_path)], memory="4GB", result="last_line")
    return films


def test_concurrent_attempts_do_not_exceed_the_hosts_resources(
    sqlite_url: str, films: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    queue = Queue(sqlite_url)
    tasks = queue.add_many(films, [{}] * 9)
    with working(queue, films, memory="9GB"), working(queue, films, memory="9GB"):
        at_once = [int(ended(queue, task.task_id).result) for task in tasks]
    assert max(at_once) == 2
    queue.close()


def test_a_phase_that_needs_more_than_the_host_has_is_not_claimed(
    sqlite_url: str, films: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    light = Pipeline("light")
    light.command("look", ["true"])
    queue = Queue(sqlite_url)
    heavy = queue.add(films, {})
    with working(queue, films, light, memory="2GB"):
        ended(queue, queue.add(light).task_id)
        assert queue.get(heavy.task_id).status is Status.WAITING
    with working(queue, films, memory="4GB"):
        assert until(lambda: queue.get(heavy.task_id).status is Status.COMPLETED)
    queue.close()


def test_two_heavy_phases_in_a_row_give_everything_back(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    films = Pipeline("films")
    films.command("cut", ["true"], memory="1GB")
    films.command("mix", ["true"], memory="1GB")
    queue = Queue(sqlite_url)
    tasks = queue.add_many(films, [{}] * 12)
    with working(queue, films, memory="4GB") as worker:
        for task in tasks:
            ended(queue, task.task_id)
        until(lambda: not worker.running, "the last attempt to be settled")
        assert worker._host_resources._taken == Resources()
    queue.close()
