"""The page in Chromium: a frame is shown, by HLS and by the mp4, and the console has no error."""

import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from apps.video_encoder.tests.kit import Cloud, work
from conftest import start
from onerow import Queue
from tests.servers.chromium import FLAGS, find_chromium
from video_encoder import page as pages
from video_encoder import upload_file

PATIENCE = 900_000
# Whether a frame was decoded whose pixels differ: a video that does not play is black.
FRAME = """() => {
  const video = document.querySelector("video");
  if (video.readyState < 2 || video.currentTime === 0) return false;
  const canvas = document.createElement("canvas");
  canvas.width = 32; canvas.height = 18;
  const pen = canvas.getContext("2d");
  pen.drawImage(video, 0, 0, 32, 18);
  const pixels = pen.getImageData(0, 0, 32, 18).data;
  return new Set(pixels).size > 20;
}"""
# A browser drops the request to play if the player sets the source after it, which is no error of the page.
PLAY = """() => {
  const video = document.querySelector("video");
  setInterval(() => { if (video.paused && !video.ended) video.play().catch(() => {}); }, 100);
}"""
MOVES = (
    """() => { const video = document.querySelector("video"); return video.currentTime > 0 && video.videoWidth > 0; }"""
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    program, env = start(find_chromium)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS, env={**env})
        yield browser
        browser.close()


def play(page: Page, address: str, condition: str) -> str:
    """Open a page, play its first video until a condition holds; return how it plays."""
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda each: problems.append(each.text) if each.type == "error" else None)
    page.goto(address)
    page.evaluate(PLAY)
    page.wait_for_function(condition, timeout=PATIENCE)
    how = page.text_content("#shown-0") or ""
    assert problems == []
    return how


@pytest.mark.contract("The result plays in a browser: a frame is shown, without a console error.")
def test_the_page_shows_a_frame_and_no_error(
    chromium: Browser, queue: Queue, aws: Cloud, clip: Path, tmp_path: Path
) -> None:
    upload_file(clip, "v1")
    work(queue)
    site = tmp_path / "site"
    assert pages.write_page(site, "<Videos> & more") == 1
    with pages.serving(site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            page = chromium.new_page()
            how = play(page, f"http://127.0.0.1:{server.server_port}/", FRAME)
            assert how.startswith("HLS, ")
            assert page.title() == "<Videos> & more"
            assert page.text_content("h2") == "시험 방송.mp4"
            page.close()
        finally:
            server.shutdown()
            thread.join()
    page = chromium.new_page()
    assert play(page, (site / "index.html").as_uri(), MOVES) == "mp4"
    page.close()


def test_the_player_is_the_one_that_its_manifest_names() -> None:
    folder = Path(pages.__file__).parent / "player"
    manifest = msgspec.json.decode((folder / "manifest.json").read_bytes())
    for name, terms in manifest["files"].items():
        assert sha256((folder / name).read_bytes()).hexdigest() == terms["sha256"]
    assert "Apache License, Version 2.0" in (folder / manifest["license_file"]).read_text()
