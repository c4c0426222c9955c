"""The console's pages in a real browser, on a job whose heartbeats are made up."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from common.processors import SINK, SOURCE, PipelineProcessor
from common.specs import ForwardSpec
from common.status import TaskState, TaskStatus
from common.tasks import TaskId
from console.server import ConsoleServer
from console.snapshot import Snapshot
from tests.browser import Scheme, browser, needs_chromium, open_page
from tests.console_job import FakeJob
from tests.console_sample import SampleJob, config

pytestmark = [needs_chromium, pytest.mark.slow]

PAGES = ("graph", "tasks", "lag", "moves", "history")
HOSTILE = "<img src=x onerror=window.broken=1><script>window.broken=1</script>&amp;\"'"
FAILED = TaskId("Audit", 3)
RESTORING = TaskId("Cities", 1)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as made:
        yield made


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A job with hostile text wherever text comes from elsewhere."""
    job = SampleJob(hosts=(HOSTILE, "beta", "gamma"), made_by=HOSTILE)
    job.states = {
        FAILED: TaskStatus(FAILED, TaskState.FAILED, reason=HOSTILE, activity=HOSTILE),
        RESTORING: TaskStatus(
            RESTORING,
            TaskState.RESTORING,
            figures={"restored": 250, "to_restore": 1000, "restore_eta_s": 9},
        ),
    }
    job.run(30)
    server = ConsoleServer(config(), lambda: job.run(1), FakeJob())
    server.start()
    yield server.address
    server.stop()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", PAGES)
def test_each_page_fits_and_shows_text_as_text(
    chromium: Browser, address: str, name: str, width: int
) -> None:
    scheme: Scheme = "dark" if width == 390 else "light"
    with open_page(chromium, f"{address}#/{name}", width, scheme) as page:
        expect(page.locator("#job")).to_have_text("shop")
        expect(page.locator("#nav [aria-current=page]")).to_have_text(name.capitalize())
        expect(page.locator("main h2")).to_have_count(1)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate("window.broken") is None
        assert page.locator("main img").count() == 0


def test_reasons_and_hosts_are_shown_letter_by_letter(chromium: Browser, address: str) -> None:
    with open_page(chromium, f"{address}#/tasks") as page:
        expect(page.get_by_role("cell", name=HOSTILE, exact=True)).to_be_visible()
        expect(page.get_by_text(f"{HOSTILE} · process 4000")).to_be_visible()
    with open_page(chromium, f"{address}#/history/Audit") as page:
        expect(page.locator("dialog .reasons")).to_contain_text(f"{HOSTILE} — {HOSTILE}")
        expect(page.get_by_text(f"made by {HOSTILE}")).to_be_attached()


def test_even_names_that_no_pipeline_can_have_are_only_text(chromium: Browser) -> None:
    """The engine refuses such names; the pages must not depend on that."""
    names = ("Step", HOSTILE)
    steps = (
        PipelineProcessor(names[0], ForwardSpec(), (names[1],), (SOURCE,)),
        PipelineProcessor(names[1], ForwardSpec(), (SINK,), (names[0],)),
    )
    job = SampleJob(steps=steps)
    snapshot: Snapshot = job.board.next_snapshot(job.now_ms)
    server = ConsoleServer(config(), lambda: snapshot, FakeJob())
    server.start()
    try:
        with open_page(chromium, f"{server.address}#/graph") as page:
            node = page.locator("a.node").nth(1)
            expect(node).to_have_attribute("aria-label", re.compile(re.escape(HOSTILE)))
            expect(node.locator(".name")).to_have_text(re.compile(r"^<img src=x onerror=.*…$"))
    finally:
        server.stop()


def test_a_processor_opens_and_closes_by_keyboard(chromium: Browser, address: str) -> None:
    with open_page(chromium, f"{address}#/graph") as page:
        node = page.locator('a.node[href="#/graph/Price"]')
        node.focus()
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog", name="Price")
        expect(dialog).to_be_visible()
        expect(dialog.get_by_role("row")).to_have_count(5)
        expect(dialog.locator("dd", has_text="records go to")).to_have_text(
            "records go to Price_dead_letter_shop"
        )
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
        assert page.url == f"{address}#/graph"
        expect(node).to_be_focused()


def shown_number(page: Page) -> str:
    return page.locator("main tbody tr").first.inner_text()


def test_pages_follow_the_job_and_keep_the_focus(chromium: Browser, address: str) -> None:
    with open_page(chromium, f"{address}#/lag") as page:
        link = page.locator("main tbody a").first
        expect(link).to_be_visible()
        link.focus()
        before = shown_number(page)
        page.wait_for_function(
            "before => document.querySelector('main tbody tr').innerText !== before", arg=before
        )
        expect(link).to_be_focused()


def test_a_lost_connection_is_said_with_the_time_of_what_is_shown(chromium: Browser) -> None:
    job = SampleJob()
    job.run(3)
    server = ConsoleServer(config(), lambda: job.run(1), FakeJob())
    server.start()
    with open_page(chromium, server.address, may_lose_connection=True) as page:
        expect(page.locator("#summary")).to_contain_text("3 of 3 up")
        server.stop()
        expect(page.locator("#connection")).to_contain_text("No connection to the JobManager.")
        expect(page.locator("#connection")).to_contain_text("This is the state of")
        expect(page.locator("#summary")).to_contain_text("3 of 3 up")


def test_charts_show_a_line_for_each_processor(chromium: Browser, address: str) -> None:
    with open_page(chromium, f"{address}#/history", 390) as page:
        plots = page.locator(".plot")
        expect(plots.first).to_have_attribute(
            "aria-label", "Records taken in, per second: Audit, Cities, Clean, Price"
        )
        expect(plots.locator("canvas")).to_have_count(2)
        page.locator("#nav a", has_text="Tasks").click()
        expect(page.locator("canvas")).to_have_count(0)
