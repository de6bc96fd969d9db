"""YouTube's resumable upload: all attempts share one session, so an upload resumes after a lost connection or a crash.

The session's URL is stored as a step, so the next worker has it. A finished session keeps answering with its video, so
an attempt that crashed after the upload is not repeated.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import msgspec

from onerow import AsyncContext, Permanent, RateLimited
from video_studio.film import Film
from video_studio.publish.oauth import Account
from video_studio.publish.published import Published
from video_studio.script import Script
from video_studio.settings import YouTube
from video_studio.writer import retry_after

_SPENT = {"quotaExceeded", "dailyLimitExceeded", "uploadLimitExceeded"}
_TOO_FAST = {"rateLimitExceeded", "userRateLimitExceeded"}
_MOST_SESSIONS = 5
_PATIENCE = 3  # consecutive pieces that may fail


async def upload_to_youtube(file: Path, film: Film, script: Script, youtube: YouTube, ctx: AsyncContext) -> Published:
    """Upload the film, resuming the upload of an earlier attempt; return where it was published."""
    async with httpx.AsyncClient(timeout=youtube.timeout) as client:
        upload = _Upload(client, Account(client, youtube), youtube, ctx)
        for number in range(1, _MOST_SESSIONS + 1):
            session = await ctx.step(f"session {number}", upload.begin, script, film)
            video = await upload.send(session, file, film.size, number)
            if video is not None:
                return Published("youtube", video, f"https://youtu.be/{video}")
            ctx.log(f"the upload's session {number} has expired before anything was published; beginning another")
    raise Permanent(f"{_MOST_SESSIONS} upload sessions expired; look at the connection, then retry")


class _Upload:
    def __init__(self, client: httpx.AsyncClient, account: Account, youtube: YouTube, ctx: AsyncContext) -> None:
        self._client = client
        self._account = account
        self._youtube = youtube
        self._ctx = ctx

    async def begin(self, script: Script, film: Film) -> str:
        """Open a session; return its URL."""
        body = {
            "snippet": {
                "title": _plain(script.title)[:100] or "Untitled",
                "description": _plain(script.description)[:4900],
                "tags": [_plain(tag)[:60] for tag in script.tags],
                "categoryId": "27",  # education
            },
            "status": {"privacyStatus": self._youtube.privacy, "selfDeclaredMadeForKids": False},
        }
        answer = await self._ask(
            "POST",
            f"{self._youtube.base_url}/upload/youtube/v3/videos?uploadType=resumable&part=snippet,status",
            msgspec.json.encode(body),
            {
                "Content-Type": "application/json; charset=UTF-8",
                "X-Upload-Content-Length": str(film.size),
                "X-Upload-Content-Type": "video/mp4",
            },
        )
        answer.raise_for_status()
        return answer.headers["location"]

    async def send(self, session: str, file: Path, size: int, number: int) -> str | None:
        """Send the film; return the video's id, or None if the session expired before it published anything."""
        last = f"last piece of session {number}"
        answer = await self._ask("PUT", session, b"", {"Content-Range": f"bytes */{size}"})
        stuck = 0
        with file.open("rb") as film:
            while answer.status_code == 308:
                start, before = _received(answer), film.tell()
                stuck = stuck + 1 if start < before else 0
                if stuck > _PATIENCE or start >= size:
                    raise ConnectionError(f"YouTube took nothing more after {start:,} of {size:,} bytes")
                self._ctx.progress(start, size, "bytes")
                film.seek(start)
                piece = film.read(self._youtube.chunk)
                if start + len(piece) >= size and not self._ctx.remembers(last):
                    # Recorded before the last piece: if the session is gone afterwards, the outcome is unknown.
                    await self._ctx.step(last, lambda: True)
                span = f"bytes {start}-{start + len(piece) - 1}/{size}"
                answer = await self._ask("PUT", session, piece, {"Content-Range": span, "Content-Type": "video/mp4"})
        if answer.status_code in (404, 410):
            if self._ctx.remembers(last):
                raise Permanent(
                    "the upload's session is gone, and its last piece had been sent: it may be published. Look for it on "
                    f"the channel; then run: studio queue finish {self._ctx.task_id}, or: studio queue replay {self._ctx.task_id} "
                    "--phase youtube"
                )
            return None
        answer.raise_for_status()
        self._ctx.progress(size, size, "bytes")
        return str(answer.json()["id"])

    async def _ask(self, method: str, url: str, body: bytes, headers: dict[str, str]) -> httpx.Response:
        """Send a request; return an answer that the protocol allows, or raise the error for the queue."""
        for fresh in (False, True):
            token = await self._account.token(fresh=fresh)
            answer = await self._client.request(
                method, url, content=body, headers=headers | {"Authorization": f"Bearer {token}"}
            )
            if answer.status_code != 401:
                break
        reasons = _reasons(answer)
        now = datetime.now(UTC)
        if reasons & _SPENT:
            raise RateLimited(until_quota(now), f"YouTube: {', '.join(sorted(reasons))}", scope="phase")
        if answer.status_code == 429 or reasons & _TOO_FAST:
            raise RateLimited(retry_after(answer, now), "YouTube asks for patience")
        if answer.status_code in (401, 403):
            raise PermissionError(f"YouTube refuses ({answer.status_code} {', '.join(sorted(reasons))}); authorise the studio anew")  # fmt: skip
        if answer.status_code in (404, 410) and method == "PUT":
            return answer
        if answer.status_code != 308:
            answer.raise_for_status()
        return answer


def until_quota(now: datetime) -> timedelta:
    """Return the time until the quota resets, at midnight in Los Angeles."""
    here = now.astimezone(ZoneInfo("America/Los_Angeles"))
    midnight = (here + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight.astimezone(UTC) - now


def _received(answer: httpx.Response) -> int:
    """Return how many bytes the server has, from its header Range: bytes=0-LAST; 0 without that header."""
    _, _, last = answer.headers.get("range", "").rpartition("-")
    return int(last) + 1 if last.isdigit() else 0


def _reasons(answer: httpx.Response) -> set[str]:
    """Return Google's reasons for a refusal."""
    if answer.status_code < 400:
        return set()
    try:
        error: Any = answer.json()["error"]
        return {str(one.get("reason", "")) for one in error.get("errors", [])} - {""}
    except (ValueError, KeyError, TypeError, AttributeError):
        return set()


def _plain(text: str) -> str:
    """Replace angle brackets, which YouTube refuses."""
    return text.replace("<", "(").replace(">", ")")
