"""Download: a local file, a media file over http(s), or with yt-dlp the media and captions of a page."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from mimetypes import guess_extension
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx

from transcriber.problems import Problem
from transcriber.steps import Steps, draft_of

_TIMEOUT = httpx.Timeout(30, read=60)
_PAGES = ("text/html", "application/xhtml+xml")
SINGLE = {"noplaylist": True, "playlist_items": "0"}
"""Options of yt-dlp: of a page with several videos, such as a channel, take none, instead of a thousand."""
_LONGEST_CAPTIONS = 20_000_000


def is_local(url: str) -> bool:
    """Whether a job's URL is the path of a file."""
    return "://" not in url or url.startswith("file://")


def local_path(url: str) -> Path:
    """Return the absolute, normalised path of a local file."""
    path = unquote(urlsplit(url).path) if url.startswith("file://") else url
    if not os.path.isabs(path) or "\0" in path:
        raise Problem(f"{url[:200]!r} is neither an http(s) URL nor an absolute path")
    return Path(os.path.normpath(path))


def download(url: str, target: Path, steps: Steps) -> Path:
    """Return the path of the media: that of a local file, or of the downloaded file, whose name begins like target's."""
    if is_local(url):
        path = local_path(url)
        if not path.is_file():
            raise Problem(f"there is no file {path}")
        return path
    with _get(url) as response:
        if _content_type(response) not in _PAGES:
            return _save(response, target, steps)
    return _download_page(url, target, steps)


def fetch(url: str) -> tuple[bytes, str]:
    """Return a small file, captions or a list of URLs, and the URL where it is: redirects lead there."""
    if is_local(url):
        return local_path(url).read_bytes(), url
    with _get(url) as response:
        body = b""
        for part in response.iter_bytes():
            body += part
            if len(body) > _LONGEST_CAPTIONS:
                raise Problem(f"the file has more than {_LONGEST_CAPTIONS:,} bytes")
        return body, str(response.url)


@contextmanager
def _get(url: str) -> Iterator[httpx.Response]:
    with (
        httpx.Client(timeout=_TIMEOUT, follow_redirects=True, max_redirects=5) as client,
        client.stream("GET", url) as response,
    ):
        response.raise_for_status()
        yield response


def _save(response: httpx.Response, target: Path, steps: Steps) -> Path:
    suffix = re.sub(r"[^.\w]", "", Path(unquote(response.url.path)).suffix)[:10]
    path = target.with_name(f"{target.name}{suffix or guess_extension(_content_type(response)) or '.media'}")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = draft_of(path)
    length = int(response.headers.get("content-length") or 0)
    shown = 0
    # A download that can't succeed must not fill the disk first: the queue's database is there too.
    if length > (free := shutil.disk_usage(path.parent).free):
        raise Problem(f"No space left on device: the file has {length:,} bytes, and {free:,} are free", "resource")
    try:
        with draft.open("wb") as file:
            for part in response.iter_bytes(1 << 16):
                file.write(part)
                done = response.num_bytes_downloaded  # as sent, perhaps compressed, like the length
                if length and done * 10 // length > shown:
                    shown = done * 10 // length
                    steps.say(f"progress {shown * 2}% download {done:,} of {length:,} bytes")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path


def _content_type(response: httpx.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


# ── pages, with yt-dlp ──


def page_info(url: str, **options: Any) -> dict[str, Any]:
    """Return what yt-dlp knows of a page; raise Problem."""
    return _ask_page(url, {"skip_download": True, **options}, download=False)


def _download_page(url: str, target: Path, steps: Steps) -> Path:
    def tell(state: dict[str, Any]) -> None:
        total = state.get("total_bytes") or state.get("total_bytes_estimate")
        if state.get("status") == "downloading" and total:
            share = int(20 * state.get("downloaded_bytes", 0) / total)
            steps.say(f"progress {min(share, 20)}% download")

    target.parent.mkdir(parents=True, exist_ok=True)
    options = {
        "format": "bestaudio*/best",
        # yt-dlp fills in a template; the path itself must not be read as one.
        "outtmpl": {"default": f"{str(target).replace('%', '%%')}.%(ext)s"},
        **SINGLE,
        "progress_hooks": [tell],
        "overwrites": True,
    }
    info = _ask_page(url, options, download=True)
    if info.get("entries") is not None:
        raise Problem("the page has several videos; add the URL of one of them, or of a playlist")
    files = [Path(each["filepath"]) for each in info.get("requested_downloads") or [] if each.get("filepath")]
    if not files or not files[0].is_file():
        raise Problem("yt-dlp downloaded no file: the page has no single video")
    return files[0]


def _ask_page(url: str, options: dict[str, Any], *, download: bool) -> dict[str, Any]:
    try:
        import yt_dlp
    except ModuleNotFoundError:
        raise Problem("this URL is a page, not a media file; it needs yt-dlp: pip install yt-dlp") from None
    common = {"quiet": True, "no_warnings": True, "noprogress": True, "socket_timeout": 30, "retries": 2}
    try:
        with yt_dlp.YoutubeDL({**common, "logger": _Silent(), **options}) as downloader:
            return dict(downloader.extract_info(url, download=download) or {})
    except yt_dlp.utils.DownloadError as error:
        raise _problem(error) from None


def _problem(error: Any) -> Problem:
    text = re.sub(r"^ERROR: (\[\S+\] )?", "", " ".join(str(error).split()))[:300]
    lower = text.lower()
    if "http error 429" in lower or "too many requests" in lower:
        return Problem(text, "limit")
    if any(word in lower for word in ("sign in", "private video", "login", "http error 401", "http error 403")):
        return Problem(text, "auth")
    if any(word in lower for word in ("timed out", "connection", "resolve", "temporary failure", "http error 5")):
        return Problem(text, "network")
    if "no space left" in lower:
        return Problem(text, "resource")
    return Problem(text)


class _Silent:
    """yt-dlp's messages: the exception has what matters."""

    def debug(self, message: str) -> None: ...

    def info(self, message: str) -> None: ...

    def warning(self, message: str) -> None: ...

    def error(self, message: str) -> None: ...
