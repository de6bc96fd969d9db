"""Captions that exist: those of a page (engine youtube), beside a file, or in it (engine subtitles)."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from transcriber.audio import extract_subtitles, subtitles_in
from transcriber.captions import Segment, decoded, read_captions
from transcriber.download import SINGLE, fetch, is_local, local_path, page_info
from transcriber.problems import Problem
from transcriber.settings import Settings

_PICTURES = ("dvd_subtitle", "hdmv_pgs_subtitle", "dvb_subtitle", "xsub")
# Codes of three letters that do not begin like those of two.
_CODES = {"de": "ger", "es": "spa", "ja": "jpn", "nl": "dut", "pt": "por", "sv": "swe", "zh": "chi"}
_BESIDE = (".vtt", ".srt")
_MEDIA = (".mp4", ".mkv", ".webm", ".mov", ".m4a", ".mp3", ".wav", ".flac", ".ogg", ".opus", ".avi")


def published_captions(url: str, language: str) -> list[Segment]:
    """Return the captions that the publisher of a video offers: beside a media file, or on its page."""
    if is_local(url):
        path = local_path(url)
        beside = [path.with_suffix(suffix) for suffix in _BESIDE]
        found = next((each for each in beside if each.is_file()), None)
        text = None if found is None else _text_of(str(found), language)
    elif Path(urlsplit(url).path).suffix.lower() in _MEDIA:
        text = _beside(url, language)
    else:
        text = _of_page(url, language)
    segments = read_captions(text or "")
    if not segments:
        raise Problem("there are no captions; choose another engine, such as pocketsphinx or gpt-4o-mini-transcribe")
    return segments


def own_subtitles(settings: Settings, source: Path, target: Path) -> list[Segment]:
    """Return the subtitles inside a media file: those in the language of the settings, else the first."""
    tracks = subtitles_in(settings, source)
    readable = [number for number, (_, kind) in enumerate(tracks) if kind not in _PICTURES]
    if not readable:
        what = "subtitles as pictures only" if tracks else "no subtitles"
        raise Problem(f"the file has {what}; choose another engine, such as pocketsphinx")
    wanted = (settings.language, _CODES.get(settings.language, settings.language))
    chosen = min(readable, key=lambda number: not tracks[number][0].startswith(wanted))
    extract_subtitles(settings, source, chosen, target)
    return read_captions(target.read_text(encoding="utf-8", errors="replace"))


def _text_of(url: str, language: str) -> str:
    return decoded(fetch(url)[0], language)


def _beside(url: str, language: str) -> str | None:
    parts = urlsplit(url)
    stem = parts.path.rpartition(".")[0]
    for suffix in _BESIDE:
        try:
            return _text_of(parts._replace(path=f"{stem}{suffix}").geturl(), language)
        except httpx.HTTPStatusError as error:
            if error.response.status_code not in (403, 404, 410):
                raise
    return None


def _of_page(url: str, language: str) -> str | None:
    info = page_info(url, **SINGLE)
    own = str(info.get("language") or "")
    wanted = [language, own or "en", "en"]

    def rank(found: tuple[int, str, dict[str, Any]]) -> tuple[object, ...]:
        kind, name, track = found
        translated = kind == 1 and not name.startswith(own)  # by a program, from what a program heard
        place = next((number for number, each in enumerate(wanted) if name.startswith(each)), len(wanted))
        return translated, place, kind, name not in wanted, name, track["ext"] != "vtt"

    tracks: list[tuple[int, str, dict[str, Any]]] = [
        (kind, name, track)
        for kind, key in enumerate(("subtitles", "automatic_captions"))
        for name, each in (info.get(key) or {}).items()
        for track in each
        if track.get("ext") in ("vtt", "srt") and (track.get("url") or track.get("data"))
    ]
    if not tracks:
        return None
    _, _, track = min(tracks, key=rank)
    return str(track["data"]) if track.get("data") else _text_of(str(track["url"]), language)
