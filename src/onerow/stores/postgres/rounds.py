"""Rounds: swaps and a claim in one transaction, or, for many swaps, in two concurrent transactions."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from time import monotonic
from typing import TypeVar

from onerow.core.errors import RetryTransaction, RowRefused
from onerow.core.task import Task
from onerow.ports import Claim, Move, Stale, SwapAnswer, Swapped
from onerow.stores.postgres.claiming import Claiming, Key, is_unlimited, keys_waiting
from onerow.stores.postgres.connections import Connections
from onerow.stores.postgres.fast.low_water import LowWaterMarks
from onerow.stores.postgres.pipelining import stepwise_transaction
from onerow.stores.postgres.quarantine import moves as quarantine_moves
from onerow.stores.postgres.quarantine import suspects
from onerow.stores.postgres.statements import quoted
from onerow.stores.postgres.swapping import RowLocations, Swapping, is_contested

MIN_PARALLEL = 50
"""Number of moves from which a second connection pays off."""
_KEPT_FOR = 0.5  # seconds; the shortest lease is one second

T = TypeVar("T")
Done = tuple[list[SwapAnswer], list[Task]]


class Rounds:
    """Implements ports.Store.settle_and_claim; thread-safe."""

    def __init__(
        self,
        connections: Connections,
        schema: str,
        low_water: LowWaterMarks,
        own_now: Callable[[], datetime | None],
        now: Callable[[], datetime],
    ) -> None:
        self._connections = connections
        self._schema = schema
        self._low_water = low_water
        self._own_now = own_now
        self._now = now
        self._locations = RowLocations()
        # By worker: tasks claimed in a round that failed afterwards, and when.
        self._kept: dict[str, tuple[float, list[Task]]] = {}

    def run(self, moves: Sequence[Move], claim: Claim | None, keys: Sequence[Key] = ()) -> Done:
        """Write the moves and claim. `keys`: claim only tasks with these limit keys."""
        if claim is not None and any(map(is_contested, moves)):  # answered one by one, which no lock must wait for
            return self.run(moves, None)[0], self.run((), claim, keys)[1]
        kept: list[Task] = []
        if claim is not None and claim.ids is None:
            if claim.worker not in self._kept and (done := self._in_two_transactions(moves, claim)):
                return done
            if kept := self._take_kept(claim.worker):
                claim = None
        if not moves and (claim is None or not claim.phases):
            return [], kept
        swapping, claiming = self._in_one_transaction(moves, claim, keys)
        if claim is None or claiming is None:
            return self._finish_swaps(swapping), kept
        tasks: list[Task] = []
        with self._kept_on_error(claim.worker, tasks):
            tasks += claiming.receive(self._locations)
            answers = self._finish_swaps(swapping)
            self._claim_missed(claim, claiming, tasks)
            while claiming.unsent and (claim.limit is None or len(tasks) < claim.limit):
                left = None if claim.limit is None else claim.limit - len(tasks)
                _, claiming = self._in_one_transaction((), Claim(claim.worker, claiming.unsent, claim.ids, left), keys)
                assert claiming is not None
                tasks += claiming.receive(self._locations)
                self._claim_missed(claim, claiming, tasks)
        return answers, tasks

    def _in_one_transaction(
        self, moves: Sequence[Move], claim: Claim | None, keys: Sequence[Key]
    ) -> tuple[Swapping, Claiming | None]:
        """Send swaps and claim together; after a deadlock or a slot collision, send what was not committed again."""
        swapping = Swapping(self._schema, (), self._locations, None)
        claiming = None
        for attempt, checkout in enumerate(self._connections.attempts()):
            with checkout as connection:
                if not swapping.is_committed:
                    swapping = Swapping(self._schema, moves, self._locations, self._own_now())
                if claim is not None:
                    self._let_claim_see(moves)
                    if attempt:  # a slot collision may come from an outdated record of the processing tasks
                        self._low_water.forget(claim.phases)
                    claiming = Claiming(
                        self._schema, claim, self._low_water, self._own_now(), one_each=attempt > 1, keys=keys
                    )
                if swapping.contested:
                    with stepwise_transaction(connection):
                        swapping.send(connection)
                    break
                left = claiming.left if claiming is not None else 0
                with self._connections.transaction(connection, left=left) as transaction:
                    if not swapping.is_committed:
                        swapping.transaction = transaction
                        swapping.send(connection)
                    if claiming is not None:
                        claiming.send(transaction)
                break
        return swapping, claiming

    def _in_two_transactions(self, moves: Sequence[Move], claim: Claim) -> Done | None:
        """Run two concurrent transactions, so that client and server overlap; None if one transaction has to do it all.

        The claim is sent first, because it takes the least work to prepare. While the server claims, the client builds
        the swaps; while the server writes those, the client reads the claimed rows.
        """
        # A claim that depends on the result of the swaps (a free slot, a free key) has to run after them.
        if len(moves) < MIN_PARALLEL or not is_unlimited(claim):
            return None
        self._let_claim_see(moves)
        transaction = self._connections.transaction
        tasks: list[Task] = []
        try:
            with self._kept_on_error(claim.worker, tasks):
                with self._connections.connection() as writer, self._connections.spare() as claimer:
                    if claimer is None:
                        return None
                    claiming = Claiming(self._schema, claim, self._low_water, self._own_now())
                    with transaction(writer) as writes:
                        with transaction(claimer, left=claiming.left) as claims:
                            claiming.send(claims)
                            claims.send()
                            swapping = Swapping(self._schema, moves, self._locations, self._own_now())
                            swapping.send(writer)
                            writes.send()
                        tasks += claiming.receive(self._locations)
                answers = self._finish_swaps(swapping)
                self._claim_missed(claim, claiming, tasks)
        except RetryTransaction:
            return None
        return answers, tasks

    def _let_claim_see(self, moves: Sequence[Move]) -> None:
        """Drop low-water marks that would hide a task which these moves return to waiting from the claim."""
        self._low_water.invalidate(move.after for move in moves)

    @contextmanager
    def _kept_on_error(self, worker: str, tasks: list[Task]) -> Iterator[None]:
        """If the rest of the round fails, keep the tasks that were already claimed; the next claim returns them."""
        try:
            yield
        except BaseException:
            if tasks:
                _, others = self._kept.get(worker, (0.0, []))  # from a nested claim
                self._kept[worker] = (monotonic(), others + tasks)
            raise

    def _take_kept(self, worker: str) -> list[Task]:
        """Return tasks that a failed round claimed, unless their leases may have ended."""
        claimed_at, tasks = self._kept.pop(worker, (0.0, []))
        return tasks if monotonic() - claimed_at < _KEPT_FOR else []

    def _finish_swaps(self, swapping: Swapping) -> list[SwapAnswer]:
        answers = swapping.receive()
        if swapping.not_at_location:
            # Another client wrote to these rows, or the table was rewritten: search by id instead.
            again, _ = self.run([swapping.moves[index] for index in swapping.not_at_location], None)
            for index, answer in zip(swapping.not_at_location, again, strict=True):
                answers[index] = answer
        self._low_water.invalidate(answer.task for answer in answers if isinstance(answer, Swapped))
        return answers

    def _claim_missed(self, claim: Claim, claiming: Claiming, tasks: list[Task]) -> None:
        """Claim again what a low-water mark, or tasks of full keys, may have hidden from a claim that found too few."""
        if claiming.unreadable:
            self.quarantine(claiming.unreadable)
        if claiming.missed is not None:
            tasks += self.run((), claiming.missed)[1]
        for want in claiming.crowded:
            left = None if claim.limit is None else claim.limit - len(tasks)
            if left is not None and left <= 0:
                break
            keys = self._connections.read(
                partial(keys_waiting, schema=self._schema, want=want, low_water=self._low_water)
            )
            if keys:
                tasks += self.run((), Claim(claim.worker, [want], limit=left), keys)[1]

    # ── rows that the table refuses ──

    def run_singly(self, moves: Sequence[Move], claim: Claim | None) -> Done:
        """Run a round that was refused because of one row: quarantine unreadable rows, write each move by itself."""
        self._quarantine_suspects()
        answers = [self._swap_one(move) for move in moves]
        return answers, self.run((), claim)[1]

    def without_refused(self, write: Callable[[], T]) -> T:
        """Run `write`; if the table refuses a row, quarantine unreadable rows and run it once more."""
        try:
            return write()
        except RowRefused:
            if not self._quarantine_suspects():
                raise
            return write()

    def quarantine(self, ids: Sequence[str]) -> int:
        """Quarantine the unreadable ones of these rows; return how many."""
        if not ids:
            return 0
        found = self._connections.read(partial(quarantine_moves, schema=self._schema, ids=ids, now=self._now()))
        return sum(isinstance(self.run([move], None)[0][0], Swapped) for move in found)

    def _quarantine_suspects(self) -> int:
        return self.quarantine(self._connections.read(partial(suspects, schema=self._schema)))

    def _swap_one(self, move: Move) -> SwapAnswer:
        try:
            return self.run([move], None)[0][0]
        except RowRefused:
            if not self.quarantine([move.before.task_id]) and not self._was_changed(move):
                raise
            return Stale(move.before.task_id)

    def _was_changed(self, move: Move) -> bool:
        """Whether the row has changed or is gone since the rule read it."""
        sql = f"SELECT version <> %s FROM {quoted(self._schema)}.task_queue WHERE task_id = %s"
        row = self._connections.read(lambda c: c.execute(sql, (move.before.version, move.before.task_id)).fetchone())
        return row is None or bool(row[0])
