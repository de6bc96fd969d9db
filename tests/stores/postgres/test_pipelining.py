"""What is sent together: from the lock of a limited phase until COMMIT, nothing is left to a client that may be stopped."""

import itertools
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from psycopg import generators

from onerow.core import rules
from onerow.core.task import Task
from onerow.ports import Claim, Move, SwapAnswer, Swapped
from onerow.stores.postgres import PostgresStore, pipelining
from onerow.stores.postgres.pipelining import BUFFER
from tests.conformance.kit import claim, every_row, new, put_many, want
from tests.engine.kit import PATIENCE, until
from tests.stores.postgres.test_rounds import LOCK_WAITERS, TAKE_SLOT

ROOT = Path(__file__).resolve().parents[3]
Message = tuple[str, int, str]
"""A message to the server: its type, its size in bytes, what it says."""


class Trace:
    """The messages to the server, in the pieces in which they are sent; written by libpq."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._paths = (folder / f"{number}.trace" for number in itertools.count())
        self.pieces: list[list[Message]] = []
        self._flush, self._one_send = generators.send, pipelining.one_send
        monkeypatch.setattr(pipelining, "flush", self._recorded_flush)
        monkeypatch.setattr("onerow.stores.postgres.connections.one_send", self._recorded_send)

    @contextmanager
    def _recorded_send(self, connection: pipelining.Connection) -> Iterator[psycopg.Pipeline]:
        self._start(connection.pgconn)
        with self._one_send(connection) as pipeline:
            yield pipeline
        self._stop(connection.pgconn)

    def _recorded_flush(self, pgconn: psycopg.pq.abc.PGconn) -> object:
        self._stop(pgconn)
        self._start(pgconn)
        return self._flush(pgconn)

    def _start(self, pgconn: psycopg.pq.abc.PGconn) -> None:
        self._path = next(self._paths)
        self._file = self._path.open("wb")
        pgconn.trace(self._file.fileno())

    def _stop(self, pgconn: psycopg.pq.abc.PGconn) -> None:
        pgconn.untrace()
        self._file.close()
        lines = [line.split("\t") for line in self._path.read_text(errors="replace").splitlines()]
        sent = [line[2:] for line in lines if len(line) > 3 and line[1] == "F"]
        messages = [(kind, int(size) + 1, " ".join(rest)) for size, kind, *rest in sent]
        self.pieces.append([message for message in messages if message[0] != "Flush"])  # psycopg's, after the last Sync


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trace:
    return Trace(tmp_path, monkeypatch)


def size(piece: Sequence[Message]) -> int:
    return sum(size for _, size, _ in piece)


def locked_pieces(pieces: Sequence[Sequence[Message]], lock: str) -> list[list[Message]]:
    """Each piece in which a lock is executed, from there on."""
    found = []
    for piece in pieces:
        bound = [number for number, (kind, _, text) in enumerate(piece) if kind == "Bind" and f'"{lock}"' in text]
        found += [list(piece[number:]) for number in bound]
    return found


def finished(store: PostgresStore, tasks: Sequence[Task], result: str | None = None) -> list[Move]:
    return [Move(task, rules.finish(task, result, store.now())) for task in tasks]


LIMITS: dict[str, dict[str, Any]] = {
    "slots": {"slots": 300},
    "keys": {"key_slots": 300},
    "slots and keys": {"slots": 300, "key_slots": 300},
}


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("outcomes", [0, 3, 90, 300])
def test_the_lock_of_a_phase_and_all_that_follows_until_commit_are_one_send(
    store: PostgresStore, trace: Trace, limits: dict[str, Any], outcomes: int
) -> None:
    """In the first rounds of a connection, which prepare statements, and in later ones."""
    put_many(store, 4 * max(outcomes, 3), limit_key="ann")
    moves: list[Move] = []
    names = []
    for _ in range(4):
        trace.pieces.clear()
        answers, tasks = store.settle_and_claim(moves, Claim("w1", [want(max(outcomes, 3), **limits)]))
        names += [text.split('"')[1] for piece in trace.pieces for kind, _, text in piece if "-- lock_phases" in text]
        assert len(tasks) == max(outcomes, 3)
        assert all(isinstance(answer, Swapped) for answer in answers)
        (locked,) = locked_pieces(trace.pieces, names[0])
        assert [kind for kind, _, _ in locked].count("Execute") == 3, "the lock, the claim, COMMIT"
        assert locked[-1][0] == "Sync"
        assert max(size(piece) for piece in trace.pieces if piece[-1][0] == "Sync") < BUFFER
        if outcomes:
            moves = finished(store, tasks)
        else:
            store.swap(finished(store, tasks))
    assert len(names) == 1, "prepared once"


def test_a_round_that_fits_into_the_buffer_is_one_transaction(store: PostgresStore, trace: Trace) -> None:
    put_many(store, 60)
    moves: list[Move] = []
    for _ in range(5):
        trace.pieces.clear()
        _, tasks = store.settle_and_claim(moves, Claim("w1", [want(10, slots=10)]))
        moves = finished(store, tasks)
    (piece,) = trace.pieces
    assert [kind for kind, _, _ in piece].count("Execute") == 7, (
        "BEGIN, settings, swap, notification, lock, claim, COMMIT"
    )


def test_many_limited_phases_are_claimed_in_several_transactions_within_the_common_limit(
    store: PostgresStore, trace: Trace
) -> None:
    wants = [want(2, phase=f"phase {number:03d}", slots=2) for number in range(100)]
    store.insert([new(store, f"t{n:03d}{m}", phase=f"phase {n:03d}") for n in range(100) for m in range(3)])
    for _ in range(3):
        tasks = store.claim(Claim("w1", wants, limit=150))
        assert [task.phase for task in tasks] == [f"phase {n // 2:03d}" for n in range(150)]
        store.swap([Move(task, rules.hand_back(task, store.now())) for task in tasks])
    assert len(store.claim(Claim("w1", wants))) == 200
    assert len(trace.pieces) > 10
    assert all(size(piece) < BUFFER for piece in trace.pieces if any("BEGIN" in text for _, _, text in piece))


def test_a_round_whose_claim_fails_after_its_outcomes_were_committed_writes_them_once(
    store: PostgresStore, postgres_url: str
) -> None:
    """The outcomes do not fit into one piece with the claim, and the claim collides with a writer that takes no lock."""
    put_many(store, 300)
    moves = finished(store, claim(store, 100, slots=100))
    done: list[tuple[list[SwapAnswer], list[Task]]] = []
    everything = Claim("w1", [want(101, slots=101)])
    settling = threading.Thread(target=lambda: done.append(store.settle_and_claim(moves, everything)))
    with psycopg.connect(postgres_url) as other:
        other.execute(TAKE_SLOT, (100, "t0299"))
        settling.start()
        until(lambda: other.execute(LOCK_WAITERS).fetchone(), "the claim waits for slot 100")
    settling.join(PATIENCE)
    ((answers, tasks),) = done
    assert answers == [Swapped(move.after) for move in moves]
    assert {task.slot for task in tasks} == set(range(100))
    rows = every_row(store)
    assert all(rows[move.after.task_id].version == move.after.version for move in moves)


STOPS_AFTER_EACH_PIECE = """
import os, signal, sys
from onerow.core import rules
from onerow.ports import Claim, Move
from onerow.stores.postgres import PostgresStore, pipelining
from tests.conformance.kit import want

