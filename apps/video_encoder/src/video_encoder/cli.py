"""The command `encoder`: upload videos, run a worker, list them, and make a page that plays them."""

import functools
import json
import os
import sys
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import click

from onerow import OnerowError
from video_encoder import page as pages
from video_encoder.opening import open_queue
from video_encoder.settings import Settings
from video_encoder.status import Video, VideoStatus, list_videos
from video_encoder.uploads import create_upload, upload_file
from video_encoder.uploads import uploaded as add_uploaded

_APP = "video_encoder.app"


def _plainly(function: Callable[..., Any]) -> Callable[..., Any]:
    """Print errors that the user can fix as one line on stderr, without a traceback."""

    @functools.wraps(function)
    def run(*args: Any, **named: Any) -> Any:
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return function(*args, **named)
        except OnerowError as error:
            fix = getattr(error, "fix", "")
            raise click.ClickException(f"{error}{f'; {fix}' if fix and fix not in str(error) else ''}") from None
        except (Boto3Error, BotoCoreError, ClientError) as error:
            raise click.ClickException(f"the bucket or the queue: {error}") from None
        except BrokenPipeError:  # of `encoder list | head`
            raise
        except OSError as error:  # a folder, a port
            raise click.ClickException(str(error)) from None

    return run


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Uploaded videos become HLS ladders in a bucket: UPLOADED → PROCESSING → READY."""


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--id", "video_id", help="An id of your own, for one file.")
@_plainly
def upload(files: Sequence[Path], video_id: str | None) -> None:
    """Upload FILES, add their rows, send their messages, and print their ids."""
    if video_id is not None and len(files) > 1:
        raise click.UsageError("--id is for one file")
    for path in files:
        click.echo(upload_file(path, video_id).task_id)


@main.command()
@click.argument("name")
@click.option("--id", "video_id", help="An id of your own.")
@_plainly
def presign(name: str, video_id: str | None) -> None:
    """Print the id and the URL for a video that someone else uploads with PUT, as JSON."""
    made = create_upload(name, video_id)
    click.echo(json.dumps({"video_id": made.video_id, "key": made.key, "url": made.url}, ensure_ascii=False))


@main.command()
@click.argument("video_id")
@_plainly
def uploaded(video_id: str) -> None:
    """Add the row of a presigned upload; not needed if the bucket sends its events to the queue."""
    click.echo(add_uploaded(video_id).task_id)


@main.command("list")
@click.argument("status", type=click.Choice([str(status) for status in VideoStatus]), required=False)
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@_plainly
def list_(status: str | None, limit: int, as_json: bool) -> None:
    """The videos, or those of a STATUS."""
    import msgspec

    count = 0
    for video in islice(list_videos(status), limit):
        click.echo(msgspec.json.encode(video).decode() if as_json else _line(video))
        count += 1
    if not count:
        click.echo(f"no video is {status}" if status else "there is no video", err=True)
    elif count == limit:
        click.echo(f"the first {limit}; there may be more (--limit)", err=True)


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("worker_options", nargs=-1, type=click.UNPROCESSED)
@_plainly
def run(worker_options: Sequence[str]) -> None:
    """Receive and encode until stopped. Takes the options of `onerow worker`, for example --protect asg."""
    Settings.of_environment().needed("queue_url", "bucket")
    # One video at a time: ffmpeg uses all cores. Options that are given win.
    os.execv(sys.executable, [sys.executable, "-m", "onerow", "worker", _APP, "--concurrency", "1", *worker_options])


@main.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@_plainly
def queue(words: Sequence[str]) -> None:
    """Any command of onerow on this queue: encoder queue cancel ID, encoder queue why ID."""
    os.environ["ONEROW_STORE"] = open_queue().url
    os.execv(sys.executable, [sys.executable, "-m", "onerow", *words])


@main.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--title", default="Videos", show_default=True)
@click.option("--serve", "port", type=click.IntRange(0, 65535), help="Then serve it on this port of this machine.")
@_plainly
def page(folder: Path, title: str, port: int | None) -> None:
    """Write a page that plays the READY videos into FOLDER."""
    count = pages.write_page(folder, title)
    click.echo(f"{count} video{'' if count == 1 else 's'}: {folder / 'index.html'}")
    if port is not None:
        with pages.serving(folder, port) as server:
            click.echo(f"http://127.0.0.1:{server.server_port}/ until Ctrl-C")
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                pass


def _line(video: Video) -> str:
    parts = [f"{video.status:16}", video.video_id, video.name]
    if video.status is VideoStatus.PROCESSING and video.progress and video.progress["total"]:
        parts.append(f"{video.progress['done'] / video.progress['total']:.0%} of {video.progress['note']}")
    if video.error:
        parts.append(video.error)
    return "  ".join(parts)
