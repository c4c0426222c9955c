"""The console's pages in a real browser, on a job whose heartbeats are made up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs
from playwright.sync_api import Browser, Page, expect

from kafka_pipeline.common.pipelines.processors import SINK, SOURCE, ArcKind, PipelineProcessor
from kafka_pipeline.common.pipelines.specs import ForwardSpec
from kafka_pipeline.common.protocol.key_warnings import KeyProblem, KeyWarning
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.console.server import ConsoleServer
from kafka_pipeline.console.views.snapshot import Snapshot
from kafka_pipeline.operations.rehearsal.publication import Phase
from tests.browser import WAIT_MS, Scheme, needs_chromium, open_page
from tests.console_job import FakeJob, dead_letter
from tests.console_page import TOKEN, served, sign_in
from tests.console_rehearsal import rehearsed
from tests.console_sample import START_MS, SampleJob, config, processors
from tests.console_state import COUNTS, FakeState, answered

pytestmark = [needs_chromium, pytest.mark.long]

PAGES = {
    "graph": "Graph",
    "tasks": "Tasks",
    "lag": "Lag",
    "transactions": "Transactions",
    "moves": "Moves",
    "letters": "Dead letters",
    "records": "Records",
    "state": "State",
    "rehearsal": "Rehearsal",
    "history": "History",
}
HOSTILE = "<img src=x onerror=window.broken=1><script>window.broken=1</script>&amp;\"'"
FAILED = TaskId("Audit", 3)
RESTORING = TaskId("Cities", 1)


@pytest.fixture(scope="module")
def address(token_file: Path) -> Iterator[str]:
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
    letter = replace(
        dead_letter(0, HOSTILE, HOSTILE),
        key=HOSTILE.encode(),
        value=HOSTILE.encode(),
        headers=[(HOSTILE, HOSTILE.encode())],
        stacktrace=HOSTILE,
    )
    record = {"key": HOSTILE, "value": {HOSTILE: HOSTILE}, "headers": [[HOSTILE, HOSTILE]]}
    shown = [{"partition": 0, "offset": 7, "timestamp_ms": START_MS, **record}]
    fake = FakeJob([letter], shown=shown, rehearsed=rehearsed(HOSTILE, HOSTILE, HOSTILE))
    with served(lambda: job.run(1), fake, token_file) as found:
        yield found


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", PAGES)
def test_each_page_fits_and_shows_text_as_text(
    chromium: Browser, address: str, name: str, width: int
) -> None:
    scheme: Scheme = "dark" if width == 390 else "light"
    with open_page(chromium, f"{address}#/{name}", width, scheme) as page:
        expect(page.locator("#job")).to_have_text("shop")
        expect(page.locator("#nav [aria-current=page]")).to_have_text(PAGES[name])
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


def test_what_is_left_out_is_marked_in_the_graph_with_its_reasons(
    chromium: Browser, token_file: Path
) -> None:
    """A trial lost 20,933 records while the graph was green."""
    job = SampleJob()
    price = TaskId("Price", 0)
    lost = {"expired (late_to)": 20_933, "null key": 1}
    status = TaskStatus(price, TaskState.RUNNING, dropped=lost, dropped_lately={"null key": 1})
    job.states[price] = status
    with (
        served(lambda: job.run(1), FakeJob(), token_file) as address,
        open_page(chromium, f"{address}#/graph") as page,
    ):
        node = page.get_by_role("link", name="Price:")
        expect(node.locator(".lost.now")).to_have_text("▼ 20.9K left out")
        expect(page.locator(".lost")).to_have_count(1)
        node.click()
        said = "Left out of the results: expired (late_to) 20,933, null key 1 (1/min)"
        expect(page.get_by_text(said)).to_be_visible()


def test_arcs_of_results_that_replace_others_are_drawn_in_other_lines(
    chromium: Browser, token_file: Path
) -> None:
    gives = {"Price": {"Cities": ArcKind.UPDATES}, "Clean": {"Price": ArcKind.UPSERTS}}
    job = SampleJob(steps=[replace(each, gives=gives.get(each.id, {})) for each in processors()])
    with (
        served(lambda: job.run(1), FakeJob(), token_file) as address,
        open_page(chromium, f"{address}#/graph") as page,
    ):
        titles = {kind: page.locator(f"g.arc.{kind} title") for kind in ("upserts", "updates")}
        expect(titles["upserts"]).to_have_text(
            re.compile("^topic Clean_Price_shop, upserts by key")
        )
        expect(titles["updates"]).to_have_text(re.compile("^topic Price_Cities_shop, updates"))
        said = page.get_by_text("A thick arc carries upserts by key")
        expect(said).to_contain_text("A dotted arc carries updates")


@pytest.mark.parametrize("width", [1280, 390])
def test_keys_that_do_not_meet_others_are_marked_in_the_graph_and_explained(
    chromium: Browser, token_file: Path, width: int
) -> None:
    job = SampleJob()
    warning = KeyWarning(HOSTILE, KeyProblem.BYTES, "Joined", ("customers",), "json")
    for price in (TaskId("Price", 0), TaskId("Price", 1)):
        job.states[price] = TaskStatus(price, TaskState.RUNNING, key_warnings=(warning,))
    with (
        served(lambda: job.run(1), FakeJob(), token_file) as address,
        open_page(chromium, f"{address}#/graph", width) as page,
    ):
        expect(page.locator("main .warnings li")).to_have_text(f"Price: {warning.text}")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        node = page.get_by_role("link", name=f"keys that do not meet others: {HOSTILE}")
        expect(node.locator(".lost.now")).to_have_text("▲ keys")
        expect(page.locator(".lost")).to_have_count(1)
        node.click()
        expect(page.locator("dialog .warnings li")).to_have_text(warning.text)


def test_characters_that_turn_or_hide_others_are_shown_as_escapes(chromium: Browser) -> None:
    job = SampleJob(hosts=("a\u202etxt.exe\u200b", "beta", "gamma"))
    job.run(3)
    server = ConsoleServer(config(), lambda: job.run(1), FakeJob())
    server.start()
    try:
        with open_page(chromium, f"{server.address}#/tasks") as page:
            expect(page.get_by_text("a\\u202etxt.exe\\u200b · process 4000")).to_be_visible()
    finally:
        server.stop()


EVIL = """<iframe src="{address}"></iframe>
<form action="{action}" method="post" enctype="text/plain" target="posted">
<input name='{{"confirmed":true,"x":"' value='"}}'></form><iframe name="posted"></iframe>
<script>
document.forms[0].submit();
const body = JSON.stringify({{confirmed: true}});
const json = {{"Content-Type": "application/json", "Authorization": "Bearer x"}};
const tried = [{{}}, {{headers: json}}]
  .map((more) => fetch("{action}", {{method: "POST", body, credentials: "include", ...more}}));
