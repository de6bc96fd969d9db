"""Checks a stored ladder: every object is there, and ffprobe reads what players will read."""

import re
from pathlib import Path

from onerow import Permanent
from video_encoder.bucket import Bucket
from video_encoder.ladder import FALLBACK, MASTER, POSTER, THUMBNAILS, Ladder, Rendition, join
from video_encoder.probing import Media, probe
from video_encoder.programs import ProgramFailed


def check_ladder(ladder: Ladder, bucket: Bucket, folder: Path) -> int:
    """Check a ladder in the bucket; return the number of its segments, or raise a permanent error with the reason.

    Read are the playlists, the first and the last segment of each rendition, the stills and the fallback; of the
    other segments the sizes are compared.
    """
    found = bucket.sizes(ladder.prefix)
    if wrong := sorted(name for name, size in ladder.sizes.items() if found.get(name) != size):
        raise _bad(ladder, f"{wrong[0]} has {found.get(wrong[0], 0):,} bytes, not {ladder.sizes[wrong[0]]:,}")

    def fetch(name: str) -> Path:
        return bucket.fetch(ladder.prefix + name, folder / name)

    master = fetch(MASTER).read_text(encoding="utf-8")
    listed = [line for line in master.splitlines() if line and not line.startswith("#")]
    if listed != [step.playlist for step in ladder.renditions]:
        raise _bad(ladder, f"{MASTER} lists {', '.join(listed) or 'nothing'}")
    count = 0
    for step in ladder.renditions:
        playlist = fetch(step.playlist).read_text(encoding="utf-8")
        segments = [f"{step.name}/{line}" for line in playlist.splitlines() if line and not line.startswith("#")]
        if not segments or "#EXT-X-ENDLIST" not in playlist:
            raise _bad(ladder, f"{step.playlist} has no end")
        _compare(ladder, step.playlist, sum(map(float, re.findall(r"#EXTINF:([\d.]+)", playlist))))
        begin = re.search(r'#EXT-X-MAP:URI="([^"/]+)"', playlist)
        init = fetch(f"{step.name}/{begin[1] if begin else 'init.mp4'}")
        for name in sorted({segments[0], segments[-1]}):
            whole = join(init, [fetch(name)], folder / "joined.mp4")
            _check_media(ladder, name, _probed(ladder, name, whole), step)
        count += len(segments)
    fallback = _probed(ladder, FALLBACK, fetch(FALLBACK))
    _check_media(ladder, FALLBACK, fallback, ladder.renditions[1])
    _compare(ladder, FALLBACK, fallback.seconds)
    for name in (POSTER, THUMBNAILS):
        try:
            probe(fetch(name))  # ffprobe alone accepts a .jpg of zeros
        except ProgramFailed as error:
            raise _bad(ladder, f"{name}: {error}") from None
    return count


def _probed(ladder: Ladder, name: str, path: Path) -> Media:
    try:
        media = probe(path)
    except ProgramFailed as error:
        raise _bad(ladder, f"{name}: {error}") from None
    if not media.seconds:
        raise _bad(ladder, f"{name} has no length")
    return media


def _check_media(ladder: Ladder, name: str, media: Media, step: Rendition) -> None:
    wanted = (step.width, step.height, "h264", ladder.audio)
    if (media.width, media.height, media.video, bool(media.audio)) != wanted:
        raise _bad(ladder, f"{name} is {media.width}x{media.height}, {media.video}, sound: {media.audio or 'none'}")


def _compare(ladder: Ladder, name: str, seconds: float) -> None:
    if abs(seconds - ladder.seconds) > max(1.0, ladder.seconds / 50):
        raise _bad(ladder, f"{name} has {seconds:g} s; the upload says that it has {ladder.seconds:g} s")


def _bad(ladder: Ladder, reason: str) -> Permanent:
    return Permanent(f"the ladder at {ladder.prefix} can't be played: {reason}; replay the task to encode it again")
