"""Make page.png of the README from the page that `make encoder` wrote: python -m apps.video_encoder.make_picture"""

import sys
import threading
from pathlib import Path

from playwright.sync_api import sync_playwright

from apps.video_encoder.demo import HOME
from tests.servers.chromium import FLAGS, find_chromium
from video_encoder.page import serving

PICTURE = Path(__file__).with_name("page.png")
# Each video at its third second, with its picture decoded.
SEEK = "() => document.querySelectorAll('video').forEach((video) => { video.muted = true; video.currentTime = 3; })"
SHOWN = """() => [...document.querySelectorAll("video")].every(
  (video) => video.readyState >= 2 && !video.seeking && video.currentTime >= 3)"""


def main() -> None:
    if not (HOME / "site" / "index.html").is_file():
        sys.exit(f"there is no page in {HOME / 'site'}; run: make encoder")
    program, env = find_chromium()
    with serving(HOME / "site") as server, sync_playwright() as playwright:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            browser = playwright.chromium.launch(executable_path=program, args=FLAGS, env={**env})
            page = browser.new_page(viewport={"width": 1100, "height": 490})
            page.goto(f"http://127.0.0.1:{server.server_port}/")
            page.wait_for_function(
                "() => [...document.querySelectorAll('video')].every((video) => video.readyState >= 1)"
            )
            page.evaluate(SEEK)
            page.wait_for_function(SHOWN, timeout=120_000)
            page.wait_for_timeout(2_000)  # the players show for a moment that they load
            page.screenshot(path=PICTURE, full_page=True)
            browser.close()
        finally:
            server.shutdown()
            thread.join()


if __name__ == "__main__":
    main()
