"""The memory limit of a process tree: what counts, and what happens beyond it."""

import signal

from tests.engine.processes.kit import Runs, ended, linux_only

pytestmark = linux_only

MB = 1_000_000


def test_a_child_that_uses_more_memory_than_its_limit_is_killed(runs: Runs) -> None:
    exit = ended(runs.start(f"ignore_term(); kept = b'x' * {200 * MB}; idle()", memory_limit=100 * MB))
    assert (exit.signal, exit.over_memory, exit.stopped) == (signal.SIGKILL, True, False)


def test_memory_is_counted_over_the_whole_tree_which_ends_as_a_whole(runs: Runs) -> None:
    part = f"kept = b'x' * {60 * MB}"
    program = f"fork(lambda: (os.setsid(), exec({part!r}), grandchild()))\n{part}\nidle()"
    assert ended(runs.start(program, memory_limit=100 * MB)).over_memory
    assert runs.alive() == []


def test_pages_that_forked_processes_share_count_once(runs: Runs) -> None:
    program = f"kept = b'x' * {60 * MB}\nfor n in range(4): fork(lambda: (note(f'fork{{n}}'), noted('go')))\n"
    child = runs.start(program + "noted('go')", memory_limit=140 * MB)
    for number in range(4):
        runs.pid(f"fork{number}")
    assert child.wait(1.0) is None
    (runs.folder / "go").write_text("0")
    assert ended(child).code == 0


def test_reserved_memory_and_mapped_files_do_not_count(runs: Runs) -> None:
    program = f"""
import mmap
reserved = mmap.mmap(-1, {10_000 * MB})
with open('large', 'wb') as file: file.write(b'x' * {60 * MB}); file.write(b'x' * {60 * MB})
with open('large', 'rb') as file: mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
seen = sum(mapped[at] for at in range(0, {120 * MB}, 4096))
os.unlink('large'); note('ready'); noted('go')
"""
    child = runs.start(program, memory_limit=100 * MB)
    runs.pid("ready")
    assert child.wait(1.0) is None
    (runs.folder / "go").write_text("0")
    assert ended(child).code == 0


def test_the_next_child_of_a_reaper_has_its_own_limit(runs: Runs) -> None:
    assert ended(runs.start(f"kept = b'x' * {200 * MB}; idle()", memory_limit=100 * MB)).over_memory
    exit = ended(runs.start(f"kept = b'x' * {200 * MB}"))
    assert (exit.code, exit.over_memory) == (0, False)
