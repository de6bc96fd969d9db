"""A page that plays the READY videos: their objects and the player in one folder, for any web server."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from html import escape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from string import Template

import msgspec

from onerow import Filter
from video_encoder.bucket import Bucket
from video_encoder.ladder import Ladder
from video_encoder.opening import open_queue, videos
from video_encoder.settings import Settings

_PLAYER = files("video_encoder").joinpath("player")
_SCRIPT = "hls.light.min.js"


def write_page(folder: Path, title: str = "Videos") -> int:
    """Write index.html, the player, and the objects of each READY video; return the number of videos."""
    bucket = Bucket(Settings.of_environment())
    folder.mkdir(parents=True, exist_ok=True)
    shown: list[str] = []
    for task in open_queue().select(Filter(pipeline=videos.name, phases=frozenset({"delete_raw"}))):
        ladder = msgspec.convert(task.results["encode"], Ladder)
        for name in ladder.sizes:
            bucket.fetch(ladder.prefix + name, folder / ladder.prefix / name)
        shown.append(_article(ladder, task.title, len(shown)))
    page = Template(_PLAYER.joinpath("page.html").read_text(encoding="utf-8"))
    (folder / "index.html").write_text(page.substitute(title=escape(title), videos="\n".join(shown)), encoding="utf-8")
    (folder / _SCRIPT).write_bytes(_PLAYER.joinpath(_SCRIPT).read_bytes())
    return len(shown)


def _article(ladder: Ladder, name: str, number: int) -> str:
    template = Template(_PLAYER.joinpath("video.html").read_text(encoding="utf-8"))
    return template.substitute(
        prefix=escape(ladder.prefix.rstrip("/")),
        name=escape(name),
        number=number,
        seconds=f"{ladder.seconds:g}",
        renditions=" / ".join(step.name for step in ladder.renditions),
    )


class _Files(SimpleHTTPRequestHandler):
    extensions_map = {  # noqa: RUF012  an attribute of the base class
        **SimpleHTTPRequestHandler.extensions_map, ".m3u8": "application/vnd.apple.mpegurl", ".m4s": "video/iso.segment"
    }  # fmt: skip

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def serving(folder: Path, port: int = 0) -> Iterator[ThreadingHTTPServer]:
    """Open a server for a folder, on this machine only; the caller runs `serve_forever`."""
    with ThreadingHTTPServer(("127.0.0.1", port), partial(_Files, directory=str(folder))) as server:
        yield server
