"""Playlists: the recordings of an m3u or text file, or with yt-dlp of a page."""

import os
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urljoin, urlsplit

from transcriber.download import fetch, is_local, local_path, page_info
from transcriber.jobs import LISTS
from transcriber.problems import Problem

_MOST = 10_000
_OF_STREAMS = ("#EXT-X-TARGETDURATION", "#EXT-X-STREAM-INF")


def entries_of(url: str) -> list[dict[str, str]]:
    """Return url, title and video_id of each recording of a playlist, in order and without repetitions; raise Problem."""
    if urlsplit(url).path.lower().endswith(LISTS):
        if is_local(url) and not local_path(url).is_file():
            raise Problem(f"there is no file {local_path(url)}")
        body, base = fetch(url)
        found = read_list(body.decode("utf-8-sig", "replace"), base)
    else:
        found = _of_page(page_info(url, extract_flat="in_playlist"))
    unique: dict[str, dict[str, str]] = {}
    for each in found:
        unique.setdefault(each["url"], each)
    if not unique:
        raise Problem("the playlist is empty")
    if len(unique) > _MOST:
        raise Problem(f"the playlist has {len(unique):,} entries; at most {_MOST:,} are allowed")
    return list(unique.values())


def read_list(text: str, base: str) -> list[dict[str, str]]:
    """Return the entries of an m3u or text file; relative ones are beside it. An #EXTINF line has the title."""
    if "\0" in text or "\ufffd" in text:
        raise Problem("the list is not text in UTF-8; save it as UTF-8")
    if any(tag in text for tag in _OF_STREAMS):
        raise Problem("this is an HLS stream, not a list of recordings; give the URL of its page, or of a media file")
    found: list[dict[str, str]] = []
    title = ""
    for line in (each.strip() for each in text.removeprefix("\ufeff").splitlines()):
        if line.startswith("#EXTINF:"):
            title = line.partition(",")[2].strip()
        if not line or line.startswith("#"):
            continue
        url = line if "://" in line else _beside(base, line)
        if is_local(url) and not is_local(base):
            raise Problem(f"a list from elsewhere may not name files of this host: {line[:100]}")
        found.append({"url": url, "title": title})
        title = ""
    return found


def _beside(base: str, name: str) -> str:
    if is_local(base):
        return os.path.normpath(PurePosixPath(local_path(base)).parent / name)  # an absolute name stays absolute
    return urljoin(base, name)


def _of_page(info: dict[str, Any]) -> list[dict[str, str]]:
    found = []
    for entry in info.get("entries") or []:
        url = entry.get("webpage_url") or entry.get("url") or ""
        if url.startswith(("http://", "https://")):
            found.append({"url": url, "title": str(entry.get("title") or ""), "video_id": str(entry.get("id") or "")})
    return found
