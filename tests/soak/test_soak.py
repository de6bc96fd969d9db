"""Soaks with real workers and real servers: every promise is kept while processes are killed and the store fails."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from onerow import Queue
from onerow.soak.report import Report, read_report
from onerow.soak.run import Soak, _Run, run
from onerow.soak.schedule import parse_faults, plan
from tests.faults.test_disk import small_disk  # noqa: F401  a fixture
from tests.soak.kit import Crashing, crashing

pytestmark = pytest.mark.faults

STORES = ["sqlite", "postgres", "mongo"]
KILLS = "kill=8,pause=1,cancel=8,retry=4,replay=8,limit=1"
PROCESS_FAULTS = (
    "kill=6,kill-supervisor=2,kill-host=3,kill-group=2,pause=3,hold-gil=2,block-loop=2,clock-step=2,hide-proc=1,"
    "wake-ups=1,deploy=2,cancel=20,retry=10,replay=20,limit=2"
)
ON_A_SERVER = ",restart-store=3,cut=3,lost-answer=5,delay=2"
ON_A_FILE = ",write-lock=4"


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Crashing | None]]:
    """The URL of each store that processes can share, and how to restart its server."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'soak.db'}", None
        return
    server = request.getfixturevalue(f"own_{request.param}")
    yield server.fresh_database(), crashing(server)


def soak(
    store: tuple[str, Crashing | None], folder: Path, *, tasks: int, faults: str, seed: int, workers: int = 3
) -> Report:
    """Run a soak whose recovery times are not judged: the machine may be loaded."""
    url, server = store
    lines: list[str] = []
    given = Soak(
        url, folder / "records", tasks, seed, plan(seed, parse_faults(faults)), workers, 2, lease=8.0, pace=0.1,
        recovery=3600.0, server=server, patience=300.0,
    )  # fmt: skip
    run(given, lines.append)
    assert lines
    report = read_report(folder / "records")
    assert not report.failed, "\n".join(report.lines())
    return report


def test_every_promise_is_kept_while_workers_are_killed_and_paused(
    store: tuple[str, Crashing | None], tmp_path: Path
) -> None:
    more = "" if store[1] is None else ",restart-store=1,cut=1,lost-answer=1"
    report = soak(store, tmp_path, tasks=120, faults="kill=3,pause=1,cancel=3,retry=2,replay=3,limit=1" + more, seed=11)
    assert report.injected["kill"] >= 1  # the tasks may end before the last faults
    assert report.figures["worker processes killed"] >= 1  # others may be killed before their first body
    assert report.injected["pause"] >= 1  # perhaps of a process before its first body
    assert report.injected["replay"] >= 1
    assert report.figures["bodies"] >= 300


@pytest.mark.slow
def test_every_promise_is_kept_in_five_hundred_tasks_with_eight_kills(
    store: tuple[str, Crashing | None], tmp_path: Path
) -> None:
    more = "" if store[1] is None else ",restart-store=1,cut=1,lost-answer=1"
    report = soak(store, tmp_path, tasks=500, faults=KILLS + more, seed=11)
    assert report.injected["kill"] == 8
    assert report.figures["worker processes killed"] >= 5  # some were killed before their first body
    assert report.figures["bodies"] >= 1_400


@pytest.mark.slow
def test_every_promise_is_kept_in_two_thousand_tasks_with_twenty_kills(
    store: tuple[str, Crashing | None], tmp_path: Path
) -> None:
    more = "" if store[1] is None else ",restart-store=2,cut=2,lost-answer=3,delay=1"
    report = soak(store, tmp_path, tasks=2_000, faults=KILLS.replace("kill=8", "kill=20", 1) + more, seed=12, workers=4)
    assert report.injected["kill"] == 20


@pytest.mark.slow
def test_every_promise_is_kept_with_every_fault(store: tuple[str, Crashing | None], tmp_path: Path) -> None:
    more = ON_A_FILE if store[1] is None else ON_A_SERVER
    report = soak(store, tmp_path, tasks=1_500, faults=PROCESS_FAULTS + more, seed=13, workers=3)
    missing = set(parse_faults(PROCESS_FAULTS + more)) - set(report.injected)
    assert not missing


@pytest.mark.slow
def test_every_promise_is_kept_on_a_disk_that_is_full_at_times(small_disk: Path, tmp_path: Path) -> None:  # noqa: F811
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True, timeout=900)
    store = (f"sqlite:///{small_disk / 'soak.db'}", None)
    report = soak(store, tmp_path, tasks=500, faults="disk-full=4,kill=2", seed=14)
    assert report.injected["disk-full"] == 4


def test_a_soak_does_not_end_by_a_count_that_is_older_than_its_last_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = Soak(f"sqlite:///{tmp_path / 'soak.db'}", tmp_path / "records", 3, 1, [], workers=1)
    given.folder.mkdir()
    queue = Queue(given.url)
    soaking = _Run(given, queue, lambda line: None)
    counts = [0, 3, 0]

    def open_tasks(before: int) -> int:
        soaking._feeder.done.set()  # after the first count, which does not have its last tasks
        return counts.pop(0)

    monkeypatch.setattr(soaking._crew, "keep_running", lambda: None)
    monkeypatch.setattr(soaking, "_open_tasks", open_tasks)
    soaking._until_all_ended()
    assert counts == []
    soaking._recorder.close()
    soaking._feeds.close()
    queue.close()
