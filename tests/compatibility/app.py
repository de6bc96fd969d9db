"""The pipelines of the stored fixtures: their rows are in every state that a row can be in."""

from typing import Any

from onerow import Context, Permanent, Pipeline, Retry

videos = Pipeline("videos", title="{topic}")
videos.wait_until("schedule", field="scheduled_time")


@videos.phase(retry=Retry(2, wait="30d"))
def script(job: dict[str, Any], ctx: Context) -> dict[str, Any]:
    print(f"writing about {job['topic']}")
    outline = ctx.step("outline", lambda: [job["topic"], "end"])
    if job.get("error") == "permanent":
        raise Permanent("no such topic")
    if job.get("error") == "network":
        raise ConnectionError("refused")
    return {"text": "…".join(outline)}


videos.wait_for("image", signal="images.ready", timeout="3650d")


@videos.phase(concurrency=2, lease="1s")
def video(job: dict[str, Any], script: dict[str, Any], image: Any) -> str:
    return f"{script['text']} with {image}"


@videos.phase
def upload(job: dict[str, Any], video: str) -> str:
    return f"published {video}"


tracks = Pipeline("tracks")
tracks.wait_for("mixed", signal="mix.done")


@tracks.phase
def master(track: str, mixed: Any) -> str:
    return f"{track} mastered"


albums = Pipeline("albums")


@albums.phase
def split(album: dict[str, Any], ctx: Context) -> None:
    ctx.spawn(tracks, album["tracks"])


albums.wait_children("recorded")


@albums.phase
def press(album: dict[str, Any], recorded: dict[str, Any]) -> int:
    return int(recorded["completed"])


archive = Pipeline("archive")


@archive.phase(rate="100/h")
def store(item: Any) -> None: ...


archive.cron("0 0 1 1 *", payload={"topic": "yearly"}, name="yearly")

PIPELINES = (videos, tracks, albums, archive)
