"""The dashboard in Chromium: a walk through every screen and act, keys, live updates, tabs, languages, barriers."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import BrowserContext, Page, expect, sync_playwright

from conftest import start
from onerow import LogLine, Queue, Status
from onerow.stores.memory import MemoryStore
from tests.engine.kit import until
from tests.servers.chromium import FLAGS, axe_script, find_chromium
from tests.web.pages.kit import TABS, fill, served
from tests.web.pages.scene import scene

PATIENCE = 900_000
SCREENS = ("", "board", "tasks", "failures", "waiting", "phases", "workers", "schedules", "operations", "system", "new")
XSS = (
    "<script>window.hacked=1</script>", "<img src=x onerror='window.hacked=1'>", "\"><svg onload=window.hacked=1>",
    "'-window.hacked=1-'", "javascript:window.hacked=1", "{{constructor.constructor('window.hacked=1')()}}",
    "</title><script>window.hacked=1</script>", "<a hx-get=x hx-trigger=load hx-on:click='window.hacked=1'>",
    "<iframe srcdoc='<script>parent.hacked=1</script>'>", "\u2028</textarea><script>window.hacked=1</script>",
    "<style onload=window.hacked=1>", "&lt;script&gt;window.hacked=1&lt;/script&gt;<math><mtext></form><form><mglyph>",
)  # fmt: skip
PICTURES = Path(__file__).parents[3] / "docs" / "pictures" / "dashboard"
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    program, env = start(find_chromium)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS, env={**env})
        yield browser
        browser.close()


@contextmanager
def opened(chromium: Chromium, **options: Any) -> Iterator[tuple[BrowserContext, Page]]:
    """Open a page; at its end, fail if a script failed or the content security policy blocked something."""
    context = chromium.new_context(**({"viewport": {"width": 1440, "height": 900}} | options))
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda each: problems.append(each.text) if "Content Security Policy" in each.text else None)
    try:
        yield context, page
        assert problems == []
    finally:
        context.close()


CLOSE_AND_OPEN_AT_ONCE = """() => {
  window.onerow.dialog.close();
  document.dispatchEvent(new KeyboardEvent("keydown", {key: "k", ctrlKey: true}));
}"""
"""Before the page gets the event that the first dialog is closed."""


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def write_log(queue: Queue, task_id: str, *texts: str) -> None:
    now = queue.store.now()
    queue.store.append_log([LogLine(task_id, now, "send", 1, "info", text) for text in texts])


def test_a_walk_through_every_screen_and_the_main_acts(chromium: Chromium, queue: Queue) -> None:
    ids = fill(queue, XSS[1])
    queue.resume("clips", "video")
    with served(queue, "/behind/a/prefix") as (base, _), opened(chromium) as (_, page):
        # every screen, by the keyboard
        page.goto(base)
        expect(page.locator("h1")).to_have_text("Overview")
        expect(page.locator(".chart canvas").first).to_be_visible()
        for key, heading in {
            "b": "clips", "f": "Failures", "d": "Waiting room", "p": "Phases", "w": "Workers", "s": "Schedules",
            "x": "Operations", "y": "System", "t": "Tasks",
        }.items():  # fmt: skip
            press(page, "g", key)
            expect(page.locator("h1")).to_have_text(heading)
        # the search box completes, and the address has the filter
        press(page, "/")
        page.keyboard.type("status:fai")
        expect(page.locator("#completions [role=option]").first).to_have_text("failed")
        press(page, "Tab", "Enter")
        expect(page).to_have_url(f"{base}tasks?q=status%3Afailed")
        # a row is opened by keys; the error text leads to the traceback
        press(page, "j", "o")
        expect(page.locator("h1")).to_contain_text("<img src=x")
        expect(page.locator(".trace")).to_contain_text("ConnectionError")
        for tab in TABS:
            page.locator(f".tabs a[href*='tab={tab}']").click()
            expect(page.locator(f"#tab-{tab}")).to_be_visible()
        # retry with a note: the dialog shows the number and the command
        press(page, "r")
        expect(page.locator("dialog .big")).to_have_text("1 task")
        expect(page.locator("dialog .paste code")).to_have_text(f"onerow retry {ids['failed']}")
        addresses: list[str] = []
        page.on("request", lambda request: addresses.append(request.url))
        page.locator("dialog input[name='a.note']").fill("from the dashboard")
        expect(page.locator("dialog .paste code")).to_have_text(
            f"onerow retry {ids['failed']} --note 'from the dashboard'"
        )
        assert any(each.endswith("/act") for each in addresses)
        assert not any("from" in each for each in addresses)  # proxies log addresses
        page.locator("dialog button.primary").click()
        expect(page.locator(".toast")).to_be_visible()
        until(lambda: queue.get(ids["failed"]).status is Status.WAITING, "the retried task")
        expect(page.locator(".head .pill")).to_have_text("waiting")  # the page follows without a reload
        assert queue.get(ids["failed"]).history[-1].note == "from the dashboard"
        # marks and a bulk act
        queue.add_many("mails", [{"to": "kim"}, {"to": "lee"}])
        page.goto(f"{base}tasks?q=status:waiting+pipeline:mails")
        press(page, "j", "x")
        expect(page.locator("#bulk-count")).to_have_text("1 marked")
        press(page, "a")
        expect(page.locator("#bulk-count")).to_have_text("all matching tasks")
        press(page, "Shift+C")
        expect(page.locator("dialog code").first).to_contain_text("status:waiting pipeline:mails")
        page.locator("dialog button.primary").click()
        page.wait_for_url("**/operations")
        until(lambda: queue.get(ids["waiting"]).status is Status.CANCELLED, "the cancelled task")
        # a signal from the page of a parked task
        page.goto(f"{base}task?id={ids['parked']}&tab=steps")
        page.get_by_text("Send it").click()
        expect(page.locator("dialog input[name='a.name']")).to_have_value("images.ready")
        page.locator("dialog textarea").fill('["a.png"]')
        page.locator("dialog button.primary").click()
        until(lambda: queue.get(ids["parked"]).awaiting is None, "the signal")
        # limits and a pause with a reason
        page.goto(f"{base}phases")
        page.locator("#phase-clips-script").get_by_text("Limit").click()
        page.locator("dialog input[name='a.concurrency']").fill("9")
        page.locator("dialog button.primary").click()
        expect(page.locator("#phase-clips-script")).to_contain_text("/ 9")
        page.locator("#phase-mails-send").get_by_text("Pause").click()
        page.locator("dialog input[name='a.reason']").fill("maintenance")
        page.locator("dialog button.primary").click()
        expect(page.locator("#phase-mails-send")).to_contain_text("paused: maintenance")
        # a schedule, run now
        page.goto(f"{base}schedules")
        page.get_by_text("Run now").click()
        page.locator("dialog button.primary").click()
        page.wait_for_url("**/task?id=*")
        expect(page.locator("h1")).to_have_text("the week")
        # a new task, and a mistake first
        page.goto(f"{base}new?pipeline=mails")
        page.locator("textarea[name=payload]").fill('{"to": ')
        page.locator("#new-task button.primary").click()
        expect(page.locator(".banner")).to_contain_text("JSON")
        page.locator("textarea[name=payload]").fill('{"to": "kim"}')
        press(page, "Control+Enter")
        page.wait_for_url("**/task?id=*")
        expect(page.locator("h1")).to_have_text("kim")
        # help, palette, theme
        press(page, "?")
        expect(page.locator("dialog")).to_contain_text("status:")
        press(page, "Escape")
        expect(page.locator("dialog")).to_be_hidden()
        press(page, "?")
        expect(page.locator("dialog")).to_contain_text("status:")
        page.evaluate(CLOSE_AND_OPEN_AT_ONCE)
        page.locator("dialog input").fill("workers")
        expect(page.locator("dialog [role=option]")).to_have_count(1)
        press(page, "Enter")
        expect(page.locator("h1")).to_have_text("Workers")
        press(page, "t")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert page.evaluate("window.hacked") is None


def test_rows_stay_under_the_pointer_and_new_ones_wait_behind_a_button(chromium: Chromium, queue: Queue) -> None:
    fill(queue)
    with served(queue) as (base, _), opened(chromium) as (_, page):
        page.goto(f"{base}tasks?q=pipeline:mails")
        page.locator("#rows tr").first.hover()
        before = page.locator("#rows tr").first.get_attribute("id")
        added = queue.add("mails", {"to": "new"})
        expect(page.locator("#fresh")).to_contain_text("1 new")
        assert page.locator("#rows tr").first.get_attribute("id") == before
        press(page, ".")
        expect(page.locator("#rows tr").first).to_have_id(f"row-{added.task_id}")


def test_what_a_person_chose_survives_live_updates(chromium: Chromium, queue: Queue) -> None:
    ids = fill(queue)
    with served(queue) as (base, _), opened(chromium) as (_, page):
        # all matching tasks stay chosen, not the marked ones of this page
        page.goto(f"{base}tasks?q=pipeline:mails")
        press(page, "a")
        queue.add("mails", {"to": "new"})
        expect(page.locator("#fresh")).to_contain_text("1 new")
        expect(page.locator("#bulk-count")).to_have_text("all matching tasks")
        assert page.locator("#bulk [data-bulk]").first.get_attribute("hx-get") == "act?name=retry&q=pipeline%3Amails"
        # Caps Lock is not Shift
        page.evaluate(
            "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'C', code: 'KeyC', bubbles: true}))"
        )
        expect(page.locator("dialog")).to_be_hidden()
        page.locator("[data-mark-all]").check()
        expect(page.locator("#bulk-count")).to_have_text("2 marked")
        # the frames of libraries stay unfolded
        page.goto(f"{base}task?id={ids['failed']}")
        toggle = page.locator("[data-toggle=only-mine]")
        expect(toggle).to_have_attribute("aria-pressed", "true")
        toggle.click()
        queue.select(ids=[ids["failed"]]).cancel(note="seen")
        expect(page.locator(".head .pill")).to_have_text("cancelled")
        expect(page.locator(".trace")).not_to_have_class("only-mine")
        expect(page.locator(".trace .lib").first).to_be_visible()
        expect(toggle).to_have_attribute("aria-pressed", "false")
        # the log opens at its end and follows, until a person scrolls up
        write_log(queue, ids["processing"], *(f"line {number}" for number in range(100)))
        page.set_viewport_size({"width": 1440, "height": 1500})
        page.goto(f"{base}task?id={ids['processing']}&tab=log")
        expect(page.get_by_text("line 99", exact=True)).to_be_in_viewport()
        write_log(queue, ids["processing"], "after a while")
        expect(page.get_by_text("after a while")).to_be_in_viewport()
        page.locator("#log").evaluate("log => log.scrollTop = 0")
        write_log(queue, ids["processing"], "at the end")
        expect(page.get_by_text("at the end")).to_be_attached()
        expect(page.get_by_text("line 0", exact=True)).to_be_in_viewport()
        # the palette names pages without their counts
        press(page, "Control+k")
        page.locator("dialog input").fill("tasks")
        expect(page.locator("dialog [role=option]")).to_have_text(["Tasks"])


def test_seven_tabs_share_one_stream(chromium: Chromium, queue: Queue) -> None:
    fill(queue)
    with served(queue) as (base, _), opened(chromium) as (context, page):
        page.goto(f"{base}tasks")
        expect(page.locator("#live-state[data-state=live]")).to_be_visible()
        tabs = [page]
        for name in ("workers", "phases", "failures", "system", "waiting", "board", "schedules"):
            tab = context.new_page()
            tab.goto(f"{base}{name}")  # a browser opens six connections to a host
            expect(tab.locator("h1")).to_be_visible()
            tabs.append(tab)
        queue.pause("mails", "send", reason="seen in all tabs")
        phases = tabs[2]
        expect(phases.locator("#phase-mails-send")).to_contain_text("seen in all tabs")
        page.close()  # the leader: another tab takes over
        queue.resume("mails", "send")
        expect(phases.locator("#phase-mails-send")).not_to_contain_text("seen in all tabs")


def test_a_page_says_that_the_store_is_unavailable_and_heals(chromium: Chromium, queue: Queue) -> None:
    from tests.web.pages.test_live import _break, _mend

    fill(queue)
    path = Path(queue.url.removeprefix("sqlite:///"))
    with served(queue) as (base, _), opened(chromium) as (context, page):
        page.goto(f"{base}tasks")
        expect(page.locator("#rows tr").first).to_be_visible()
        _break(queue, path)
        expect(page.locator("#away")).to_contain_text("The store does not answer")
        other = context.new_page()
        other.goto(f"{base}failures")
        expect(other.locator("#away")).to_contain_text("The store does not answer")
        _mend(queue, path)
        expect(page.locator("#away")).to_be_empty()
        expect(other.locator("h1")).to_have_text("Failures")


# ── slow: every language, every text, barriers, pictures ──


@pytest.mark.slow
def test_no_text_of_people_or_handlers_runs_as_a_script(chromium: Chromium, tmp_path: Path) -> None:
    for number, text in enumerate(XSS):
        queue = Queue(f"sqlite:///{tmp_path / f'{number}.db'}")
        ids = fill(queue, text)
        with served(queue) as (base, _), opened(chromium) as (_, page):
            for path in every_page(ids):
                page.goto(f"{base}{path}")
                for each in page.locator(".head [data-copy], summary").all()[:10]:
                    if not each.is_visible():  # within another one that is closed
                        continue
                    each.click()
                assert page.evaluate("window.hacked") is None, (text, path)
            press(page, "/")
            page.keyboard.type("payload.topic:")
            page.wait_for_timeout(300)
            assert page.evaluate("window.hacked") is None, (text, "completion")
        queue.close()


def every_page(ids: dict[str, str]) -> list[str]:
    tabs = [
        f"task?{urlencode({'id': ids[name], 'tab': tab})}" for name in ("failed", "completed", "parked") for tab in TABS
    ]
    acts = [f"act?{urlencode({'name': 'retry', 'id': ids['failed']})}", "act?name=pause&pipeline=clips&phase=script"]
    return [*SCREENS, *tabs, *acts, "help"]


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_a_serious_barrier(
    chromium: Chromium, queue: Queue, ids: dict[str, str], scheme: str, width: int
) -> None:
    script = start(axe_script)
    found: list[tuple[str, str, str]] = []
    options: dict[str, Any] = {"color_scheme": scheme, "viewport": {"width": width, "height": 844}}
    with served(queue) as (base, _), opened(chromium, bypass_csp=True, **options) as (_, page):
        for path in every_page(ids):
            page.goto(f"{base}{path}")
            page.wait_for_timeout(300)
            page.evaluate(script)
            report = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            for each in report["violations"]:
                if each["impact"] in ("serious", "critical"):
                    found += [(path, each["id"], node["html"][:200]) for node in each["nodes"][:3]]
    assert found == [], json.dumps(found, indent=1)


@pytest.mark.slow
@pytest.mark.parametrize("locale, heading", [("ko-KR", "개요"), ("zh-TW", "總覽"), ("en-GB", "Overview")])
def test_every_screen_in_every_language(
    chromium: Chromium, queue: Queue, ids: dict[str, str], locale: str, heading: str
) -> None:
    with served(queue) as (base, _), opened(chromium, locale=locale) as (_, page):
        page.goto(base)
        expect(page.locator("h1")).to_have_text(heading)
        for path in every_page(ids):
            page.goto(f"{base}{path}")
            expect(page.locator("h1, h2").first).to_be_visible()


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1440])
def test_no_page_is_wider_than_the_window(chromium: Chromium, queue: Queue, width: int) -> None:
    ids = fill(queue, "a_long_word_without_a_break_" * 5)
    with served(queue) as (base, _), opened(chromium, viewport={"width": width, "height": 844}) as (_, page):
        for path in every_page(ids):
            page.goto(f"{base}{path}")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path


@pytest.mark.slow
@pytest.mark.skipif(
    "ONEROW_PICTURES" not in os.environ, reason="set ONEROW_PICTURES=1 to renew the pictures of the guide"
)
def test_pictures_of_the_guide(chromium: Chromium) -> None:
    take_pictures(chromium)


def take_pictures(chromium: Chromium) -> None:
    queue = Queue(MemoryStore())  # its address is the same on every machine
    PICTURES.mkdir(parents=True, exist_ok=True)
    with scene(queue), served(queue) as (base, _):
        for name, options, path in _pictures():
            until(lambda: queue.find("status:processing phase:video").tasks, "a running task")
            found = queue.find("status:processing phase:video").tasks
            running = max(found, key=lambda task: (task.started_at is not None, task.started_at)).task_id
            with opened(chromium, **options) as (_, page):
                page.goto(base + path.replace("RUNNING", running))
                page.wait_for_timeout(1200)
                page.screenshot(path=PICTURES / f"{name}.png")
    queue.close()


def _pictures() -> list[tuple[str, dict[str, Any], str]]:
    wide: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}}
    dark = wide | {"color_scheme": "dark"}
    phone: dict[str, Any] = {"viewport": {"width": 390, "height": 800}, "is_mobile": True, "has_touch": True}
    return [
        ("task", wide, "task?id=RUNNING"), ("overview", wide, ""), ("board", wide, "board?pipeline=clips"),
        ("tasks", dark, "tasks?q=pipeline:clips"), ("failures", wide, "failures"), ("workers", dark, "workers"),
        ("phone", phone, "board?pipeline=clips"), ("korean", wide | {"locale": "ko-KR"}, "phases"),
        ("act", wide, "act?name=retry&q=status:failed"),
    ]  # fmt: skip
