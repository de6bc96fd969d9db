"""The repository's calls for programs that encode by themselves: claim a video by id, then complete or fail it."""

import os
import socket
from types import TracebackType
from typing import Self
from uuid import uuid4

from onerow import Queue
from video_encoder.ladder import Ladder
from video_encoder.opening import open_queue, videos

LEASE_SECONDS = 14_400


class VideoRepository:
    """Claims videos for encoding. It keeps the token of each claim and extends its lease while this process lives.

    A call about a video that it does not hold changes nothing and returns False.
    """

    def __init__(self, queue: Queue | None = None) -> None:
        self._claims = (queue or open_queue()).claims_by_id(videos, "encode")

    def try_claim_video(self, video_id: int | str, worker_id: str, lease_seconds: float = LEASE_SECONDS) -> bool:
        """Make an UPLOADED video PROCESSING, atomically; False if it is missing, PROCESSING, READY or anything else."""
        return self._claims.try_claim(str(video_id), worker_id, lease_seconds)

    try_claim = try_claim_video

    def mark_processing(self, video_id: int | str) -> bool:
        """Like `try_claim_video`, with the lease of the phase."""
        return self._claims.mark_processing(str(video_id))

    def complete_video(self, video_id: int | str, ladder: Ladder) -> bool:
        """Store the ladder; the video is checked next. True only for the holder of the claim."""
        return self._claims.complete(str(video_id), ladder)

    def fail_video(self, video_id: int | str, error: BaseException | str, *, transient: bool = True) -> bool:
        """Make the video FAILED_TRANSIENT, which the engine tries again, or FAILED."""
        return self._claims.fail(str(video_id), error, retry=transient)

    def is_cancel_requested(self, video_id: int | str) -> bool:
        """Whether the video was cancelled, or should be."""
        return self._claims.is_cancel_requested(str(video_id))

    def close(self) -> None:
        """Hand back the videos that are not settled."""
        self._claims.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def new_worker_id() -> str:
    """Return an id for this start of this process; an id of the host alone would be that of an earlier, dead process."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
