"""Turns: swaps and a claim in one transaction, or, when they are many, in two at once."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from time import monotonic
from typing import TypeVar

from onerow.core.errors import RetryTransaction, RowRefused, StoreError
from onerow.core.task import Task
from onerow.ports import Claim, Move, Stale, SwapAnswer, Swapped
from onerow.stores.postgres.claiming import Claiming, Key, is_free, keys_waiting
from onerow.stores.postgres.connections import Connection, Connections, violates
from onerow.stores.postgres.fast.low_water import LowWaterMarks
from onerow.stores.postgres.fast.row_locations import RowLocations
from onerow.stores.postgres.quarantine import moves as quarantine_moves
from onerow.stores.postgres.quarantine import suspects
from onerow.stores.postgres.statements import quoted
from onerow.stores.postgres.swapping import Swapping, is_contested
from onerow.stores.postgres.transactions import Transactions

MANY = 50
"""Moves that are worth a second connection."""
_KEPT_FOR = 0.5  # the shortest lease is a second

T = TypeVar("T")
Done = tuple[list[SwapAnswer], list[Task]]


class Rounds:
    """See ports.Store.turn; thread-safe."""

    def __init__(
        self,
        door: Connections,
        schema: str,
        transaction: Transactions,
        hints: LowWaterMarks,
        own_now: Callable[[], datetime | None],
        now: Callable[[], datetime],
    ) -> None:
        self._now = now
        self._door = door
        self._schema = schema
        self._transaction = transaction
        self._hints = hints
        self._own_now = own_now
        self._places = RowLocations()
        # Claimed by a turn whose swaps then failed, by worker, and when.
        self._kept: dict[str, tuple[float, list[Task]]] = {}

    def run(self, moves: Sequence[Move], claim: Claim | None) -> Done:
        try:
            return self._turn(moves, claim)
        except RowRefused:
            self._set_suspects_aside()
            answers = [self._swap_one(move) for move in moves]
            return answers, self._turn((), claim)[1]

    def without_refused(self, write: Callable[[], T]) -> T:
        """Write; if the table refuses a row of which nobody knows yet, once more after that was set aside."""
        try:
            return write()
        except RowRefused:
            if not self._set_suspects_aside():
                raise
            return write()

    def _set_suspects_aside(self) -> int:
        return self.set_aside(self._door.read(partial(suspects, schema=self._schema)))

    def set_aside(self, ids: Sequence[str]) -> int:
        """Quarantine those of these rows that can't be read; how many."""
        done = 0
        if ids:
            found = self._door.read(partial(quarantine_moves, schema=self._schema, ids=ids, now=self._now()))
            for move in found:
                (answer,), _ = self._again_if_it_collides([move], None)
                done += isinstance(answer, Swapped)
        return done

    def _swap_one(self, move: Move) -> SwapAnswer:
        try:
            (answer,), _ = self._again_if_it_collides([move], None)
        except RowRefused:
            if not self.set_aside([move.before.task_id]) and not self._is_aside(move):
                raise
            return Stale(move.before.task_id)
        return answer

    def _is_aside(self, move: Move) -> bool:
        """Whether the row was set aside since the rule looked at it."""
        sql = f"SELECT version <> %s FROM {quoted(self._schema)}.task_queue WHERE task_id = %s"
        row = self._door.read(lambda c: c.execute(sql, (move.before.version, move.before.task_id)).fetchone())
        return row is None or bool(row[0])

    def _turn(self, moves: Sequence[Move], claim: Claim | None) -> Done:
        if not moves and (claim is None or not claim.wants):
            return [], []
        if claim is not None and claim.ids is None and (kept := self._take_kept(claim.worker)):
            return self._again_if_it_collides(moves, None)[0] if moves else [], kept
        if claim is not None and moves:
            # The claim sees what these moves write, so a low-water mark must not hide a task that they return.
            self._hints.put(move.after for move in moves)
        # A claim that depends on what the swaps leave behind (a slot, a key) has to wait for them.
        if claim is not None and len(moves) >= MANY and is_free(claim) and not any(map(is_contested, moves)):
            try:
                if (done := self._side_by_side(moves, claim)) is not None:
                    return done
            except RetryTransaction:
                if claim.worker in self._kept:
                    return self._turn(moves, claim)
        return self._again_if_it_collides(moves, claim)

    def _again_if_it_collides(self, moves: Sequence[Move], claim: Claim | None, keys: Sequence[Key] = ()) -> Done:
        collisions = 0
        while True:
            try:
                return self._in_one(moves, claim, keys, singly=collisions > 1)
            except StoreError as error:
                # Slots are handed out under a lock; someone who doesn't take it may still be quicker.
                if not violates(error, "task_slot", "task_key_slot") or collisions > 5:
                    raise
                if claim is not None:
                    self._hints.forget(claim.wants)
                collisions += 1

    def _in_one(self, moves: Sequence[Move], claim: Claim | None, keys: Sequence[Key], *, singly: bool) -> Done:
        def turn(connection: Connection) -> tuple[Swapping, Claiming | None]:
            swapping = Swapping(self._schema, moves, self._places, self._own_now())
            claiming = None
            if claim is not None:
                claiming = Claiming(self._schema, claim, self._hints, self._own_now(), singly=singly, keys=keys)
            left = claiming.left if claiming is not None else 0
            with self._transaction(connection, piecewise=bool(swapping.contested), left=left):
                self._send(swapping, connection)
                if claiming is not None:
                    claiming.send(connection)
            return swapping, claiming

        swapping, claiming = self._door.write(turn)
        if claim is None or claiming is None:
            return self._complete(swapping), []
        tasks: list[Task] = []
        with self._keeping(claim.worker, tasks):
            tasks += claiming.receive(self._places)
            answers = self._complete(swapping)
            self._look_back(claim, claiming, tasks)
        return answers, tasks

    def _side_by_side(self, moves: Sequence[Move], claim: Claim) -> Done | None:
        """Two transactions at once, so that the server works while we do; None: no connection is free for that.

        The claim goes first, since there is least to do for it. While the server claims, we put the swaps together;
        while it writes those, we read what it claimed.
        """
        tasks: list[Task] = []
        with self._keeping(claim.worker, tasks):
            with self._door.connection() as writer, self._door.spare() as claimer:
                if claimer is None:
                    return None
                claiming = Claiming(self._schema, claim, self._hints, self._own_now())
                with self._transaction(writer) as send_swaps:
                    with self._transaction(claimer, left=claiming.left) as send_claim:
                        claiming.send(claimer)
                        send_claim()
                        swapping = Swapping(self._schema, moves, self._places, self._own_now())
                        self._send(swapping, writer)
                        send_swaps()
                    tasks += claiming.receive(self._places)
            answers = self._complete(swapping)
            self._look_back(claim, claiming, tasks)
        return answers, tasks

    @contextmanager
    def _keeping(self, worker: str, tasks: list[Task]) -> Iterator[None]:
        """What was claimed is ours, whatever becomes of the rest of the turn: if it fails, the next claim gets them."""
        try:
            yield
        except BaseException:
            if tasks:
                _, others = self._kept.get(worker, (0.0, []))  # of a claim within this one
                self._kept[worker] = (monotonic(), others + tasks)
            raise

    def _take_kept(self, worker: str) -> list[Task]:
        """What an earlier turn claimed and never told of, unless so much time has passed that its leases may be over."""
        claimed_at, tasks = self._kept.pop(worker, (0.0, []))
        return tasks if monotonic() - claimed_at < _KEPT_FOR else []

    def _send(self, swapping: Swapping, connection: Connection) -> None:
        swapping.send(connection)
        if swapping.wakes:
            connection.execute("SELECT pg_notify(%s, '')", (f"onerow.{self._schema}",))

    def _complete(self, swapping: Swapping) -> list[SwapAnswer]:
        answers = swapping.receive()
        if swapping.misplaced:
            # Somebody wrote to them, or moved the whole table: by their ids we learn which.
            moves = [swapping.moves[index] for index in swapping.misplaced]
            again, _ = self._again_if_it_collides(moves, None)
            for index, answer in zip(swapping.misplaced, again, strict=True):
                answers[index] = answer
        self._hints.put(answer.task for answer in answers if isinstance(answer, Swapped))
        return answers

    def _look_back(self, claim: Claim, claiming: Claiming, tasks: list[Task]) -> None:
        """Add what a low-water mark, or tasks of full keys, may have hidden from a claim that found too little."""
        if claiming.unreadable:
            self.set_aside(claiming.unreadable)
        if claiming.missed is not None:
            tasks += self.run((), claiming.missed)[1]
        for want in claiming.crowded:
            left = None if claim.limit is None else claim.limit - len(tasks)
            if left is not None and left <= 0:
                break
            keys = self._door.read(partial(keys_waiting, schema=self._schema, want=want, hints=self._hints))
            if keys:
                tasks += self._again_if_it_collides((), Claim(claim.worker, [want], limit=left), keys)[1]