const read = fetch("{address}api/summary").then((answer) => answer.text());
Promise.allSettled([...tried, read]).then((all) => {{
  document.title = all.map((each) => each.status).join();
}});
</script>"""


def test_a_page_of_another_site_can_neither_embed_the_console_nor_read_nor_act(
    chromium: Browser, token_file: Path
) -> None:
    job, fake = SampleJob(), FakeJob()
    job.run(3)
    with served(lambda: job.run(1), fake, token_file) as address:
        html = EVIL.format(address=address, action=f"{address}api/actions/pause")
        page = chromium.new_page()
        page.route(
            "http://evil.example/", lambda route: route.fulfill(body=html, content_type="text/html")
        )
        page.goto("http://evil.example/")
        page.wait_for_function("document.title !== ''")
        assert page.title() == "rejected,rejected,rejected"
        embedded = page.frames[1]
        assert embedded.locator("#job").count() == 0
        page.close()
    assert fake.asked == []


def test_records_and_letters_are_shown_letter_by_letter(chromium: Browser, address: str) -> None:
    with open_page(chromium, f"{address}#/letters/Price:0:0") as page:
        drawer = page.get_by_role("dialog", name="Dead letter Price:0:0")
        expect(drawer.locator("dd", has_text=HOSTILE)).to_have_count(2)
        expect(drawer.locator("pre")).to_have_text([HOSTILE])
        drawer.get_by_role("button", name="Show the record").click()
        page.get_by_label("Token of the console").fill(TOKEN)
        page.get_by_role("button", name="Sign in", exact=True).click()
        expect(drawer.locator("pre")).to_have_text([HOSTILE] * 3)
        expect(drawer.locator("dd", has_text=HOSTILE)).to_have_count(3)
        page.keyboard.press("Escape")
        expect(page.locator("main td", has_text=HOSTILE)).to_have_count(4)
        page.locator("#nav a", has_text="Records").click()
        page.get_by_role("button", name="Read").click()
        row = page.locator("main tbody tr")
        expect(row.locator("code").first).to_have_text(HOSTILE)
        expect(row).to_contain_text(f"{HOSTILE}={HOSTILE}")
        assert page.evaluate("window.broken") is None


def test_state_is_looked_up_by_key_and_page_by_page(chromium: Browser, token_file: Path) -> None:
    state = FakeState(about=({**COUNTS, "store": HOSTILE}, COUNTS))
    partition = state.put(HOSTILE, HOSTILE, HOSTILE)
    state.entries["counts", 0] = [{"key": f"k{n}", "value": n} for n in range(25)]
    with answered(state) as at:
        job = SampleJob(state_addresses=(at,))
        job.run(3)
        with (
            served(lambda: job.run(1), FakeJob(), token_file) as address,
            open_page(chromium, f"{address}#/state", 390) as page,
        ):
            page.get_by_role("button", name="Show stores").click()
            page.get_by_label("Token of the console").fill(TOKEN)
            page.get_by_role("button", name="Sign in", exact=True).click()
            page.get_by_label("Key", exact=True).fill(HOSTILE)
            page.get_by_role("button", name="Look up").click()
            expect(page.get_by_text(f"Partition {partition}, from its task")).to_be_visible()
            entries = page.get_by_role("table", name="Entries").locator("tbody tr")
            expect(entries.locator("code")).to_have_text([HOSTILE, HOSTILE])
            page.get_by_label("Store").select_option(f"Cities · counts ({COUNTS['type']})")
            page.get_by_label("Show").select_option("entries of a partition")
            page.get_by_role("button", name="Look up").click()
            expect(entries).to_have_count(20)
            page.get_by_role("button", name="Next page").click()
            expect(entries).to_have_count(5)
            expect(page.get_by_role("button", name="Next page")).to_have_count(0)
            state.standby = True
            page.get_by_role("button", name="Look up").click()
            expect(page.locator("main .notice")).to_contain_text("from a standby on TaskManager")
            assert page.evaluate("document.documentElement.scrollWidth") == 390
            assert page.evaluate("window.broken") is None


@pytest.mark.parametrize("width", [1280, 390])
def test_a_rehearsal_shows_both_versions_and_what_differs(
    chromium: Browser, token_file: Path, width: int
) -> None:
    job, fake = SampleJob(), FakeJob(rehearsed=rehearsed(HOSTILE, HOSTILE))
    with (
        served(lambda: job.run(1), fake, token_file) as address,
        open_page(chromium, f"{address}#/rehearsal", width) as page,
    ):
        expect(page.locator(".facts .badge")).to_have_text("≠ different")
        old, new = page.locator(".versions section").all()
        expect(old.get_by_role("heading")).to_have_text("Version 3, which the job runs")
        expect(old.locator(".node.removed .change")).to_have_text(re.compile("removed$"))
        expect(old.get_by_role("img", name="Price, changed: settings")).to_have_count(1)
        expect(old.locator(".node.added")).to_have_count(0)
        expect(new.get_by_role("img", name="Fraud, added")).to_have_count(1)
        expect(new.locator(".node.removed")).to_have_count(0)
        tops = [section.evaluate("node => node.offsetTop") for section in (old, new)]
        assert (tops[0] == tops[1]) is (width == 1280)
        results = page.get_by_role("table", name="Results of both versions")
        expect(results.get_by_role("row", name="orders_by_city")).to_contain_text("20,418")
        expect(results.get_by_role("row", name="dead letters of Price")).to_contain_text("3")
        first = page.get_by_role("table", name="The first differences of each kind")
        expect(first.locator("tbody tr")).to_have_count(4)
        expect(first.locator("code")).to_have_count(0)
        page.get_by_role("button", name="Show keys and values").click()
        page.get_by_label("Token of the console").fill(TOKEN)
        page.get_by_role("button", name="Sign in", exact=True).click()
        expect(first.locator("code").first).to_have_text(HOSTILE)
        expect(first.get_by_text(f"{HOSTILE} 2")).to_have_count(3)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate("window.broken") is None


def test_a_rehearsal_is_followed_from_nothing_to_a_command_that_was_killed(
    chromium: Browser, token_file: Path
) -> None:
    job, fake = SampleJob(), FakeJob()
    ended = rehearsed()
    begun = structs.replace(ended.publication, phase=Phase.COMPARING, ended_at_ms=None)
    failed = structs.replace(begun, phase=Phase.FAILED, report=None, reason=HOSTILE)
    with (
        served(lambda: job.run(1), fake, token_file) as address,
        open_page(chromium, f"{address}#/rehearsal") as page,
    ):
        state = page.locator(".facts .badge")
        expect(page.locator("main")).to_contain_text("No new version of this job was rehearsed")
        fake.rehearsed = replace(ended, publication=begun, written_at_ms=START_MS - 60_000)
        expect(state).to_have_text("● comparing", timeout=WAIT_MS)
        expect(page.locator("main .warnings")).to_contain_text("The command has published nothing")
        fake.rehearsed = replace(ended, publication=failed)
        expect(state).to_have_text("✕ failed", timeout=WAIT_MS)
        expect(page.locator("main .reasons li")).to_have_text(HOSTILE)


def test_an_action_is_done_only_after_sign_in_and_consent(
    chromium: Browser, token_file: Path
) -> None:
    job, fake = SampleJob(), FakeJob()
    job.run(3)
    with (
        served(lambda: job.run(1), fake, token_file) as address,
        open_page(chromium, f"{address}#/graph/Price", may_lose_connection=True) as page,
    ):
        page.get_by_role("dialog", name="Price").get_by_role("button", name="Pause").first.click()
        token = page.get_by_label("Token of the console")
        token.fill("another-token-of-theirs")
        page.get_by_role("button", name="Sign in", exact=True).click()
        expect(page.locator("#sign-in-problem")).to_have_text("this is not the console's token")
        token.fill(TOKEN)
        page.get_by_role("button", name="Sign in", exact=True).click()
        ask = page.get_by_role("dialog", name="Pause?")
        expect(ask).to_contain_text("4 tasks of Price commit what they have done, and stop")
        ask.get_by_role("button", name="Cancel").click()
        expect(ask).to_be_hidden()
        assert fake.asked == []
        page.get_by_role("button", name="Pause", exact=True).first.click()
        ask.get_by_role("button", name="Pause").click()
        done = page.get_by_role("dialog", name="Pause", exact=True)
        expect(done).to_contain_text("The JobManager pauses them now.")
        assert fake.asked == [("pause", ("Price",))]
        done.get_by_role("button", name="Close").click()
        task = page.get_by_role("row", name="Price_2")
        task.get_by_role("button", name="Restart").click()
        page.get_by_role("dialog", name="Restart?").get_by_role("button", name="Restart").click()
        expect(page.get_by_text("The JobManager restarts them now.")).to_be_visible()
        assert fake.asked[1:] == [("restart", ("Price_2",))]
        page.locator("#act-no").click()
        page.reload()
        expect(page.get_by_text("Sign out")).to_be_attached()
        assert page.evaluate("localStorage.length + document.cookie.length") == 0


def test_letters_are_purged_as_the_filter_says(chromium: Browser, token_file: Path) -> None:
    job = SampleJob()
    job.run(3)
    fake = FakeJob([dead_letter(n, "too late" if n < 3 else "too small") for n in range(8)])
    with (
        served(lambda: job.run(1), fake, token_file) as address,
        open_page(chromium, f"{address}#/letters", 390) as page,
    ):
        expect(page.get_by_role("button", name="Purge 8")).to_be_visible()
        page.get_by_label("Reason").fill("LATE")
        page.keyboard.press("Enter")
        sign_in(page)
        page.get_by_role("button", name="Purge 3").click()
        ask = page.get_by_role("dialog", name="Purge?")
        expect(ask).to_contain_text("3 dead letters (3 of Price) are forgotten for good")
        ask.get_by_role("button", name="Purge").click()
        done = page.get_by_role("dialog", name="Purge", exact=True)
        expect(done).to_contain_text("3 dead letters purged.")
        done.get_by_role("button", name="Close").click()
        expect(page.get_by_text("There is nothing to show.")).to_be_visible()
        page.get_by_label("Also redriven and purged").check()
        expect(page.get_by_role("cell", name="purged")).to_have_count(3)
        page.get_by_label("Reason").fill("")
        page.get_by_label("Also redriven and purged").uncheck()
        expect(page.get_by_role("button", name="Redrive 5")).to_be_visible()
    assert [each.handled for each in fake.dead] == ["purged"] * 3 + [""] * 5


def test_without_a_token_pages_offer_no_action(chromium: Browser) -> None:
    job = SampleJob()
    job.run(3)
    server = ConsoleServer(config(), lambda: job.run(1), FakeJob())
    server.start()
    try:
        with open_page(chromium, f"{server.address}#/letters") as page:
            expect(page.locator("main tbody tr")).to_have_count(11)
            expect(page.locator("button:visible")).to_have_count(0)
            expect(page.locator("#nav a", has_text="Records")).to_have_count(0)
            page.goto(f"{server.address}#/graph/Price")
            expect(page.get_by_role("dialog", name="Price")).to_be_visible()
            expect(page.locator("button[data-action]")).to_have_count(0)
    finally:
        server.stop()


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
        page.wait_for_url(f"{address}#/graph")
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
            "aria-label", "Records read, per second: Audit, Cities, Clean, Price"
        )
        expect(plots.locator("canvas")).to_have_count(2)
        page.locator("#nav a", has_text="Tasks").click()
        expect(page.locator("canvas")).to_have_count(0)
