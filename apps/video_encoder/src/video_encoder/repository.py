"""The repository's calls for programs that encode by themselves: claim a video by id, then complete or fail it."""

import os
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self
from uuid import uuid4

from onerow import Leased, LeaseLost, Puller, Queue, Status, UnknownName
from video_encoder.ladder import Ladder
from video_encoder.opening import open_queue, videos

LEASE_SECONDS = 14_400


class VideoRepository:
    """Claims videos for encoding. It keeps the token of each claim and extends its lease while this process lives.

    A call about a video that it does not hold changes nothing and returns False.
    """

    def __init__(self, queue: Queue | None = None) -> None:
        self._queue = queue or open_queue()
        self._own_name = new_worker_id()
        self._lock = threading.Lock()
        self._pullers: dict[tuple[str, float | None], Puller] = {}

    def try_claim_video(self, video_id: int | str, worker_id: str, lease_seconds: float = LEASE_SECONDS) -> bool:
        """Make an UPLOADED video PROCESSING, atomically; False if it is missing, PROCESSING, READY or anything else.

        lease_seconds: a shorter lease is enough for long work, because it is extended; it decides how soon another
        worker gets the video if this process dies.
        """
        return self._claim(video_id, worker_id, lease_seconds)

    try_claim = try_claim_video

    def mark_processing(self, video_id: int | str) -> bool:
        """Like `try_claim_video`, under a name of its own and with the lease of the phase."""
        return self._claim(video_id, self._own_name, None)

    def complete_video(self, video_id: int | str, ladder: Ladder) -> bool:
        """Store the ladder; the video is checked next. True only for the holder of the claim."""
        return self._settle(video_id, lambda lease: lease.complete(ladder))

    def fail_video(self, video_id: int | str, error: BaseException | str, *, transient: bool = True) -> bool:
        """Make the video FAILED_TRANSIENT, which the engine tries again, or FAILED. True only for the holder."""
        return self._settle(video_id, lambda lease: lease.fail(error, retry=transient))

    def is_cancel_requested(self, video_id: int | str) -> bool:
        """Whether the video was cancelled, or should be; False if there is no such video."""
        try:
            task = self._queue.get(str(video_id))
        except UnknownName:
            return False
        return task.cancel_requested or task.status is Status.CANCELLED

    def close(self) -> None:
        """Hand back the videos that are not settled."""
        with self._lock:
            pullers, self._pullers = list(self._pullers.values()), {}
        for puller in pullers:
            puller.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _claim(self, video_id: int | str, worker: str, lease_seconds: float | None) -> bool:
        with self._lock:
            puller = self._pullers.get((worker, lease_seconds))
            if puller is None:
                puller = self._queue.puller(videos, "encode", lease_for=lease_seconds, worker=worker)
                self._pullers[worker, lease_seconds] = puller
        return bool(puller.claim(1, ids=[str(video_id)]))

    def _settle(self, video_id: int | str, settle: Callable[[Leased], object]) -> bool:
        with self._lock:
            pullers = list(self._pullers.values())
        held = [puller.held[str(video_id)] for puller in pullers if str(video_id) in puller.held]
        try:
            for lease in held:
                settle(lease)
        except LeaseLost:
            return False
        return bool(held)


def new_worker_id() -> str:
    """Return an id for this start of this process; an id of the host alone would be that of an earlier, dead process."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
