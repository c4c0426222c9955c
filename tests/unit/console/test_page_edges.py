"""The console's pages with odd times and addresses, slow answers, and a server that hangs."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Route, expect

from kafka_pipeline.console.server import ConsoleServer
from tests.browser import WAIT_MS, needs_chromium, open_page
from tests.console_job import FakeJob, dead_letter
from tests.console_page import TOKEN, served, sign_in
from tests.console_sample import START_MS, SampleJob, config
from tests.waiting import wait_until

pytestmark = [needs_chromium, pytest.mark.long]

UNKNOWN = "\u2013"
DAY_S = 86_400
NANOSECONDS = START_MS * 1_000_000
"""What a producer may write by mistake; no calendar of a browser has it."""


@contextmanager
def running() -> Iterator[ConsoleServer]:
    """Serve a console without a token."""
    job = SampleJob()
    job.run(3)
    server = ConsoleServer(config(), lambda: job.run(1), FakeJob())
    server.start()
    try:
        yield server
    finally:
        server.stop()


def test_letters_and_records_of_any_time_are_shown(chromium: Browser, token_file: Path) -> None:
    """One letter with a time in nanoseconds, and the page showed none at all."""
    times = (NANOSECONDS, -1, START_MS + 7)
    dead = [replace(dead_letter(n), timestamp_ms=at) for n, at in enumerate(times)]
    record: dict[str, Any] = {"partition": 0, "offset": 7, "key": None, "value": "x", "headers": []}
    job, fake = SampleJob(), FakeJob(dead, shown=[{**record, "timestamp_ms": at} for at in times])
    with (
        served(lambda: job.run(1), fake, token_file) as address,
        open_page(chromium, f"{address}#/letters/Price:0:0") as page,
    ):
        drawer = page.get_by_role("dialog", name="Dead letter Price:0:0")
        expect(drawer).to_contain_text("1,795,000,000,000,000,000")
        page.keyboard.press("Escape")
        rows = page.get_by_role("table", name="Dead letters, the newest").locator("tbody tr")
        cells = rows.locator("td:nth-child(2)")
        shown: list[str | re.Pattern[str]] = [
            "1,795,000,000,000,000,000",
            re.compile(r"2026, [0-9:]{8}\.007$"),
            UNKNOWN,
        ]
        expect(cells).to_have_text(shown)
        sign_in(page)
        page.locator("#nav a", has_text="Records").click()
        page.get_by_role("button", name="Read").click()
        expect(page.locator("main tbody td:nth-child(2)")).to_have_text(shown)


def test_events_of_another_day_have_their_date(chromium: Browser) -> None:
    with running() as server, open_page(chromium, f"{server.address}#/history") as page:
        first = page.locator("main tbody th").first
        page.clock.set_fixed_time(START_MS / 1000)
        expect(first).to_have_text(re.compile("^[0-9]{2}:[0-9]{2}:[0-9]{2}$"))
        page.clock.set_fixed_time(START_MS / 1000 + 2 * DAY_S)
        expect(first).to_have_text(re.compile("2026, [0-9]{2}:[0-9]{2}:[0-9]{2}$"))


def test_a_year_that_is_typed_has_four_digits(chromium: Browser) -> None:
    """With six, as browsers offer, the list of dead letters was not read any more."""
    with running() as server, open_page(chromium, f"{server.address}#/letters") as page:
        since = page.get_by_label("From", exact=True)
        since.press_sequentially("01022026030405AM")
        expect(since).to_have_value("2026-01-02T03:04:05")


@pytest.mark.parametrize(("place", "name"), [("graph/100%", "100%"), ("graph/Nobody", "Nobody")])
def test_an_address_of_no_processor_says_so(chromium: Browser, place: str, name: str) -> None:
    with running() as server, open_page(chromium, f"{server.address}#/{place}") as page:
        drawer = page.get_by_role("dialog", name=name)
        expect(drawer).to_contain_text("The pipeline does not have this processor.")


def test_an_address_of_no_page_shows_the_graph(chromium: Browser) -> None:
    with running() as server, open_page(chromium, f"{server.address}#/toString") as page:
        expect(page.locator("#nav [aria-current=page]")).to_have_text("Graph")
        expect(page.locator("main a.node")).to_have_count(4)


def test_a_server_that_hangs_is_not_shown_as_live(chromium: Browser) -> None:
    """No connection ends then: it was shown as live for as long as it hung."""
    wakes = threading.Event()
    with running() as server, open_page(chromium, f"{server.address}#/graph/Price") as page:
        drawer = page.get_by_role("dialog", name="Price")
        expect(drawer.get_by_role("row")).to_have_count(5)
        loop = server._loop
        assert loop is not None
        loop.call_soon_threadsafe(wakes.wait)
        try:
            said = "No connection to the JobManager. This is the state of"
            expect(page.locator("#connection")).to_contain_text(said, timeout=WAIT_MS)
            expect(drawer).to_contain_text(said)
        finally:
            wakes.set()
        expect(page.locator("#connection")).to_be_empty(timeout=WAIT_MS)


HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, value: hidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_a_tab_that_nobody_sees_holds_no_connection(chromium: Browser) -> None:
    """Browsers have six for a host: the seventh tab showed nothing."""
    with running() as server, open_page(chromium, f"{server.address}#/lag/Price") as page:
        expect(page.get_by_role("dialog", name="Price").get_by_role("row")).to_have_count(5)
        expect(page.locator("main tbody tr")).to_have_count(16)
        page.evaluate(HIDE, True)
        wait_until(lambda: server._hub._listeners == 0)
        before = page.locator("main tbody").inner_text()
        page.evaluate(HIDE, False)
        expect(page.locator("main tbody")).not_to_have_text(before, use_inner_text=True)
        assert server._hub._listeners == 2


def test_charts_that_are_left_while_they_load_are_not_read_again(chromium: Browser) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    with running() as server, open_page(chromium, f"{server.address}#/graph") as page:
        page.route("**/api/rates", hold)
        page.locator("#nav a", has_text="History").click()
        with page.expect_request("**/api/rates"):
            expect(page.locator("main h2")).to_have_text("History")
        page.locator("#nav a", has_text="Tasks").click()
        expect(page.locator("main h2")).to_have_text("Tasks")
        assert len(held) == 1
        held[0].continue_()
        page.wait_for_timeout(7000)
        assert len(held) == 1


def test_an_answer_to_a_question_that_was_closed_does_not_change_the_next_one(
    chromium: Browser, token_file: Path
) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    job, fake = SampleJob(), FakeJob()
    with (
        served(lambda: job.run(1), fake, token_file) as address,
        open_page(chromium, f"{address}#/graph") as page,
    ):
        sign_in(page)
        page.route("**/api/actions/pause", hold)
        page.get_by_role("button", name="Pause all").click()
        expect(page.locator("#act")).to_contain_text("Checking what that would do")
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Restart all").click()
        ask = page.get_by_role("dialog", name="Restart?")
        expect(ask).to_contain_text("start again, FAILED ones too")
        with page.expect_response("**/api/actions/pause"):
            held[0].continue_()
        page.wait_for_timeout(500)
        expect(ask).to_contain_text("start again, FAILED ones too")
        ask.get_by_role("button", name="Restart").click()
        expect(page.get_by_text("The JobManager restarts them now.")).to_be_visible()
    assert [what for what, _ in fake.asked] == ["restart"]


def test_the_letter_that_is_redriven_is_named(chromium: Browser, token_file: Path) -> None:
    """The list may have moved between the look and the click."""
    job = SampleJob()
    with (
        served(lambda: job.run(1), FakeJob(), token_file) as address,
        open_page(chromium, f"{address}#/letters") as page,
    ):
        sign_in(page)
        row = page.get_by_role("row", name="Price:2:1")
        row.get_by_role("button", name="Redrive").click()
        expect(page.get_by_role("dialog", name="Redrive?")).to_contain_text(
            "1 dead letter (Price:2:1)"
        )


def test_a_token_that_no_header_can_have_is_not_sent(chromium: Browser, token_file: Path) -> None:
    """The page said that the JobManager does not answer."""
    job = SampleJob()
    with (
        served(lambda: job.run(1), FakeJob(), token_file) as address,
        open_page(chromium, f"{address}#/graph") as page,
    ):
        page.get_by_role("button", name="Sign in to act").click()
        token = page.get_by_label("Token of the console")
        token.fill(f"\u201c{TOKEN}\u201d")
        page.get_by_role("button", name="Sign in", exact=True).click()
        expect(page.locator("#sign-in-problem")).to_contain_text("ASCII characters only")