store = PostgresStore(sys.argv[1])
limits = {name: 100 for name in sys.argv[2].split()}
tasks = []
if sys.argv[3] == "outcomes":
    tasks = store.claim(Claim("frozen", [want(100, **limits)]))

send = pipelining.flush

def send_and_stop(pgconn):
    yield from send(pgconn)
    os.kill(os.getpid(), signal.SIGSTOP)

pipelining.flush = send_and_stop
store.settle_and_claim([Move(t, rules.finish(t, None, store.now())) for t in tasks], Claim("frozen", [want(50, **limits)]))
print("done")
"""


@pytest.mark.faults
@pytest.mark.parametrize("outcomes", ["none", "outcomes"])
@pytest.mark.parametrize("limits", ["slots", "key_slots", "slots key_slots"])
@pytest.mark.parametrize("prepare", ["yes", pytest.param("no", marks=pytest.mark.slow)])
def test_a_client_that_is_stopped_between_two_pieces_of_a_round_does_not_block_other_claims(
    store: PostgresStore, postgres_url: str, limits: str, outcomes: str, prepare: str
) -> None:
    """Without prepared statements (behind a pooler), a claim of limited keys is too large; then the server ends the wait."""
    put_many(store, 300, limit_key="ann")
    argv = [sys.executable, "-c", STOPS_AFTER_EACH_PIECE, f"{postgres_url}?prepare={prepare}", limits, outcomes]
    other = PostgresStore(f"{postgres_url}?options=-c%20statement_timeout%3D20000")
    client = psutil.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    stops = 0
    try:
        until(lambda: client.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE), "the first piece")
        while client.status() == psutil.STATUS_STOPPED:
            stops += 1
            more: dict[str, Any] = dict.fromkeys(limits.split(), 100 + 10 * stops)
            got = claim(other, 3, worker="alive", **more)
            assert len(got) == 3
            client.send_signal(signal.SIGCONT)
            until(lambda: client.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE), "the next piece")
    finally:
        client.kill()
        output, errors = client.communicate()
        other.close()
    ended_by_server = prepare == "no" and "key_slots" in limits
    assert stops > 0 or outcomes == "none"
    assert output == (b"" if ended_by_server else b"done\n"), errors.decode()
